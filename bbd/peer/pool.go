package peer

import (
	"context"
	"sync"

	"forebay/internal/bb"
)

// Pool keeps one session for each node and user, and makes a broken one anew when it
// is asked for. It may be used concurrently.
type Pool struct {
	self   *Identity
	fabric DialFabric

	mu struct {
		sync.Mutex
		sessions map[key]*slot
		closed   bool
	}
}

type key struct {
	node bb.NodeID
	who  Who
}

// slot is a session that is there, or is being made by who has the turn. It is no
// mutex, since others wait for it no longer than their contexts allow.
type slot struct {
	turn chan struct{} // holds one while somebody has it
	s    *Session
}

// NewPool returns an empty pool.
func NewPool(self *Identity, fabric DialFabric) *Pool {
	p := &Pool{self: self, fabric: fabric}
	p.mu.sessions = make(map[key]*slot)
	return p
}

// Session returns a session with the daemon of a node, which is at an address, for a
// user. bb.Unavailable if there is none and none can be made until ctx ends.
func (p *Pool) Session(ctx context.Context, node bb.NodeID, address string, who Who) (*Session, error) {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return nil, bb.E(bb.Unavailable, "reach", address, "the daemon is stopping")
	}
	k := key{node, who}
	v := p.mu.sessions[k]
	if v == nil {
		v = &slot{turn: make(chan struct{}, 1)}
		p.mu.sessions[k] = v
	}
	p.mu.Unlock()
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, bb.Wrap("reach", address, ctx.Err())
	}
	if v.s != nil && !v.s.Broken() && v.s.address == address {
		return v.s, nil
	}
	if v.s != nil {
		v.s.Close()
		v.s = nil
	}
	s, err := Dial(ctx, node, address, p.self, who, p.fabric)
	if err != nil {
		return nil, err
	}
	v.s = s
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.Unlock()
	if closed {
		s.Close()
		return nil, bb.E(bb.Unavailable, "reach", address, "the daemon is stopping")
	}
	return s, nil
}

// Drop breaks the sessions with a node that does not answer any more. One that is being
// made fails by itself.
func (p *Pool) Drop(node bb.NodeID) {
	for _, v := range p.slots(func(k key) bool { return k.node == node }) {
		select {
		case v.turn <- struct{}{}:
			v.drop()
		default:
		}
	}
}

// Close ends all sessions and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	for _, v := range p.slots(func(key) bool { return true }) {
		v.turn <- struct{}{}
		v.drop()
	}
}

func (p *Pool) slots(which func(key) bool) (found []*slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, v := range p.mu.sessions {
		if which(k) {
			found = append(found, v)
		}
	}
	return found
}

// drop ends the session and the caller's turn.
func (v *slot) drop() {
	defer func() { <-v.turn }()
	if v.s != nil {
		v.s.Close()
		v.s = nil
	}
}
