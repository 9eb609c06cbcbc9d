package readcache

import (
	"context"
	"errors"
	"io"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/origin"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// restore brings a clean file back of which this node holds nothing, as after a restart, since
// recovery does not find evicted bytes. The whole content is checked against the entry's checksum
// before any reader gets a byte of it.
//
// For a file that another node owns, a copy is made instead, which is brought in as it is read. If
// that node does not answer, the store's content is used.
func (c *Cache) restore(ctx context.Context, e *bb.Entry, path string) error {
	if err := c.BeginRestore(ctx, e.File); err != nil {
		return err
	}
	defer c.EndRestore(e.File)
	if c.has(e) {
		return nil
	}
	if c.o.OwnedElsewhere(e) {
		_, err := c.copy(ctx, e, path)
		if bb.KindOf(err) == bb.Exists && c.has(e) {
			return nil // it was given to this node meanwhile, as a second copy
		}
		if err == nil || e.State() != bb.StateClean || ctx.Err() != nil || bb.KindOf(err) != bb.Unavailable {
			return bb.Wrap("read", c.address(path), err)
		}
	}
	c.restores.Lock()
	defer c.restores.Unlock()
	if e.Flushed.Generation != e.Generation {
		return bb.E(bb.Lost, "read", c.address(path), "its bytes are neither in memory nor on the store")
	}
	object := &origin.Object{Of: c.o.Sources, Entry: e}
	defer object.Close()
	if fitsMemory(e.Size, c.o.Store.Stats().Memory.Capacity) {
		if err := c.readBack(ctx, e, path, object); !errors.Is(err, alloc.ErrNoRoom) {
			return err
		}
	}
	// The kept part is checked when it is read again, extent by extent. That takes no memory that
	// another reader or writer could need.
	extents, err := object.Layout(ctx)
	if err != nil {
		return err
	}
	return c.o.Store.Mirror(e.File, e.Generation, c.o.Buffer.Spec().Name, extents)
}

// readBack reads all of a file from the store into memory.
func (c *Cache) readBack(ctx context.Context, e *bb.Entry, path string, object *origin.Object) error {
	w := alloc.NewWriter(c.o.Alloc, c.o.Buffer, c.o.Buffer.Spec().UID, bb.TierMemory)
	w.Patience = patience
	defer w.ReleaseIdle()
	return object.Read(ctx, []origin.Run{{From: 0, To: e.Size}}, func(ctx context.Context, _ origin.Run, from io.Reader) error {
		same, err := c.Absorb(ctx, w, from, e)
		if err == nil && !same {
			err = bb.E(bb.Checksum, "read", c.address(path), "the store's object differs from the flushed content")
		}
		if err == nil {
			err = c.o.Store.MarkClean(e.File, e.Generation)
		}
		if err != nil {
			// That generation alone, since memory may hold a newer one that the namespace has
			// forgotten.
			c.o.Store.DropGeneration(e.File, e.Generation)
		}
		return err
	})
}

// Absorb writes all of a file's bytes into segments as the generation that its entry names. If they
// are the same as the entry's, it seals the generation. Otherwise the caller drops the present part
// of it.
func (c *Cache) Absorb(ctx context.Context, w *alloc.Writer, from io.Reader, e *bb.Entry) (same bool, err error) {
	commit := func(extents ...store.NewExtent) error {
		return c.o.Store.Commit(store.Commit{File: e.File, Generation: e.Generation, Buffer: c.o.Buffer.Spec().Name, Extents: extents})
	}
	if e.Size == 0 {
		if err := commit(); err != nil {
			return false, err
		}
	}
	for offset := int64(0); offset < e.Size; offset += alloc.MaxExtent {
		room, err := w.Reserve(ctx, min(e.Size-offset, alloc.MaxExtent))
		if err != nil {
			return false, err
		}
		got, sum, err := room.Fill(from)
		if err == nil {
			err = commit(store.NewExtent{
				Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: offset, Length: got, Checksum: sum,
			})
		}
		w.Done(room)
		if err != nil {
			return false, err
		}
	}
	sum, size, err := c.o.Store.Checksum(e.File, e.Generation)
	if err != nil || sum != e.Checksum || size != e.Size {
		return false, err
	}
	return true, c.o.Store.Seal(e.File, e.Generation)
}

// Base makes sure that this store has the start of a new generation of a file, with
// records of its own, since bytes that were never in memory here have none.
func (c *Cache) Base(ctx context.Context, e *bb.Entry, path string) error {
	if err := c.restore(ctx, e, path); err != nil {
		return err
	}
	k := copyKey{e.File, e.Generation}
	if c.copies.of(k) != nil {
		if err := c.bringCopyIn(ctx, e, path); err != nil {
			return err
		}
	}
	// Any of it that is not in memory is on the store. No generation of another node's file is
	// begun otherwise.
	if err := c.o.Store.RecordEvicted(e.File, e.Generation); err != nil {
		return err
	}
	c.copies.forget(k)
	return nil
}

// If a part is not too large and there is room for it, bringCopyIn fetches it from the owner of a
// copy. Otherwise it would have to come from the store later.
func (c *Cache) bringCopyIn(ctx context.Context, e *bb.Entry, path string) error {
	snap, err := c.snapshot(ctx, e, path)
	if err != nil {
		return err
	}
	v := c.add(e, snap, false)
	defer v.Close()
	evicted := EvictedOf(snap.Extents(0, snap.Size(), 0))
	if len(evicted) == 0 || e.Size > c.o.Store.Stats().Memory.Capacity/idleCopyShare {
		return nil
	}
	if err := v.fetch(ctx, evicted); !errors.Is(err, alloc.ErrNoRoom) {
		return err
	}
	return nil
}

// Time that a reader waits for room: the first time, and after there was none lately.
const (
	patience      = 200 * time.Millisecond
	shortPatience = 5 * time.Millisecond
	pinPatience   = 2 * time.Second // of callers that need all of a file in memory
	lately        = time.Second
)
