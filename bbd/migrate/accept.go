package migrate

import (
	"context"

	"forebay/bbd/owner"
	"forebay/bbd/retry"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Accept makes this daemon the owner of a closed file, on request of its owner, or of one whose second copy
// is here, on request of any daemon. It returns bb.NoSpace if there is no room for it here.
func (b *Buffer) Accept(ctx context.Context, asks bb.NodeID, m *wire.Take) error {
	e, err := b.p.Names.Lookup(ctx, bb.DirID(m.Dir), m.Name)
	if err != nil {
		return err
	}
	if m.Replica { // even while this node is drained; its bytes may be the only ones
		return b.p.Replicas.Promote(ctx, &e, bb.FileID(m.File), bb.Generation(m.Generation))
	}
	if b.o.Draining() {
		return bb.E(bb.Busy, "take", b.address(m.Name), "this node is being drained itself")
	}
	if e.File != bb.FileID(m.File) || e.Generation != bb.Generation(m.Generation) || e.Open || e.Lost || b.o.Owners.Of(&e) != asks {
		return owner.Changed("take", b.address(m.Name))
	}
	stats := b.o.Store.Stats()
	evict, fits := room(&stats, e.Size)
	if !fits {
		return bb.E(bb.NoSpace, "take", b.address(e.Name), "this node has no room for it")
	}
	if evict > 0 {
		b.o.Alloc.Evict(evict)
	}
	return bb.Wrap("take", b.address(m.Name), b.takeOver(ctx, &e))
}

// room returns how much memory to evict for a file, of which as much again is to be free, and whether there
// is room for it. While memory is being populated, it becomes free by itself.
func room(stats *store.Stats, size int64) (evict int64, fits bool) {
	m := &stats.Memory
	if !stats.Populating && m.Free+m.Evictable < size {
		return 0, false
	}
	return max(0, 2*size-m.Free), true
}

// takeOver brings a file in and makes this node its owner.
func (b *Buffer) takeOver(ctx context.Context, e *bb.Entry) error {
	if err := b.p.Readers.BeginRestore(ctx, e.File); err != nil {
		return err
	}
	defer b.p.Readers.EndRestore(e.File)
	// A file that the former owner requests late to discard is not dropped between the check of it here and the
	// change of the entry, after which it may be the only copy.
	unlock, err := b.p.Replicas.Lock(ctx, e.File)
	if err != nil {
		return err
	}
	defer unlock()
	// A request that waited for another one, which moved the file here, may not drop the bytes that came with that.
	now, err := b.p.Names.Lookup(ctx, e.Parent, e.Name)
	if err != nil {
		return err
	}
	if now.File != e.File || now.Generation != e.Generation || b.o.Owners.Of(&now) != b.o.Owners.Of(e) {
		return owner.Changed("take", b.address(e.Name))
	}
	if err := b.p.Readers.DropCopies(e.File); err != nil {
		return err
	}
	second := e.Type == bb.TypeSymlink || b.p.Replicas.Complete(e) // then there is nothing to fetch, and nothing to drop if it is not the owner's to move
	drop := func() {
		if !second {
			b.o.Store.DropGeneration(e.File, e.Generation)
		}
	}
	if !second {
		if err := b.p.Files.Fetch(ctx, e); err != nil {
			drop()
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		drop()
		return err
	}
	// A rename here between the change of the entry and the record of where the file waits for its flush would find it
	// in no list, and it would wait under its old name. Nothing waits for the place, since its holder may wait for the
	// file's lock, as moveTo does.
	release, free := b.p.Open.Reserve(e.Place(), e.Name)
	if !free {
		drop()
		return bb.E(bb.Busy, "take", b.address(e.Name), "its place is being changed")
	}
	defer release()
	now, err = b.claim(e)
	if err == errNotConcerned || bb.KindOf(err) == bb.NotFound {
		drop()
	}
	if err != nil {
		return err
	}
	if now.State() == bb.StateClean {
		return b.o.Store.MarkClean(now.File, now.Generation)
	}
	b.p.Queue.Requeue(b.ctx, &now)
	return nil
}

// claim puts this node into the entry of a file as its owner. It is carried through, even if the
// answer of the namespace is lost. The node that has the bytes must be known before any are
// dropped. If it is this one, the file has to wait here for its flush.
func (b *Buffer) claim(e *bb.Entry) (bb.Entry, error) {
	return retry.Update(b.ctx, func(uncertain bool) (bb.Entry, error) {
		return b.p.Names.Update(b.ctx, e.Parent, e.Name, func(now *bb.Entry) error {
			claimed := uncertain && now.File == e.File && now.Generation == e.Generation && !now.Lost && b.o.Owners.Of(now) == b.o.Owners.Self
			if !claimed && !assign(b.o.Owners, now, e) {
				return errNotConcerned
			}
			return nil
		})
	})
}

// assign puts this node into an entry as the file's owner, if it has not changed since its bytes were brought
// in. Its second copy stays, unless that is this node's.
func assign(owners owner.Node, now, was *bb.Entry) bool {
	if now.File != was.File || now.Generation != was.Generation || now.Open || now.Lost || owners.Of(now) != owners.Of(was) {
		return false
	}
	second := owner.Replica(now)
	now.Holders = []bb.NodeID{owners.Self}
	if second != "" && second != owners.Self {
		now.Holders = append(now.Holders, second)
	}
	return true
}
