//go:build ofi && cgo

package ofi

import (
	"fmt"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/target"
	"forebay/rdma/ofi/internal/lifeline"
	"forebay/rdma/ofi/internal/local"
)

// region implements rdma.Region. Peers that have opened it are its holders:
//
//	live ──Close──▶ revoking: opened by nobody any more, holders get it
//	                  │ every holder answered, or was disconnected; own operations ended
//	                  ▼
//	                deregistered ──▶ closed
type region struct {
	*local.Region
	fabric *Fabric
	begin  sync.Once
	done   chan struct{}
	err    error // of the deregistration; read after done

	mu struct {
		sync.Mutex
		revoking bool
		holders  map[*conn]struct{}
		left     chan struct{} // holds a token when a holder may have gone
	}
}

// Register implements rdma.Fabric.
func (f *Fabric) Register(mem []byte, access rdma.Access) (rdma.Region, error) {
	t, err := f.regions.Add(mem, access)
	if err != nil {
		return nil, err
	}
	return f.own(t)
}

// RegisterAs is Register under the key that the same memory has in another Fabric, with the same
// access, so that a peer needs one key only. All keys of f come from that one.
func (f *Fabric) RegisterAs(of rdma.Region) (rdma.Region, error) {
	t, err := f.regions.AddAs(of.Key(), of.Bytes(), of.Access())
	if err != nil {
		return nil, err
	}
	return f.own(t)
}

// own makes a region of an entry of the registry.
func (f *Fabric) own(t *target.Region) (rdma.Region, error) {
	done, err := f.use()
	if err != nil {
		t.Revoke()
		return nil, err
	}
	defer done()
	start := time.Now()
	registered, err := f.local.Register(t)
	if err != nil {
		t.Revoke()
		return nil, fmt.Errorf("ofi: %w", err)
	}
	if registered.Registration() != nil {
		f.opts.Log.Debug("registered", "region", t.Key(), "bytes", len(t.Bytes()), "took", time.Since(start))
	}
	r := newRegion(f, registered)
	f.byID.Lock()
	f.byID.regions[t.Key().ID()] = r
	f.byID.Unlock()
	if err := f.owned.Add(r); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func newRegion(f *Fabric, l *local.Region) *region {
	r := &region{Region: l, fabric: f, done: make(chan struct{})}
	r.mu.holders = make(map[*conn]struct{})
	r.mu.left = make(chan struct{}, 1)
	return r
}

// Close implements rdma.Region.
func (r *region) Close() error {
	r.begin.Do(func() {
		r.revoke()
		f := r.fabric
		r.err = r.Region.Close()
		f.byID.Lock()
		if id := r.Key().ID(); f.byID.regions[id] == r { // not one that is kept
			delete(f.byID.regions, id)
		}
		f.byID.Unlock()
		f.owned.Remove(r)
		close(r.done)
	})
	<-r.done
	return r.err
}

// revoke returns when no operation uses the memory any more.
func (r *region) revoke() {
	r.Revoke()
	r.mu.Lock()
	r.mu.revoking = true
	r.mu.Unlock()
	for _, c := range r.holders() {
		c.line.Tell(lifeline.ForRegion(lifeline.KindRevoke, r.Key().ID()))
	}
	timer := time.NewTimer(r.fabric.opts.RevokeTimeout)
	defer timer.Stop()
	for len(r.holders()) > 0 {
		select {
		case <-r.mu.left:
		case <-timer.C:
			r.disconnect()
			timer.Reset(r.fabric.opts.RevokeTimeout)
		}
	}
	for {
		select {
		case <-r.Idle():
			return
		case <-timer.C:
			r.disconnect()
			timer.Reset(r.fabric.opts.RevokeTimeout)
		}
	}
}

// disconnect ends the connections whose peers hold the region, or whose operations use it here.
func (r *region) disconnect() {
	for _, c := range r.fabric.conns.All() {
		if r.heldBy(c) || c.uses(r) {
			c.fail(fmt.Errorf("ofi %s: transfer stalled while its region was revoked: %w", c.peer, rdma.ErrPeerGone))
		}
	}
}

func (r *region) holders() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*conn, 0, len(r.mu.holders))
	for c := range r.mu.holders {
		all = append(all, c)
	}
	return all
}

func (r *region) heldBy(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, held := r.mu.holders[c]
	return held
}

// grant opens the region to a peer, and queues its answer before the revocation can be queued.
func (r *region) grant(c *conn, answer lifeline.Frame) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.revoking {
		return false
	}
	r.mu.holders[c] = struct{}{}
	c.line.Tell(answer)
	return true
}

// removePeer records that a peer does not use the region any more.
func (r *region) removePeer(c *conn) {
	r.mu.Lock()
	delete(r.mu.holders, c)
	r.mu.Unlock()
	select {
	case r.mu.left <- struct{}{}:
	default:
	}
}

func (f *Fabric) region(id uint64) *region {
	f.byID.Lock()
	defer f.byID.Unlock()
	return f.byID.regions[id]
}
