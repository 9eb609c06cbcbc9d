package bbd

import (
	"slices"
	"time"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// copies has a buffer's copies of files of other nodes, and who uses them: fileCopy.users and idle
// are its. The store has what the copies are of as generations without records.
type copies struct {
	store *store.Store
	mu    struct {
		lockorder.Mutex[lockrank.Copies]
		byKey map[copyKey]*fileCopy
	}
}

type copyKey struct {
	file       bb.FileID
	generation bb.Generation
}

// Bounds of what idle copies take: a part of memory, and entries of the index.
const (
	idleCopyShare = 4 // a quarter of the memory tier
	maxIdleCopies = 1024
)

func newCopies(s *store.Store) *copies {
	c := &copies{store: s}
	c.mu.byKey = make(map[copyKey]*fileCopy)
	return c
}

func (c *copies) add(f *fileCopy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.byKey[copyKey{f.entry.File, f.generation}] = f
}

// of returns the copy that a generation of this store is; nil if it is none.
func (c *copies) of(k copyKey) *fileCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.byKey[k]
}

// snapshot opens a view of a generation. If that is a copy, it has one more user, whom leave takes
// away: it is not dropped in between.
func (c *copies) snapshot(k copyKey) (*store.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	snap, err := c.store.Snapshot(k.file, k.generation)
	if f := c.mu.byKey[k]; err == nil && f != nil {
		f.users++
	}
	return snap, err
}

// used reports whether a copy has users.
func (c *copies) used(f *fileCopy) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.users > 0
}

// leave takes a user of a copy away, and returns the copy if that was the last; the copies that
// nobody uses are kept as long as they do not take too much.
func (c *copies) leave(k copyKey) (idle *fileCopy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.mu.byKey[k]
	if f == nil {
		return nil
	}
	f.users--
	if f.users == 0 {
		f.idle, idle = time.Now(), f
	}
	c.dropSurplus()
	return idle
}

// dropSurplus drops the copies that are not to be kept, the longest idle first. mu is held, so that
// nobody opens one meanwhile.
func (c *copies) dropSurplus() {
	var idle []*fileCopy
	for _, f := range c.mu.byKey {
		if f.users == 0 {
			idle = append(idle, f)
		}
	}
	slices.SortFunc(idle, func(x, y *fileCopy) int { return y.idle.Compare(x.idle) })
	room := c.store.Stats().Memory.Capacity / idleCopyShare
	for i, f := range idle {
		if room -= f.size; room < 0 || i >= maxIdleCopies || f.private {
			delete(c.mu.byKey, copyKey{f.entry.File, f.generation})
			c.store.DropGeneration(f.entry.File, f.generation)
		}
	}
}

// forget takes a copy out of the copies: the generation is the store's own from now on.
func (c *copies) forget(k copyKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.byKey, k)
}

// forgetIdle is forget that reports false, and does nothing, if the copy has users.
func (c *copies) forgetIdle(k copyKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.mu.byKey[k]; f != nil && f.users > 0 {
		return false
	}
	delete(c.mu.byKey, k)
	return true
}

// drop drops all copies of a file. If one has users it drops none, and returns that one.
func (c *copies) drop(file bb.FileID) (used *fileCopy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, f := range c.mu.byKey {
		if k.file == file && f.users > 0 {
			return f
		}
	}
	for k := range c.mu.byKey {
		if k.file == file {
			delete(c.mu.byKey, k)
			c.store.DropGeneration(file, k.generation)
		}
	}
	return nil
}
