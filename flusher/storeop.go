package flusher

import (
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
	Tree  bool   // a directory: a rename moves what is Options.Ours below it; a removal takes it if it is empty
	Codec string // of a file's object: bb.Flushed.Codec
	// What this buffer has flushed under Old and, of a rename, under New, and what its flushes may
	// have put there without a record. A file's operation touches nothing else, unless nothing is
	// known and Policy.KeepExisting is not set.
	Was, Replaces              []bb.Flushed
	Attempts, ReplacedAttempts []bb.Content

	overwrite bool // what is under New may be replaced, whatever it is: see Overwrite
	internal  bool // the flusher's own: nobody has written it down
	stray     bool // a removal of what no entry may know of: see Options.Stray
}

// concerns reports whether a flush under the path must wait for the operation.
func (op *StoreOp) concerns(path string) bool {
	return bb.Overlaps(op.Old, path) || op.Kind == OpRename && bb.Overlaps(op.New, path)
}

// Apply queues an operation: operations of a buffer that concern the same names are carried
// out in their order, and before later flushes of these names. Call it under
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
	q.ops = append(q.ops, &queuedOp{StoreOp: op})
	if q.applying {
		q.broadcast() // it may overtake those that fail
		return
	}
	q.applying = true
	q.f.wg.Go(q.applyAll)
}

// removeObject queues the removal of an object of ours that no entry knows of.
func (q *queue) removeObject(object string) { q.apply(q.removal(object)) }

// removeFirst is removeObject before all operations that concern the name: none of them has begun.
func (q *queue) removeFirst(object string) {
	q.apply(q.removal(object))
	if n := len(q.ops); n > 0 && q.ctx.Err() == nil {
		last := q.ops[n-1]
		q.ops = slices.Insert(q.ops[:n-1], 0, last)
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

// applyAll carries out operations, one at a time, until there are none.
func (q *queue) applyAll() {
	f := q.f
	for {
		f.mu.Lock()
		if len(q.ops) == 0 || q.ctx.Err() != nil {
			q.applying = false
			f.mu.Unlock()
			return
		}
		now := f.opts.Now()
		next, wake := nextOp(q.ops, now, q.blocked)
		if next < 0 {
			changed := q.changed
			f.mu.Unlock()
			q.pause(changed, now, wake)
			continue
		}
		op := q.ops[next]
		op.carrying, op.outdated = true, false
		f.mu.Unlock()
		if err := q.carryOut(op.StoreOp); err != nil {
			q.opFailed(op, err)
		} else {
			q.carriedOut(op)
		}
	}
}

// pause waits until something of the queue changes, or until a time that is not zero.
func (q *queue) pause(changed <-chan struct{}, now, wake time.Time) {
	var due <-chan time.Time
	if !wake.IsZero() {
		due = time.After(max(wake.Sub(now), time.Millisecond))
	}
	select {
	case <-changed:
	case <-due:
	case <-q.ctx.Done():
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
	if err := q.carryOutOn(store, &op); err != nil || op.internal || op.More {
		return err
	}
	return q.f.opts.Applied(q.ctx, q.buffer, op)
}

func (q *queue) carryOutOn(store backing.Store, op *StoreOp) error {
	switch {
	case op.Kind == OpRename && op.Tree:
		return q.moveTree(store, op)
	case op.Kind == OpRename:
		return q.renameFile(store, op)
	case op.Kind == OpRemove && op.Tree:
		return store.RemoveDir(q.ctx, op.Old)
	case op.Kind == OpRemove:
		return q.removeFile(store, op)
	default:
		return bb.E(bb.Invalid, "apply", op.Old, "no such operation")
	}
}

func (q *queue) carriedOut(op *queuedOp) {
	f := q.f
	f.mu.Lock()
	if i := slices.Index(q.ops, op); i >= 0 { // else the queue was closed meanwhile
		q.ops = slices.Delete(q.ops, i, i+1)
		q.stats.opsFailing -= index(op.err != nil)
		q.follow(&op.StoreOp)
	}
	if q.stats.failing == 0 && q.stats.opsFailing == 0 {
		q.stats.last = lastError{}
	}
	q.release(nil)
	q.broadcast()
	f.mu.Unlock()
	f.opts.Observe(Event{Kind: EventApplied, Key: Key{Buffer: q.buffer}, Path: op.Old, Op: &op.StoreOp})
	f.kick()
}

func (q *queue) opFailed(op *queuedOp, err error) {
	f := q.f
	f.mu.Lock()
	op.carrying = false
	if q.ctx.Err() == nil {
		now := f.opts.Now()
		q.stats.opsFailing += index(op.err == nil)
		op.failed(err, now.Add(retry.Delay(f.opts.Backoff[0], f.opts.Backoff[1], op.attempts+1, rand.Float64())))
		q.stats.failures++
		q.stats.last = lastError{err: op.err, path: op.Old, at: now, attempts: op.attempts}
	}
	attempt := op.attempts
	q.broadcast()
	f.mu.Unlock()
	f.opts.Observe(Event{Kind: EventApplyFailed, Key: Key{Buffer: q.buffer}, Path: op.Old, Op: &op.StoreOp, Err: err, Attempt: attempt})
	f.opts.Logger.Warn("store operation failed", "buffer", q.buffer, "operation", op.Kind.String(), "path", op.Old, "attempt", attempt, "error", err)
}
