//go:build ofi && cgo

package ofi

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

// region implements rdma.Region. Peers that have opened it are its holders:
//
//	live ──Close──▶ revoking: opened by nobody any more, holders told
//	                  │ every holder answered, or was disconnected; own operations ended
//	                  ▼
//	                deregistered ──▶ closed
type region struct {
	*target.Region
	fabric *Fabric
	reg    *registration // nil: neither peers nor the provider need one; cached: not now
	cached *cached       // nil: registered as long as it lives
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
// access, so that a peer needs to be told one key. All keys of f come from that one.
func (f *Fabric) RegisterAs(of rdma.Region) (rdma.Region, error) {
	t, err := f.regions.AddAs(of.Key(), of.Bytes(), of.Access())
	if err != nil {
		return nil, err
	}
	return f.own(t)
}

// own makes a region of what stands in the registry.
func (f *Fabric) own(t *target.Region) (rdma.Region, error) {
	done, err := f.use()
	if err != nil {
		t.Revoke()
		return nil, err
	}
	defer done()
	r := newRegion(f, t)
	if err := r.register(); err != nil {
		t.Revoke()
		return nil, fmt.Errorf("ofi: %w", err)
	}
	f.byID.Lock()
	f.byID.regions[t.Key().ID()] = r
	f.byID.Unlock()
	f.local.add(r)
	if err := f.owned.Add(r); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func newRegion(f *Fabric, t *target.Region) *region {
	r := &region{Region: t, fabric: f, done: make(chan struct{})}
	r.mu.holders = make(map[*conn]struct{})
	r.mu.left = make(chan struct{}, 1)
	return r
}

func (r *region) register() (err error) {
	if len(r.Bytes()) == 0 || r.Access() == rdma.AccessLocal && !r.fabric.dev.local {
		return nil
	}
	start := time.Now()
	r.reg, err = r.fabric.dev.register(r.Bytes(), r.Access())
	if err == nil {
		r.fabric.opts.Log.Debug("registered", "region", r.Key(), "bytes", len(r.Bytes()), "took", time.Since(start))
	}
	return err
}

// Close implements rdma.Region.
func (r *region) Close() error {
	r.begin.Do(func() {
		r.revoke()
		f := r.fabric
		f.local.remove(r)
		if r.cached != nil {
			f.cache.forget(r)
		}
		r.err = r.reg.close()
		f.byID.Lock()
		if r.cached == nil {
			delete(f.byID.regions, r.Key().ID())
		}
		f.byID.Unlock()
		f.owned.Remove(r)
		close(r.done)
	})
	<-r.done
	return r.err
}

// revoke returns when nobody uses the memory any more.
func (r *region) revoke() {
	r.Revoke()
	r.mu.Lock()
	r.mu.revoking = true
	r.mu.Unlock()
	for _, c := range r.holders() {
		c.tell(frame{kind: kindRevoke, key: r.Key()})
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

// grant gives a peer the region, and answers it before anybody can tell it of the revocation.
func (r *region) grant(c *conn, answer frame) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.revoking {
		return false
	}
	r.mu.holders[c] = struct{}{}
	c.tell(answer)
	return true
}

// letGo says that a peer does not use the region any more.
func (r *region) letGo(c *conn) {
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

// locals finds the registered region that a piece of local memory lies in.
type locals struct {
	write  sync.Mutex
	sorted atomic.Pointer[[]*region] // by address; replaced whole
}

func (l *locals) add(r *region) {
	if r.reg == nil {
		return
	}
	l.replace(func(all []*region) []*region { return append(all, r) })
}

func (l *locals) remove(r *region) {
	l.replace(func(all []*region) []*region {
		return slices.DeleteFunc(all, func(other *region) bool { return other == r })
	})
}

// addApart adds a region that is kept, unless it overlaps with another that is.
func (l *locals) addApart(r *region) bool {
	l.write.Lock()
	defer l.write.Unlock()
	if l.overlaps(r.Bytes()) {
		return false
	}
	l.replaceLocked(func(all []*region) []*region { return append(all, r) })
	return true
}

func (l *locals) replace(change func([]*region) []*region) {
	l.write.Lock()
	defer l.write.Unlock()
	l.replaceLocked(change)
}

func (l *locals) replaceLocked(change func([]*region) []*region) {
	var all []*region
	if old := l.sorted.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = change(all)
	slices.SortFunc(all, func(a, b *region) int { return cmp.Compare(address(a.Bytes()), address(b.Bytes())) })
	l.sorted.Store(&all)
}

// overlaps reports whether a region that was kept has some of the memory.
func (l *locals) overlaps(b []byte) bool {
	all := l.sorted.Load()
	if all == nil {
		return false
	}
	from := uint64(address(b))
	return slices.ContainsFunc(*all, func(r *region) bool {
		at := uint64(address(r.Bytes()))
		return r.cached != nil && at < from+uint64(len(b)) && from < at+uint64(len(r.Bytes()))
	})
}

// maxRegion bounds how far before an address a region that holds it may begin: the largest region
// of the architecture, several times over.
const maxRegion = 16 << 30

// find returns a region that holds all of b, acquired, or nil.
func (l *locals) find(b []byte) *region {
	all := l.sorted.Load()
	if all == nil {
		return nil
	}
	at := uint64(address(b))
	i, _ := slices.BinarySearchFunc(*all, at, func(r *region, at uint64) int {
		if uint64(address(r.Bytes())) <= at {
			return -1
		}
		return 1
	})
	for i--; i >= 0; i-- {
		r := (*all)[i]
		off := at - uint64(address(r.Bytes()))
		if off+uint64(len(b)) <= uint64(len(r.Bytes())) && r.Acquire() == nil {
			return r
		}
		if off > maxRegion {
			return nil
		}
	}
	return nil
}
