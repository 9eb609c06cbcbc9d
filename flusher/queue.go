package flusher

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"forebay/flusher/owned"
	"forebay/flusher/plan"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
)

// state is the place of an entry. See the package's drawing.
type state uint8

const (
	stateNone state = iota
	stateReady
	stateFlying
	stateWaiting
	stateHeld
	stateParked
)

// entry is a queued file.
type entry struct {
	id            uint64
	item          Item
	urgent, ruled bool // ruled: while it is held, by a flush rule
	state         state
	path          string   // where it lay when it was last looked at
	attempt       *attempt // while it runs
	next          *Item    // a newer generation that came while one runs

	attempts  int
	notBefore time.Time
	err       error // of the last attempt
	errAt     time.Time
	gaveUp    bool          // the last error will not pass by itself
	outdated  bool          // a drain has begun since the attempt did
	overwrite bb.Generation // the newest that may replace any object on the store: see Overwrite

	suspect string // an object that a Put of ours may have made, without a record
	unsure  bool   // unknown whether the catalog has the suspect all the same
	touched string // an object that a Put of ours may have replaced since the last recorded one; only if shared
	waiters []waiter
}

// waiter is woken when a generation, or a newer one, is durable.
type waiter struct {
	generation bb.Generation
	done       chan error // buffered
}

// queue is the pending work for one buffer. All of it is guarded by the Flusher's mu, except for
// ctx.
type queue struct {
	f      *Flusher
	buffer string
	ctx    context.Context
	cancel context.CancelFunc

	indexes
	orphans    map[string]struct{} // objects that a Put of ours may have made, without a record, of files that are not queued
	unrecorded owned.Ledger        // contents that may be under names without a record

	holds    map[*hold]struct{}
	epoch    uint64 // number of holds, and of policies, there have been
	ops      storeop.Queue
	applying bool // a goroutine carries out ops
	paused   bool
	draining int
	changed  chan struct{} // closed, and made anew, when something ends

	stats    counters
	arrivals plan.Arrivals
}

// indexes find the entries of a queue, by their state and in an order.
type indexes struct {
	entries map[bb.FileID]*entry
	ready   [plan.Rows]*btree.BTreeG[*entry] // by age, by plan.Item.Row
	waiting *btree.BTreeG[*entry]            // by notBefore
	held    *btree.BTreeG[*entry]            // by path: a rename releases the entries below it
	parked  map[*entry]struct{}
	running map[*attempt]struct{}
	suspect map[*entry]struct{}
	byAge   *btree.BTreeG[*entry] // all that are to be flushed, so without the held ones
}

func newQueue(f *Flusher, buffer string) *queue {
	q := &queue{
		f: f, buffer: buffer,
		indexes: indexes{entries: map[bb.FileID]*entry{}, parked: map[*entry]struct{}{}, running: map[*attempt]struct{}{}, suspect: map[*entry]struct{}{}},
		orphans: map[string]struct{}{}, unrecorded: owned.Ledger{}, holds: map[*hold]struct{}{}, changed: make(chan struct{}),
	}
	q.ctx, q.cancel = context.WithCancel(f.ctx)
	options := btree.Options{NoLocks: true} // the Flusher's mu locks it
	byAge := func(a, b *entry) bool { return plan.Older(a.plan(q), b.plan(q)) < 0 }
	for i := range q.ready {
		q.ready[i] = btree.NewBTreeGOptions(byAge, options)
	}
	q.byAge = btree.NewBTreeGOptions(byAge, options)
	q.waiting = btree.NewBTreeGOptions(func(a, b *entry) bool { return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.id, b.id)) < 0 }, options)
	q.held = btree.NewBTreeGOptions(func(a, b *entry) bool { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.id, b.id)) < 0 }, options)
	return q
}

func (e *entry) plan(q *queue) plan.Item {
	return plan.Item{
		ID: e.id, Buffer: q.buffer, Size: e.item.Size, DirtySince: e.item.DirtySince, ClosedAt: e.item.ClosedAt,
		NotBefore: e.notBefore, Held: e.state == stateHeld, Urgent: e.urgent,
	}
}

// move changes an entry's state. Nothing else does, and nothing changes the keys of the
// indexes while an entry is in them, except between two moves.
func (q *queue) move(e *entry, to state) {
	switch e.state {
	case stateReady:
		for _, ready := range q.ready {
			ready.Delete(e)
		}
	case stateWaiting:
		q.waiting.Delete(e)
	case stateHeld:
		q.held.Delete(e)
		q.stats.ruled -= index(e.ruled)
	case stateParked:
		delete(q.parked, e)
	case stateFlying:
		delete(q.running, e.attempt)
		e.attempt = nil
	}
	if e.state != stateNone && e.state != stateHeld {
		q.byAge.Delete(e)
		q.stats.bytes -= e.item.Size
	}
	e.state = to
	if to != stateNone && to != stateHeld {
		q.byAge.Set(e)
		q.stats.bytes += e.item.Size
	}
	if q.byAge.Len() > 0 {
		q.stats.pace.Begin(q.f.opts.Now())
	}
	switch to {
	case stateReady:
		q.ready[e.plan(q).Row(q.f.opts.Small)].Set(e)
	case stateWaiting:
		q.waiting.Set(e)
	case stateHeld:
		q.held.Set(e)
		q.stats.ruled += index(e.ruled)
	case stateParked:
		q.parked[e] = struct{}{}
	}
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// change alters the keys of the indexes.
func (q *queue) change(e *entry, alter func()) {
	if e.state == stateFlying {
		panic("flusher: an entry is changed in flight")
	}
	was := e.state
	q.move(e, stateNone)
	alter()
	q.move(e, was)
}

// rest ends the spell by which the pace is counted, if nothing is left to flush.
func (q *queue) rest() {
	if q.byAge.Len() == 0 {
		q.stats.pace.End()
	}
}

// add queues an item, or replaces an older generation. The age of the oldest dirty byte stays. A
// file that is written again and again is not put off for ever.
func (q *queue) add(item Item, id uint64) {
	e := q.entries[item.File]
	switch {
	case e == nil:
		e = &entry{id: id, item: item, path: item.Path}
		q.entries[item.File] = e
		if item.Suspect && item.Path != "" {
			q.setSuspect(e, cmp.Or(item.Object, q.objectName(item.Path)))
			q.unrecorded.Note(e.suspect, owned.Unrecorded{Attempts: item.Attempts})
		}
		q.move(e, stateReady)
	case item.Generation <= e.item.Generation:
	case e.state == stateFlying:
		if e.next == nil || e.next.Generation < item.Generation {
			e.next = &item
		}
	default:
		q.change(e, func() { e.replace(item) })
	}
}

func (e *entry) replace(item Item) {
	if e.item.DirtySince.Before(item.DirtySince) {
		item.DirtySince = e.item.DirtySince
	}
	e.item = item
}

func (q *queue) setSuspect(e *entry, object string) {
	e.suspect = object
	q.suspect[e] = struct{}{}
}

func (q *queue) clearSuspect(e *entry) {
	e.suspect, e.unsure = "", false
	delete(q.suspect, e)
}

// leaveSuspect records the object that a Put of an entry that leaves the queue may have made, since
// its file may be open for writing now, and be renamed or removed before it is queued again. It
// does not if the catalog may have the object. A rename takes that along.
func (q *queue) leaveSuspect(e *entry) {
	if e.suspect != "" && !e.unsure {
		q.orphans[e.suspect] = struct{}{}
	}
	q.clearSuspect(e)
}

// Suspect records that the store may have an object of a path that an earlier run of this process
// has put and not recorded, of a file that is not queued, since it is open for writing. A hold of
// the name removes the object, and a flush under it replaces it. Attempts are its possible
// contents.
func (f *Flusher) Suspect(buffer, path string, attempts []bb.Content) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.closed {
		q := f.queue(buffer)
		q.orphans[q.objectName(path)] = struct{}{}
		q.unrecorded.Note(q.objectName(path), owned.Unrecorded{Attempts: attempts})
	}
}

// drop removes an entry and wakes its waiters.
func (q *queue) drop(e *entry, err error) {
	if e.state == stateFlying {
		e.attempt.forgotten = err
		e.attempt.cancel(errForgotten)
		return // finish drops it
	}
	q.move(e, stateNone)
	delete(q.entries, e.item.File)
	q.askAfter(e)
	q.leaveSuspect(e)
	q.setError(e, nil, false)
	e.settle(e.item.Generation, err)
}

// askAfter queues, if others write to the store too, a check of the objects that Puts have left of
// a file that is no longer this node's.
func (q *queue) askAfter(e *entry) {
	if !q.f.opts.shared {
		return
	}
	for _, object := range []string{e.suspect, e.touched} {
		if object != "" {
			q.removeObject(object)
		}
	}
	e.touched = ""
	q.clearSuspect(e)
}

// settle wakes the waiters for a generation up to the given one.
func (e *entry) settle(generation bb.Generation, err error) {
	left := e.waiters[:0]
	for _, w := range e.waiters {
		if w.generation <= generation {
			w.done <- err
		} else {
			left = append(left, w)
		}
	}
	clear(e.waiters[len(left):])
	e.waiters = left
}

// setError records how an entry's last attempt went, and keeps the counts of failing ones.
func (q *queue) setError(e *entry, err error, gaveUp bool) {
	q.stats.failing += index(err != nil) - index(e.err != nil)
	q.stats.gaveUp += index(gaveUp) - index(e.gaveUp)
	q.stats.conflicts += index(isConflict(err)) - index(isConflict(e.err))
	e.err, e.gaveUp = err, gaveUp
	if err == nil {
		e.attempts = 0
		e.notBefore = time.Time{}
		if q.stats.failing == 0 && q.ops.Failing() == 0 {
			q.stats.last = lastError{}
		}
		return
	}
	e.attempts++
	e.errAt = q.f.opts.Now()
	q.stats.failures++
	q.stats.last = lastError{err: err, path: e.path, at: e.errAt, attempts: e.attempts}
}

// close ends everything of the queue. Attempts are cancelled and end on their own.
func (q *queue) close(err error) {
	for _, e := range q.entries {
		q.drop(e, err)
	}
	q.ops.Clear()
	q.cancel()
	q.broadcast()
}

// broadcast wakes all waiters for a change.
func (q *queue) broadcast() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// release makes entries ready that a hold or an operation on paths has blocked.
func (q *queue) release(paths []string) {
	for e := range q.parked {
		q.move(e, stateReady)
	}
	for _, p := range paths {
		for _, e := range q.heldBelow(p) {
			q.move(e, stateReady)
		}
	}
}

// heldBelow returns the held entries at or below a path.
func (q *queue) heldBelow(p string) (found []*entry) {
	q.held.Ascend(&entry{path: p}, func(e *entry) bool {
		if !strings.HasPrefix(e.path, p) {
			return false
		}
		if bb.Within(e.path, p) {
			found = append(found, e)
		}
		return true
	})
	return found
}
