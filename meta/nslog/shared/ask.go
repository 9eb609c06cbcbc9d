package shared

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/retry"
)

// ask sends a call until an owner answers, or the context ends.
func (t *Tree) ask(ctx context.Context, c *Call) (*Answer, error) {
	c.From = t.o.Node
	sent := false
	for try := 0; ; try++ {
		to := t.route()
		if to.node == "" {
			to = t.find(ctx, to)
		}
		if to.node != "" {
			a, err := t.send(ctx, to, c)
			switch {
			case err == nil && a.Status == Served:
				return a, a.Failure.err()
			case err == nil && a.Status == OtherIncarnation:
				t.learn(to, route{to.node, a.Owner})
				if try < 2 && ctx.Err() == nil {
					continue
				}
			default:
				sent = true
				t.find(ctx, to)
			}
		}
		retry.Pause(ctx, try)
		if ctx.Err() != nil {
			return nil, t.gaveUp(ctx, sent && c.Op >= opPrepare)
		}
	}
}

// send carries a call to a daemon and waits for the answer, not for ever.
func (t *Tree) send(ctx context.Context, to route, c *Call) (*Answer, error) {
	message := *c
	message.Owner = to.owner
	ctx, cancel := context.WithTimeout(ctx, t.o.Patience)
	defer cancel()
	if to.node == t.o.Node {
		return t.Handle(ctx, &message), nil
	}
	return t.caller.Call(ctx, to.node, &message)
}

func (t *Tree) route() route {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.route
}

// learn replaces a route that is no longer right.
func (t *Tree) learn(old, now route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.route == old {
		t.mu.route = now
	}
}

// find reads the owner from the log, and replaces a route that led nowhere, or to a daemon that
// does not answer. If the log does not answer either, the route stays.
func (t *Tree) find(ctx context.Context, old route) route {
	ctx, cancel := context.WithTimeout(ctx, t.o.Patience)
	defer cancel()
	h, err := owner.Newest(ctx, t.log)
	if err == nil && h.Node != old.node {
		t.learn(old, route{node: h.Node})
	}
	return t.route()
}

// gaveUp is the error of a call whose context ended before an owner answered.
func (t *Tree) gaveUp(ctx context.Context, unknown bool) error {
	err := context.Cause(ctx)
	e := &bb.Error{Kind: bb.Cancelled, Op: "namespace", Path: t.o.Buffer, Err: err, Unknown: unknown}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Kind, e.Err = bb.Unavailable, errNoOwner
		e.Remedy = "see whether the NATS server runs and can be reached, and which daemons are up"
	}
	return e
}

var errNoOwner = errors.New("no daemon that owns the namespace has answered in time")

// change is ask for a change: with the client's ID, or one of this daemon's.
func (t *Tree) change(ctx context.Context, c *Call) (*Answer, error) {
	var ours bool
	if c.ID, ours = nslog.IDOf(ctx); !ours {
		c.ID = t.changes.begin()
		defer t.changes.end(c.ID)
	}
	return t.ask(ctx, c)
}
