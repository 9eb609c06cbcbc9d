// Package footprint has the names that the changes of one round read and change. These changes must not depend on each
// other. The package must never depend on the effects of a change.
package footprint

import (
	"hash/maphash"

	"forebay/internal/bb"
)

// Footprint is the keys, the directories and the paths that changes touch. It is used by one goroutine.
type Footprint struct {
	seed    maphash.Seed
	keys    map[uint64]bool   // hashes of keys: two with the same hash count as one; true: one is changed
	dirs    map[bb.DirID]bool // that are needed; true: of one that is removed
	paths   map[struct{}]bool // whether changes depend on paths; true: one changes them
	removed []bb.DirID
}

// Reset makes the footprint that of no change.
func (f *Footprint) Reset() {
	if f.keys == nil {
		f.seed = maphash.MakeSeed()
		f.keys, f.dirs, f.paths = map[uint64]bool{}, map[bb.DirID]bool{}, map[struct{}]bool{}
	}
	clear(f.keys)
	clear(f.dirs)
	clear(f.paths)
	f.removed = f.removed[:0]
}

// Touch records that a change reads or changes a key, and reports whether no earlier one does.
func (f *Footprint) Touch(key []byte) bool { return own(f.keys, maphash.Bytes(f.seed, key)) }

// See records that a change depends on a key, which it does not change, and reports whether no
// earlier one changes it.
func (f *Footprint) See(key []byte) bool { return share(f.keys, maphash.Bytes(f.seed, key)) }

// Use records that a change needs a directory to exist, and reports whether it may.
func (f *Footprint) Use(dir bb.DirID) bool { return share(f.dirs, dir) }

// Empty records that a change needs a directory to be empty, and removes it.
func (f *Footprint) Empty(dir bb.DirID) bool {
	f.removed = append(f.removed, dir)
	return own(f.dirs, dir)
}

// TakeRemoved returns the directories of Empty since the call before. They are valid until the next change.
func (f *Footprint) TakeRemoved() []bb.DirID {
	removed := f.removed
	f.removed = f.removed[:0]
	return removed
}

// UsePaths records that a change depends on the paths of directories.
func (f *Footprint) UsePaths() bool { return share(f.paths, struct{}{}) }

// ChangePaths records that a change renames a directory.
func (f *Footprint) ChangePaths() bool { return own(f.paths, struct{}{}) }

// share makes a shared claim, and reports whether it has no exclusive one.
func share[K comparable](of map[K]bool, key K) bool {
	if alone := of[key]; alone {
		return false
	}
	of[key] = false
	return true
}

// own makes an exclusive claim, and reports whether there was no other.
func own[K comparable](of map[K]bool, key K) bool {
	_, claimed := of[key]
	of[key] = true
	return !claimed
}
