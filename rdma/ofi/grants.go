//go:build ofi && cgo

package ofi

import (
	"context"
	"sync"

	"forebay/rdma"
	"forebay/rdma/internal/target"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/lifeline"
)

// grant is the right to use a region of the peer's, in the fabric's own terms.
type grant struct {
	key     rdma.RemoteKey
	access  rdma.Access
	size    int
	at      fi.Place
	users   int // operations
	revoked bool
}

// grants of a connection, guarded by its lock.
type grants struct {
	byKey map[rdma.RemoteKey]*grant
	byID  map[uint64]*grant
	last  *grant // found last; mostly it is the next as well
}

func (g *grants) init() {
	g.byKey = make(map[rdma.RemoteKey]*grant)
	g.byID = make(map[uint64]*grant)
}

func (g *grants) find(key rdma.RemoteKey) *grant {
	if g.last == nil || g.last.key != key {
		g.last = g.byKey[key]
	}
	return g.last
}

// ask requests a region of the peer's. refused is the peer's answer. If both are nil, there is a
// grant, or there was.
func (c *conn) ask(ctx context.Context, key rdma.RemoteKey) (refused, err error) {
	if refused, err = c.line.Ask(ctx, key); err != nil {
		err = c.orDying(err)
	}
	return refused, err
}

// Opened implements lifeline.Handler.
func (c *conn) Opened(f lifeline.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &c.mu.grants
	if g.byID[f.Key.ID()] == nil {
		got := &grant{key: f.Key, access: f.Access, size: int(f.Size), at: fi.Place(f.At)}
		g.byKey[f.Key], g.byID[f.Key.ID()] = got, got
	}
}

// Revoke implements lifeline.Handler. No operation on the region is begun any more, and the peer
// receives an answer when the operations in flight have ended.
func (c *conn) Revoke(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.mu.grants.byID[id]
	if got == nil {
		c.line.Tell(lifeline.ForRegion(lifeline.KindRevoked, id))
		return
	}
	got.revoked = true
	delete(c.mu.grants.byID, id)
	delete(c.mu.grants.byKey, got.key)
	c.mu.grants.last = nil
	got.users++ // so that it is settled once, here or later
	c.mu.posts.abort(c, got)
	got.users--
	c.settle(got)
}

// settle reports to the peer that its region is not used any more, if it waits for that.
func (c *conn) settle(got *grant) {
	if got.revoked && got.users == 0 {
		c.line.Tell(lifeline.ForRegion(lifeline.KindRevoked, got.key.ID()))
	}
}

// loans are the regions of this side that a peer has opened.
type loans struct {
	sync.Mutex
	regions map[uint64]*region
}

func (l *loans) add(r *region) {
	l.Lock()
	defer l.Unlock()
	if l.regions == nil {
		l.regions = make(map[uint64]*region)
	}
	l.regions[r.Key().ID()] = r
}

// remove returns the region that was lent, or nil if there was none.
func (l *loans) remove(id uint64) *region {
	l.Lock()
	defer l.Unlock()
	r := l.regions[id]
	delete(l.regions, id)
	return r
}

// all returns the regions that the peer has opened and not released.
func (l *loans) all() []*region {
	l.Lock()
	defer l.Unlock()
	all := make([]*region, 0, len(l.regions))
	for _, r := range l.regions {
		all = append(all, r)
	}
	return all
}

// Open implements lifeline.Handler.
func (c *conn) Open(ask lifeline.Frame) {
	answer := lifeline.Frame{Kind: lifeline.KindOpened, Request: ask.Request, Key: ask.Key}
	t, err := c.fabric.regions.Find(ask.Key)
	if err == nil {
		err = rdma.ErrRevoked // unless it is there, and stays long enough
		if r := c.fabric.region(ask.Key.ID()); r != nil {
			opened := answer
			opened.Access, opened.Size, opened.At = t.Access(), uint64(len(t.Bytes())), lifeline.Place(r.Grant())
			c.loans.add(r)
			if r.grant(c, opened) {
				return
			}
			c.Revoked(ask.Key.ID())
		}
	}
	answer.Status = target.StatusOf(err)
	c.line.Tell(answer)
}

// Revoked implements lifeline.Handler.
func (c *conn) Revoked(id uint64) {
	if r := c.loans.remove(id); r != nil {
		r.removePeer(c)
	}
}
