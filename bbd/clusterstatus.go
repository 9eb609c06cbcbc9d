package bbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// NodeStatus is one node of the cluster, as the daemon that is asked knows it.
type NodeStatus struct {
	Node    bb.NodeID `json:"node"`
	State   string    `json:"state"` // as gossip has it; unknown: entries name the node, and gossip does not
	Since   time.Time `json:"since,omitzero"`
	Server  string    `json:"server,omitempty"`
	Answers bool      `json:"answers"`
	Reason  string    `json:"reason,omitempty"` // why it does not
	// Memory and Disk are what gossip said last: of a dead node, before its death.
	Memory *GossipTier `json:"memory,omitempty"`
	Disk   *GossipTier `json:"disk,omitempty"`
	// Status is what the node's daemon answers to GET /status, without sessions.
	Status json.RawMessage `json:"status,omitempty"`
	// Holds is what the namespace knows of a node that does not answer: files that it is the
	// home of, and that are not on a store.
	Holds []Holding `json:"holds,omitempty"`
	// HoldsUnknown is why Holds may lack something.
	HoldsUnknown string `json:"holds_unknown,omitempty"`
}

// GossipTier is how full a tier is, as gossip has it: in whole MiB.
type GossipTier struct {
	Capacity int64 `json:"capacity"`
	Free     int64 `json:"free"`
	Dirty    int64 `json:"dirty"`
}

// Holding is what one node is the home of, in one buffer, and what is not on a store.
type Holding struct {
	Buffer  string `json:"buffer"`
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
	Open    int64  `json:"open,omitempty"`    // of Files: being written
	Seconds int64  `json:"seconds,omitempty"` // of Files: another node has a second copy
}

// nodePatience is how long a daemon may take to answer for a status of the cluster.
const nodePatience = 3 * time.Second

// clusterStatus sends the status of every node, each as soon as all are known.
func (d *Daemon) clusterStatus(ctx context.Context, r *rpc.Request, m *wire.StatusRequest) error {
	nodes := d.nodeStatuses(ctx, *r.Caller(), m.Buffer)
	for i := range nodes {
		text, err := json.Marshal(&nodes[i])
		if err != nil {
			return err
		}
		if err := r.More(&wire.StatusReply{Node: text}, nil); err != nil {
			return err
		}
	}
	return nil
}

// nodeStatuses asks every daemon for its status, and the namespace for what the nodes hold
// whose daemons do not answer.
func (d *Daemon) nodeStatuses(ctx context.Context, c access.Caller, only string) []NodeStatus {
	members := d.cluster.Members()
	nodes := make([]NodeStatus, len(members))
	var group sync.WaitGroup
	for i := range members {
		group.Go(func() { nodes[i] = d.nodeStatus(ctx, c, only, &members[i]) })
	}
	found := d.census.look(ctx)
	group.Wait()
	return withHoldings(nodes, found, func(buffer string) bool {
		return (only == "" || only == buffer) && d.mayEnter(c, buffer, found)
	})
}

// mayEnter reports whether a user may enter a buffer that a census has found.
func (d *Daemon) mayEnter(c access.Caller, buffer string, found census) bool {
	spec, ok := found.specs[buffer]
	return ok && c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute)
}

// nodeStatus asks one daemon for its status.
func (d *Daemon) nodeStatus(ctx context.Context, c access.Caller, only string, m *gossip.Member) NodeStatus {
	n := NodeStatus{
		Node: m.Node, State: m.State.String(), Since: m.Since, Server: m.Server, Memory: gossipTier(m.Memory), Disk: gossipTier(m.Disk),
	}
	text, err := d.statusOf(ctx, c, only, m.Node)
	if err == nil {
		n.Status, err = withoutSessions(text)
	}
	if n.Answers = err == nil; err != nil {
		n.Reason = notAnswering(err)
	}
	return n
}

func notAnswering(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", nodePatience)
	}
	var e *bb.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// statusOf returns a daemon's own status as JSON.
func (d *Daemon) statusOf(ctx context.Context, c access.Caller, only string, node bb.NodeID) ([]byte, error) {
	if node == d.cfg.Node {
		return json.Marshal(d.statusFor(c, only))
	}
	if d.cluster == nil {
		return nil, bb.E(bb.Unsupported, "status", string(node), "this daemon is alone, and is node "+string(d.cfg.Node))
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	var reply wire.StatusReply
	if err := d.cluster.Ask(ctx, node, c, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: only}, &reply); err != nil {
		return nil, err
	}
	return reply.Json, nil
}

// withoutSessions takes the sessions, of which there may be many, out of a status.
func withoutSessions(text []byte) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "status", Err: err}
	}
	delete(fields, "sessions")
	return json.Marshal(fields)
}

func gossipTier(t gossip.Tier) *GossipTier {
	if t.Capacity == 0 {
		return nil
	}
	return &GossipTier{t.Capacity, t.Free, t.Dirty}
}

// withHoldings adds what nodes hold that do not answer, and the nodes that only entries name.
func withHoldings(nodes []NodeStatus, found census, sees func(buffer string) bool) []NodeStatus {
	known := make(map[bb.NodeID]bool)
	for i := range nodes {
		known[nodes[i].Node] = true
	}
	for _, node := range slices.Sorted(maps.Keys(found.held)) {
		if !known[node] && len(holdings(found.held[node], sees)) > 0 {
			nodes = append(nodes, NodeStatus{Node: node, State: "unknown", Reason: "no daemon of that name has been seen since this one was started"})
		}
	}
	for i := range nodes {
		if n := &nodes[i]; !n.Answers {
			n.Holds, n.HoldsUnknown = holdings(found.held[n.Node], sees), found.lacks
		}
	}
	slices.SortFunc(nodes, func(x, y NodeStatus) int { return strings.Compare(string(x.Node), string(y.Node)) })
	return nodes
}

// holdings returns what a user may see of what a node holds, by buffer.
func holdings(held map[string]Holding, sees func(string) bool) []Holding {
	var list []Holding
	for _, buffer := range slices.Sorted(maps.Keys(held)) {
		if sees(buffer) {
			list = append(list, held[buffer])
		}
	}
	return list
}
