//go:build ofi && cgo

package ofi

import (
	"container/list"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"forebay/rdma"
)

// cache decides which of the memory that was handed to Keep is registered now: what was used last,
// up to a limit. It is keyed by address, through locals.
//
//	kept ──first operation──▶ registered ◀──▶ in use
//	  ▲                           │
//	  └──── another needs room ───┘             Close, from each: forgotten, once not in use
//
// # Why no registration is ever stale
//
// A registration pins pages, not addresses: where memory is unmapped and other memory comes to lie
// at the same address, a registration of the first one reaches pages that nobody sees. Caches that
// register whatever they meet must learn of every munmap, and cannot here: libfabric's own one
// relies on hooks in libc, past which the Go runtime maps and unmaps (shim.c). So nothing is
// registered because it was met. Memory is registered between Keep and Close alone, in which its
// owner promises that it stays mapped, as for every Region; Close is what the owner does before it
// unmaps, it returns when no operation uses the memory any more and its registration is gone, and
// from its beginning the address leads to nothing. An owner that forgets Close, unmaps, and hands
// other memory at the same address to Keep is refused. What is not kept is copied to a stage.
//
// Memory of the Go heap must not be kept: once it is free, the runtime takes its pages away and
// puts others in their place, under a registration that lives on.
type cache struct {
	dev   *device
	limit int // bytes
	log   *slog.Logger

	mu struct {
		sync.Mutex
		bytes   int       // registered, or being registered
		entries list.List // *region, those that are registered, the one that was used last at the back
		refused bool      // it was said that memory could not be registered
	}
	making sync.Mutex // one registration at a time; taken before mu
}

// cached is what the cache knows of a region. The lock of the cache guards it, and the region's
// reg as well; but who has pinned the region may read reg.
type cached struct {
	users int
	entry *list.Element // nil: not registered
}

// Keep says that memory stays mapped where it is, until what is returned is closed: where the
// fabric asks for registered memory, operations on it need no copy. It is registered when it is
// first used, and may be unregistered between uses when other memory needs room. It must not be of
// the Go heap, and must not overlap with other memory that is kept: ErrInvalid. Operations on it
// must have completed before it is closed; Close waits for those that have not.
func (f *Fabric) Keep(mem []byte) (io.Closer, error) {
	done, err := f.use()
	if err != nil {
		return nil, err
	}
	defer done()
	if len(mem) == 0 {
		return nil, fmt.Errorf("ofi: keep nothing: %w", rdma.ErrInvalid)
	}
	t, err := f.kept.Add(mem, rdma.AccessLocal)
	if err != nil {
		return nil, err
	}
	r := newRegion(f, t)
	r.cached = &cached{}
	if !f.local.addApart(r) {
		t.Revoke()
		return nil, fmt.Errorf("ofi: keep %d bytes of which some are kept already: %w", len(mem), rdma.ErrInvalid)
	}
	if err := f.owned.Add(r); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// pin begins a use. If it returns false, the memory is not registered, and the use has not begun.
func (h *cache) pin(r *region) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.cached.entry == nil {
		return false
	}
	r.cached.users++
	h.mu.entries.MoveToBack(r.cached.entry)
	return true
}

// unpin ends a use.
func (h *cache) unpin(r *region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.cached.users--
}

// register is pin for memory that is not registered: it is now, unless there is no room for it, or
// the kernel allows no more. It takes as long as that takes.
func (h *cache) register(r *region) bool {
	h.making.Lock()
	defer h.making.Unlock()
	if h.pin(r) { // somebody else was faster
		return true
	}
	old, room := h.makeRoom(len(r.Bytes()))
	for _, reg := range old {
		if err := reg.close(); err != nil {
			h.log.Warn("memory that was kept could not be unregistered", "err", err)
		}
	}
	if !room {
		return false
	}
	reg, err := h.dev.register(r.Bytes(), rdma.AccessLocal)
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
	r.cached.entry = h.mu.entries.PushBack(r)
	r.cached.users++
	return true
}

// makeRoom takes the registrations away that were used longest ago, as many as need be, and
// reserves n bytes if there is room for them now.
func (h *cache) makeRoom(n int) (old []*registration, room bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > h.limit {
		return nil, false
	}
	for e := h.mu.entries.Front(); e != nil && h.mu.bytes+n > h.limit; {
		r, next := e.Value.(*region), e.Next()
		if r.cached.users == 0 {
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
func (h *cache) drop(r *region) *registration {
	reg := r.reg
	h.mu.entries.Remove(r.cached.entry)
	h.mu.bytes -= len(r.Bytes())
	r.reg, r.cached.entry = nil, nil
	return reg
}

// forget takes a region out that nobody uses any more, and leaves it its registration, which the
// caller closes.
func (h *cache) forget(r *region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.cached.entry != nil {
		r.reg = h.drop(r)
	}
}
