package nslog

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
)

// openOp returns the operation of an item.
func openOp(item pages.Item) (namespace.StoreOp, error) {
	op, err := record.OpenOp(item.Value, item.Revision)
	if err != nil {
		return namespace.StoreOp{}, err
	}
	op.Seq = record.PlaceOf(item.Key)
	return *op, nil
}

// storeOp adds the effect that stores an operation, which gets its place in the order.
func (e *Engine) storeOp(b *owner.Round, op namespace.StoreOp) {
	op.By = e.o.Node
	b.Store(record.OpKey(b.Revision()|1), record.OpValue(&op))
}

// StoreOps returns the pending operations in the order in which they happened.
func (e *Engine) StoreOps(ctx context.Context) ([]namespace.StoreOp, error) {
	ops, _, err := e.PendingOps().Read(ctx)
	return ops, err
}

// isOp refuses a revision that is not of an operation.
func isOp(revision uint64) error {
	if !record.OfOperation(revision) {
		return bb.E(bb.Invalid, "store operation", strconv.FormatUint(revision, 10), "is not one")
	}
	return nil
}

// StoreOpPending reports whether an operation is still pending at a revision, so that no node has
// carried it out or taken it over.
func (e *Engine) StoreOpPending(ctx context.Context, revision uint64) (pending bool, err error) {
	if err := isOp(revision); err != nil {
		return false, err
	}
	err = e.owner.Read(ctx, "store operation", e.o.Buffer, func(t *table.Table) error {
		_, pending = t.OperationAt(revision)
		return nil
	})
	return pending, err
}

// DoneStoreOp deletes a pending operation at a revision, and reports whether it was there. It is
// not if this was done before, or if another node has taken it over.
func (e *Engine) DoneStoreOp(ctx context.Context, revision uint64) (bool, error) {
	if err := isOp(revision); err != nil {
		return false, err
	}
	var done bool // of the round's goroutine, until the change is answered
	err := e.owner.Do(ctx, "store operation", strconv.FormatUint(revision, 10), func(b *owner.Round) error {
		item, ok := b.Table.OperationAt(revision)
		if done = ok; !ok {
			return nil
		}
		if !b.Touch(item.Key) {
			return owner.ErrPostponed
		}
		b.Remove(item.Key)
		return nil
	})
	return err == nil && done, err
}

// TakeOverStoreOps makes the pending operations of another node this node's own, and returns
// how many. Their order stays. After an error it is repeated.
func (e *Engine) TakeOverStoreOps(ctx context.Context, from bb.NodeID) (taken int, err error) {
	ops, err := e.StoreOps(ctx)
	if err != nil {
		return 0, bb.Wrap("take over store operations", e.o.Buffer, err)
	}
	ops = slices.DeleteFunc(ops, func(op namespace.StoreOp) bool { return op.By != from })
	for len(ops) > 0 {
		var some, looked int
		err := e.owner.Do(ctx, "take over store operations", e.o.Buffer, func(b *owner.Round) error {
			begun := b.Bytes()
			some, looked = 0, 0
			for i := range ops {
				if b.Bytes()-begun > changeBytes {
					break
				}
				looked++
				item, ok := b.Table.OperationAt(ops[i].Revision)
				if !ok {
					continue
				}
				if !b.Touch(item.Key) {
					return owner.ErrPostponed
				}
				op := ops[i]
				op.By, op.Seq = e.o.Node, 0
				b.Store(item.Key, record.OpValue(&op))
				some++
			}
			return nil
		})
		if err != nil {
			return taken, err
		}
		taken += some
		ops = ops[looked:]
	}
	return taken, nil
}

// note notes in the journal that the item of a key changes, if it is an operation.
func (e *Engine) note(key []byte) {
	if record.KindOf(key) == record.Operation {
		e.journal.Note(record.PlaceOf(key))
	}
}

// follower is a namespace.OpReader.
type follower struct {
	e       *Engine
	started bool
	next    uint64 // number in the journal
	known   map[uint64]namespace.StoreOp
}

// PendingOps returns a follower that has read nothing yet.
func (e *Engine) PendingOps() namespace.OpReader {
	return &follower{e: e, known: map[uint64]namespace.StoreOp{}}
}

// Read returns the operations that are pending and were not when it was called before, in the order
// in which they happened, and those that were and are not any more. An operation that another node
// has taken over went at its old revision and came at its new one. The cost is in the number of
// changes.
func (f *follower) Read(ctx context.Context) (came, went []namespace.StoreOp, err error) {
	var places []uint64
	var now map[uint64]namespace.StoreOp
	var next uint64
	err = f.e.owner.Read(ctx, "store operations", f.e.o.Buffer, func(t *table.Table) (err error) {
		places = f.places(t)
		now = make(map[uint64]namespace.StoreOp, len(places))
		for _, place := range places {
			if item, ok := t.Get(record.OpKey(place)); ok && err == nil {
				now[place], err = openOp(item)
			}
		}
		next = f.e.journal.Next()
		return bb.Wrap("store operations", f.e.o.Buffer, err)
	})
	if err != nil {
		return nil, nil, err
	}
	f.started, f.next = true, next
	for _, place := range places {
		was, knew := f.known[place]
		is, there := now[place]
		if knew && there && was.Revision == is.Revision {
			continue
		}
		if knew {
			went = append(went, was)
			delete(f.known, place)
		}
		if there {
			came = append(came, is)
			f.known[place] = is
		}
	}
	slices.SortFunc(came, func(a, b namespace.StoreOp) int { return cmp.Compare(a.Seq, b.Seq) })
	return came, went, nil
}

// places returns the places of operations of which something may have changed.
func (f *follower) places(t *table.Table) []uint64 {
	places, reaches := f.e.journal.Since(f.next)
	if !f.started || !reaches {
		return f.all(t)
	}
	return places
}

// all returns the places of all operations that are pending, or that the follower has.
func (f *follower) all(t *table.Table) []uint64 {
	var places []uint64
	t.Operations(func(item pages.Item) { places = append(places, record.PlaceOf(item.Key)) })
	for place := range f.known {
		if _, ok := t.Get(record.OpKey(place)); !ok {
			places = append(places, place)
		}
	}
	return places
}
