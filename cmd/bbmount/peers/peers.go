// Package peers waits for the daemons of other nodes that are starting or restarting, and without which a request about
// a file fails. It must never depend on the request.
package peers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbmount/request"
)

// Patience is how requests wait for other nodes' daemons. Its methods may be called concurrently.
type Patience struct {
	c     *client.Client
	bound time.Duration
}

const (
	usual    = time.Minute           // without a bound of its own
	first    = 20 * time.Millisecond // pause before the first repetition
	longest  = time.Second           // pause
	moment   = time.Second           // for which a request may keep others waiting while a peer is waited for
	restarts = time.Minute           // the most for which a daemon that has left is waited for
)

// New returns the patience of a mount whose requests wait for a daemon for a time, 0: for its own without end, for
// others for a minute.
func New(c *client.Client, bound time.Duration) *Patience {
	if bound == 0 {
		bound = usual
	}
	return &Patience{c, bound}
}

// Until repeats do while another node's daemon does not answer, but none that is dead for the cluster, nor one that has
// left it long ago. It returns the last error. A change whose outcome is unknown is not repeated.
func (p *Patience) Until(ctx context.Context, do func() error) error {
	return p.until(ctx, p.dead, do)
}

func (p *Patience) until(ctx context.Context, dead func(context.Context, admin.NodeID) bool, do func() error) error {
	began := time.Now()
	for pause := first; ; pause = min(2*pause, longest) {
		err := do()
		node, away := Away(err)
		if !away || time.Since(began) > p.bound || dead(ctx, node) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// dead reports whether a node's daemon is dead for the daemon of this node, or has left for good.
func (p *Patience) dead(ctx context.Context, node admin.NodeID) bool {
	nodes, err := admin.Nodes(ctx, p.c)
	return err == nil && gone(nodes, node, time.Now())
}

// gone reports whether a node's daemon is not waited for: it is unknown, dead, or has left longer ago than a restart takes.
func gone(nodes []admin.Node, node admin.NodeID, now time.Time) bool {
	i := slices.IndexFunc(nodes, func(n admin.Node) bool { return n.Name == node })
	return i < 0 || nodes[i].State == "dead" || nodes[i].State == "left" && now.Sub(nodes[i].Since) >= restarts
}

// Settle is request.Settle, repeated as Until has it.
func (p *Patience) Settle(ctx context.Context, do func(repeated bool) error) error {
	return p.settle(ctx, p.dead, do)
}

func (p *Patience) settle(ctx context.Context, dead func(context.Context, admin.NodeID) bool, do func(repeated bool) error) error {
	unknown := false // an attempt may have been carried out, before one for which a daemon was away
	return p.until(ctx, dead, func() error {
		return request.Settle(ctx, func(repeated bool) error {
			unknown = unknown || repeated
			return do(unknown)
		})
	})
}

// Apart calls do, which keeps others waiting, for a moment at first. If that is too short, as while this node's daemon waits
// for another one, it calls wait, and then do again, unless wait failed without another node's daemon.
func Apart(ctx context.Context, do, wait func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	err := do(short)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return err
	}
	err = wait(ctx)
	if _, away := Away(err); away || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	return do(ctx)
}

// Away returns the other node without whose daemon a request failed.
func Away(err error) (admin.NodeID, bool) {
	if client.KindOf(err) != client.ErrUnavailable || errors.Is(err, client.ErrUnknownOutcome) {
		return "", false
	}
	for e := (*client.Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Node != "" {
			return e.Node, true
		}
	}
	return "", false
}
