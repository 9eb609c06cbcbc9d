package owner

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/footprint"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
	"forebay/meta/nslog/tail"
	"forebay/meta/stream"
)

const batchBytes = 512 << 10 // of a record, after which changes wait for the next one

// command is a change of one caller.
//
//	waiting ── a round takes it ──▶ taken ──▶ answered
//	   │  ▲                           │
//	   │  └── it was postponed ───────┘
//	   └── its caller's context ended ──▶ withdrawn: not carried out
type command struct {
	state atomic.Int32
	run   func(*Round) error // checks it against the table, and adds its effects to a round
	done  chan error
}

const (
	waiting int32 = iota
	taken
	withdrawn
)

// queue is the commands that no round has taken.
type queue struct {
	sync.Mutex
	commands []*command
	ended    error         // the reason why none is taken any more
	signal   chan struct{} // there may be some, or one of the next fields is set
	renewing bool          // the lease is to be renewed
	leaving  bool          // the ownership is to end
}

func (q *queue) add(c *command) error {
	q.Lock()
	defer q.Unlock()
	if q.ended != nil {
		return q.ended
	}
	q.commands = append(q.commands, c)
	q.wake()
	return nil
}

func (q *queue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// take appends all commands to those that were postponed.
func (q *queue) take(postponed []*command) []*command {
	q.Lock()
	defer q.Unlock()
	all := append(postponed, q.commands...)
	clear(q.commands)
	q.commands = q.commands[:0]
	return all
}

// renewEarly has the lease renewed before it ends.
func (q *queue) renewEarly() {
	q.Lock()
	defer q.Unlock()
	q.renewing = true
	q.wake()
}

// renewal reports whether the lease is to be renewed, once.
func (q *queue) renewal() bool {
	q.Lock()
	defer q.Unlock()
	is := q.renewing
	q.renewing = false
	return is
}

// leave makes the ownership end.
func (q *queue) leave() {
	q.Lock()
	defer q.Unlock()
	q.leaving = true
	q.wake()
}

func (q *queue) left() bool {
	q.Lock()
	defer q.Unlock()
	return q.leaving
}

// end refuses later commands.
func (q *queue) end(err error) {
	q.Lock()
	defer q.Unlock()
	q.ended = err
}

// Do queues a command and waits for its answer. Variables that run sets may be read after the
// answer, with or without an error.
func (w *Owner) Do(ctx context.Context, op, name string, run func(*Round) error) error {
	if err := w.Err(); err != nil {
		return kv.Wrap(op, name, untaken(err))
	}
	c := &command{run: run, done: make(chan error, 1)}
	if err := w.queue.add(c); err != nil {
		return kv.Wrap(op, name, untaken(err))
	}
	select {
	case err := <-c.done:
		return kv.Wrap(op, name, err)
	case <-ctx.Done():
	}
	if c.state.CompareAndSwap(waiting, withdrawn) {
		return w.gaveUp(ctx, op, name)
	}
	select {
	case err := <-c.done:
		return kv.Wrap(op, name, err)
	default:
		return bb.MaybeDone(w.gaveUp(ctx, op, name))
	}
}

// gaveUp is the error of a call with a context that ended while the log did not answer.
func (w *Owner) gaveUp(ctx context.Context, op, name string) error {
	if w.o.Unanswered != nil {
		return bb.Wrap(op, name, w.o.Unanswered(ctx, "namespace server", errors.New("the log has not answered")))
	}
	err := context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return &bb.Error{Kind: bb.Unavailable, Op: op, Path: name, Err: err, Remedy: "see whether the NATS server runs and can be reached"}
	}
	return &bb.Error{Kind: bb.Cancelled, Op: op, Path: name, Err: err}
}

// serve is the owner's goroutine.
func (w *Owner) serve() {
	defer close(w.ended)
	var left []*command
	for {
		if len(left) == 0 && !w.at.making && !w.at.behind && len(w.at.asked) == 0 {
			select {
			case <-w.queue.signal:
				runtime.Gosched() // so that callers which are ready add their commands to the same record
			case <-w.ctx.Done():
			}
		}
		var err error
		switch {
		case w.ctx.Err() != nil:
			err = &bb.Error{Kind: bb.Unavailable, Op: "change", Path: w.o.Buffer, Err: errClosed}
		case w.queue.left():
			w.end(&bb.Error{Kind: bb.Unavailable, Op: "change", Path: w.o.Buffer, Err: errReleased}, left)
			w.o.Leases.End(w.ctx)
			w.left = w.release()
			return
		default:
			left, err = w.round(w.queue.take(left))
		}
		if err == nil {
			err = w.checkpoint()
		}
		if err != nil {
			w.end(err, left)
			return
		}
	}
}

// end fails waiting and later commands.
func (w *Owner) end(err error, left []*command) {
	w.failure.Store(&err)
	w.queue.end(err)
	for _, c := range w.queue.take(left) {
		if c.state.CompareAndSwap(waiting, taken) {
			c.done <- untaken(err)
		}
	}
	answer(append(w.at.asked, w.at.ending...), err)
	if !errors.Is(err, errClosed) && !errors.Is(err, errReleased) {
		w.o.Logger.Error("the namespace is served no more", "buffer", w.o.Buffer, "err", err)
	}
}

// untaken is the error of a change that was not carried out since its owner has ended by an error,
// even if the outcome of the change with that error is unknown.
func untaken(why error) error {
	if errors.Is(why, kv.ErrNoBucket) {
		return why
	}
	return &bb.Error{Kind: bb.Unavailable, Err: &ended{why}}
}

// ended names the reason why an owner has ended.
type ended struct{ why error }

func (e *ended) Error() string { return errUntaken.Error() + ": " + e.why.Error() }

// Is reports whether the error is errUntaken, or that of the owner. It is not of unknown outcome.
func (e *ended) Is(target error) bool {
	return target == errUntaken || target != bb.ErrUnknownOutcome && target != kv.ErrUncertain && target != kv.ErrMaybeDone && errors.Is(e.why, target)
}

// outcome is the result of a command without effects.
type outcome struct {
	c   *command
	err error
}

// round carries out the commands that do not depend on each other, and returns the others. Its
// error ends the ownership.
func (w *Owner) round(commands []*command) (left []*command, err error) {
	b := &w.at.round
	b.begin()
	defer w.o.Leases.Done()
	in := commands[:0:0]
	var plain []outcome
	for i, c := range commands {
		if len(b.buf) >= batchBytes {
			left = append(left, commands[i:]...)
			break
		}
		if !c.state.CompareAndSwap(waiting, taken) {
			continue
		}
		bytes, n := len(b.buf), b.n
		err := c.run(b)
		removed := b.TakeRemoved()
		var leased func(context.Context)
		if err == nil && b.n > n {
			if leased = w.o.Leases.Change(b.buf[bytes:], removed...); leased == nil {
				in = append(in, c)
				continue
			}
		}
		b.buf, b.n = b.buf[:bytes], n
		switch {
		case leased != nil:
			c.state.Store(waiting)
			go w.requeue(c, leased)
		case errors.Is(err, ErrPostponed):
			c.state.Store(waiting)
			left = append(left, c)
		default:
			plain = append(plain, outcome{c, err})
		}
	}
	if len(plain) > 0 && w.holds() && !b.confirm {
		plain = answerPlain(plain, nil)
	}
	if len(in)+len(plain) == 0 && !w.queue.renewal() {
		return left, nil
	}
	fatal, err := w.append(b)
	if errors.Is(err, errRestored) {
		for _, p := range plain {
			in = append(in, p.c)
		}
		for _, c := range in {
			c.state.Store(waiting)
		}
		return append(in, left...), nil
	}
	for _, c := range in {
		c.done <- err
	}
	answerPlain(plain, err)
	if !fatal {
		err = nil
	}
	return left, err
}

// requeue queues a command again after a wait, for the end of leases.
func (w *Owner) requeue(c *command, wait func(context.Context)) {
	wait(w.ctx)
	if err := w.queue.add(c); err != nil && c.state.CompareAndSwap(waiting, taken) {
		c.done <- untaken(err)
	}
}

// answerPlain answers commands without effects. They read the table, which an append has shown to
// be the namespace, or has not.
func answerPlain(plain []outcome, err error) []outcome {
	for _, p := range plain {
		if err != nil {
			p.err = err
		}
		p.c.done <- p.err
	}
	return nil
}

// append appends the record of a round to the log, and applies it. After an error that is not
// fatal, nothing was appended, or the next append finds it.
func (w *Owner) append(b *Round) (fatal bool, err error) {
	began := lease.Now()
	message := record.Seal(b.buf)
	seq, err := w.log.Append(w.ctx, logSubject, message, stream.Fence{Subject: logSubject, Last: w.at.last})
	if err != nil {
		return w.refused(err)
	}
	w.hold(began)
	w.at.last = seq
	w.at.appended(seq)
	w.at.logged += len(b.buf)
	if w.o.Keep != nil {
		w.keep(w.ctx, tail.Record{Seq: seq, Data: slices.Clone(message)})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return true, w.apply(b.buf[b.effects:], b.first, seq)
}

// appended records the sequence of a message. While a server loses none, sequences rise.
func (o *position) appended(seq uint64) {
	o.behind = o.behind || seq <= o.top
	o.top = seq
}

// refused translates the error of an append, and reports whether it ends the ownership.
func (w *Owner) refused(err error) (fatal bool, _ error) {
	var moved *stream.Moved
	switch {
	case errors.As(err, &moved) && moved.Last < w.at.last:
		w.o.Logger.Error("the namespace server has lost acknowledged changes: they are stored again",
			"buffer", w.o.Buffer, "acknowledged", w.at.last, "found", moved.Last)
		if err := w.restore(); err != nil {
			return true, err
		}
		return false, errRestored
	case errors.As(err, &moved):
		return true, &bb.Error{Kind: bb.Unavailable, Op: "change", Path: w.o.Buffer, Err: ErrReplaced, Unknown: moved.Unknown}
	case errors.Is(err, stream.ErrGone) && w.o.Remake != nil:
		if err := w.restore(); err != nil {
			return true, err
		}
		return false, errRestored
	case errors.Is(err, stream.ErrGone):
		return true, kv.ErrNoBucket
	case w.ctx.Err() != nil:
		return true, &bb.Error{Kind: bb.Unavailable, Op: "change", Path: w.o.Buffer, Err: errClosed, Unknown: errors.Is(err, kv.ErrUncertain)}
	case bb.KindOf(err) == bb.NoSpace:
		// The server continues reads, and so does the table. If the record is in the log after all,
		// it is above the fence of the next append, which ends the ownership.
		return false, bb.Wrap("change", w.o.Buffer, err)
	}
	return errors.Is(err, kv.ErrUncertain), bb.Wrap("change", w.o.Buffer, err)
}

var (
	// ErrPostponed: a change touches a key or directory of an earlier one of the round.
	ErrPostponed = errors.New("postponed")
	// errRestored: the log was fed again, and changes that were not appended have to be checked
	// again.
	errRestored = errors.New("restored")
)

// Round is the effects of a round, and the things that it touches.
type Round struct {
	footprint.Footprint
	w       *Owner
	Table   *table.Table // as it was before the round
	buf     []byte
	effects int // where they begin in buf
	first   uint64
	n       uint64 // effects
	confirm bool   // an append is needed, regardless of the lease
}

func (b *Round) begin() {
	w := b.w
	b.Reset()
	b.Table, b.n, b.confirm = w.table, 0, false
	b.first = (max(w.table.Next(), w.at.floor) + 1) &^ 1
	h := record.Head{Owner: w.at.id, Previous: w.at.last, First: b.first, Lease: w.o.Lease, Node: w.o.Node}
	b.buf = h.BeginChanges(b.buf[:0])
	b.effects = len(b.buf)
}

// Revision returns the one that the next effect on an entry gets.
func (b *Round) Revision() uint64 { return b.first + 2*b.n }

// StoreEntry adds the effect that stores an entry, and returns its revision.
func (b *Round) StoreEntry(key, value []byte) uint64 {
	revision := b.Revision()
	b.Store(key, value)
	return revision
}

// Store adds the effect that stores a value under a key.
func (b *Round) Store(key, value []byte) {
	b.buf = record.AppendStore(b.buf, key, value)
	b.n++
}

// Remove adds the effect that removes a key.
func (b *Round) Remove(key []byte) {
	b.buf = record.AppendRemove(b.buf, key)
	b.n++
}

// Len returns how many effects there are.
func (b *Round) Len() int { return int(b.n) }

// Bytes returns how many bytes of the record they take.
func (b *Round) Bytes() int { return len(b.buf) }
