package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// Node is one node of the cluster, from the view of the answering daemon.
type Node struct {
	Node    bb.NodeID `json:"node"`
	State   string    `json:"state"` // as gossip has it; unknown: entries name the node, and gossip does not
	Since   time.Time `json:"since,omitzero"`
	Server  string    `json:"server,omitempty"`
	Answers bool      `json:"answers"`
	Reason  string    `json:"reason,omitempty"` // why it does not
	// Memory and Disk are the last figures from gossip, which of a dead node are from before its
	// death.
	Memory *GossipTier `json:"memory,omitempty"`
	Disk   *GossipTier `json:"disk,omitempty"`
	// Status is the answer of the node's daemon to GET /status, without sessions.
	Status json.RawMessage `json:"status,omitempty"`
	// Holds are, of a node that does not answer, the files that it owns and that are not on a
	// store, by the namespace.
	Holds []Holding `json:"holds,omitempty"`
	// HoldsUnknown is the reason why Holds may be incomplete.
	HoldsUnknown string `json:"holds_unknown,omitempty"`
}

// GossipTier is the use of a tier, by gossip, in whole MiB.
type GossipTier struct {
	Capacity int64 `json:"capacity"`
	Free     int64 `json:"free"`
	Dirty    int64 `json:"dirty"`
}

// Holding counts the files of one buffer that one node owns and that are not on a store.
type Holding struct {
	Buffer  string `json:"buffer"`
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
	Open    int64  `json:"open,omitempty"`    // of Files: being written
	Seconds int64  `json:"seconds,omitempty"` // of Files: another node has a second copy
}

// Options are the environment of a Service. Its functions may be called concurrently.
type Options struct {
	Node    bb.NodeID
	Cluster *cluster.Cluster // nil: this daemon is alone
	Entries Entries
	// Own describes this daemon, as far as a user has the right to see it. If buffer is not "", it
	// describes that one only.
	Own func(c access.Caller, buffer string) Status
	// Enter is the error of a session whose user may not enter a buffer.
	Enter func(ctx context.Context, v call.Visitor, op, buffer string) error
	Go    func(func()) // starts a goroutine
}

// Service answers requests for the status. Its methods may be called concurrently.
type Service struct {
	o      Options
	counts *counter
}

// New returns a service. Its background work ends with ctx.
func New(ctx context.Context, o Options) *Service {
	return &Service{o: o, counts: &counter{ctx: ctx, from: o.Entries, run: o.Go}}
}

// nodePatience is the longest wait for a daemon's answer to a status of the cluster.
const nodePatience = 3 * time.Second

// Get answers with the status of a daemon, and before it, if the request is for a cluster, with that of
// every node, each as soon as all are known.
func (s *Service) Get(ctx context.Context, r call.Request, m *wire.StatusRequest) (proto.Message, error) {
	if m.Buffer != "" {
		if err := s.o.Enter(ctx, r, "status", m.Buffer); err != nil {
			return nil, err
		}
	}
	if m.Node != "" && m.Node != string(s.o.Node) && r.Caller().Relayed {
		return nil, bb.E(bb.Invalid, "status", m.Node, "this is another node")
	}
	text, err := s.of(ctx, *r.Caller(), m.Buffer, cmp.Or(bb.NodeID(m.Node), s.o.Node))
	if err != nil {
		return nil, bb.Wrap("status", m.Node, err)
	}
	if m.Cluster && s.o.Cluster != nil && !r.Caller().Relayed {
		nodes := s.nodes(ctx, *r.Caller(), m.Buffer)
		for i := range nodes {
			text, err := json.Marshal(&nodes[i])
			if err != nil {
				return nil, err
			}
			if err := r.More(&wire.StatusReply{Node: text}, nil); err != nil {
				return nil, err
			}
		}
	}
	return &wire.StatusReply{Json: text}, nil
}

// nodes requests the status of every daemon, and reads the files of nodes without an answer from
// the namespace.
func (s *Service) nodes(ctx context.Context, c access.Caller, only string) []Node {
	members := s.o.Cluster.Members()
	nodes := make([]Node, len(members))
	var group sync.WaitGroup
	for i := range members {
		group.Go(func() { nodes[i] = s.node(ctx, c, only, &members[i]) })
	}
	found := s.counts.newest(ctx)
	group.Wait()
	return withHoldings(nodes, found, func(buffer string) bool {
		return (only == "" || only == buffer) && found.permits(c, buffer)
	})
}

// node requests the status of one daemon.
func (s *Service) node(ctx context.Context, c access.Caller, only string, m *gossip.Member) Node {
	n := Node{
		Node: m.Node, State: m.State.String(), Since: m.Since, Server: m.Server, Memory: gossipTier(m.Memory), Disk: gossipTier(m.Disk),
	}
	text, err := s.of(ctx, c, only, m.Node)
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

// of returns a daemon's own status as JSON.
func (s *Service) of(ctx context.Context, c access.Caller, only string, node bb.NodeID) ([]byte, error) {
	if node == s.o.Node {
		return json.Marshal(s.o.Own(c, only))
	}
	if s.o.Cluster == nil {
		return nil, bb.E(bb.Unsupported, "status", string(node), "this daemon is alone, and is node "+string(s.o.Node))
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	var reply wire.StatusReply
	if err := s.o.Cluster.Ask(ctx, node, c, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: only}, &reply); err != nil {
		return nil, err
	}
	return reply.Json, nil
}

// withoutSessions returns a status without its sessions, of which there may be many.
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

// withHoldings adds the files of nodes that do not answer, and the nodes that only entries name.
func withHoldings(nodes []Node, found census, sees func(buffer string) bool) []Node {
	known := make(map[bb.NodeID]bool)
	for i := range nodes {
		known[nodes[i].Node] = true
	}
	for _, node := range slices.Sorted(maps.Keys(found.held)) {
		if !known[node] && len(holdings(found.held[node], sees)) > 0 {
			nodes = append(nodes, Node{Node: node, State: "unknown", Reason: "no daemon of this name has been known since this one was started"})
		}
	}
	for i := range nodes {
		if n := &nodes[i]; !n.Answers {
			n.Holds, n.HoldsUnknown = holdings(found.held[n.Node], sees), found.lacks
		}
	}
	slices.SortFunc(nodes, func(x, y Node) int { return strings.Compare(string(x.Node), string(y.Node)) })
	return nodes
}

// holdings returns a node's holdings that a user may see, by buffer.
func holdings(held map[string]Holding, sees func(string) bool) []Holding {
	var list []Holding
	for _, buffer := range slices.Sorted(maps.Keys(held)) {
		if sees(buffer) {
			list = append(list, held[buffer])
		}
	}
	return list
}
