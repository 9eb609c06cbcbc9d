package shared

import (
	"context"

	"forebay/internal/bb"
	"forebay/meta/nslog"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/shared/calls"
)

// leased answers a look-up from memory, as the owner or under a lease, or by the owner, which grants one.
func (t *Tree) leased(ctx context.Context, c *calls.Call) (bb.Entry, error) {
	if e, has := t.cache.Find(c.Dir, c.Name); has && t.gone() == nil {
		return e, nil
	}
	if e := t.serving(); e != nil {
		if a := (&calls.Answer{}); read(ctx, e, c, a) == nil {
			t.saw(c, a)
			return a.Entry, nil
		}
	}
	c.Life = t.tail.ID()
	ticket := t.cache.Begin()
	a, err := t.ask(ctx, c)
	if err != nil {
		return bb.Entry{}, err
	}
	t.cache.Keep(ticket, a.Owner, a.Lease, &a.Entry)
	return a.Entry, nil
}

// grant grants a lease with the answer to a look-up, which is carried out again, since the lease has to begin before.
func grant(ctx context.Context, e *nslog.Engine, c *calls.Call, a *calls.Answer) error {
	g := e.Leases().Grant(lease.Reader{Node: c.From, Life: c.Life}, c.Dir)
	if g.Term == 0 {
		return nil
	}
	err := perform(ctx, e, c, a)
	if err == nil {
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
