// Package cluster is a daemon's view of the other daemons: the members, their versions, sessions
// with them, the coordinator, and the ones to request room for bytes from. It must never depend on
// a file or a buffer, nor treat gossip as the truth about data.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/peer"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
	"forebay/meta/gossip"
	"forebay/rdma"
	"forebay/rdma/route"
)

// Members lists the daemons. They are hints, never truth about data. It may be called concurrently.
type Members interface {
	// Member returns the record of a node.
	Member(bb.NodeID) (gossip.Member, bool)
	// Members returns all that are known, sorted by name.
	Members() []gossip.Member
	// Addr returns the address at which the others find this node, host:port.
	Addr() string
}

// Options are this daemon's identity, and its ways to reach the others.
type Options struct {
	Node     bb.NodeID
	Instance bb.InstanceID
	Version  string  // of this release, for people
	Members  Members // nil: this daemon is alone
	Keys     *wire.Keyring
	TLS      *clustercert.Credentials
	Silence  time.Duration // of another daemon, after which a session with it breaks
	Log      *slog.Logger
	// Moved receives the counts of bytes that were moved one-sided, by the name of the fabric. It may be called
	// concurrently.
	Moved func(fabric string, read, written int64)
}

// Cluster is this daemon's view of the others. Its methods may be called concurrently. There is none
// where the daemon is alone. Of the nil Cluster only Close and WaitForCompatible may be called.
type Cluster struct {
	o       Options
	members Members
	pool    *peer.Pool
	sent    sent
	met     met
}

// New returns the cluster of the members, or nil if there are none.
func New(o Options) *Cluster {
	if o.Members == nil {
		return nil
	}
	self := &peer.Identity{
		Node: o.Node, Instance: o.Instance, Version: o.Version, Keys: o.Keys, TLS: o.TLS, Log: o.Log, Silence: o.Silence,
	}
	c := &Cluster{o: o, members: o.Members}
	self.Met = c.meet
	c.pool = peer.NewPool(self, c.dialFabric)
	return c
}

// Close ends the sessions with other daemons.
func (c *Cluster) Close() {
	if c != nil {
		c.pool.Close()
	}
}

// Members returns all daemons that are known, this one too, sorted by name.
func (c *Cluster) Members() []gossip.Member { return c.members.Members() }

// Member returns the record of a node.
func (c *Cluster) Member(node bb.NodeID) (gossip.Member, bool) { return c.members.Member(node) }

// Addr returns the address at which the others find this node, host:port.
func (c *Cluster) Addr() string { return c.members.Addr() }

// Drop ends the session with a node. The next request of it begins another one.
func (c *Cluster) Drop(node bb.NodeID) { c.pool.Drop(node) }

// Serving reports whether it is worth sending requests to a daemon in a state, since one that is
// merely suspected may only be slow.
func Serving(s gossip.State) bool { return !s.Gone() && s != gossip.Unknown }

// AcceptsFiles reports whether a daemon in a state accepts files of which it is not the owner.
func AcceptsFiles(s gossip.State) bool { return s == gossip.Ready }

// Session returns a session with a node's daemon. If the daemon is not there, it returns
// bb.Unavailable, naming the node. If the daemon has other versions, it returns bb.Unsupported.
func (c *Cluster) Session(ctx context.Context, node bb.NodeID, who peer.Who) (*peer.Session, error) {
	m, ok := c.members.Member(node)
	switch {
	case !ok:
		return nil, (&bb.Error{
			Kind: bb.Unavailable, Op: "reach", Node: node, Err: fmt.Errorf("no daemon of this name is known"),
		}).WithRemedy(bb.DidYouMean(string(node), c.Names(), "see bbctl nodes; if it will not return: bbctl node forget "+string(node)))
	case m.Session == "":
		return nil, (&bb.Error{
			Kind: bb.Unavailable, Op: "reach", Node: node, Err: fmt.Errorf("the daemon is starting and takes no sessions yet"),
		}).WithRemedy("try again soon")
	case !Serving(m.State):
		c.pool.Drop(node)
		return nil, (&bb.Error{
			Kind: bb.Unavailable, Op: "reach", Node: node, Err: fmt.Errorf("the daemon is %s", m.State),
		}).WithRemedy("it may return; if it will not: bbctl node forget " + string(node))
	case !Compatible(&m):
		return nil, c.Refusal(&m)
	}
	return c.pool.Session(ctx, node, m.Session, who)
}

// Names returns the names of all nodes that are known.
func (c *Cluster) Names() []string {
	var names []string
	for _, m := range c.members.Members() {
		names = append(names, string(m.Node))
	}
	return names
}

// Serves reports whether a node's daemon is worth a request, by gossip. This daemon always is.
func (c *Cluster) Serves(node bb.NodeID) bool {
	m, ok := c.members.Member(node)
	return node == c.o.Node || ok && Serving(m.State)
}

// Expected reports whether a node's daemon may answer soon, by gossip: it is known, and not dead. One that has just left may
// be restarting.
func (c *Cluster) Expected(node bb.NodeID) bool {
	m, ok := c.members.Member(node)
	return ok && expected(&m, time.Now())
}

func expected(m *gossip.Member, now time.Time) bool {
	return !m.State.Gone() || m.State == gossip.Left && now.Sub(m.Since) < restarts
}

// restarts is how long a daemon that has left may take to be back. Gossip remembers it for longer.
const restarts = time.Minute

// Ask makes a request of a node's daemon on behalf of a user.
func (c *Cluster) Ask(ctx context.Context, node bb.NodeID, as access.Caller, typ wire.Type, m, reply proto.Message) error {
	s, err := c.Session(ctx, node, Who(as))
	if err != nil {
		return err
	}
	_, err = s.Ask(ctx, typ, m, nil, reply)
	return err
}

// Others returns the nodes besides this one whose daemons answer, and can get requests.
func (c *Cluster) Others() []bb.NodeID { return c.Nodes(Reachable) }

// Nodes returns those besides this one that fit.
func (c *Cluster) Nodes(fits func(*gossip.Member) bool) []bb.NodeID {
	var nodes []bb.NodeID
	for _, m := range c.members.Members() {
		if m.Node != c.o.Node && fits(&m) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// Reachable reports whether a node's daemon answers, and can get requests.
func (c *Cluster) Reachable(node bb.NodeID) bool {
	m, ok := c.members.Member(node)
	return ok && Reachable(&m)
}

// dialFabric connects to the one-sided fabric of another daemon.
func (c *Cluster) dialFabric(ctx context.Context, w *wire.Welcome, address string) (rdma.Conn, error) {
	to := route.New(route.Offer{
		TCP: address, OFI: w.OfiAddress,
		Provider: w.OfiProvider, Endpoint: w.OfiEndpoint, Network: w.OfiNetwork,
	}, route.Options{
		PeerTimeout: fabricSilence, Log: c.o.Log, TLS: c.o.TLS.Client(),
		Authenticate: func(_ context.Context, stream net.Conn) error {
			return wire.ShowTicket(stream, w.Session, w.DataTicket)
		},
	})
	conn, way, err := to.Dial(ctx)
	if err != nil {
		to.Close()
		return nil, err
	}
	return &ownedConn{conn, to, way}, nil
}

// Away is the error for something that a node has which does not answer.
func Away(op, path string, node bb.NodeID) error {
	return &bb.Error{Kind: bb.Unavailable, Op: op, Path: path, Node: node, Err: errors.New(AwayReason(node))}
}

// AwayReason is why it cannot be reached.
func AwayReason(node bb.NodeID) string {
	return fmt.Sprintf("its owner, node %s, does not answer", node)
}

// TransferKind is the kind of a one-sided operation's failure.
func TransferKind(ctx context.Context) bb.Kind {
	if ctx.Err() != nil {
		return bb.Cancelled
	}
	return bb.Unavailable
}

// Transfer carries one-sided operations out, and counts the bytes that they have moved.
func (c *Cluster) Transfer(ctx context.Context, conn rdma.Conn, ops []rdma.Op) error {
	if err := rdma.Do(ctx, conn, ops); err != nil {
		return err
	}
	var read, written int64
	for i := range ops {
		if ops[i].Kind == rdma.OpRead {
			read += int64(len(ops[i].Local))
		} else {
			written += int64(len(ops[i].Local))
		}
	}
	way := "tcp"
	if own, ok := conn.(*ownedConn); ok {
		way = own.way
	}
	c.o.Moved(way, read, written)
	return nil
}

// fabricSilence is how long another daemon's fabric may be silent.
const fabricSilence = 10 * time.Second

// ownedConn is a connection whose route was made for it alone.
type ownedConn struct {
	rdma.Conn
	route *route.Route
	way   string // as route.Dial names it
}

// Close closes both.
func (c *ownedConn) Close() error { return errors.Join(c.Conn.Close(), c.route.Close()) }

// Who is the user that a session with another daemon acts for.
func Who(c access.Caller) peer.Who { return peer.Who{UID: c.UID, GID: c.GIDs[0], System: c.System} }
