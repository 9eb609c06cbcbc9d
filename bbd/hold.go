package bbd

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// heldThere are flushes that rest at other daemons.
type heldThere struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	nodes  sync.Map // bb.NodeID: those that hold
}

// holds reports whether a node was asked, and still holds.
func (h *heldThere) holds(node bb.NodeID) bool {
	_, ok := h.nodes.Load(node)
	return ok
}

// holdAt has daemons rest their flushes under some paths, until release is called.
func (b *buffer) holdAt(ctx context.Context, nodes []bb.NodeID, paths ...string) (*heldThere, error) {
	return b.holdWith(ctx, nodes, &wire.Hold{Buffer: b.name, Paths: paths})
}

// holdWith makes a request to hold of daemons, which lasts until release is called.
func (b *buffer) holdWith(ctx context.Context, nodes []bb.NodeID, m *wire.Hold) (*heldThere, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &heldThere{cancel: cancel}
	answers := make(chan error, len(nodes))
	for _, node := range nodes {
		h.ended.Go(func() {
			s, err := b.d.cluster.Session(ctx, node, cluster.Who(access.Daemon()))
			if m, ok := b.d.cluster.Member(node); err != nil && ok && (m.State == gossip.Starting || m.State == gossip.Leaving) {
				answers <- nil // it does not serve: it looks its paths up before it flushes, or is done
				return
			}
			if err != nil {
				answers <- err
				return
			}
			told := false
			err = s.Stream(ctx, wire.Type_TYPE_HOLD, m, nil, func(peer.Answer) error {
				if !told {
					h.nodes.Store(node, true)
					answers <- nil
				}
				told = true
				return nil
			})
			h.nodes.Delete(node)
			if !told {
				answers <- err
			}
		})
	}
	for range nodes {
		if err := <-answers; err != nil {
			h.release()
			return nil, err
		}
	}
	return h, nil
}

func (h *heldThere) release() {
	h.cancel()
	h.ended.Wait()
}

// hold rests flushes while another daemon renames or removes names.
func (d *Daemon) hold(ctx context.Context, r *rpc.Request, m *wire.Hold) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "hold", m.Buffer)
	if err != nil {
		return nil, err
	}
	if m.Freeze {
		thaw, err := b.freeze(ctx)
		if err != nil {
			return nil, err
		}
		defer func() {
			if r.Session().Context().Err() == nil {
				thaw()
			} else {
				b.d.thawLater(thaw)
			}
		}()
	}
	held, err := d.flusher.Hold(ctx, b.name, m.Paths...)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	// An object that a cancelled flush left should be removed before the other daemon may
	// have one there. If the store does not answer, the other one does not wait for that:
	// whether it may be removed is asked again when it comes to it (stray). Renames and
	// removals that are still to be carried out are kept in order by the namespace.
	patience, cancel := context.WithTimeout(ctx, sweptPatience)
	err = held.Swept(patience)
	cancel()
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err := r.More(&wire.Empty{}, nil); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return &wire.Empty{}, nil
}

// sweptPatience is how long a hold that another daemon asks for waits for the store.
const sweptPatience = time.Second

// holdOthers has other daemons rest the flushes that a rename would meet: of a
// directory, all of them; of a file, the home of what it replaces.
func (b *buffer) holdOthers(ctx context.Context, at, target bb.Place, from, to string) (*heldThere, error) {
	none := &heldThere{cancel: func() {}}
	if b.d.cluster == nil || b.Spec().Backing == "" {
		return none, nil
	}
	e, err := b.ns.Lookup(ctx, at.Dir, at.Name)
	if err != nil {
		return nil, err
	}
	if e.IsDir() {
		// One that serves, and cannot be asked to rest, has the rename fail.
		everybody := b.d.cluster.Nodes(func(m *gossip.Member) bool { return cluster.Serving(m.State) })
		return b.holdAt(ctx, everybody, from, to)
	}
	replaced, err := b.ns.Lookup(ctx, target.Dir, target.Name)
	if err == nil && b.owners.Foreign(&replaced) && !owner.Adoptable(&replaced) {
		return b.holdAt(ctx, []bb.NodeID{b.owners.Of(&replaced)}, to)
	}
	return none, nil
}
