package fate

import (
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Survey has memory's part of a buffer's files beside the namespace's records of them, read in
// one pass. It is used by one goroutine at a time.
type Survey struct {
	held    map[bb.FileID]*Held
	entries map[bb.FileID]bb.Entry // of those files
	removed map[bb.FileID]bool
	taken   map[name]bb.FileID // names of identities that have an entry, and the file of each; 0: a directory
	dirs    map[bb.DirID]bool  // directories that identities name and that exist
}

// name is a name in a directory.
type name struct {
	dir  bb.DirID
	name string
}

// noFile marks a name that nothing has.
const noFile = ^bb.FileID(0)

// NewSurvey begins one of files.
func NewSurvey(files map[bb.FileID]*Held) *Survey {
	sv := &Survey{
		held: files, entries: make(map[bb.FileID]bb.Entry), removed: make(map[bb.FileID]bool),
		taken: make(map[name]bb.FileID), dirs: map[bb.DirID]bool{bb.RootDir: true},
	}
	for _, h := range files {
		if id := h.Identity; id != nil {
			sv.taken[name{id.Dir, id.Name}] = noFile
			if _, ok := sv.dirs[id.Dir]; !ok {
				sv.dirs[id.Dir] = false
			}
		}
	}
	return sv
}

// See adds an entry to the survey. It reports whether the entry is behind memory's
// part of its file, so that no other part may act on it.
func (sv *Survey) See(e *bb.Entry) (behind bool) {
	at := name{e.Parent, e.Name}
	if _, ok := sv.taken[at]; ok {
		sv.taken[at] = e.File
	}
	if e.IsDir() {
		if _, ok := sv.dirs[e.Dir]; ok {
			sv.dirs[e.Dir] = true
		}
		return false
	}
	h := sv.held[e.File]
	if h == nil {
		return false
	}
	sv.entries[e.File] = *e
	return e.Generation < h.Acked
}

// Gone takes the evidence of a file's removal into account.
func (sv *Survey) Gone(file bb.FileID) {
	if sv.held[file] != nil {
		sv.removed[file] = true
	}
}

// Held returns the files.
func (sv *Survey) Held() map[bb.FileID]*Held { return sv.held }

// Missing returns those files without an entry in the survey.
func (sv *Survey) Missing() (all []*Held) {
	for file, h := range sv.held {
		if _, ok := sv.entries[file]; !ok {
			all = append(all, h)
		}
	}
	return all
}

// Entry returns the entry of a file in the survey.
func (sv *Survey) Entry(file bb.FileID) (e bb.Entry, ok bool) {
	e, ok = sv.entries[file]
	return e, ok
}

// HasDir reports whether the survey has a directory that an identity names.
func (sv *Survey) HasDir(dir bb.DirID) bool { return sv.dirs[dir] }

// Known returns Decide's argument for a file. Here reports of its entry whether this node is the owner,
// or may become it.
func (sv *Survey) Known(h *Held, here func(*bb.Entry) bool) (k Known) {
	k.Removed = sv.removed[h.File]
	if e, ok := sv.entries[h.File]; ok {
		k.Entry, k.Here = &e, here(&e)
	}
	if id := h.Identity; id != nil {
		file := sv.taken[name{id.Dir, id.Name}]
		k.Taken = file != noFile && file != h.File
		if !sv.dirs[id.Dir] && bb.Hidden(id.Path) {
			k.Taken = true // nothing is made again in the tree of a transaction that is gone
		}
	}
	return k
}

// Namesake is the namespace's record under the name of the buffer that bytes are of.
type Namesake struct {
	Buffer *bb.Buffer // nil: there is none
	Gone   bool       // there is the mark of a destruction
}

// OfBufferless is the fate of memory's part of another buffer than the one that the namespace has
// under its name. Adopt means that it is that one's.
func OfBufferless(h *Held, n Namesake) Fate {
	switch spec := n.Buffer; {
	case h.Identity == nil && (spec != nil || n.Gone || h.Origin != store.OriginForgotten):
		return Adopt
	case spec == nil && n.Gone:
		return Drop
	case spec == nil:
		return Keep
	case spec.Created.UnixNano() > h.Identity.Made:
		return Drop
	case spec.Created.UnixNano() < h.Identity.Made:
		return Keep
	}
	return Adopt
}
