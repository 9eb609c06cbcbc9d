package bbd

import (
	"context"
	"slices"
	"sync"

	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A drain below a path, and any while a cluster has members that know of no jobs
// (cluster/version.go), is asked of each daemon, for as long as the client waits.

// drainEach has every daemon flush what it is the home of until timed ends, and adds what the
// homes that do not answer have not saved.
func (d *Daemon) drainEach(ctx, timed context.Context, r *rpc.Request, b *buffer, m *wire.Drain) (*wire.Progress, error) {
	nodes := b.d.cluster.Others()
	sum := transfer.NewSum(transfer.ProgressTo(r), len(nodes)+1)
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() { errs[i] = d.drainAt(ctx, r, b, node, m, func(now *wire.Progress) { sum.Set(i, now) }) })
	}
	own := len(nodes)
	here := transfer.NewProgress(func(now *wire.Progress) error { return sum.Set(own, now) })
	answer, err := b.drainShare(timed, m, here)
	group.Wait()
	if err != nil {
		return nil, err
	}
	sum.Set(own, answer)
	answered := []bb.NodeID{b.d.cfg.Node}
	for i, node := range nodes {
		if errs[i] == nil {
			answered = append(answered, node)
		} else {
			b.d.log.Warn("draining at another node", "buffer", b.name, "node", node, "err", errs[i])
		}
	}
	answer = sum.Sum()
	answer.Done = true
	return answer, drained{b, m.Below}.addAway(ctx, answer, func(home bb.NodeID) bool { return !slices.Contains(answered, home) })
}

// drainAt has one other daemon drain.
func (d *Daemon) drainAt(ctx context.Context, r *rpc.Request, b *buffer, node bb.NodeID, m *wire.Drain, tell func(*wire.Progress)) error {
	ctx, cancel := drainEnds(ctx, m)
	defer cancel()
	s, err := b.d.cluster.Session(ctx, node, cluster.Who(*r.Caller()))
	if err != nil {
		return err
	}
	ask := &wire.Drain{Buffer: b.name, TimeoutNs: m.TimeoutNs, Local: true, Below: m.Below, Overwrite: m.Overwrite}
	return s.Stream(ctx, wire.Type_TYPE_DRAIN, ask, nil, func(a peer.Answer) error {
		now := new(wire.Progress)
		if err := a.Decode(now); err != nil {
			return err
		}
		tell(now)
		return nil
	})
}
