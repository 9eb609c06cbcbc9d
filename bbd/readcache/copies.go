package readcache

import (
	"context"
	"slices"
	"time"

	"forebay/bbd/lockrank"
	"forebay/bbd/origin"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// copied is a clean copy of one generation of a file that another node owns. It has the extents
// with their checksums, and fetches them into this node's memory as they are read, once for all
// readers of the node. It is evicted like everything clean.
//
//	      first reader        last reader closes          copies take too much
//	(new) ───────────▶ used ─────────────────────▶ idle ─────────────────────▶ dropped
//	                    ▲        a reader comes      │
//	                    └────────────────────────────┘
//
// While it is used, the generation is open at its owner, which so keeps it. Bytes that are not
// in memory when the owner does not answer are read from the store, if they are there.
type copied struct {
	owner      *origin.Owner
	file       bb.FileID
	generation bb.Generation // in this store; the file's own, or one for an open file's readers alone
	size       int64
	private    bool // of a file that is being written: for one reader, dropped after it

	users int       // guarded by copies.mu
	idle  time.Time // since when it has been unused, likewise
}

func (f *copied) key() copyKey { return copyKey{f.file, f.generation} }

// copies has a buffer's copies of files of other nodes, and their users. copied.users and idle are
// its own. The store has the content of the copies as generations without records.
type copies struct {
	store *store.Store
	mu    struct {
		lockorder.Mutex[lockrank.Copies]
		byKey map[copyKey]*copied
	}
}

type copyKey struct {
	file       bb.FileID
	generation bb.Generation
}

// Bounds of the size of idle copies: a part of memory, and entries of the index.
const (
	idleCopyShare = 4 // a quarter of the memory tier
	maxIdleCopies = 1024
)

func (c *copies) init(s *store.Store) {
	c.store = s
	c.mu.byKey = make(map[copyKey]*copied)
}

func (c *copies) add(f *copied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.byKey[f.key()] = f
}

// of returns the copy that a generation of this store is, or nil if it is none.
func (c *copies) of(k copyKey) *copied {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.byKey[k]
}

// snapshot opens a view of a generation. If that is a copy, it has one more user, which leave
// removes, so it is not dropped in between.
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
func (c *copies) used(f *copied) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.users > 0
}

// leave removes a user of a copy, and returns the copy if that was the last. Unused copies are kept
// as long as they do not take too much.
func (c *copies) leave(k copyKey) (idle *copied) {
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
// none is opened meanwhile.
func (c *copies) dropSurplus() {
	var idle []*copied
	for _, f := range c.mu.byKey {
		if f.users == 0 {
			idle = append(idle, f)
		}
	}
	slices.SortFunc(idle, func(x, y *copied) int { return y.idle.Compare(x.idle) })
	room := c.store.Stats().Memory.Capacity / idleCopyShare
	for i, f := range idle {
		if room -= f.size; room < 0 || i >= maxIdleCopies || f.private {
			delete(c.mu.byKey, f.key())
			c.store.DropGeneration(f.file, f.generation)
		}
	}
}

// forget takes a copy out of the copies. The generation is the store's own from now on.
func (c *copies) forget(k copyKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.byKey, k)
}

// ForgetIdle makes a copy of a generation the store's own, if there is one. It reports false, and does
// nothing, if the copy has readers.
func (c *Cache) ForgetIdle(file bb.FileID, n bb.Generation) bool {
	k := copyKey{file, n}
	c.copies.mu.Lock()
	defer c.copies.mu.Unlock()
	if f := c.copies.mu.byKey[k]; f != nil && f.users > 0 {
		return false
	}
	delete(c.copies.mu.byKey, k)
	return true
}

// DropCopies drops the copies of a file, of which this node is to have the original. bb.Busy if one
// has readers. The file is being restored, so none can be added.
func (c *Cache) DropCopies(file bb.FileID) error {
	c.copies.mu.Lock()
	defer c.copies.mu.Unlock()
	for k, f := range c.copies.mu.byKey {
		if k.file == file && f.users > 0 {
			return bb.E(bb.Busy, "take", c.address(f.owner.Entry().Name), "a client reads a copy of it here")
		}
	}
	for k := range c.copies.mu.byKey {
		if k.file == file {
			delete(c.copies.mu.byKey, k)
			c.o.Store.DropGeneration(file, k.generation)
		}
	}
	return nil
}

// copy makes a copy of the owner's content of a file.
func (c *Cache) copy(ctx context.Context, e *bb.Entry, path string) (*copied, error) {
	owner, opened, err := c.o.Sources.Open(ctx, e, path)
	if err != nil {
		return nil, err
	}
	f := &copied{owner: owner, file: e.File, generation: e.Generation, size: opened.GetEntry().GetSize(), private: e.Open}
	if f.private {
		f.generation = bb.Generation(c.o.NextID())
		f.file, f.users = bb.FileID(opened.GetEntry().GetFile()), 1
	}
	extents, err := owner.Layout(ctx)
	if err == nil {
		err = c.o.Store.Mirror(f.file, f.generation, c.o.Buffer.Spec().Name, extents)
	}
	if err != nil {
		owner.Close()
		return nil, err
	}
	c.copies.add(f)
	return f, nil
}
