package freeze

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// Cluster are the required methods of the other nodes, whose contracts these are.
type Cluster interface {
	Member(node bb.NodeID) (gossip.Member, bool)
	Nodes(fits func(*gossip.Member) bool) []bb.NodeID
	Session(ctx context.Context, node bb.NodeID, who peer.Who) (*peer.Session, error)
}

// Serving returns the nodes besides this one that are worth a request.
func Serving(c Cluster) []bb.NodeID {
	return c.Nodes(func(m *gossip.Member) bool { return cluster.Serving(m.State) })
}

// serves reports whether a daemon changes buffers, or may.
func serves(m *gossip.Member) bool {
	return cluster.Serving(m.State) && m.State != gossip.Starting && m.State != gossip.Leaving
}

// Held are flushes that rest at other daemons.
type Held struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	nodes  sync.Map // bb.NodeID: those that hold
}

// Holds reports whether a node got the request, and still holds.
func (h *Held) Holds(node bb.NodeID) bool {
	_, ok := h.nodes.Load(node)
	return ok
}

// There makes a request to hold of daemons, which lasts until Release is called. The end of ctx ends no more than the
// wait for their answers, since the caller's change may be under way later.
func There(ctx context.Context, c Cluster, nodes []bb.NodeID, m *wire.Hold) (*Held, error) {
	h := &Held{}
	return h, h.ask(ctx, c, nodes, wire.Type_TYPE_HOLD, m, func(node bb.NodeID, err error) error {
		if m, ok := c.Member(node); ok && (m.State == gossip.Starting || m.State == gossip.Leaving) {
			return nil // it does not serve; it looks its paths up before it flushes, or is done
		}
		return err
	})
}

// Follow makes a request to follow a file of its owner, which lasts as that of There.
func Follow(ctx context.Context, c Cluster, of bb.NodeID, m *wire.Follow) (*Held, error) {
	h := &Held{}
	return h, h.ask(ctx, c, []bb.NodeID{of}, wire.Type_TYPE_FOLLOW, m, func(_ bb.NodeID, err error) error { return err })
}

// ask makes a request of daemons. Absent returns the error for one that has no session. After an error nothing is held.
func (h *Held) ask(ctx context.Context, c Cluster, nodes []bb.NodeID, typ wire.Type, m proto.Message, absent func(bb.NodeID, error) error) error {
	held, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	stop := context.AfterFunc(ctx, cancel)
	answers := make(chan error, len(nodes))
	for _, node := range nodes {
		h.ended.Go(func() {
			s, err := c.Session(held, node, cluster.Who(access.Daemon()))
			if err != nil {
				answers <- absent(node, err)
				return
			}
			told := false
			err = s.Stream(held, typ, m, nil, func(peer.Answer) error {
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
			stop()
			h.Release()
			return err
		}
	}
	if !stop() {
		h.Release()
		return bb.Wrap("hold", "", context.Cause(ctx))
	}
	return nil
}

// Release resumes the flushes, and returns when the daemons have received it.
func (h *Held) Release() {
	h.cancel()
	h.ended.Wait()
}

// Frozen is a buffer that no daemon changes.
type Frozen struct {
	gate   *Gate
	c      Cluster
	thaw   func()
	others *Held
}

// Everywhere freezes a buffer of a name here, by its gate, and at every daemon of a cluster that serves. A
// cluster nil is none.
func Everywhere(ctx context.Context, gate *Gate, c Cluster, name string) (*Frozen, error) {
	thaw, err := gate.Freeze(ctx)
	if err != nil {
		return nil, err
	}
	f := &Frozen{gate: gate, c: c, thaw: thaw}
	if c == nil {
		return f, nil
	}
	f.others, err = There(ctx, c, Serving(c), &wire.Hold{Buffer: name, Paths: []string{""}, Freeze: true})
	if err != nil {
		thaw()
		return nil, err
	}
	return f, nil
}

var errNotFrozen = errors.New("the daemon may have changed the buffer while it was looked through")

// Intact fails if a daemon may have changed the buffer since it was frozen. That is one whose
// session broke, or that did not serve at the requests to the others.
func (f *Frozen) Intact() error {
	if f.others == nil {
		return nil
	}
	for _, node := range f.c.Nodes(serves) {
		if !f.others.Holds(node) {
			return (&bb.Error{
				Kind: bb.Busy, Op: "freeze", Path: f.gate.address, Node: node, Err: errNotFrozen,
			}).WithRemedy("try again")
		}
	}
	return nil
}

// End resumes changes, here and elsewhere.
func (f *Frozen) End() {
	f.thaw()
	if f.others != nil {
		f.others.Release()
	}
}
