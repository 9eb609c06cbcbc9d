package fate

import (
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Inventory has memory's part of a buffer's files beside the namespace's records of them, read in
// one pass. It is used by one goroutine at a time.
type Inventory struct {
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

// NewInventory begins one of files.
func NewInventory(files map[bb.FileID]*Held) *Inventory {
	inv := &Inventory{
		held: files, entries: make(map[bb.FileID]bb.Entry), removed: make(map[bb.FileID]bool),
		taken: make(map[name]bb.FileID), dirs: map[bb.DirID]bool{bb.RootDir: true},
	}
	for _, h := range files {
		if id := h.Identity; id != nil {
			inv.taken[name{id.Dir, id.Name}] = noFile
			if _, ok := inv.dirs[id.Dir]; !ok {
				inv.dirs[id.Dir] = false
			}
		}
	}
	return inv
}

// Add adds an entry to the inventory. It reports whether the entry is behind memory's
// part of its file, so that no other part may act on it.
func (inv *Inventory) Add(e *bb.Entry) (behind bool) {
	at := name{e.Parent, e.Name}
	if _, ok := inv.taken[at]; ok {
		inv.taken[at] = e.File
	}
	if e.IsDir() {
		if _, ok := inv.dirs[e.Dir]; ok {
			inv.dirs[e.Dir] = true
		}
		return false
	}
	h := inv.held[e.File]
	if h == nil {
		return false
	}
	inv.entries[e.File] = *e
	return e.Generation < h.Acked
}

// Gone takes the evidence of a file's removal into account.
func (inv *Inventory) Gone(file bb.FileID) {
	if inv.held[file] != nil {
		inv.removed[file] = true
	}
}

// Held returns the files.
func (inv *Inventory) Held() map[bb.FileID]*Held { return inv.held }

// Missing returns those files without an entry in the inventory.
func (inv *Inventory) Missing() (all []*Held) {
	for file, h := range inv.held {
		if _, ok := inv.entries[file]; !ok {
			all = append(all, h)
		}
	}
	return all
}

// Entry returns the entry of a file in the inventory.
func (inv *Inventory) Entry(file bb.FileID) (e bb.Entry, ok bool) {
	e, ok = inv.entries[file]
	return e, ok
}

// HasDir reports whether the inventory has a directory that an identity names.
func (inv *Inventory) HasDir(dir bb.DirID) bool { return inv.dirs[dir] }

// Known returns Decide's argument for a file. Here reports of its entry whether this node is the owner,
// or may become it.
func (inv *Inventory) Known(h *Held, here func(*bb.Entry) bool) (k Known) {
	k.Removed = inv.removed[h.File]
	if e, ok := inv.entries[h.File]; ok {
		k.Entry, k.Here = &e, here(&e)
	}
	if id := h.Identity; id != nil {
		file := inv.taken[name{id.Dir, id.Name}]
		k.Taken = file != noFile && file != h.File
		if !inv.dirs[id.Dir] && bb.Hidden(id.Path) {
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
