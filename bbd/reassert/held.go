package reassert

import (
	"iter"
	"maps"

	"forebay/bbd/fate"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Held is memory as the files that it has, with the contract of store.Store.
type Held interface {
	Files() iter.Seq[store.FileInfo]
}

// HeldFiles returns what memory holds, by buffer and file. The caller may change the maps.
func HeldFiles(s Held) map[string]map[bb.FileID]*fate.Held {
	all := make(map[string]map[bb.FileID]*fate.Held)
	for f := range s.Files() {
		h := heldOf(&f)
		if all[h.Buffer] == nil {
			all[h.Buffer] = make(map[bb.FileID]*fate.Held)
		}
		all[h.Buffer][f.File] = h
	}
	return all
}

// HeldOf returns what memory holds of a buffer's files, and of none of another buffer of its name.
func HeldOf(s Held, spec *bb.Buffer) map[bb.FileID]*fate.Held {
	files := HeldFiles(s)[spec.Name]
	maps.DeleteFunc(files, func(_ bb.FileID, h *fate.Held) bool {
		return fate.OfBufferless(h, fate.Namesake{Buffer: spec}) != fate.Adopt
	})
	return files
}

// heldOf describes a file by its acknowledged generation, or by the newest one where that is not here.
func heldOf(f *store.FileInfo) *fate.Held {
	h := &fate.Held{File: f.File, Buffer: f.Buffer, Identity: f.Identity, Origin: f.Origin}
	for i := range f.Generations {
		g := &f.Generations[i]
		acked := f.Identity != nil && f.Identity.Generation == g.Generation
		if acked {
			h.Acked = g.Generation
		}
		if acked || h.Acked == 0 {
			h.Newest, h.Resident, h.Evicted, h.Dirty = g.Generation, g.Resident, g.Evicted, g.Dirty
		}
	}
	if h.Identity != nil {
		h.Buffer = h.Identity.Buffer
	}
	return h
}

// NewestBlock returns the largest block of ids that identities in memory name.
func NewestBlock(s Held) (block uint64) {
	for f := range s.Files() {
		if id := f.Identity; id != nil {
			block = max(block, uint64(id.File)>>32, uint64(id.Generation)>>32, uint64(id.Dir)>>32)
		}
	}
	return block
}

// NewestRevision returns the highest revision that identities in memory name of a buffer's entries, and not of another
// buffer's of its name.
func NewestRevision(s Held, spec *bb.Buffer) (revision uint64) {
	for f := range s.Files() {
		if id := f.Identity; id != nil && id.Buffer == spec.Name && id.Made == spec.Created.UnixNano() {
			revision = max(revision, id.Revision)
		}
	}
	return revision
}
