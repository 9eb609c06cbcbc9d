package bbd

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta"
	"forebay/meta/gossip"
)

// namesCall answers another daemon's call to the owner of a namespace's log.
func (d *Daemon) namesCall(ctx context.Context, r *rpc.Request, m *wire.Names) (proto.Message, error) {
	if !r.Caller().Relayed || !r.Caller().System {
		return nil, access.Denied("answer a call", bb.Address{Buffer: m.Buffer}.String(), "send requests that only daemons send")
	}
	answer, err := d.meta.AnswerCall(ctx, m.Buffer, m.Call)
	if err != nil {
		return nil, err
	}
	return &wire.NamesReply{Answer: answer}, nil
}

// peers are the daemons that share namespaces which are logs. No namespace is opened before the cluster is there.
type peers struct {
	d *Daemon

	mu  sync.Mutex
	all []meta.Peer // as gossip had them; never changed
	at  time.Time
}

// peersFor is for how long a look at gossip serves all namespaces, each of which wants one twice a second.
const peersFor = 100 * time.Millisecond

// Carry sends a call to a daemon.
func (p *peers) Carry(ctx context.Context, to bb.NodeID, buffer string, call []byte) ([]byte, error) {
	var reply wire.NamesReply
	err := p.d.cluster.Ask(ctx, to, access.Daemon(), wire.Type_TYPE_NAMES, &wire.Names{Buffer: buffer, Call: call}, &reply)
	return reply.Answer, err
}

// SpeakLogs implements meta.Peers.
func (p *peers) SpeakLogs() error {
	return p.d.cluster.AllSupport("namespaces that are logs", wire.VersionNames)
}

// All returns the daemons that are known. The caller does not change them.
func (p *peers) All() []meta.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) >= peersFor {
		p.all, p.at = p.look(), time.Now()
	}
	return p.all
}

func (p *peers) look() []meta.Peer {
	members := p.d.cluster.Members()
	all := make([]meta.Peer, 0, len(members))
	for i := range members {
		m := &members[i]
		state := m.State
		all = append(all, meta.Peer{
			Node: m.Node, Away: state.Gone() || state == gossip.Suspect || state == gossip.Unknown || state == gossip.Leaving,
			Gone: state.Gone(), Starting: state == gossip.Starting, Leaving: state == gossip.Draining,
		})
	}
	return all
}
