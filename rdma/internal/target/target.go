// Package target is the owner's side of one-sided operations: the regions, the peers that may touch them, and
// the operations that are touching them right now. It must never move bytes.
package target

import (
	"fmt"
	"sync"

	"forebay/rdma"
)

// Registry holds the regions of one Fabric. It may be used concurrently.
type Registry struct {
	mu struct {
		sync.RWMutex
		last    uint64 // ids count up, so an unknown id up to here was revoked
		regions map[uint64]*Region
	}
}

// Region is one registration. Its lifecycle:
//
//	live ──Revoke──▶ revoked, in use ──last Release──▶ idle
//	  └──────────────Revoke, not in use────────────────▲
type Region struct {
	registry *Registry
	key      rdma.RemoteKey
	access   rdma.Access
	mem      []byte

	mu struct {
		sync.Mutex
		users   int
		revoked bool
	}
	idle chan struct{} // closed when revoked and not in use
}

// Add registers memory under a new key.
func (r *Registry) Add(mem []byte, access rdma.Access) (*Region, error) {
	if access&^(rdma.AccessRemoteRead|rdma.AccessRemoteWrite) != 0 {
		return nil, fmt.Errorf("register with access %#x: %w", uint8(access), rdma.ErrInvalid)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(rdma.NewRemoteKey(r.mu.last+1), mem, access), nil
}

// AddAs registers memory under a key that another registry made. All keys of a registry come
// from the same one.
func (r *Registry) AddAs(key rdma.RemoteKey, mem []byte, access rdma.Access) (*Region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.regions[key.ID()] != nil {
		return nil, fmt.Errorf("register %v twice: %w", key, rdma.ErrInvalid)
	}
	return r.add(key, mem, access), nil
}

// add takes in a region. The lock is held.
func (r *Registry) add(key rdma.RemoteKey, mem []byte, access rdma.Access) *Region {
	if r.mu.regions == nil {
		r.mu.regions = make(map[uint64]*Region)
	}
	r.mu.last = max(r.mu.last, key.ID())
	region := &Region{registry: r, key: key, access: access, mem: mem, idle: make(chan struct{})}
	r.mu.regions[key.ID()] = region
	return region
}

// Find returns the region with this key: ErrRevoked if there was one, ErrAccess if never.
func (r *Registry) Find(key rdma.RemoteKey) (*Region, error) {
	r.mu.RLock()
	region, last := r.mu.regions[key.ID()], r.mu.last
	r.mu.RUnlock()
	switch {
	case region == nil && key.ID() != 0 && key.ID() <= last:
		return nil, rdma.ErrRevoked
	case region == nil || !region.key.Equal(key):
		return nil, rdma.ErrAccess
	}
	return region, nil
}

// Check decides whether an operation on n bytes at off may happen. It is where access and
// bounds are decided for every provider.
func Check(access rdma.Access, size int, kind rdma.OpKind, off uint64, n int) error {
	switch {
	case !access.Allows(kind):
		return rdma.ErrAccess
	case off > uint64(size) || uint64(n) > uint64(size)-off:
		return rdma.ErrBounds
	}
	return nil
}

// Slice returns the memory of an operation that is allowed. It may be touched between Acquire
// and Release.
func (r *Region) Slice(kind rdma.OpKind, off uint64, n int) ([]byte, error) {
	if err := Check(r.access, len(r.mem), kind, off, n); err != nil {
		return nil, err
	}
	return r.mem[off : off+uint64(n) : off+uint64(n)], nil
}

// Acquire starts a use of the memory, or returns ErrRevoked.
func (r *Region) Acquire() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.revoked {
		return rdma.ErrRevoked
	}
	r.mu.users++
	return nil
}

// Release ends a use.
func (r *Region) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.users--
	if r.mu.revoked && r.mu.users == 0 {
		close(r.idle)
	}
}

// Revoke refuses every use from now on. It is idempotent.
func (r *Region) Revoke() {
	r.registry.mu.Lock()
	delete(r.registry.mu.regions, r.key.ID())
	r.registry.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.revoked {
		return
	}
	r.mu.revoked = true
	if r.mu.users == 0 {
		close(r.idle)
	}
}

// Idle is closed when the region is revoked and no use is left.
func (r *Region) Idle() <-chan struct{} { return r.idle }

// Bytes is the registered memory.
func (r *Region) Bytes() []byte { return r.mem }

// Key is the region's key.
func (r *Region) Key() rdma.RemoteKey { return r.key }

// Access is the set of operations that peers may do.
func (r *Region) Access() rdma.Access { return r.access }
