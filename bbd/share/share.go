// Package share divides a daemon's limited resources among independent users: places for sessions,
// requests in flight, memory. It must never depend on the counted things.
package share

import (
	"context"
	"sync"
)

// Pool is a fixed number of things of one kind. A user may have as many as are left over for
// all others, so a user alone has half of them, of two each a third, and there is always some
// left for the next (the dynamic thresholds of Choudhury and Hahne, 1998, with factor 1). Nothing
// has to be taken back for that. Its methods may be called concurrently.
type Pool struct {
	mu      sync.Mutex
	size    int64
	used    int64
	by      map[uint32]int64
	changed chan struct{} // closed at the next Give, if there are waiters; nil: there are none
}

// NewPool returns a pool of so many.
func NewPool(size int64) *Pool { return &Pool{size: size, by: make(map[uint32]int64)} }

// Take takes n for a user, or nothing if that is more than the user's share.
func (p *Pool) Take(user uint32, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(user, n)
}

func (p *Pool) take(user uint32, n int64) bool {
	if p.by[user]+n > p.size-p.used {
		return false
	}
	p.used += n
	p.by[user] += n
	return true
}

// Wait takes n for a user as soon as the user's share allows it, or fails when ctx ends. An amount
// of more than the whole pool is never allowed.
func (p *Pool) Wait(ctx context.Context, user uint32, n int64) error {
	for {
		p.mu.Lock()
		if p.take(user, n) {
			p.mu.Unlock()
			return nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Give returns n that a user has taken.
func (p *Pool) Give(user uint32, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.by[user] -= n; p.by[user] == 0 {
		delete(p.by, user)
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Of returns how many a user has, and how many more the user may take now.
func (p *Pool) Of(user uint32) (has, more int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has = p.by[user]
	return has, max(0, p.size-p.used-has)
}
