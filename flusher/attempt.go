package flusher

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/retry"
	"forebay/flusher/owned"
	"forebay/flusher/plan"
	"forebay/flusher/storeop"
	"forebay/flusher/upload"
	"forebay/internal/bb"
)

// Reasons why an attempt is cancelled without a failure.
var (
	errHeld      = errors.New("a rename or removal holds the name")
	errForgotten = errors.New("the file was removed")
)

// attempt is one run of the flush of one file.
type attempt struct {
	f      *Flusher
	q      *queue
	e      *entry
	key    Key
	size   int64
	units  int       // of its bounds that it takes
	since  time.Time // dirty since
	begun  time.Time
	store  string // as its buffer's policy names it
	user   uint32 // likewise
	epoch  uint64 // of the queue, before the call of the catalog
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed after finish
	read   atomic.Int64  // bytes requested from the source
	moved  atomic.Int64  // when it last got on, in ns since 1970

	attemptState
}

// attemptState is the changing part of an attempt. Guarded by the Flusher's mu.
type attemptState struct {
	path      string // set, and fixed, after start
	forgotten error  // drop was called meanwhile
	object    string // that its Put makes
	wasNew    bool   // the file had no object before
	named     bool   // the store has been allowed to put the object under its name
	recording bool   // Job.Done is being called
	overtaken bool   // a Hold, or Close, did not wait for it, so it may change nothing any more
}

// An attempt whose store does not answer cannot be ended, since its thread may be in write(2) on a
// file system whose server is away. It returns its worker after Patience without progress, and
// still counts against the bound of its store. Its file is not tried again before it has ended. A
// Hold waits for it no longer than Patience either. Then it is overtaken:
//
//   - if the object does not have its name yet, it never gets it (mayName);
//   - if the store may be about to give it, later flushes and operations of that name wait
//     until the attempt has ended, and an unrecorded object of it is removed first;
//   - with any outcome, Job.Done is not called.

// progress records that the attempt makes progress.
func (fl *attempt) progress() { fl.moved.Store(fl.f.opts.Now().UnixNano()) }

// until returns when the attempt frees its worker without progress before.
func (fl *attempt) until() time.Time { return time.Unix(0, fl.moved.Load()).Add(fl.f.opts.Patience) }

// stalled reports whether the attempt has given its worker back, and when it last got on.
func (fl *attempt) stalled(now time.Time) (at time.Time, stalled bool) {
	return time.Unix(0, fl.moved.Load()), !fl.until().After(now)
}

// mayName is called right before the object gets its name.
func (fl *attempt) mayName() error {
	fl.progress()
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	if fl.overtaken {
		return bb.E(bb.Busy, "flush", fl.path, "it was overtaken by a change of its name")
	}
	fl.named = true
	return nil
}

// mayRecord is called before the object is recorded in the namespace. From then on a Hold waits for
// the end, rather than cancel it.
func (fl *attempt) mayRecord() error {
	fl.progress()
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	if fl.overtaken {
		return bb.E(bb.Busy, "flush", fl.path, "its store answered after its name had changed")
	}
	fl.recording = true
	return nil
}

// overtake has the attempt change nothing any more, unless it is being recorded. mu is held.
func (fl *attempt) overtake() bool {
	fl.overtaken = fl.overtaken || !fl.recording
	return fl.overtaken
}

func (fl *attempt) isOvertaken() bool {
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	return fl.overtaken
}

// blocks reports whether work on a path has to wait for the attempt's end. mu is held.
func (fl *attempt) blocks(path string) bool {
	return fl.overtaken && fl.path != "" && bb.Overlaps(fl.path, path)
}

// verdict is how an attempt ended.
type verdict uint8

const (
	durable verdict = iota
	failed
	dropped // there is nothing to flush any more
	again   // a hold came and went: decide anew
	parked  // a hold or an operation covers the name
	kept    // the name is only passing, or a flush rule holds its step back
)

// outcome is a verdict with its data.
type outcome struct {
	verdict  verdict
	recorded bool // the object is recorded, as it has turned out
	upload.Result
}

func (fl *attempt) run() {
	out := fl.flush()
	fl.cancel(nil)
	if out.verdict == durable {
		// Before the waiters wake, so that every receipt is written when a drain ends.
		e := fl.event(EventFlushed, nil)
		e.Path, e.Receipt = fl.path, &out.Receipt
		fl.f.opts.Observe(e)
	}
	fl.finish(out)
	close(fl.ended)
}

func (fl *attempt) event(kind EventKind, err error) Event {
	now := fl.f.opts.Now()
	return Event{Kind: kind, Key: fl.key, Bytes: fl.size, Err: err, Took: now.Sub(fl.begun), DirtyFor: now.Sub(fl.since)}
}

// flush flushes the file: find and pin, fix the name or give up, upload. The upload compares the bytes that it reads with the
// file's checksum. A check of its own beforehand would read them twice.
func (fl *attempt) flush() outcome {
	fl.f.opts.Observe(Event{Kind: EventBegun, Key: fl.key, Bytes: fl.size})
	job, err := fl.f.opts.Catalog.Begin(fl.ctx, fl.key)
	if err != nil {
		switch bb.KindOf(err) {
		case bb.NotFound:
			return outcome{verdict: dropped, Result: upload.Result{Err: err}}
		case bb.Exists:
			return outcome{verdict: dropped, recorded: true}
		default:
			return outcome{verdict: failed, Result: upload.Result{Err: err}}
		}
	}
	defer job.Close()
	if v := fl.start(job.Path()); v != durable {
		return outcome{verdict: v}
	}
	store, err := fl.f.opts.Stores(fl.ctx, fl.key.Buffer)
	if err != nil {
		return outcome{verdict: failed, Result: upload.Result{Err: err}}
	}
	return fl.put(job, store)
}

// start fixes the path, if the file may be flushed under it.
func (fl *attempt) start(path string) verdict {
	q := fl.q
	policy := fl.f.opts.Policy(q.buffer)
	_, excluded := plan.Excluded(policy.NoFlush, path)
	_, isRuled := policy.Steps.Holds(path)
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	fl.e.path, fl.e.ruled = path, isRuled && !excluded
	switch {
	case fl.epoch != q.epoch && q.covered(path):
		return parked
	case fl.epoch != q.epoch:
		return again // the path may be the one from before a rename
	case q.covered(path):
		return parked
	case excluded || isRuled:
		return kept
	}
	fl.path = path
	return durable
}

// covered reports whether a hold or a pending operation concerns the path.
func (q *queue) covered(path string) bool {
	for h := range q.holds {
		if h.concerns(path) {
			return true
		}
	}
	return q.ops.Concern(path) || q.blocked(path)
}

// put uploads the file.
func (fl *attempt) put(job upload.Job, store backing.Store) outcome {
	policy := fl.f.opts.Policy(fl.key.Buffer)
	u := upload.Upload{
		Job: job, Store: store, Watch: (*watch)(fl), Path: fl.path, Codec: policy.Codec, Keep: func() bool { return policy.KeepExisting && !fl.mayOverwrite() },
		SpoolDir: fl.f.opts.SpoolDir, Node: fl.f.opts.Node, Now: fl.f.opts.Now, Recording: fl.q.ctx,
	}
	out := outcome{verdict: failed, Result: u.Do(fl.ctx)}
	switch before := u.Before(); {
	case out.Gone:
		out.verdict = dropped
	case out.Err == nil:
		out.verdict = durable
		if before.Generation != 0 && before.Codec != u.Codec {
			fl.f.Apply(fl.key.Buffer, storeop.Op{Kind: storeop.Remove, Old: fl.path, Codec: before.Codec, Was: []bb.Flushed{before}, Internal: true})
		}
	}
	return out
}

// watch is the part of the attempt that its upload uses.
type watch attempt

func (w *watch) Progress()        { (*attempt)(w).progress() }
func (w *watch) Read(n int64)     { w.read.Add(n) }
func (w *watch) GivenUp() bool    { return (*attempt)(w).isOvertaken() }
func (w *watch) MayName() error   { return (*attempt)(w).mayName() }
func (w *watch) MayRecord() error { return (*attempt)(w).mayRecord() }

func (w *watch) Target(object string, isNew bool) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.object, w.wasNew = object, isNew
}

func (w *watch) Made(object string, c bb.Content) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.named {
		w.q.unrecorded.Note(object, owned.Unrecorded{Made: []bb.Content{c}})
	}
}

func (w *watch) Unrecorded(object string) owned.Unrecorded { return w.q.unrecordedOf(object) }

func (w *watch) Recorded(object string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	delete(w.q.unrecorded, object)
}

// finish draws the consequences.
func (fl *attempt) finish(out outcome) {
	f, q, e := fl.f, fl.q, fl.e
	f.mu.Lock()
	delete(f.mu.running, fl)
	cause := context.Cause(fl.ctx)
	if out.verdict == failed && (errors.Is(cause, errHeld) || f.mu.closed) {
		out.verdict = parked // not its fault: no failure
	}
	q.move(e, stateNone)
	if fl.overtaken {
		q.afterOvertaken(fl, e, out.verdict == dropped || fl.forgotten != nil)
	} else {
		q.afterPut(e, out, fl.forgotten != nil)
	}
	event := fl.event(EventDeferred, out.Err)
	switch {
	case out.verdict == durable:
		q.flushed(fl, e)
	case fl.forgotten != nil:
		event.Kind = EventDropped
		q.remove(e, fl.forgotten)
	case out.verdict == dropped:
		event.Kind = EventDropped
		q.remove(e, out.Err)
	case out.verdict == failed:
		event.Kind = EventFailed
		q.failed(e, out.Err)
	default:
		q.deferred(e, out.verdict, fl.epoch == q.epoch)
	}
	event.Path, event.Attempt = e.path, e.attempts
	q.rest()
	q.broadcast()
	f.mu.Unlock()
	if out.verdict != durable {
		f.opts.Observe(event)
	}
	f.kick()
}

// afterPut records, or removes, an object without a record.
func (q *queue) afterPut(e *entry, out outcome, forgotten bool) {
	switch {
	case out.verdict == durable:
		q.clearSuspect(e)
		delete(q.orphans, out.Object)
		e.touched = ""
	case out.recorded:
		q.clearSuspect(e)
		delete(q.orphans, q.objectName(e.path))
	case out.Foreign != "":
		delete(q.unrecorded, out.Foreign)
		if e.suspect == out.Foreign {
			q.clearSuspect(e)
		}
	case out.Object != "" && out.WasNew && out.verdict == dropped:
		q.removeObject(out.Object)
	case out.Object != "" && out.WasNew:
		q.setSuspect(e, out.Object)
		e.unsure = e.unsure || out.Unsure
	case out.Object != "":
		e.touched = out.Object
	}
	if out.verdict == dropped || forgotten {
		q.askAfter(e)
	}
	if e.suspect != "" && forgotten {
		q.removeObject(e.suspect)
		q.clearSuspect(e)
	}
}

// afterOvertaken queues the removal of an object that was made under a name which was not its file's any
// more, and releases everything that waited for the attempt's end. Later work, such as
// the rename of another object to that name, comes after the removal.
func (q *queue) afterOvertaken(fl *attempt, e *entry, dropped bool) {
	switch {
	case fl.named && fl.wasNew:
		q.removeFirst(fl.object)
		if e.suspect == fl.object {
			q.clearSuspect(e)
		}
	case fl.named:
		e.touched = fl.object
	}
	if dropped {
		q.askAfter(e)
	}
	q.release(nil)
}

// flushed removes an entry, or continues with the generation that came meanwhile.
func (q *queue) flushed(fl *attempt, e *entry) {
	q.stats.flushed++
	q.stats.flushedBytes += fl.size
	q.stats.rate.Add(q.f.opts.Now(), fl.size)
	q.stats.pace.Add(q.f.opts.Now(), fl.size)
	q.setError(e, nil, false)
	e.settle(fl.key.Generation, nil)
	if e.next == nil || fl.forgotten != nil {
		q.remove(e, fl.forgotten)
		return
	}
	e.item, e.next = *e.next, nil // dirty since its own time, as the older content is safe
	e.urgent = len(e.waiters) > 0
	q.move(e, stateReady)
}

// remove removes an entry unless a newer generation waits.
func (q *queue) remove(e *entry, err error) {
	q.setError(e, nil, false)
	e.settle(e.item.Generation, err)
	if e.next != nil && e.next.Generation > e.item.Generation {
		e.replace(*e.next) // nothing became durable, so the age stays
		e.next = nil
		q.move(e, stateReady)
		return
	}
	e.settle(^bb.Generation(0), err)
	delete(q.entries, e.item.File)
	q.leaveSuspect(e)
}

// failed queues an entry again, for later.
func (q *queue) failed(e *entry, err error) {
	if e.next != nil {
		e.replace(*e.next)
		e.next = nil
	}
	again := e.outdated && !backing.Passing(err)
	q.setError(e, err, !again && !backing.Passing(err))
	if b := q.f.opts.Backoff; again {
		e.notBefore = e.errAt
	} else {
		e.notBefore = e.errAt.Add(retry.Delay(b[0], b[1], e.attempts, rand.Float64()))
	}
	q.move(e, stateWaiting)
	q.f.opts.Logger.Warn("flush failed", "buffer", q.buffer, "path", e.path, "attempt", e.attempts, "next", e.notBefore, "error", err)
}

// deferred puts an entry into the state that waits for its obstacle. What an attempt held back by a policy that has
// changed meanwhile, is judged again.
func (q *queue) deferred(e *entry, v verdict, current bool) {
	if e.next != nil {
		e.replace(*e.next)
		e.next = nil
	}
	switch {
	case v == kept && current:
		q.setError(e, nil, false)
		q.move(e, stateHeld)
	case v == parked && q.covered(e.path):
		q.move(e, stateParked)
	default:
		q.move(e, stateReady)
	}
}
