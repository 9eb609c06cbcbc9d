// Package nodes lists the daemons, and removes a node that was declared dead from the entries of
// all buffers. It must never depend on the promotion of a second copy, nor on the comparison of
// bytes with a store.
package nodes

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// Cluster are the required methods of the other nodes, whose contracts these are.
type Cluster interface {
	Members() []gossip.Member
	Member(node bb.NodeID) (gossip.Member, bool)
	Names() []string
	Refusal(*gossip.Member) *bb.Error
}

// Options are the environment of the service. Its functions may be called concurrently.
type Options struct {
	Node    bb.NodeID
	Cluster Cluster // nil: this daemon is alone
	// Self returns this daemon as the others see it. Its addresses are those that they reach.
	Self func() gossip.Member
	// Buffers returns the names of all buffers of the cluster.
	Buffers func(context.Context) ([]string, error)
	// Buffer returns the files of a buffer. NotFound: it was destroyed meanwhile.
	Buffer func(ctx context.Context, name string) (*Buffer, error)
	Log    *slog.Logger
}

// Service answers the requests that are about nodes. Its methods may be called concurrently.
type Service struct{ o Options }

// New returns the service of a daemon.
func New(o Options) *Service { return &Service{o} }

// List answers which daemons there are.
func (s *Service) List(context.Context, call.Request, *wire.Empty) (proto.Message, error) {
	if s.o.Cluster == nil {
		return nil, bb.E(bb.Unsupported, "nodes", "", "this daemon is alone").WithRemedy("set cluster.listen to make it part of a cluster")
	}
	answer := &wire.Nodes{}
	for _, m := range s.o.Cluster.Members() {
		if m.Node == s.o.Node {
			m = s.o.Self() // gossip has its state of a moment ago
		}
		refused := ""
		if e := s.o.Cluster.Refusal(&m); e != nil {
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

// Forget declares a node dead. Files that it alone held are lost, and the rest continues without
// it.
func (s *Service) Forget(ctx context.Context, r call.Request, m *wire.NodeName) (proto.Message, error) {
	answer, err := s.forget(ctx, r.Caller().System, m, (*Buffer).forget)
	if err != nil {
		return nil, err
	}
	s.o.Log.Warn("a node was declared dead", "node", m.Name, "lost", answer.LostTotal, "bytes", answer.LostBytes, "kept", answer.KeptTotal)
	return answer, nil
}

// Loss returns the answer that Forget would. It changes nothing.
func (s *Service) Loss(ctx context.Context, r call.Request, m *wire.NodeName) (proto.Message, error) {
	answer, err := s.forget(ctx, r.Caller().System, m, (*Buffer).loss)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// mayForget decides whether a caller may have a node forgotten. Member is the node's record in gossip.
func mayForget(o *Options, system bool, name string, member *gossip.Member) error {
	switch node := bb.NodeID(name); {
	case !system:
		return access.Denied("node forget", name, "declare nodes dead")
	case o.Cluster == nil:
		return bb.E(bb.Unsupported, "node forget", name, "this daemon is alone")
	case node == "" || node == o.Node:
		return bb.E(bb.Invalid, "node forget", name, "a daemon cannot declare itself dead").WithRemedy("ask another one")
	case member != nil && cluster.Serving(member.State):
		return bb.E(bb.Busy, "node forget", name, "its daemon answers: it is not dead").
			WithRemedy("stop it first; to save its files: bbctl node drain " + name)
	}
	return nil
}

// member returns a node's record in gossip, or nil if there is none.
func (s *Service) member(node bb.NodeID) *gossip.Member {
	if s.o.Cluster == nil {
		return nil
	}
	m, ok := s.o.Cluster.Member(node)
	if !ok {
		return nil
	}
	return &m
}

// forget adds up, over all buffers, the answers of each about a node that does not answer.
func (s *Service) forget(ctx context.Context, system bool, m *wire.NodeName, each func(*Buffer, context.Context, bb.NodeID, *wire.NodeForgotten) error) (*wire.NodeForgotten, error) {
	node := bb.NodeID(m.Name)
	if err := mayForget(&s.o, system, m.Name, s.member(node)); err != nil {
		return nil, err
	}
	answer := &wire.NodeForgotten{}
	names, err := s.o.Buffers(ctx)
	if err != nil {
		return nil, bb.Wrap("node forget", m.Name, err)
	}
	for _, name := range names {
		b, err := s.o.Buffer(ctx, name)
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
	if s.member(node) == nil && answer.LostTotal+answer.KeptTotal == 0 {
		return nil, bb.E(bb.NotFound, "node forget", m.Name, "no daemon of this name is known, and no file is on it").
			WithRemedy(bb.DidYouMean(m.Name, s.o.Cluster.Names(), "see bbctl nodes"))
	}
	return answer, nil
}
