package staging

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/transfer"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
	"forebay/meta/ops"
)

// A stage-in that daemons do together may end after one of them has gone, with files that
// it had copied before. As long as it is away, these are not in the buffer, and are named. Copying
// them again elsewhere would declare the node dead, which an operator decides.

// askWithin bounds how long a daemon may take to show that it is there.
const askWithin = 5 * time.Second

// mayHaveLost reports whether the files that a node copied since a time may not be there any more.
func mayHaveLost(m *gossip.Member, known bool, since time.Time) bool {
	return !known || !cluster.Serving(m.State) || m.Since.After(since)
}

// takenPart returns the nodes that took part in a job and may not have their copied files any
// more, and of each whether it does not answer now. Gossip alone shows that later.
func (v *Service) takenPart(ctx context.Context, s *ops.Status) map[bb.NodeID]bool {
	suspects := map[bb.NodeID]bool{}
	for node := range s.ByNode {
		if node == v.o.Node {
			continue
		}
		within, cancel := context.WithTimeout(ctx, askWithin)
		err := v.o.Cluster.Ask(within, node, access.Daemon(), wire.Type_TYPE_NODES, &wire.Empty{}, &wire.Nodes{})
		cancel()
		if m, known := v.o.Cluster.Member(node); err != nil || mayHaveLost(&m, known, s.Created) {
			suspects[node] = err != nil
		}
	}
	return suspects
}

// stagedAway adds to the result of a stage-in the files that went with a node.
func (s *job) stagedAway(ctx context.Context, status *ops.Status, target, name string) error {
	suspects := s.of.takenPart(ctx, status)
	if len(suspects) == 0 {
		return nil
	}
	return s.nameAway(ctx, status, suspects, target, name)
}

// StagedAway is stagedAway for a stage-in that a batch job waits for. It opens the store
// only where a node may have lost files.
func (v *Service) StagedAway(ctx context.Context, c access.Caller, status *ops.Status) error {
	suspects := v.takenPart(ctx, status)
	if len(suspects) == 0 {
		return nil
	}
	b, err := v.o.Find(ctx, status.Buffer)
	if err != nil {
		return err
	}
	s, target, name, err := v.open(ctx, b, c, "stage-in", status.Path, status.URL)
	if err != nil {
		return err
	}
	defer s.remote.Close()
	return s.nameAway(ctx, status, suspects, target, name)
}

// nameAway checks all files that were to be staged in, and names those that cannot be read.
func (s *job) nameAway(ctx context.Context, status *ops.Status, suspects map[bb.NodeID]bool, target, name string) error {
	failed := map[string]bool{}
	for _, f := range status.Tally.Failed {
		failed[f.Path] = true
	}
	return stage.Find(ctx, s.remote, name, s.inTarget(ctx, target, name), func(f stage.Found) error {
		at, _ := stage.Plain(f.Target, s.b.Spec().Codec)
		e, err := s.b.Lookup(ctx, s.cred, "stage-in", at)
		if kind := bb.KindOf(err); kind == bb.NotFound || kind == bb.Invalid {
			return nil // removed since, or it failed
		}
		if err == nil {
			err = s.atHand(&e, at, suspects)
		}
		if err == nil || failed[at] {
			return nil
		}
		t := &status.Tally
		t.Files, t.FailedTotal = max(0, t.Files-1), t.FailedTotal+1
		if len(t.Failed) < transfer.MaxNamed {
			t.Failed = append(t.Failed, ops.Failure{Path: at, Kind: bb.KindOf(err), Reason: err.Error(), Bytes: e.Size})
		}
		return nil
	})
}

// If the bytes of a file that was staged in can be read where they are, or from the store, atHand
// returns nil. Gone are the nodes without an answer.
func (s *job) atHand(e *bb.Entry, at string, gone map[bb.NodeID]bool) error {
	node := s.b.Owner(e)
	switch {
	case e.IsDir():
		return nil
	case e.Lost:
		return bb.E(bb.Lost, "stage-in", s.address(at), e.Reason)
	case e.State() == bb.StateClean || !s.b.OwnedElsewhere(e) || !gone[node] && s.of.o.Cluster.Reachable(node):
		return nil
	}
	if second := s.b.Replica(e); second != "" && !gone[second] && s.of.o.Cluster.Reachable(second) {
		return nil
	}
	return cluster.Away("stage-in", s.address(at), node)
}
