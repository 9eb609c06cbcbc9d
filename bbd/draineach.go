package bbd

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A drain below a path, and any while a cluster has members that know of no jobs
// (cluster/version.go), is asked of each daemon, for as long as the client waits.

// drainEach has every daemon flush what it is the home of until timed ends, and adds what the
// homes that do not answer have not saved.
func (d *Daemon) drainEach(ctx, timed context.Context, r *rpc.Request, b *buffer, m *wire.Drain) (*wire.Progress, error) {
	nodes := b.d.cluster.Others()
	shares := &shares{of: newProgress(r), parts: make([]*wire.Progress, len(nodes)+1)}
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() { errs[i] = d.drainAt(ctx, r, b, node, m, func(now *wire.Progress) { shares.set(i, now) }) })
	}
	own := len(nodes)
	here := &progress{tell: func(now *wire.Progress) error { return shares.set(own, now) }}
	answer, err := b.drainShare(timed, m, here)
	group.Wait()
	if err != nil {
		return nil, err
	}
	shares.set(own, answer)
	answered := []bb.NodeID{b.d.cfg.Node}
	for i, node := range nodes {
		if errs[i] == nil {
			answered = append(answered, node)
		} else {
			b.d.log.Warn("draining at another node", "buffer", b.name, "node", node, "err", errs[i])
		}
	}
	answer = shares.sum()
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

// shares adds up the progress of several daemons.
type shares struct {
	of *progress

	mu    sync.Mutex
	parts []*wire.Progress
}

// set says how far one of them is, and tells the client how far all are.
func (s *shares) set(i int, now *wire.Progress) error {
	s.mu.Lock()
	s.parts[i] = now
	s.mu.Unlock()
	sum := s.sum()
	return s.of.update(func(m *wire.Progress) { proto.Reset(m); proto.Merge(m, sum) })
}

func (s *shares) sum() *wire.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := new(wire.Progress)
	for _, p := range s.parts {
		if p == nil {
			continue
		}
		all.FilesTotal += p.FilesTotal
		all.FilesDone += p.FilesDone
		all.FilesSkipped += p.FilesSkipped
		all.BytesTotal += p.BytesTotal
		all.BytesDone += p.BytesDone
		all.BytesNotCopied += p.BytesNotCopied
		all.HeldTotal += p.HeldTotal
		all.OpenTotal += p.OpenTotal
		all.FailedTotal += p.FailedTotal
		all.Failed = append(all.Failed, p.Failed[:min(len(p.Failed), maxNamed-len(all.Failed))]...)
		all.Held = append(all.Held, p.Held[:min(len(p.Held), maxNamed-len(all.Held))]...)
		all.Open = append(all.Open, p.Open[:min(len(p.Open), maxNamed-len(all.Open))]...)
		if p.LastError != "" {
			all.LastError = p.LastError
		}
	}
	return all
}
