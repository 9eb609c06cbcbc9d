package peer

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/internal/bb"
)

// Pool keeps one session for each node and user, and makes a broken one anew at its next use. One
// that has been unused for a while, and in which the peer keeps nothing, is closed. In a large
// cluster every node would have one with every other. It may be used concurrently.
type Pool struct {
	self   *Identity
	fabric DialFabric
	idle   time.Duration

	sweeps sync.Mutex // held while unused sessions are closed
	mu     struct {
		sync.Mutex
		sessions map[key]*slot
		sweeping *time.Timer
		closed   bool
	}
}

// Idle is how long an unused session is kept.
const Idle = time.Minute

type key struct {
	node bb.NodeID
	who  Who
}

// slot is a session that is there, or is being made by the holder of its lock. Others
// wait for that no longer than their contexts allow.
type slot struct {
	lock *semaphore.Weighted // of one: guards the next fields
	s    *Session
	gone bool // from the pool; look it up again
}

// NewPool returns an empty pool.
func NewPool(self *Identity, fabric DialFabric) *Pool {
	p := &Pool{self: self, fabric: fabric, idle: cmp.Or(self.Idle, Idle)}
	p.mu.sessions = make(map[key]*slot)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.sweeping = time.AfterFunc(p.idle/4, p.sweep)
	return p
}

// Session returns a session with the daemon of a node, which is at an address, for a
// user. bb.Unavailable if there is none and none can be made until ctx ends.
func (p *Pool) Session(ctx context.Context, node bb.NodeID, address string, who Who) (*Session, error) {
	v, err := p.take(ctx, key{node, who}, address)
	if err != nil {
		return nil, err
	}
	defer v.lock.Release(1)
	if v.s != nil && !v.s.Broken() && v.s.address == address {
		v.s.watch.used() // it is not closed before it can be
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
	if p.self.Met != nil {
		p.self.Met(node, bb.InstanceID(s.welcome.GetInstance()))
	}
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.Unlock()
	if closed {
		s.Close()
		return nil, stopping(address)
	}
	return s, nil
}

func stopping(address string) error {
	return bb.E(bb.Unavailable, "reach", address, "the daemon is stopping")
}

// take returns a slot of the pool, and its lock.
func (p *Pool) take(ctx context.Context, k key, address string) (*slot, error) {
	for {
		p.mu.Lock()
		if p.mu.closed {
			p.mu.Unlock()
			return nil, stopping(address)
		}
		v := p.mu.sessions[k]
		if v == nil {
			v = &slot{lock: semaphore.NewWeighted(1)}
			p.mu.sessions[k] = v
		}
		p.mu.Unlock()
		if err := v.lock.Acquire(ctx, 1); err != nil {
			return nil, bb.Wrap("reach", address, err)
		}
		if !v.gone {
			return v, nil
		}
		v.lock.Release(1) // it was swept while this one waited
	}
}

// sweep closes unused sessions, until the pool is closed.
func (p *Pool) sweep() {
	p.sweeps.Lock()
	defer p.sweeps.Unlock()
	p.mu.Lock()
	all, closed := maps.Clone(p.mu.sessions), p.mu.closed
	p.mu.Unlock()
	if closed {
		return
	}
	for k, v := range all {
		if !v.lock.TryAcquire(1) {
			continue // a caller is about to use it
		}
		if v.s == nil || v.s.Broken() || v.s.watch.idle(p.idle) {
			v.gone = true
			p.mu.Lock()
			if p.mu.sessions[k] == v {
				delete(p.mu.sessions, k)
			}
			p.mu.Unlock()
			v.drop()
			continue
		}
		v.lock.Release(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.closed {
		p.mu.sweeping.Reset(p.idle / 4)
	}
}

// Drop breaks the sessions with a node that does not answer any more. One that is being
// made fails by itself.
func (p *Pool) Drop(node bb.NodeID) {
	for _, v := range p.slots(func(k key) bool { return k.node == node }) {
		if v.lock.TryAcquire(1) {
			v.drop()
		}
	}
}

// Close ends all sessions and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.sweeping.Stop()
	p.mu.Unlock()
	p.sweeps.Lock() // waits for one that is under way
	defer p.sweeps.Unlock()
	for _, v := range p.slots(func(key) bool { return true }) {
		_ = v.lock.Acquire(context.Background(), 1) // no error without an end of the context
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

// drop ends the session and releases the lock, which the caller has taken.
func (v *slot) drop() {
	defer v.lock.Release(1)
	if v.s != nil {
		v.s.Close()
		v.s = nil
	}
}
