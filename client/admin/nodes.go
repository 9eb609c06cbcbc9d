package admin

import (
	"context"
	"time"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// NodeID names a node.
type NodeID = bb.NodeID

// Node is a daemon in the gossip of the daemon that answered. Its fields are hints, a moment old.
type Node struct {
	Name       NodeID    `json:"name"`
	Instance   string    `json:"instance"`          // changes when the node's memory was lost
	State      string    `json:"state"`             // starting, ready, draining, leaving; suspect, dead: it does not answer
	Since      time.Time `json:"since"`             // of the state, at the answering daemon
	Session    string    `json:"session,omitempty"` // host:port for sessions
	Fabric     string    `json:"fabric,omitempty"`  // host:port for one-sided transfers
	Admin      string    `json:"admin,omitempty"`   // host:port of the admin server
	MinVersion uint32    `json:"min_version"`       // its protocol versions
	MaxVersion uint32    `json:"max_version"`
	Server     string    `json:"server"`
	Refused    string    `json:"refused,omitempty"` // why the answering daemon cannot work with it
	Memory     TierUsage `json:"memory"`
	Disk       TierUsage `json:"disk"`
}

// TierUsage is how full a tier is, in bytes.
type TierUsage struct {
	Capacity int64 `json:"capacity"`
	Free     int64 `json:"free"`
	Dirty    int64 `json:"dirty"`
}

// Nodes lists the daemons of the cluster by name. ErrUnsupported if the daemon is alone.
func Nodes(ctx context.Context, c *client.Client) ([]Node, error) {
	var reply wire.Nodes
	if err := of(c).Ask(ctx, wire.Type_TYPE_NODES, &wire.Empty{}, &reply); err != nil {
		return nil, bb.Wrap("nodes", "", err)
	}
	nodes := make([]Node, 0, len(reply.Nodes))
	for _, m := range reply.Nodes {
		nodes = append(nodes, Node{
			Name: NodeID(m.Name), Instance: bb.InstanceID(m.Instance).String(), State: m.State, Since: time.Unix(0, m.SinceNs),
			Session: m.Session, Fabric: m.Fabric, Admin: m.Admin, MinVersion: m.MinVersion, MaxVersion: m.MaxVersion, Server: m.Server, Refused: m.Refused,
			Memory: TierUsage{m.Memory, m.MemoryFree, m.MemoryDirty}, Disk: TierUsage{m.Disk, m.DiskFree, m.DiskDirty},
		})
	}
	return nodes, nil
}

// DrainNode flushes a node's files, or moves them to other nodes, and closes the node to new files.
// Afterwards its daemon may be stopped. It fails unless the node is empty then. The report names
// the rest. Files that fit into the memory of the nodes in to are moved there through the fabric,
// without waiting for a store.
func DrainNode(ctx context.Context, c *client.Client, node NodeID, progress func(Progress), to ...NodeID) (Report, error) {
	m := &wire.NodeDrain{Name: string(node)}
	for _, name := range to {
		m.To = append(m.To, string(name))
	}
	r, err := work(ctx, c, wire.Type_TYPE_NODE_DRAIN, m, nil, progress)
	return r, bb.Wrap("node drain", string(node), r.complete(err))
}

// UndrainNode opens a drained node to new files again. It fails with ErrBusy while the node is
// being drained, and with ErrUnsupported if its daemon is too old.
func UndrainNode(ctx context.Context, c *client.Client, node NodeID) error {
	return bb.Wrap("node undrain", string(node), of(c).Ask(ctx, wire.Type_TYPE_NODE_UNDRAIN, &wire.NodeName{Name: string(node)}, nil))
}

// Forgotten is the fate of the files of a node that was declared dead.
type Forgotten struct {
	Lost      []LostFile // at most 1,000
	LostTotal int64
	LostBytes int64
	Kept      int64 // files that the store, or a second node, has
}

// LostFile is a file whose bytes went with a node.
type LostFile struct {
	Address string // bb://BUFFER/path
	Size    int64  // bytes
	Reason  string
}

// ForgetNode declares a node dead. Files that it alone held are lost from now on, and named.
// ErrBusy while its daemon answers.
func ForgetNode(ctx context.Context, c *client.Client, node NodeID) (Forgotten, error) {
	return forgotten(ctx, c, wire.Type_TYPE_NODE_FORGET, node)
}

// NodeLoss returns the result that ForgetNode would have now. It changes nothing. ErrUnsupported if the
// daemon is too old.
func NodeLoss(ctx context.Context, c *client.Client, node NodeID) (Forgotten, error) {
	return forgotten(ctx, c, wire.Type_TYPE_NODE_LOSS, node)
}

func forgotten(ctx context.Context, c *client.Client, typ wire.Type, node NodeID) (Forgotten, error) {
	var reply wire.NodeForgotten
	if err := of(c).Ask(ctx, typ, &wire.NodeName{Name: string(node)}, &reply); err != nil {
		return Forgotten{}, bb.Wrap("node forget", string(node), err)
	}
	f := Forgotten{LostTotal: reply.LostTotal, LostBytes: reply.LostBytes, Kept: reply.KeptTotal}
	for _, m := range reply.Lost {
		f.Lost = append(f.Lost, LostFile{Address: m.Path, Size: m.Size, Reason: m.Reason})
	}
	return f, nil
}
