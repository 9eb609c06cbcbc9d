package buffer

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// make stores a new entry that has no bytes. A symbolic link of a buffer with a store is dirty from then on, as a
// closed file is, and this node flushes it. One that the store has already is clean.
func (b *Buffer) make(ctx context.Context, e bb.Entry) (bb.Entry, error) {
	e.File = bb.FileID(b.h.IDs.Next())
	b.fillLink(&e)
	if err := b.gate.Enter(ctx, "mknod"); err != nil {
		return e, err
	}
	defer b.gate.Leave()
	made, err := b.makeAt(ctx, e)
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Cancelled, bb.Internal: // it may be there
		if e.State() == bb.StateDirty {
			b.h.Go(func() { b.writeback.EnqueueFound(b.ctx, &e) })
		}
	}
	return made, err
}

// fillLink computes the attributes that follow from a link's target.
func (b *Buffer) fillLink(e *bb.Entry) {
	if e.Type != bb.TypeSymlink {
		return
	}
	e.Size, e.Checksum = int64(len(e.Target)), checksum.Sum([]byte(e.Target))
	spec := b.Spec()
	if spec.Backing == "" {
		e.Flushed = bb.Flushed{}
		return
	}
	e.Generation, e.Holders = bb.Generation(b.h.IDs.Next()), []bb.NodeID{b.h.Owners.Self}
	if len(spec.Flush) > 0 {
		e.Closed = bb.Closing{Generation: e.Generation} // it is written at once
	}
	if e.Flushed.ETag != "" {
		e.Flushed.Generation = e.Generation
	}
}

// makeAt keeps others from renaming the link between its entry and its place in the queue.
func (b *Buffer) makeAt(ctx context.Context, e bb.Entry) (bb.Entry, error) {
	defer b.open.Lock(e.Place())()
	revision, err := b.ns.Create(ctx, e)
	if err == nil {
		e.SetRevision(revision)
		b.enqueueLink(&e)
	}
	return e, err
}

func (b *Buffer) enqueueLink(e *bb.Entry) {
	if e.State() == bb.StateDirty {
		if path, err := b.pathAt(b.ctx, e.Place()); err == nil {
			b.rules.Note(path) // as of closed files: fileQueue.Closed
		}
		b.writeback.Enqueue(*e, flusher.Item{Key: b.key(e), Size: e.Size})
	}
}

// Link makes a symbolic link, or gives the one that is there another target.
func (b *Buffer) Link(ctx context.Context, c access.Caller, path, target string, mtime time.Time, flushed bb.Flushed) error {
	e := bb.Entry{Type: bb.TypeSymlink, Extras: bb.Extras{Target: target}, Mode: 0o777, MTime: mtime, Flushed: flushed}
	_, err := b.paths.Mknod(ctx, c, path, e, b.make)
	if bb.KindOf(err) != bb.Exists {
		return err
	}
	there, lookupErr := b.paths.Lookup(ctx, c, "stage-in", path)
	switch {
	case lookupErr != nil:
		return lookupErr
	case there.Type != bb.TypeSymlink:
		return bb.E(bb.Exists, "stage-in", b.address(path), there.Type.Noun()+" lies where a symbolic link should")
	case !c.Owns(there.UID):
		return access.Denied("stage-in", b.address(path), "change another user's link")
	case b.h.Owners.OwnedElsewhere(&there) && !b.Adoptable(&there):
		return bb.E(bb.Busy, "stage-in", b.address(path), "it is dirty at its owner, node "+string(there.Holders[0])).WithRemedy("drain the buffer first")
	}
	return b.retarget(ctx, &there, &e)
}

// retarget gives a link another target, as a new generation.
func (b *Buffer) retarget(ctx context.Context, there, want *bb.Entry) error {
	if err := b.gate.Enter(ctx, "stage-in"); err != nil {
		return err
	}
	defer b.gate.Leave()
	defer b.open.Lock(there.Place())()
	fresh := bb.Entry{Type: bb.TypeSymlink, Extras: want.Extras, Flushed: want.Flushed}
	b.fillLink(&fresh)
	now, err := b.ns.Update(b.ctx, there.Parent, there.Name, func(e *bb.Entry) error {
		if e.File != there.File || e.Generation != there.Generation {
			return bb.E(bb.Busy, "stage-in", b.address(there.Name), "it is being changed").WithRemedy("try again")
		}
		e.Supersede()
		e.Target, e.Size, e.Checksum, e.Generation, e.Holders = fresh.Target, fresh.Size, fresh.Checksum, fresh.Generation, fresh.Holders
		e.Closed = fresh.Closed
		if !want.MTime.IsZero() {
			e.MTime = want.MTime
		}
		if fresh.Flushed.Generation != 0 {
			e.SetFlushed(fresh.Flushed)
		}
		return nil
	})
	if err == nil {
		b.enqueueLink(&now)
	}
	return err
}
