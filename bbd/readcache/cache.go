// Package readcache serves reads of a buffer's committed files. It shows generations as they were opened,
// copies those of other nodes, and brings bytes that are not in memory into it, or past it if there
// is no room. It must never depend on requests, nor on the permission to read a file.
package readcache

import (
	"context"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/alloc"
	"forebay/bbd/lockrank"
	"forebay/bbd/origin"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// The bytes of a read that are not in memory go one of two ways.
//
//	the store, or the owner ──▶ segments, for all readers ──▶ pinned for this one
//	                        └─▶ bytes of its own, verified ──▶ with the answer
//
// The first needs room, which others may hold for an unbounded time, since readers pin and writers
// fill. So no reader waits for it longer than its patience, least of all while it holds some
// itself. The second needs none. Its memory is bounded, and held only during a wait for the store
// or the owner, never during any other wait.

// Bypass bounds the bytes that are read past memory, of all buffers of a daemon. Those of copies
// have a bound of their own, since they wait for other nodes, which may need some to answer.
type Bypass struct{ stored, copies *semaphore.Weighted }

// maxBypass is as much as the largest extent.
const maxBypass = store.MaxSegment

// NewBypass returns the bounds.
func NewBypass() Bypass {
	return Bypass{semaphore.NewWeighted(maxBypass), semaphore.NewWeighted(maxBypass)}
}

// Options are the environment of reads of a buffer.
type Options struct {
	Buffer         alloc.Buffer
	Store          *store.Store
	Alloc          *alloc.Allocator
	Writers        *alloc.Writers
	Sources        *origin.Sources
	Bypass         Bypass
	OwnedElsewhere func(*bb.Entry) bool // another node owns the file
	NextID         func() uint64        // a number for a generation
	Go             func(func())         // starts a goroutine that ends soon, or with the daemon
}

// Cache serves the reads of one buffer's files. Its methods may be called concurrently.
type Cache struct {
	o        Options
	readers  readers
	copies   copies
	restores lockorder.Mutex[lockrank.Restores] // held while a file comes back from the store, one at a time
}

// New returns the cache of a buffer that has no readers yet.
func New(o Options) *Cache {
	c := &Cache{o: o}
	c.readers.init()
	c.copies.init(o.Store)
	return c
}

func (c *Cache) address(path string) string {
	return bb.Address{Buffer: c.o.Buffer.Spec().Name, Path: path}.String()
}

// Open opens the generation that an entry names for reading, and brings it back if this node has nothing
// of it. For a file that another node is writing, it opens the committed content there, and e becomes its entry.
func (c *Cache) Open(ctx context.Context, e *bb.Entry, path string) (*View, error) {
	snap, err := c.snapshot(ctx, e, path)
	if err != nil {
		return nil, err
	}
	v := c.add(e, snap, false)
	if f := v.copied(); f != nil {
		// The owner keeps the generation for as long as it is open there.
		if err := f.owner.Reach(ctx); err != nil && (e.State() != bb.StateClean || ctx.Err() != nil) {
			v.Close()
			return nil, err
		}
	}
	return v, nil
}

// OpenGeneration opens a generation that this node has, of a file that is removed or has a newer one.
func (c *Cache) OpenGeneration(path string, file bb.FileID, n bb.Generation) (*View, error) {
	snap, err := c.o.Store.Snapshot(file, n)
	if err != nil {
		return nil, err
	}
	return c.add(&bb.Entry{Name: path, Type: bb.TypeFile, File: file, Generation: n, Size: snap.Size()}, snap, true), nil
}

// View returns a view of a snapshot that is the caller's, and that readers do not count.
func (c *Cache) View(e *bb.Entry, snap *store.Snapshot) *View {
	v := &View{c: c, snap: snap, entry: *e}
	v.object.Of, v.object.Entry = c.o.Sources, &v.entry
	return v
}

// add makes a reader of a file, which is removed already or lies at the place in its entry.
func (c *Cache) add(e *bb.Entry, snap *store.Snapshot, removed bool) *View {
	v := c.View(e, snap)
	v.reads = true
	c.readers.add(v, removed)
	return v
}

// snapshot opens a snapshot of an entry's generation.
func (c *Cache) snapshot(ctx context.Context, e *bb.Entry, path string) (*store.Snapshot, error) {
	if e.Open && c.o.OwnedElsewhere(e) {
		f, err := c.copy(ctx, e, path)
		if err != nil {
			return nil, err
		}
		e.File, e.Size, e.Generation = f.file, f.size, f.generation
		return c.o.Store.Snapshot(f.file, f.generation)
	}
	for {
		snap, err := c.snapshotNow(e)
		if bb.KindOf(err) != bb.NotFound {
			return snap, err
		}
		if err := c.restore(ctx, e, path); err != nil {
			return nil, err
		}
	}
}

// snapshotNow never shows a generation that is only partly restored, or not yet verified.
func (c *Cache) snapshotNow(e *bb.Entry) (*store.Snapshot, error) {
	var snap *store.Snapshot
	err := c.readers.unlessRestoring(e.File, func() (err error) {
		snap, err = c.copies.snapshot(copyKey{e.File, e.Generation})
		return err
	})
	return snap, err
}

// has reports whether the generation is in this node's store, in memory or as
// evicted extents whose checksums are known.
func (c *Cache) has(e *bb.Entry) bool {
	_, err := c.o.Store.Size(e.File, e.Generation)
	return err == nil
}
