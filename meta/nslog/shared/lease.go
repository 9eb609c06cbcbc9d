package shared

import (
	"context"
	"time"

	"forebay/internal/bb"
	"forebay/meta/nslog"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/shared/calls"
)

// leased answers a look-up from memory, as the owner or under a lease, or by the owner, which grants one.
func (t *Tree) leased(ctx context.Context, c *calls.Call) (bb.Entry, error) {
	if e, known := t.cache.Find(c.Dir, c.Name); known && t.gone() == nil {
		if e == nil {
			return bb.Entry{}, bb.E(bb.NotFound, "lookup", c.Name, "there is no such file or directory")
		}
		return *e, nil
	}
	if e := t.serving(); e != nil && t.whole.Load() == e {
		a := &calls.Answer{}
		if err := read(ctx, e, c, a); err == nil || c.Absent(err) {
			t.saw(c, a)
			return a.Entry, err
		}
	}
	c.Life = t.tail.ID()
	ticket := t.cache.Begin()
	a, err := t.ask(ctx, c)
	at := bb.Place{Dir: c.Dir, Name: c.Name}
	switch {
	case err == nil:
		t.cache.Keep(ticket, a.Owner, a.Lease, at, &a.Entry)
		return a.Entry, nil
	case a != nil && c.Absent(err):
		t.cache.Keep(ticket, a.Owner, a.Lease, at, nil)
	}
	return bb.Entry{}, err
}

// part is leased of a part of a listing.
func (t *Tree) part(ctx context.Context, c *calls.Call) (entries []bb.Entry, more bool, err error) {
	if entries, more, known := t.cache.List(c.Dir, c.Name, c.Number); known && t.gone() == nil {
		return entries, more, nil
	}
	c.Life = t.tail.ID()
	ticket := t.cache.Begin()
	a, err := t.ask(ctx, c)
	if err != nil {
		return nil, false, err
	}
	t.cache.KeepList(ticket, a.Owner, a.Lease, lease.Part{Dir: c.Dir, After: c.Name, Entries: a.Entries, More: a.Yes})
	return a.Entries, a.Yes, nil
}

// unleased is part without a lease, for a directory that is about to be changed.
func (t *Tree) unleased(ctx context.Context, c *calls.Call) (entries []bb.Entry, more bool, err error) {
	a, err := t.ask(ctx, c)
	if err != nil {
		return nil, false, err
	}
	return a.Entries, a.Yes, nil
}

// grant grants a lease with the answer to a look-up or listing, which is carried out again, since the lease has to begin
// before. Its error is that of the look-up.
func grant(ctx context.Context, e *nslog.Engine, c *calls.Call, a *calls.Answer) error {
	g := e.Leases().Grant(lease.Reader{Node: c.From, Life: c.Life}, c.Dir)
	err := perform(ctx, e, c, a)
	if err == nil || c.Absent(err) {
		a.Lease = g
	}
	return err
}

// Served returns since when this daemon has owned the log, or zero if it does not, and the counts of the leases that it
// has granted as the owner.
func (t *Tree) Served() (since time.Time, granted lease.Stats) {
	granted = t.counts.Stats()
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.mu.engine; e != nil && e.Err() == nil {
		since, granted.Held = t.mu.since, e.Leases().Held()
	}
	return since, granted
}

// revoke makes a daemon drop leases.
func (t *Tree) revoke(ctx context.Context, r lease.Reader, of lease.Of) error {
	a, err := t.caller.Call(ctx, r.Node, &calls.Call{Op: calls.OpRevoke, From: t.o.Node, Name: t.o.Log, Life: r.Life, Dir: of.Dir, All: of.All})
	if err == nil {
		err = a.Failure.Err()
	}
	return err
}

// handleRevoke drops leases of this daemon.
func (t *Tree) handleRevoke(c *calls.Call) *calls.Answer {
	a := &calls.Answer{Status: calls.Served}
	if c.Name != t.o.Log || c.Life != t.tail.ID() {
		a.Failure = calls.FailureOf(bb.E(bb.NotFound, "revoke", t.o.Buffer, "the leases are another daemon's, or those of this one before it was started"))
		return a
	}
	t.cache.Revoke(lease.Of{All: c.All, Dir: c.Dir})
	return a
}
