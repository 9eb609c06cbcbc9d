package reassert

import (
	"iter"
	"maps"

	"forebay/bbd/fate"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Held lists the files in memory. Package store has the contract.
type Held interface {
	Files() iter.Seq[store.FileInfo]
}

// HeldFiles returns the files in memory, by buffer and file. The caller may change the maps.
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

// HeldOf returns the files of a buffer in memory, without those of another buffer of its name.
func HeldOf(s Held, spec *bb.Buffer) map[bb.FileID]*fate.Held {
	files := HeldFiles(s)[spec.Name]
	maps.DeleteFunc(files, func(_ bb.FileID, h *fate.Held) bool {
		return fate.OfBufferless(h, fate.Namesake{Buffer: spec}) != fate.Adopt
	})
	return files
}

// heldOf describes a file by its acknowledged generation, or, where that is absent, by the newest one.
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

// NewestBlock returns the largest block of ids that the identities of files in memory name.
func NewestBlock(held map[string]map[bb.FileID]*fate.Held) (block uint64) {
	for _, files := range held {
		for _, f := range files {
			if id := f.Identity; id != nil {
				block = max(block, uint64(id.File)>>32, uint64(id.Generation)>>32, uint64(id.Dir)>>32)
			}
		}
	}
	return block
}

// NewestRevision returns the highest revision of a buffer's entries in identities in memory. Identities of another
// buffer of its name do not count.
func NewestRevision(s Held, spec *bb.Buffer) (revision uint64) {
	for f := range s.Files() {
		if id := f.Identity; id != nil && id.Buffer == spec.Name && id.Made == spec.Created.UnixNano() {
			revision = max(revision, id.Revision)
		}
	}
	return revision
}
