package drain

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/bbd/peer"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// NodeState is whether a node is being emptied, or was, and accepts nothing new. The zero value is of a
// node that works. Its methods may be called concurrently.
//
//	works ──Begin──▶ draining ──end(saved)──▶ drained ──undo──▶ works
//	  ▲                  │
//	  └──end(not saved)──┘
type NodeState struct {
	mu      lockorder.Mutex[lockrank.Leaf]
	running int // drains that have not ended
	drained bool
}

// Active reports whether nothing new is accepted.
func (n *NodeState) Active() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running > 0 || n.drained
}

// Begin begins a drain of the node.
func (n *NodeState) Begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running++
}

// end ends a drain. A node of which not all was saved works on.
func (n *NodeState) end(saved bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running--
	n.drained = saved
}

// undo makes the node work again. It returns false while a drain runs.
func (n *NodeState) undo() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running > 0 {
		return false
	}
	n.drained = false
	return true
}

// Node empties a node. Everything dirty is flushed or moved to other nodes, and nothing new is accepted
// there. Files for which the nodes that the request names have room are moved to them, and not flushed first.
// Unsaved files are in the answer.
func (s *Service) Node(ctx context.Context, r call.Request, m *wire.NodeDrain) (proto.Message, error) {
	node := bb.NodeID(m.Name)
	switch {
	case !r.Caller().System && !r.Caller().Governs:
		return nil, access.Denied("node drain", m.Name, "drain nodes")
	case s.o.Cluster == nil:
		return nil, bb.E(bb.Unsupported, "node drain", m.Name, "this daemon is alone").WithRemedy("use bbctl drain BUFFER")
	case node != s.o.Node && r.Caller().Relayed:
		return nil, bb.E(bb.Invalid, "node drain", m.Name, "this is another node")
	case node != s.o.Node:
		return s.otherNode(ctx, r, m)
	}
	var to []bb.NodeID
	for _, name := range m.To {
		to = append(to, bb.NodeID(name))
	}
	if len(to) > 0 && len(s.o.Cluster.CandidatesAmong(0, to)) == 0 {
		return nil, bb.E(bb.Unavailable, "node drain", m.Name, "none of the nodes that are to receive its files is ready").WithRemedy("see bbctl nodes")
	}
	p := transfer.ProgressTo(r)
	s.o.State.Begin()
	err := s.o.MoveOut(ctx, to, p)
	s.o.State.end(err == nil && !p.Left())
	if err != nil {
		return nil, bb.Wrap("node drain", m.Name, err)
	}
	return p.Done(), nil
}

// otherNode passes a request to empty a node on to that, and the answers back.
func (s *Service) otherNode(ctx context.Context, r call.Request, m *wire.NodeDrain) (proto.Message, error) {
	session, err := s.o.Cluster.Session(ctx, bb.NodeID(m.Name), cluster.Who(*r.Caller()))
	if err != nil {
		return nil, err
	}
	var last *wire.Progress
	err = session.Stream(ctx, wire.Type_TYPE_NODE_DRAIN, &wire.NodeDrain{Name: m.Name, To: m.To}, nil, func(a peer.Answer) error {
		now := new(wire.Progress)
		if err := a.Decode(now); err != nil {
			return err
		}
		if a.More {
			return r.More(now, nil)
		}
		last = now
		return nil
	})
	if err != nil {
		return nil, err
	}
	if transfer.Saved(last) {
		s.awaitState(ctx, bb.NodeID(m.Name), func(s gossip.State) bool { return s != gossip.Ready })
	}
	return last, nil
}

// UndoNode makes a node that was emptied work again.
func (s *Service) UndoNode(ctx context.Context, r call.Request, m *wire.NodeName) (proto.Message, error) {
	const op = "node undrain"
	node := bb.NodeID(m.Name)
	switch {
	case !r.Caller().System && !r.Caller().Governs:
		return nil, access.Denied(op, m.Name, "drain nodes")
	case s.o.Cluster == nil:
		return nil, bb.E(bb.Unsupported, op, m.Name, "this daemon is alone, and nothing drains it")
	case node != s.o.Node && r.Caller().Relayed:
		return nil, bb.E(bb.Invalid, op, m.Name, "this is another node")
	case node != s.o.Node:
		session, err := s.o.Cluster.Session(ctx, node, cluster.Who(*r.Caller()))
		if err == nil {
			_, err = session.Ask(ctx, wire.Type_TYPE_NODE_UNDRAIN, m, nil, nil)
		}
		if err == nil {
			s.awaitState(ctx, node, func(s gossip.State) bool { return s != gossip.Draining })
		}
		return &wire.Empty{}, err
	case !s.o.State.undo():
		return nil, bb.E(bb.Busy, op, m.Name, "it is being drained").WithRemedy("end the drain first: interrupt bbctl node drain")
	}
	s.o.Log.Info("this node takes files in again")
	return &wire.Empty{}, nil
}

const (
	heardWithin = 3 * time.Second
	heardEvery  = 20 * time.Millisecond
)

// awaitState returns when this daemon has received another one's new state, so that `bbctl nodes` shows
// the effect of a command. Gossip takes a moment. If it takes long, the command has worked all the same.
func (s *Service) awaitState(ctx context.Context, node bb.NodeID, reached func(gossip.State) bool) {
	ctx, cancel := context.WithTimeout(ctx, heardWithin)
	defer cancel()
	tick := time.NewTicker(heardEvery)
	defer tick.Stop()
	for {
		if m, ok := s.o.Cluster.Member(node); !ok || reached(m.State) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
