package flusher

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/retry"
	"forebay/flusher/codec"
	"forebay/internal/bb"
)

// OpKind is what is done in the store.
type OpKind uint8

// The kinds.
const (
	OpRename OpKind = 1 + iota
	OpRemove
)

// String returns the kind's name.
func (k OpKind) String() string {
	switch k {
	case OpRename:
		return "rename"
	case OpRemove:
		return "remove"
	}
	return "operation"
}

// StoreOp is the store's share of a rename or removal in the namespace. It may be
// carried out more than once: a source that is missing means that it was already.
type StoreOp struct {
	ID    uint64 // the caller's, for Options.Mine and Applied
	More  bool   // others of this ID follow: only the last one is told to Applied
	Kind  OpKind
	Old   string // clean path in the buffer
	New   string // of a rename
	Tree  bool   // a directory and all below it
	Codec string // of a file's object: bb.Flushed.Codec

	internal bool // the flusher's own: nobody has written it down
	stray    bool // a removal of what no entry may know of: see Options.Stray
}

// concerns reports whether a flush under the path must wait for the operation.
func (op *StoreOp) concerns(path string) bool {
	return overlaps(op.Old, path) || op.Kind == OpRename && overlaps(op.New, path)
}

// Apply queues an operation: operations of a buffer are carried out one after the
// other, and before later flushes of the names that they concern. Call it under
// the Hold of these names. It is tried again until it succeeds, as flushes are.
func (f *Flusher) Apply(buffer string, op StoreOp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		f.queue(buffer).apply(op)
	}
}

// apply queues an operation and sees that somebody carries it out. mu is held.
func (q *queue) apply(op StoreOp) {
	if q.ctx.Err() != nil {
		return
	}
	q.ops = append(q.ops, op)
	if !q.applying {
		q.applying = true
		q.f.wg.Go(q.applyAll)
	}
}

// removeObject queues the removal of an object of ours that no entry knows of.
func (q *queue) removeObject(object string) { q.apply(q.removal(object)) }

// removeFirst is removeObject before all operations that have not begun.
func (q *queue) removeFirst(object string) {
	q.apply(q.removal(object))
	if n := len(q.ops); n > 0 && q.ctx.Err() == nil {
		last := q.ops[n-1]
		q.ops = slices.Insert(q.ops[:n-1], index(q.carrying), last)
	}
}

func (q *queue) removal(object string) StoreOp {
	plain, name := object, codec.None
	if c := q.f.opts.Policy(q.buffer).Codec; c != codec.None {
		if p, of := codec.OfName(object); of == c {
			plain, name = p, of
		}
	}
	return StoreOp{Kind: OpRemove, Old: plain, Codec: name, internal: true, stray: true}
}

// RemoveStray has an object removed that this node may have left under a path and that
// no entry knows of, as Options.Stray decides.
func (f *Flusher) RemoveStray(buffer, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		q := f.queue(buffer)
		q.removeObject(q.objectName(path))
	}
}

// objectName returns what an object of a path is called with the present codec.
func (q *queue) objectName(path string) string {
	return path + codec.Suffix(q.f.opts.Policy(q.buffer).Codec)
}

// applyAll carries out operations until there are none.
func (q *queue) applyAll() {
	f := q.f
	for attempt := 1; ; attempt++ {
		f.mu.Lock()
		if len(q.ops) == 0 || q.ctx.Err() != nil {
			q.applying = false
			f.mu.Unlock()
			return
		}
		op := q.ops[0]
		if q.blocked(op.Old) || op.Kind == OpRename && q.blocked(op.New) {
			changed := q.changed
			f.mu.Unlock()
			attempt--
			select {
			case <-changed:
			case <-q.ctx.Done():
			}
			continue
		}
		q.carrying = true
		f.mu.Unlock()
		err := q.carryOut(op)
		if err == nil {
			q.carriedOut(op)
			attempt = 0
			continue
		}
		wait := retry.Delay(f.opts.Backoff[0], f.opts.Backoff[1], attempt, rand.Float64())
		q.opFailed(op, err, attempt)
		select {
		case <-time.After(wait):
		case <-q.ctx.Done():
		}
	}
}

func (q *queue) carryOut(op StoreOp) error {
	store, err := q.f.opts.Stores(q.ctx, q.buffer)
	if err != nil {
		return err
	}
	// Whose it is, is asked right before: it may have been for long that it waited.
	mine := true
	if op.stray {
		mine, err = q.f.opts.Stray(q.ctx, q.buffer, op.Old)
	} else if !op.internal {
		mine, err = q.f.opts.Mine(q.ctx, q.buffer, op)
	}
	if err != nil || !mine {
		return err
	}
	if err := op.carryOut(q.ctx, store); err != nil || op.internal || op.More {
		return err
	}
	return q.f.opts.Applied(q.ctx, q.buffer, op)
}

func (op *StoreOp) carryOut(ctx context.Context, store backing.Store) error {
	suffix := ""
	if !op.Tree {
		suffix = codec.Suffix(op.Codec)
	}
	switch {
	case op.Kind == OpRename:
		err := store.Rename(ctx, op.Old+suffix, op.New+suffix)
		if bb.KindOf(err) == bb.NotFound {
			return nil
		}
		return err
	case op.Kind == OpRemove && op.Tree:
		return store.RemoveTree(ctx, op.Old)
	case op.Kind == OpRemove:
		return store.Remove(ctx, op.Old+suffix)
	default:
		return bb.E(bb.Invalid, "apply", op.Old, "no such operation")
	}
}

func (q *queue) carriedOut(op StoreOp) {
	f := q.f
	f.mu.Lock()
	q.carrying = false
	if len(q.ops) > 0 { // else the queue was closed meanwhile
		q.ops[0] = StoreOp{}
		q.ops = q.ops[1:]
	}
	q.stats.lastOp = nil
	q.stats.opGaveUp = false
	if q.stats.failing == 0 {
		q.stats.last = lastError{}
	}
	q.release(nil)
	q.broadcast()
	f.mu.Unlock()
	f.opts.Observe(Event{Kind: EventApplied, Key: Key{Buffer: q.buffer}, Path: op.Old, Op: &op})
	f.kick()
}

func (q *queue) opFailed(op StoreOp, err error, attempt int) {
	f := q.f
	f.mu.Lock()
	q.carrying = false
	if q.ctx.Err() == nil {
		q.stats.lastOp = err
		q.stats.opGaveUp = !backing.Passing(err)
		q.stats.failures++
		q.stats.last = lastError{err: err, path: op.Old, at: f.opts.Now(), attempts: attempt}
	}
	q.broadcast()
	f.mu.Unlock()
	f.opts.Observe(Event{Kind: EventApplyFailed, Key: Key{Buffer: q.buffer}, Path: op.Old, Op: &op, Err: err, Attempt: attempt})
	f.opts.Logger.Warn("store operation failed", "buffer", q.buffer, "operation", op.Kind.String(), "path", op.Old, "attempt", attempt, "error", err)
}
