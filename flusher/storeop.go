package flusher

import (
	"context"
	"math/rand/v2"
	"time"

	"forebay/flusher/backing/retry"
	"forebay/flusher/codec"
	"forebay/flusher/owned"
	"forebay/flusher/storeop"
)

// Apply queues an operation. Operations of a buffer that concern the same names are carried out in
// their order, and before later flushes of these names. Call it under the Hold of these names. It
// is tried again until it succeeds, as flushes are.
func (f *Flusher) Apply(buffer string, op storeop.Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		f.queue(buffer).apply(op)
	}
}

// apply queues an operation and makes sure that it is carried out. mu is held.
func (q *queue) apply(op storeop.Op) { q.applyBy(q.ops.Add, op) }

func (q *queue) applyBy(add func(storeop.Op), op storeop.Op) {
	if q.ctx.Err() != nil {
		return
	}
	add(op)
	if q.applying {
		q.broadcast() // it may overtake failing ones
		return
	}
	q.applying = true
	q.f.wg.Go(q.applyAll)
}

// removeObject queues the removal of an object of ours without an entry.
func (q *queue) removeObject(object string) { q.apply(q.removal(object)) }

// removeFirst is removeObject before all operations that concern the name. None of them has begun.
func (q *queue) removeFirst(object string) {
	q.applyBy(q.ops.AddFirst, q.removal(object))
}

func (q *queue) removal(object string) storeop.Op {
	plain, name := object, codec.None
	if c := q.f.opts.Policy(q.buffer).Codec; c != codec.None {
		if p, of := codec.OfName(object); of == c {
			plain, name = p, of
		}
	}
	return storeop.Op{Kind: storeop.Remove, Old: plain, Codec: name, Internal: true, Orphan: true}
}

// RemoveOrphan queues the removal of an object that this node may have left under a path and that
// has no entry, as Options.Orphan decides.
func (f *Flusher) RemoveOrphan(buffer, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		q := f.queue(buffer)
		q.removeObject(q.objectName(path))
	}
}

// objectName returns the name of a path's object with the present codec.
func (q *queue) objectName(path string) string {
	return path + codec.Suffix(q.f.opts.Policy(q.buffer).Codec)
}

// applyAll carries out operations, one at a time, until there are none.
func (q *queue) applyAll() {
	f := q.f
	for {
		f.mu.Lock()
		if q.ops.Len() == 0 || q.ctx.Err() != nil {
			q.applying = false
			f.mu.Unlock()
			return
		}
		now := f.opts.Now()
		op, wake := q.ops.Begin(now, q.blocked)
		if op == nil {
			changed := q.changed
			f.mu.Unlock()
			q.pause(changed, now, wake)
			continue
		}
		once := op.Op // Overwrite may change it meanwhile
		f.mu.Unlock()
		if err := q.carryOut(once); err != nil {
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

func (q *queue) carryOut(op storeop.Op) error {
	store, err := q.f.opts.Stores(q.ctx, q.buffer)
	if err != nil {
		return err
	}
	// Its owner is checked right before, since it may have waited for long.
	mine := true
	if op.Orphan {
		mine, err = q.f.opts.Orphan(q.ctx, q.buffer, op.Old, op.Codec)
	} else if !op.Internal {
		mine, err = q.f.opts.Mine(q.ctx, q.buffer, op)
	}
	if err != nil || !mine {
		return err
	}
	if err := q.carrier().Do(q.ctx, store, &op); err != nil || op.Internal || op.More {
		return err
	}
	return q.f.opts.Applied(q.ctx, q.buffer, op)
}

// carrier carries operations out by the options.
func (q *queue) carrier() *storeop.Carrier {
	o := &q.f.opts
	c := &storeop.Carrier{
		OurDirs: func(ctx context.Context, op storeop.Op, dirs []string) ([]string, error) {
			return o.OurDirs(ctx, q.buffer, op, dirs)
		},
		Unrecorded: q.unrecordedOf, KeepExisting: o.Policy(q.buffer).KeepExisting,
	}
	if o.Ours != nil {
		c.Ours = func(ctx context.Context, op storeop.Op, objects []string) ([]storeop.Owned, error) {
			return o.Ours(ctx, q.buffer, op, objects)
		}
	}
	return c
}

func (q *queue) carriedOut(op *storeop.Pending) {
	f := q.f
	f.mu.Lock()
	if q.ops.Done(op) { // else the queue was closed meanwhile
		op.Follow(q.unrecorded)
	}
	if q.stats.failing == 0 && q.ops.Failing() == 0 {
		q.stats.last = lastError{}
	}
	q.release(nil)
	q.broadcast()
	f.mu.Unlock()
	f.opts.Observe(Event{Kind: EventApplied, Key: Key{Buffer: q.buffer}, Path: op.Old, Op: &op.Op})
	f.kick()
}

func (q *queue) opFailed(op *storeop.Pending, err error) {
	f := q.f
	f.mu.Lock()
	op.Ended()
	if q.ctx.Err() == nil {
		now := f.opts.Now()
		q.ops.Failed(op, err, now.Add(retry.Delay(f.opts.Backoff[0], f.opts.Backoff[1], op.Attempts()+1, rand.Float64())))
		q.stats.failures++
		q.stats.last = lastError{err: op.Err(), path: op.Old, at: now, attempts: op.Attempts()}
	}
	attempt := op.Attempts()
	q.broadcast()
	f.mu.Unlock()
	f.opts.Observe(Event{Kind: EventApplyFailed, Key: Key{Buffer: q.buffer}, Path: op.Old, Op: &op.Op, Err: err, Attempt: attempt})
	f.opts.Logger.Warn("store operation failed", "buffer", q.buffer, "operation", op.Kind.String(), "path", op.Old, "attempt", attempt, "error", err)
}

// retryOps has operations that failed tried at once.
func (q *queue) retryOps() {
	q.ops.Retry()
	q.broadcast()
}

func (q *queue) unrecordedOf(object string) owned.Unrecorded {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return q.unrecorded[object]
}
