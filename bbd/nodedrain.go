package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// nodeDrain says whether this node is being emptied, or was, and takes nothing in.
//
//	works ──begin──▶ draining ──end(done)──▶ drained ──undo──▶ works
//	  ▲                  │
//	  └──end(not done)───┘
type nodeDrain struct {
	mu      lockorder.Mutex[lockrank.Leaf]
	running int // drains that have not ended
	drained bool
}

// active reports whether nothing is taken in.
func (n *nodeDrain) active() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running > 0 || n.drained
}

func (n *nodeDrain) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running++
}

// end says that a drain has ended, and whether all was saved. If not, the node works on.
func (n *nodeDrain) end(done bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running--
	n.drained = done
}

// undo lets the node work again; false while a drain runs.
func (n *nodeDrain) undo() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running > 0 {
		return false
	}
	n.drained = false
	return true
}

// drainNode empties this node: everything dirty is flushed or moved to other nodes, and
// nothing new is taken in. With to, what these nodes have room for is moved there, and
// not flushed first. What could not be saved is in the progress.
func (d *Daemon) drainNode(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	d.draining.begin()
	err := d.moveAllOut(ctx, to, p)
	d.draining.end(err == nil && !p.Left())
	return err
}

// undrainNode lets a node that was drained work again.
func (d *Daemon) undrainNode(ctx context.Context, r *rpc.Request, m *wire.NodeName) (proto.Message, error) {
	const op = "node undrain"
	node := bb.NodeID(m.Name)
	switch {
	case !r.Caller().System && !r.Caller().Governs:
		return nil, access.Denied(op, m.Name, "drain nodes")
	case d.cluster == nil:
		return nil, bb.E(bb.Unsupported, op, m.Name, "this daemon is alone, and nothing drains it")
	case node != d.cfg.Node && r.Caller().Relayed:
		return nil, bb.E(bb.Invalid, op, m.Name, "this is another node")
	case node != d.cfg.Node:
		s, err := d.cluster.Session(ctx, node, cluster.Who(*r.Caller()))
		if err == nil {
			_, err = s.Ask(ctx, wire.Type_TYPE_NODE_UNDRAIN, m, nil, nil)
		}
		if err == nil {
			d.awaitState(ctx, node, func(s gossip.State) bool { return s != gossip.Draining })
		}
		return &wire.Empty{}, err
	case !d.draining.undo():
		return nil, bb.E(bb.Busy, op, m.Name, "it is being drained").WithRemedy("end the drain first: interrupt bbctl node drain")
	}
	d.log.Info("this node takes files in again")
	return &wire.Empty{}, nil
}
