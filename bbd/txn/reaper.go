package txn

import (
	"context"
	"time"

	"forebay/bbd/cluster"
	"forebay/internal/bb"
)

// reaper ends the transactions that have no client any more. One daemon does, the coordinator. Two that do for a moment
// do no harm.
type reaper struct {
	s      *Service
	leases map[leaseOf]leaseSeen
}

type leaseOf struct {
	buffer string
	id     bb.TxnID
}

// leaseSeen is a lease as it was found, and since when, by this host's monotonic clock.
type leaseSeen struct {
	revision uint64
	since    time.Time
}

// next returns the lease as it is found now, and whether it has stayed as it is for too long.
func (l leaseSeen) next(revision uint64, now time.Time, lease time.Duration) (seen leaseSeen, expired bool) {
	if l.since.IsZero() || l.revision != revision {
		return leaseSeen{revision, now}, false
	}
	return l, now.Sub(l.since) >= lease
}

// care is the next step of a transaction.
type care uint8

const (
	nothing     care = iota
	watch            // it is open, and may be abandoned
	materialize      // it is decided, and not everything is in its place
	forget           // it is over for so long that no client repeats a commit or an abort
)

// kept is how long the record of a transaction that is over answers clients that repeat a commit or
// an abort.
const kept = 24 * time.Hour

// careOf returns the step that a transaction needs now. It is a function of its arguments alone.
func careOf(t *bb.Txn, now time.Time) care {
	switch {
	case t.State.Over() && now.Sub(t.Ended) > kept:
		return forget
	case t.State.Over():
		return nothing
	case t.State.Decided():
		return materialize
	}
	return watch
}

// Reap advances all transactions until the service's context ends.
func (s *Service) Reap() {
	r := &reaper{s: s, leases: map[leaseOf]leaseSeen{}}
	tick := time.NewTicker(s.o.Every)
	defer tick.Stop()
	for {
		r.round() // the first at once, for transactions that were decided before a restart
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// If this daemon is the coordinator, round advances the transactions of all buffers.
func (r *reaper) round() {
	s := r.s
	if s.o.Cluster != nil && cluster.Coordinator(s.o.Cluster.Members()) != s.o.Node {
		clear(r.leases) // the present coordinator counts from its own beginning
		return
	}
	all, err := s.o.Existing(s.ctx)
	if err != nil && s.ctx.Err() == nil {
		s.o.Log.Warn("the check of expired transactions failed", "err", err)
	}
	for _, b := range all {
		if err := r.check(s.ctx, b); err != nil && s.ctx.Err() == nil && bb.KindOf(err) != bb.NotFound {
			s.o.Log.Warn("the check of expired transactions failed", "buffer", b.Spec().Name, "err", err)
		}
	}
}

// check carries out the needed steps for the transactions of one buffer.
func (r *reaper) check(ctx context.Context, b Buffer) error {
	name := b.Spec().Name
	all, err := b.Tree().Txns(ctx)
	if err != nil {
		return err
	}
	known := map[bb.TxnID]bb.TxnState{}
	for i := range all {
		t := &all[i]
		known[t.ID] = t.State
		if t.State.Over() {
			delete(r.leases, leaseOf{name, t.ID})
		}
		switch careOf(t, time.Now()) {
		case forget:
			err = b.Tree().ForgetTxn(ctx, t.ID)
		case materialize:
			b.Materializer().Start(t.ID)
		case watch:
			err = r.expire(ctx, b, t)
		}
		if err != nil {
			return err
		}
	}
	// A transaction that was begun, or went on, while it was being aborted has left a tree.
	left, err := b.Tree().HiddenTxns(ctx)
	for i := 0; i < len(left) && err == nil; i++ {
		if state, ok := known[left[i]]; ok && state.Over() {
			err = b.Tree().CleanTxn(ctx, left[i], b.Mover())
		}
	}
	return err
}

// expire aborts a transaction whose lease has stayed as it is for too long.
func (r *reaper) expire(ctx context.Context, b Buffer, t *bb.Txn) error {
	revision, err := b.Tree().TxnLease(ctx, t.ID)
	if err != nil {
		return err
	}
	of, expired := leaseOf{b.Spec().Name, t.ID}, false
	if r.leases[of], expired = r.leases[of].next(revision, time.Now(), t.Lease); !expired {
		return nil
	}
	_, err = r.s.abort(ctx, b, t.ID, "its lease of "+t.Lease.String()+" was not renewed")
	if bb.KindOf(err) == bb.Busy {
		return nil // it was committed a moment ago
	}
	return err
}
