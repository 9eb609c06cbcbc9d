package drain

import (
	"context"
	"slices"
	"sync"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// If a drain is below a path, or a cluster has members without support for jobs
// (cluster/version.go), each daemon gets a request, for as long as the client waits.

// askEach has every daemon flush its own files until timed ends, and adds the unsaved files of the owners that
// do not answer.
func (c scope) askEach(ctx, timed context.Context, r call.Request, m *wire.Drain) (*wire.Progress, error) {
	nodes := c.s.o.Cluster.Others()
	sum := transfer.NewSum(transfer.ProgressTo(r), len(nodes)+1)
	errs := make([]error, len(nodes))
	ask := &wire.Drain{Buffer: c.name, TimeoutNs: m.TimeoutNs, Local: true, Below: c.below, Overwrite: m.Overwrite}
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() {
			patient, cancel := withGrace(ctx, m)
			defer cancel()
			errs[i] = c.s.ask(patient, *r.Caller(), node, ask, func(now *wire.Progress) { sum.Set(i, now) })
		})
	}
	own := len(nodes)
	here := transfer.NewProgress(func(now *wire.Progress) error { return sum.Set(own, now) })
	answer, err := c.share(timed, m, here)
	group.Wait()
	if err != nil {
		return nil, err
	}
	sum.Set(own, answer)
	answered := []bb.NodeID{c.s.o.Node}
	for i, node := range nodes {
		if errs[i] == nil {
			answered = append(answered, node)
		} else {
			c.s.o.Log.Warn("draining at another node", "buffer", c.name, "node", node, "err", errs[i])
		}
	}
	answer = sum.Sum()
	answer.Done = true
	return answer, c.addAway(ctx, answer, func(owner bb.NodeID) bool { return !slices.Contains(answered, owner) })
}

// ask requests a drain of one other daemon, and calls tell with each of its answers.
func (s *Service) ask(ctx context.Context, as access.Caller, node bb.NodeID, m *wire.Drain, tell func(*wire.Progress)) error {
	session, err := s.o.Cluster.Session(ctx, node, cluster.Who(as))
	if err != nil {
		return err
	}
	return session.Stream(ctx, wire.Type_TYPE_DRAIN, m, nil, func(a peer.Answer) error {
		now := new(wire.Progress)
		if err := a.Decode(now); err != nil {
			return err
		}
		tell(now)
		return nil
	})
}
