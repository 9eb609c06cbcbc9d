package bbd

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
// it had copied before. These are not in the buffer as long as it is away, and are named
// then. Copying them again elsewhere would decide that the node is dead: an operator does.

// askWithin bounds how long a daemon may take to show that it is there.
const askWithin = 5 * time.Second

// inDoubt reports whether what a node copied since a time may not be there any more.
func inDoubt(m *gossip.Member, known bool, since time.Time) bool {
	return !known || !cluster.Serving(m.State) || m.Since.After(since)
}

// takenPart returns the nodes that took part in a job and may not have what they copied any
// more, and of each whether it does not answer now. Gossip alone notices that later.
func (d *Daemon) takenPart(ctx context.Context, s *ops.Status) map[bb.NodeID]bool {
	doubtful := map[bb.NodeID]bool{}
	for node := range s.ByNode {
		if node == d.cfg.Node {
			continue
		}
		within, cancel := context.WithTimeout(ctx, askWithin)
		err := d.cluster.Ask(within, node, access.Daemon(), wire.Type_TYPE_NODES, &wire.Empty{}, &wire.Nodes{})
		cancel()
		if m, known := d.cluster.Member(node); err != nil || inDoubt(&m, known, s.Created) {
			doubtful[node] = err != nil
		}
	}
	return doubtful
}

// stagedAway adds to what a stage-in has come to the files that went with a node.
func (s *staging) stagedAway(ctx context.Context, status *ops.Status, target, name string) error {
	doubtful := s.b.d.takenPart(ctx, status)
	if len(doubtful) == 0 {
		return nil
	}
	return s.nameAway(ctx, status, doubtful, target, name)
}

// jobStagedAway is stagedAway for a stage-in that a batch job waits for. It opens the store
// only where a node is in doubt.
func (d *Daemon) jobStagedAway(ctx context.Context, c access.Caller, status *ops.Status) error {
	doubtful := d.takenPart(ctx, status)
	if len(doubtful) == 0 {
		return nil
	}
	b, err := d.buffer(ctx, status.Buffer)
	if err != nil {
		return err
	}
	s, target, name, err := b.newStaging(ctx, c, "stage-in", status.Path, status.URL)
	if err != nil {
		return err
	}
	defer s.remote.Close()
	return s.nameAway(ctx, status, doubtful, target, name)
}

// nameAway looks at all files that were to be staged in, and names those that cannot be read.
func (s *staging) nameAway(ctx context.Context, status *ops.Status, doubtful map[bb.NodeID]bool, target, name string) error {
	failed := map[string]bool{}
	for _, f := range status.Tally.Failed {
		failed[f.Path] = true
	}
	return stage.Find(ctx, s.remote, name, s.inTarget(ctx, target, name), func(f stage.Found) error {
		at, _ := stage.Plain(f.Target, s.b.Spec().Codec)
		e, err := s.b.lookup(ctx, s.cred, "stage-in", at)
		if bb.KindOf(err) == bb.NotFound {
			return nil // removed since, or it failed
		}
		if err == nil {
			err = s.atHand(&e, at, doubtful)
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

// atHand returns nil if the bytes of a file that was staged in can be read: where they are,
// or from the store. Gone are nodes that were found not to answer.
func (s *staging) atHand(e *bb.Entry, at string, gone map[bb.NodeID]bool) error {
	node := s.b.home(e)
	switch {
	case e.IsDir():
		return nil
	case e.Lost:
		return bb.E(bb.Lost, "stage-in", s.b.address(at), e.Reason)
	case e.State() == bb.StateClean || !s.b.foreign(e) || !gone[node] && s.b.d.cluster.Reachable(node):
		return nil
	}
	if second := replicaOf(e); second != "" && !gone[second] && s.b.d.cluster.Reachable(second) {
		return nil
	}
	return away("stage-in", s.b.address(at), node)
}
