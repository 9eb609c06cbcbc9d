package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
	"forebay/meta/stream"
)

// driftShare is by which part of a lease the next owner waits longer, for clocks that do not run
// at one rate.
const driftShare = 16

// errReleased is ErrReplaced without a new owner yet.
var errReleased = fmt.Errorf("%w: this one has given it up", ErrReplaced)

// holds reports whether no other owner can have acknowledged anything yet. That is so if something that
// this one has appended was stored less than a lease after the append began.
func (w *Owner) holds() bool {
	return w.o.Lease == 0 || w.age() < w.o.Lease
}

func (w *Owner) age() time.Duration { return lease.Now().Since(*w.held.Load()) }

// hold records that an append that began at a time was stored. Until then no other owner had
// claimed the log.
func (w *Owner) hold(began lease.Moment) { w.held.Store(&began) }

// Read calls fn with the table, and returns its error if the table was the namespace all the time
// that fn ran. This is checked afterwards, since the process may have been stopped at any moment.
// Otherwise the lease is renewed, and fn is called again. Fn must not keep parts of the table, nor
// use the owner. Read fails if the owner does not serve any more.
func (w *Owner) Read(ctx context.Context, op, path string, fn func(*table.Table) error) error {
	for {
		ran, err := w.look(fn)
		if !ran {
			return kv.Wrap(op, path, err)
		}
		if serr := w.Err(); serr != nil {
			return kv.Wrap(op, path, serr)
		}
		if w.holds() {
			if w.o.Lease != 0 && w.age() > w.o.Lease/2 {
				w.queue.renewEarly()
			}
			return err
		}
		// A command without effects is answered under a lease.
		if err := w.Do(ctx, op, path, func(*Round) error { return nil }); err != nil {
			return err
		}
	}
}

// Confirm appends a record without effects. It detects a log that has lost acknowledged records,
// and such a log is fed again.
func (w *Owner) Confirm(ctx context.Context, path string) error {
	return w.Do(ctx, "confirm", path, func(b *Round) error {
		b.confirm = true
		return nil
	})
}

func (w *Owner) look(fn func(*table.Table) error) (ran bool, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.Err(); err != nil {
		return false, err
	}
	return true, fn(w.table)
}

// Release ends the ownership so that the next owner need not wait for the end of the lease. Nothing
// is answered any more when the log has it, by this owner or under leases that it has granted. Its error is that of the append. The ownership has
// ended in any case, unless the context ended first.
func (w *Owner) Release(ctx context.Context) error {
	w.queue.leave()
	select {
	case <-w.ended:
		return bb.Wrap("release", w.o.Buffer, w.left)
	case <-ctx.Done():
		return w.gaveUp(ctx, "release", w.o.Buffer)
	}
}

// release appends a record without effects and without a lease. Nothing is answered any more.
func (w *Owner) release() error {
	h := record.Head{Owner: w.at.id, Previous: w.at.last, First: max(w.table.Next(), w.at.floor), Node: w.o.Node}
	_, err := w.log.Append(w.ctx, logSubject, record.Seal(h.BeginChanges(nil)), w.fence())
	var moved *stream.Moved
	if errors.As(err, &moved) {
		return nil // another owner has claimed it already
	}
	return err
}

// Holder is the owner of a log as the log's newest record has it.
type Holder struct {
	Seq      uint64       // of the record; 0: the log was never claimed
	Node     bb.NodeID    // that has appended it
	Owner    record.Owner // that has appended it
	Released bool         // the log has no owner any more
	lease    time.Duration
}

// Newest returns the owner of a log.
func Newest(ctx context.Context, log Log) (Holder, error) {
	m, err := log.Last(ctx, logSubject)
	if err != nil || m.Seq == 0 {
		return Holder{}, err
	}
	kind, body, err := record.Open(m.Data)
	if err != nil {
		return Holder{}, err
	}
	h, _, err := record.OpenHead(kind, body)
	return Holder{Seq: m.Seq, Node: h.Node, Owner: h.Owner, Released: kind == record.Changes && h.Lease == 0, lease: h.Lease}, err
}

// outlast waits until the leases are over that began at a time, or before.
func outlast(ctx context.Context, began time.Time, lease time.Duration) error {
	if lease == 0 {
		return nil
	}
	timer := time.NewTimer(lease + lease/driftShare - time.Since(began))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
