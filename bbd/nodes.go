package bbd

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/fabric"
	"forebay/bbd/owner"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// nodes says which daemons there are.
func (d *Daemon) nodes(ctx context.Context, r *rpc.Request, _ *wire.Empty) (proto.Message, error) {
	answer := &wire.Nodes{}
	if d.cluster == nil {
		return nil, bb.E(bb.Unsupported, "nodes", "", "this daemon is alone").WithRemedy("set cluster.listen to make it part of a cluster")
	}
	for _, m := range d.cluster.Members() {
		if m.Node == d.cfg.Node {
			m = d.Self() // gossip has what it was a moment ago
			m.Session, m.Fabric = fabric.Advertised(m.Session, d.cluster.Addr()), fabric.Advertised(m.Fabric, d.cluster.Addr())
		}
		refused := ""
		if e := d.cluster.Refusal(&m); e != nil {
			refused = e.Err.Error() + "; " + e.Remedy
		}
		answer.Nodes = append(answer.Nodes, &wire.Node{
			Refused: refused,
			Name:    string(m.Node), Instance: uint64(m.Instance), State: m.State.String(),
			Session: m.Session, Fabric: m.Fabric, Admin: m.Admin,
			MinVersion: m.MinVersion, MaxVersion: m.MaxVersion, Server: m.Server,
			Memory: m.Memory.Capacity, MemoryFree: m.Memory.Free, MemoryDirty: m.Memory.Dirty,
			Disk: m.Disk.Capacity, DiskFree: m.Disk.Free, DiskDirty: m.Disk.Dirty, SinceNs: m.Since.UnixNano(),
		})
	}
	return answer, nil
}

// errNotConcerned ends an update of an entry that is not what it was.
var errNotConcerned = errors.New("the entry has changed")

// forget declares a node dead: what it alone held is lost, and the rest goes on without it.
func (d *Daemon) forget(ctx context.Context, r *rpc.Request, m *wire.NodeName) (proto.Message, error) {
	answer, err := d.ofDeadNode(ctx, r, m, (*buffer).forgetNode)
	if err != nil {
		return nil, err
	}
	d.log.Warn("a node was declared dead", "node", m.Name, "lost", answer.LostTotal, "bytes", answer.LostBytes, "kept", answer.KeptTotal)
	return answer, nil
}

// nodeLoss is what forget would answer. It changes nothing.
func (d *Daemon) nodeLoss(ctx context.Context, r *rpc.Request, m *wire.NodeName) (proto.Message, error) {
	answer, err := d.ofDeadNode(ctx, r, m, (*buffer).nodeLoss)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// ofDeadNode adds up, over all buffers, what each says of a node that does not answer.
func (d *Daemon) ofDeadNode(ctx context.Context, r *rpc.Request, m *wire.NodeName, each func(*buffer, context.Context, bb.NodeID, *wire.NodeForgotten) error) (*wire.NodeForgotten, error) {
	node := bb.NodeID(m.Name)
	switch {
	case !r.Caller().System:
		return nil, access.Denied("node forget", m.Name, "declare nodes dead")
	case d.cluster == nil:
		return nil, bb.E(bb.Unsupported, "node forget", m.Name, "this daemon is alone")
	case node == "" || node == d.cfg.Node:
		return nil, bb.E(bb.Invalid, "node forget", m.Name, "a daemon cannot declare itself dead").WithRemedy("ask another one")
	}
	if member, ok := d.cluster.Member(node); ok && cluster.Serving(member.State) {
		return nil, bb.E(bb.Busy, "node forget", m.Name, "its daemon answers: it is not dead").
			WithRemedy("stop it first; to save what it holds: bbctl node drain " + m.Name)
	}
	answer := &wire.NodeForgotten{}
	specs, err := d.bufferSpecs(ctx)
	if err != nil {
		return nil, bb.Wrap("node forget", m.Name, err)
	}
	for _, spec := range specs {
		b, err := d.buffer(ctx, spec.Name)
		if bb.KindOf(err) == bb.NotFound {
			continue // destroyed meanwhile
		}
		if err == nil {
			err = each(b, ctx, node, answer)
		}
		if err != nil {
			return nil, bb.Wrap("node forget", m.Name, err)
		}
	}
	if _, seen := d.cluster.Member(node); !seen && answer.LostTotal+answer.KeptTotal == 0 {
		return nil, bb.E(bb.NotFound, "node forget", m.Name, "no daemon of that name has been seen, and no file is on it").
			WithRemedy(bb.DidYouMean(m.Name, d.cluster.Names(), "see bbctl nodes"))
	}
	return answer, nil
}

// nodeLoss adds what forgetNode would. A second copy counts as kept if its node answers. A
// file of which the dead node had yet to rename the flushed name counts as lost, although
// forgetNode may find it: nothing is renamed here.
func (b *buffer) nodeLoss(ctx context.Context, node bb.NodeID, answer *wire.NodeForgotten) error {
	homed, err := b.homedAt(ctx, node)
	for i := 0; i < len(homed) && err == nil; i++ {
		err = b.lossOf(ctx, &homed[i], answer)
	}
	return err
}

func (b *buffer) lossOf(ctx context.Context, e *bb.Entry, answer *wire.NodeForgotten) error {
	state, second := e.State(), owner.Replica(e)
	kept := state == bb.StateClean || second != "" && (second == b.d.cfg.Node || b.d.cluster.Reachable(second))
	if !kept && state == bb.StateDirty {
		flushed, err := b.writeback.Unrecorded(ctx, e)
		if err != nil {
			return err
		}
		kept = flushed != nil
	}
	if kept {
		answer.KeptTotal++
		return nil
	}
	path, err := b.pathAt(ctx, e.Place())
	if bb.KindOf(err) == bb.NotFound {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	b.addLost(answer, e, path)
	return nil
}

// homedAt returns the files whose home is a node, but for those that are lost already.
func (b *buffer) homedAt(ctx context.Context, node bb.NodeID) (homed []bb.Entry, err error) {
	err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if e.Type == bb.TypeFile && !e.Lost && b.owners.Of(&e) == node {
			homed = append(homed, e)
		}
		return nil
	})
	return homed, err
}

// forgetNode takes a dead node out of the entries of a buffer. What was on the store or
// on a second node gets a new home; what was in its memory alone is lost. What the node
// had yet to rename on the store comes first: then what it has flushed has its name.
func (b *buffer) forgetNode(ctx context.Context, node bb.NodeID, answer *wire.NodeForgotten) error {
	if err := b.writeback.AdoptStoreOps(ctx, node); err != nil {
		return err
	}
	for {
		homed, err := b.homedAt(ctx, node)
		if err != nil || len(homed) == 0 { // none: also of those that were renamed during the last scan
			return err
		}
		for i := range homed {
			if err := b.rehome(ctx, &homed[i], node, answer); err != nil {
				return err
			}
		}
	}
}

// rehome gives one file of a dead node a new home, or says that it is lost.
func (b *buffer) rehome(ctx context.Context, e *bb.Entry, dead bb.NodeID, answer *wire.NodeForgotten) error {
	state := e.State()
	if promoted, err := b.replicas.PromoteOfDead(ctx, e); err != nil {
		return err
	} else if promoted {
		answer.KeptTotal++
		return nil
	}
	var flushed *bb.Flushed
	if state == bb.StateDirty {
		var err error
		if flushed, err = b.writeback.Unrecorded(ctx, e); err != nil {
			return err
		}
	}
	var lost bool
	now, err := b.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		if now.File != e.File || now.Lost || b.owners.Of(now) != dead {
			return errNotConcerned
		}
		if flushed != nil && now.State() == bb.StateDirty && now.Generation == flushed.Generation {
			now.SetFlushed(*flushed)
		}
		if lost = now.State() != bb.StateClean; lost {
			now.Lost, now.Open = true, false
			now.Reason = fmt.Sprintf("its bytes were in the memory of node %s, which was declared dead before they were flushed", dead)
		}
		now.Holders = []bb.NodeID{b.d.cfg.Node}
		return nil
	})
	switch {
	case err == errNotConcerned || bb.KindOf(err) == bb.NotFound:
		return nil
	case err != nil:
		return err
	case !lost:
		answer.KeptTotal++
		return nil
	}
	path, err := b.pathAt(ctx, now.Place())
	if err != nil {
		path = now.Name
	}
	b.sayLost(&now, path)
	b.addLost(answer, &now, path)
	return nil
}

func (b *buffer) addLost(answer *wire.NodeForgotten, e *bb.Entry, path string) {
	answer.LostTotal++
	answer.LostBytes += e.Size
	if len(answer.Lost) < transfer.MaxNamed {
		m := wire.FromEntry(e)
		m.Path = b.address(path)
		answer.Lost = append(answer.Lost, m)
	}
}
