//go:build ofi && cgo

package local

import (
	"container/list"
	"fmt"
	"log/slog"
	"sync"

	"forebay/rdma"
	"forebay/rdma/ofi/fi"
)

// cache decides which of the memory that was handed to Keep is registered now: the last used, up
// to a limit. It is keyed by address, through the index.
//
//	kept ──first operation──▶ registered ◀──▶ in use
//	  ▲                           │
//	  └──── another needs room ───┘             Close, from each: forgotten, once not in use
//
// # Why no registration is ever stale
//
// A registration pins pages, not addresses. If memory is unmapped and other memory comes to lie at
// the same address, a registration of the first one reaches pages without any user. Caches that
// register all memory in use must track every munmap, and cannot here, since libfabric's own one
// relies on hooks in libc, past which the Go runtime maps and unmaps (shim.c). So no memory is
// registered merely because it was used. Memory is registered between Keep and Close alone, in
// which its owner guarantees that it stays mapped, as for every Region. The owner calls Close
// before it unmaps, Close returns when no operation uses the memory any more and its registration
// is gone, and from its beginning the address leads to nothing. If an owner unmaps without Close,
// and hands other memory at the same address to Keep, it is refused. Memory that is not kept is
// copied to a stage.
//
// Memory of the Go heap must not be kept. Once it is free, the runtime releases its pages and maps
// others in their place, under a registration that lives on.
type cache struct {
	dev   *fi.Device
	limit int // bytes
	log   *slog.Logger

	mu struct {
		sync.Mutex
		bytes   int       // registered, or being registered
		entries list.List // *Region, those that are registered, the one that was used last at the back
		refused bool      // the failure to register memory was logged
	}
	making sync.Mutex // one registration at a time; taken before mu
}

// kept is the cache's part of a region. The lock of the cache guards it, and the region's reg as well. But
// a caller that has pinned the region may read reg.
type kept struct {
	users int
	entry *list.Element // nil: not registered
}

// Keep takes memory in that stays mapped where it is until the region is closed. It is registered when it
// is first used, and may be unregistered between uses when other memory needs room. It must not be of the
// Go heap, and must not overlap with other memory that is kept: ErrInvalid.
func (m *Memory) Keep(mem []byte) (*Region, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("keep nothing: %w", rdma.ErrInvalid)
	}
	t, err := m.kept.Add(mem, rdma.AccessLocal)
	if err != nil {
		return nil, err
	}
	r := &Region{Region: t, of: m, kept: &kept{}}
	if !m.index.addApart(r) {
		t.Revoke()
		return nil, fmt.Errorf("keep %d bytes of which some are kept already: %w", len(mem), rdma.ErrInvalid)
	}
	return r, nil
}

// pin begins a use. If it returns false, the memory is not registered, and the use has not begun.
func (h *cache) pin(r *Region) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.kept.entry == nil {
		return false
	}
	r.kept.users++
	h.mu.entries.MoveToBack(r.kept.entry)
	return true
}

// unpin ends a use.
func (h *cache) unpin(r *Region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.kept.users--
}

// register is pin for memory that is not registered. It is now, unless there is no room for it, or
// the kernel allows no more. It takes as long as that takes.
func (h *cache) register(r *Region) bool {
	h.making.Lock()
	defer h.making.Unlock()
	if h.pin(r) { // another caller was faster
		return true
	}
	old, room := h.makeRoom(len(r.Bytes()))
	for _, reg := range old {
		if err := reg.Close(); err != nil {
			h.log.Warn("memory that was kept could not be unregistered", "err", err)
		}
	}
	if !room {
		return false
	}
	reg, err := h.dev.Register(r.Bytes(), rdma.AccessLocal)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.mu.bytes -= len(r.Bytes())
		if !h.mu.refused {
			h.mu.refused = true
			h.log.Warn("memory that is kept cannot be registered: it is copied", "err", err)
		}
		return false
	}
	r.reg = reg
	r.kept.entry = h.mu.entries.PushBack(r)
	r.kept.users++
	return true
}

// makeRoom takes the registrations away that were used longest ago, as many as need be. If there is
// room for n bytes then, it reserves them.
func (h *cache) makeRoom(n int) (old []*fi.Registration, room bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > h.limit {
		return nil, false
	}
	for e := h.mu.entries.Front(); e != nil && h.mu.bytes+n > h.limit; {
		r, next := e.Value.(*Region), e.Next()
		if r.kept.users == 0 {
			old = append(old, h.drop(r))
		}
		e = next
	}
	if h.mu.bytes+n > h.limit {
		return old, false
	}
	h.mu.bytes += n
	return old, true
}

// drop takes a region's registration, which the caller closes. The lock is held.
func (h *cache) drop(r *Region) *fi.Registration {
	reg := r.reg
	h.mu.entries.Remove(r.kept.entry)
	h.mu.bytes -= len(r.Bytes())
	r.reg, r.kept.entry = nil, nil
	return reg
}

// forget removes a region without users, and keeps its registration, which the caller closes.
func (h *cache) forget(r *Region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.kept.entry != nil {
		r.reg = h.drop(r)
	}
}

// Registered is how much of the kept memory is registered now, in bytes and in regions.
func (m *Memory) Registered() (bytes, regions int) {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	return m.cache.mu.bytes, m.cache.mu.entries.Len()
}

// IsRegistered reports whether a region that is kept is registered now.
func (r *Region) IsRegistered() bool {
	r.of.cache.mu.Lock()
	defer r.of.cache.mu.Unlock()
	return r.kept.entry != nil
}
