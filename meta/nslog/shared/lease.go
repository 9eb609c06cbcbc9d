package shared

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/kv"
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
		if err := read(ctx, e, c, a); err == nil || absent(c, err) {
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
	case a != nil && absent(c, err):
		t.cache.Keep(ticket, a.Owner, a.Lease, at, nil)
	}
	return bb.Entry{}, err
}

// absent reports whether the answer to a call is that there is no such name. It holds until a change in the directory
// makes the name.
func absent(c *calls.Call, err error) bool {
	return c.Op == calls.OpLookup && errors.Is(err, bb.NotFound) && !errors.Is(err, kv.ErrNoBucket)
}

// grant grants a lease with the answer to a look-up, which is carried out again, since the lease has to begin before. Its
// error is that of the look-up.
func grant(ctx context.Context, e *nslog.Engine, c *calls.Call, a *calls.Answer) error {
	g := e.Leases().Grant(lease.Reader{Node: c.From, Life: c.Life}, c.Dir)
	err := perform(ctx, e, c, a)
	if err == nil || absent(c, err) {
		a.Lease = g
	}
	return err
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
