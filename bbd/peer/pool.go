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

// slot is a session that is there, or is being made by who holds the lock.
type slot struct {
	sync.Mutex
	s *Session
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
		v = new(slot)
		p.mu.sessions[k] = v
	}
	p.mu.Unlock()
	v.Lock()
	defer v.Unlock()
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

// Drop breaks the sessions with a node that does not answer any more.
func (p *Pool) Drop(node bb.NodeID) {
	for _, v := range p.slots(func(k key) bool { return k.node == node }) {
		v.drop()
	}
}

// Close ends all sessions and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	for _, v := range p.slots(func(key) bool { return true }) {
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

func (v *slot) drop() {
	v.Lock()
	defer v.Unlock()
	if v.s != nil {
		v.s.Close()
		v.s = nil
	}
}
