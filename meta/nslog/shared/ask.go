package shared

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/retry"
)

// ask sends a call until an owner answers, or the context ends.
func (t *Tree) ask(ctx context.Context, c *calls.Call) (*calls.Answer, error) {
	if err := calls.CheckNames(c); err != nil {
		return nil, err
	}
	c.From, c.Restores = t.o.Node, calls.Restores(ctx)
	sent := false
	var away error // the reason why the log was not read
	for try := 0; ; try++ {
		if err := t.gone(); err != nil {
			return nil, kv.Wrap("namespace", t.o.Buffer, err)
		}
		to := t.route()
		if to.node == "" {
			to, away = t.find(ctx, to)
		}
		if to.node != "" {
			a, err := t.send(ctx, to, c)
			if err == nil || ctx.Err() == nil {
				t.heard(to, err == nil)
			}
			switch {
			case err == nil && a.Status == calls.Served:
				t.saw(c, a)
				return a, a.Failure.Err()
			case err == nil && a.Status == calls.OtherIncarnation:
				t.learn(to, route{to.node, a.Owner})
				if try < 2 && ctx.Err() == nil {
					continue
				}
			case refused(err):
				return nil, err
			default:
				sent = true
				if _, away = t.find(ctx, to); away != nil && ctx.Err() == nil {
					t.heard(to, true) // the owner waits for the log as well, and another one could not claim it
				}
			}
		}
		if try >= inVain {
			t.wake()
		}
		retry.Pause(ctx, try)
		if ctx.Err() != nil {
			return nil, t.gaveUp(ctx, sent && c.Op >= calls.OpPrepare, away)
		}
	}
}

// refused reports whether a call cannot be carried to an owner, however often it is sent.
func refused(err error) bool {
	kind := bb.KindOf(err)
	return err != nil && (kind == bb.Invalid || kind == bb.Unsupported)
}

// inVain is after how many tries calls wait in vain. The first finds the owner.
const inVain = 1

// heard records whether the owner has answered a call.
func (t *Tree) heard(to route, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case answered || t.mu.route.node != to.node:
		t.mu.silent = time.Time{}
	case t.mu.silent.IsZero():
		t.mu.silent = time.Now()
	}
}

// silence returns for how long the owner has answered no call.
func (t *Tree) silence() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.silent.IsZero() {
		return 0
	}
	return time.Since(t.mu.silent)
}

// wake has Watch look at the log.
func (t *Tree) wake() {
	select {
	case t.vain <- struct{}{}:
	default:
	}
}

// gone returns the reason why calls need not wait for an owner, or nil if they have to.
func (t *Tree) gone() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.over
}

// send carries a call to a daemon and waits for the answer, not for ever.
func (t *Tree) send(ctx context.Context, to route, c *calls.Call) (*calls.Answer, error) {
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

// learn replaces a route that is not right any more.
func (t *Tree) learn(old, now route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.route == old {
		if t.mu.route = now; now.node != old.node {
			t.mu.silent = time.Time{}
		}
	}
}

// find reads the owner from the log, and replaces a route that led nowhere, or to a daemon that
// does not answer. If the log does not answer either, the route stays, and the error names its server.
func (t *Tree) find(ctx context.Context, old route) (route, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.Patience)
	defer cancel()
	h, err := t.newest(ctx)
	if err == nil && h.Node != old.node {
		t.learn(old, route{node: h.Node})
	}
	return t.route(), err
}

// gaveUp is the error of a call with a context that ended before an owner answered. away is the
// reason why the log was not read.
func (t *Tree) gaveUp(ctx context.Context, unknown bool, away error) error {
	err := context.Cause(ctx)
	e := &bb.Error{Kind: bb.Cancelled, Op: "namespace", Path: t.o.Buffer, Err: err, Unknown: unknown}
	if errors.Is(err, context.DeadlineExceeded) {
		if e.Kind, e.Err = bb.Unavailable, errNoOwner; away != nil {
			e.Err = fmt.Errorf("%w, nor the log: %w", errNoOwner, away)
		}
		e.Remedy = "see whether the NATS server runs and can be reached, and which daemons are up"
	}
	return e
}

var errNoOwner = errors.New("no daemon that owns the namespace has answered in time")

// change is ask for a change: with the client's ID, or one of this daemon's.
func (t *Tree) change(ctx context.Context, c *calls.Call) (*calls.Answer, error) {
	var ours bool
	if c.ID, ours = once.IDOf(ctx); !ours {
		c.ID = t.changes.Begin()
		defer t.changes.End(c.ID)
	}
	return t.ask(ctx, c)
}
