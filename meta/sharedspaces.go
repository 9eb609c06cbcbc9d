package meta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/leaders"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/stream"
	"forebay/meta/txn"
)

// Peer is a daemon as gossip has it.
type Peer = turn.Member

// Peers are the daemons of a cluster, which share the namespaces that are logs. It is safe for concurrent use.
type Peers interface {
	// Carry sends a call to a daemon, whose Meta answers it with AnswerCall, and returns the
	// answer. A call may arrive several times, late, or never. If an error is of kind Invalid or
	// Unsupported, the call has not arrived. Any other error does not show whether it has.
	Carry(ctx context.Context, to bb.NodeID, buffer string, call []byte) (answer []byte, err error)
	// All returns the known daemons. The caller does not change them.
	All() []Peer
	// SpeakLogs is nil if all that serve can serve a namespace that is a log, or an error of kind
	// Unsupported that names one which cannot.
	SpeakLogs() error
}

// sharesLogs reports whether other daemons use the namespaces that are logs as well.
func (m *Meta) sharesLogs() bool { return !m.opts.SoleWriter && m.opts.Peers != nil }

// LogState is the state of a log that daemons share, as this one has it.
type LogState struct {
	Buffer  string
	Owner   bb.NodeID   // the daemon that owned it when this one was last answered; "": it is unknown
	Holders []bb.NodeID // of a log that this daemon owns: the others that hold its end
	Unheld  bool        // this daemon owns it, no other one holds its end, and a server may lose that
	Lost    *time.Time  // when this daemon found that acknowledged changes are lost; nil: it found none
	Since   time.Time   // since when this daemon has owned it; zero: it does not
	Leases  lease.Stats // that this daemon has granted to others as the owner
}

// Logs returns the logs in use that daemons share, by the names of their buffers.
func (m *Meta) Logs() (all []LogState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, buffer := range slices.Sorted(maps.Keys(m.mu.spaces)) {
		if tree := m.mu.spaces[buffer].shared; tree != nil {
			holders, _ := tree.Holders()
			since, leases := tree.Served()
			all = append(all, LogState{
				Buffer: buffer, Owner: tree.Owner(), Holders: holders, Unheld: tree.Unheld(), Lost: tree.Lost(), Since: since, Leases: leases,
			})
		}
	}
	return all
}

// carrier carries the calls of one buffer.
type carrier struct {
	peers  Peers
	buffer string
}

// Call implements shared.Caller.
func (c carrier) Call(ctx context.Context, to bb.NodeID, call *calls.Call) (*calls.Answer, error) {
	b, err := calls.EncodeCall(call)
	if err != nil {
		return nil, err
	}
	if b, err = c.peers.Carry(ctx, to, c.buffer, b); err != nil {
		return nil, err
	}
	return calls.DecodeAnswer(b)
}

// AnswerCall answers a call that another daemon has sent by Peers.Carry. If the namespace is not in
// use here, so that this daemon does not own its log, it is NotFound. The end of the log is held
// all the same.
func (m *Meta) AnswerCall(ctx context.Context, buffer string, call []byte) (answer []byte, err error) {
	const op = "answer a call"
	c, err := calls.DecodeCall(call)
	if err != nil {
		return nil, bb.Wrap(op, buffer, err)
	}
	m.mu.Lock()
	s := m.mu.spaces[buffer]
	m.mu.Unlock()
	if s == nil && c.Op == calls.OpHold {
		if s, err = m.toHold(ctx, buffer); err != nil {
			return nil, err
		}
	}
	if s == nil || s.shared == nil {
		return nil, bb.E(bb.NotFound, op, buffer, "the namespace is not in use here")
	}
	return calls.EncodeAnswer(s.shared.Handle(ctx, c))
}

// Restoring returns the context of calls by which a daemon restores its files in a namespace that is being rebuilt.
func Restoring(ctx context.Context) context.Context { return calls.Restoring(ctx) }

// Rebuilding reports whether a namespace that daemons share was begun anew, and lacks names of their files yet.
func (m *Meta) Rebuilding(ctx context.Context, buffer string) (bool, error) {
	t, err := m.sharedTree(ctx, buffer)
	if t == nil || err != nil {
		return false, err
	}
	return t.Rebuilding(ctx)
}

// Rebuilt ends the restoration of such a namespace. It is used by all from then on.
func (m *Meta) Rebuilt(ctx context.Context, buffer string) error {
	t, err := m.sharedTree(ctx, buffer)
	if t == nil || err != nil {
		return err
	}
	return t.Rebuilt(ctx)
}

// sharedTree returns the namespace of a buffer that daemons share, or nil if it is another one.
func (m *Meta) sharedTree(ctx context.Context, buffer string) (*shared.Tree, error) {
	if _, err := m.Namespace(Restoring(ctx), buffer); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.spaces[buffer]; s != nil {
		return s.shared, nil
	}
	return nil, nil
}

// peerPatience is the wait for an answer of another daemon before a log is begun anew. One that makes its log again stores
// all of it before it answers.
const peerPatience = 10 * time.Second

// damaged reports whether a log that daemons share cannot be read by any, and no daemon that uses it may have all of it in
// memory.
func (m *Meta) damaged(ctx context.Context, b *bb.Buffer, in keptIn) (bool, error) {
	tree := m.openShared(b, in).shared
	if is, err := tree.Rouse(ctx, peerPatience); is || err != nil {
		return false, err
	}
	for _, p := range m.opts.Peers.All() {
		if p.Node == m.opts.Node || p.Gone {
			continue
		}
		a, err := m.unused(ctx, p.Node, b.Name)
		switch {
		case errors.Is(err, bb.NotFound): // it is not in use there
		case err != nil:
			return false, &bb.Error{
				Kind: bb.Unavailable, Op: "rebuild", Path: b.Name, Err: fmt.Errorf("node %s may have all names in memory, and cannot be asked: %w", p.Node, err),
				Remedy: "repeat this when that node answers, or when bbctl status shows it as dead",
			}
		case a.Status != calls.Served || !a.Yes:
			return false, bb.E(bb.Busy, "rebuild", b.Name, "node "+string(p.Node)+" has served the buffer since before its log was damaged").
				WithRemedy("start the daemon of that node again, and repeat this")
		}
	}
	err := tree.Claim(ctx)
	if kind := bb.KindOf(err); kind == bb.Lost || kind == bb.Checksum || errors.Is(err, stream.ErrGone) {
		return true, nil
	}
	return false, err
}

// unused asks a daemon whether it has used a buffer since its log was damaged.
func (m *Meta) unused(ctx context.Context, node bb.NodeID, buffer string) (*calls.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	return carrier{m.opts.Peers, buffer}.Call(ctx, node, &calls.Call{Op: calls.OpUnused, From: m.opts.Node})
}

// toHold opens a namespace for another daemon that wants the end of its log held here. It is nil
// where that is no shared log.
func (m *Meta) toHold(ctx context.Context, buffer string) (*space, error) {
	b, in, err := m.buffer(ctx, "hold", buffer)
	if err != nil || !m.sharesLogs() || in.engine != EngineLog || b.State == bb.BufferDestroying {
		return nil, err
	}
	return m.openShared(&b, in), nil
}

// sharedNamespace is Namespace of a log that daemons share.
func (m *Meta) sharedNamespace(ctx context.Context, b *bb.Buffer, in keptIn) (*txn.Tree, error) {
	const op = "namespace"
	s := m.spaceOf(b.Name, in)
	if s == nil {
		s = m.openShared(b, in)
	}
	if err := s.prepare(ctx); err != nil {
		if again, now, lerr := m.buffer(ctx, op, b.Name); errors.Is(lerr, bb.NotFound) || lerr == nil && (now != in || again.State == bb.BufferDestroying) {
			m.dropSpace(b.Name, s)
			return nil, bb.E(bb.NotFound, op, b.Name, "the buffer is being destroyed")
		}
		if kind := bb.KindOf(err); kind == bb.Lost || kind == bb.Checksum {
			err = logDamaged{err}
		}
		return nil, kv.Wrap(op, b.Name, err)
	}
	return s.tree, nil
}

// claimNew has this daemon own the log of a buffer that it has made. The others do not have it yet.
func (m *Meta) claimNew(ctx context.Context, b *bb.Buffer, in keptIn) {
	if err := m.openShared(b, in).shared.Claim(ctx); err != nil {
		m.log.Warn("the log of a new buffer has no owner yet", "buffer", b.Name, "err", err)
	}
}

// openShared keeps a namespace, unless it was opened meanwhile, and returns the kept one.
func (m *Meta) openShared(b *bb.Buffer, in keptIn) *space {
	s, old := m.swapShared(b, in)
	if old != nil {
		old.end() // of a buffer of the same name that was destroyed
	}
	return s
}

func (m *Meta) swapShared(b *bb.Buffer, in keptIn) (s, old *space) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old = m.mu.spaces[b.Name]; old != nil && old.in == in {
		return old, nil
	}
	s = m.newShared(*b, in)
	if m.mu.closed {
		s.end()
		return s, nil
	}
	m.mu.spaces[b.Name] = s
	return s, old
}

// holdFactor is the time for which other daemons hold a record, as a multiple of the time for which
// the log's servers may lose it. A server that has lost power has to come back first, and a daemon
// has to claim the log.
const holdFactor = 4

// newShared opens a namespace.
func (m *Meta) newShared(b bb.Buffer, in keptIn) *space {
	o := m.logOptions(&b, in)
	tree := shared.New(m.logOf(b.Name, in), m.ids, carrier{m.opts.Peers, b.Name}, shared.Options{
		Buffer: b.Name, Node: m.opts.Node, Floor: o.Floor, Remake: o.Remake, Unanswered: o.Unanswered, Settle: o.Settle, Unreadable: o.Unreadable, Logger: m.log,
		Log: logPrefix + bucketName(b.Name, in.id), Members: m.opts.Peers.All, Hold: holdFactor * o.Settle,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tree.Watch(ctx, shared.Surroundings{Members: m.opts.Peers.All, Destroyed: func(ctx context.Context) (bool, error) {
			now, kept, err := m.buffer(ctx, "namespace", b.Name)
			if errors.Is(err, bb.NotFound) {
				return true, nil
			}
			return err == nil && (kept != in || now.State == bb.BufferDestroying), err
		}})
	}()
	apart := make(chan struct{})
	go func() {
		defer close(apart)
		if server, ok := m.opts.InProcess.(leaders.Local); ok && m.opts.Replicas > 1 {
			leaders.Apart(ctx, m.conn, server, logPrefix+bucketName(b.Name, in.id), tree.Claims)
		}
	}()
	end := func() {
		cancel()
		<-ended
		<-apart
		tree.End()
	}
	return &space{
		in: in, tree: &txn.Tree{Tree: tree, Transactions: txn.New(tree, tree.Records())}, shared: tree, destroyed: func() { tree.MarkDestroyed(); end() }, end: end,
		prepare: func(ctx context.Context) error { return tree.PrepareOnce(ctx, &b) },
	}
}
