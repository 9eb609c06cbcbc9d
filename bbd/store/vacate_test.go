package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"forebay/internal/bb"
)

// TestVacatedRegionIsReplaced: the only region is vacated for a waiting user, and no lease is
// requested while nothing is free. Once the region is empty, there is free memory.
func TestVacatedRegionIsReplaced(t *testing.T) {
	o := folders(t)
	o.MemoryBytes, o.RegionBytes = 8<<20, 8<<20
	s := open(t, o)
	w := newWriter(t, s)
	w.uid = 4001
	w.commit(1, 1, 0, 0, content(1, 3<<20))
	w.done()
	if err := errors.Join(s.Seal(1, 1), s.MarkClean(1, 1)); err != nil {
		t.Fatal(err)
	}
	ask := func() (Lease, error) { return s.Lease(LeaseRequest{Buffer: "b", UID: 4002, Bytes: 1}) }
	if _, err := ask(); !errors.Is(err, ErrNoRoom) {
		t.Fatal(err)
	}
	if s.Evict(bb.TierMemory, 1<<30) == 0 {
		t.Fatal("nothing could be evicted")
	}
	waitUntil(t, "the region to be replaced", func() bool { return s.Stats().Memory.Free > 0 })
	if _, err := ask(); err != nil {
		t.Error(err)
	}
}

func waitUntil(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// sharer is a user with one file at a time. It waits for memory as bbd's writers do.
type sharer struct {
	uid  uint32
	need int64
	got  int
}

// sharing is a store that users with regions of their own share. It requests a lease only while
// something is free, as bbd does.
type sharing struct {
	t      *testing.T
	s      *Store
	r      *rand.Rand
	users  []*sharer
	leases []Lease
	dirty  []bb.FileID
	last   bb.FileID
}

// give leases memory to a waiting user, and writes a file there. The lease may last.
func (h *sharing) give(u *sharer) bool {
	l, err := h.s.Lease(LeaseRequest{Buffer: "b", UID: u.uid, Bytes: u.need, Min: 1})
	if errors.Is(err, ErrNoRoom) {
		return false
	}
	if err != nil {
		h.t.Fatal(err)
	}
	w := &writer{t: h.t, s: h.s, buffer: "b", uid: u.uid, lease: l, next: l.DataStart, floor: l.RecordFloor}
	h.last++
	w.commit(h.last, 1, 0, 0, content(uint64(h.last), 1000))
	h.dirty = append(h.dirty, h.last)
	u.got++
	u.need = 0
	if h.r.IntN(2) == 0 {
		h.leases = append(h.leases, l)
	} else if err := h.s.Release(l.ID); err != nil {
		h.t.Fatal(err)
	}
	return true
}

// settle ends a lease and flushes a file, at random.
func (h *sharing) settle() {
	if n := len(h.leases); n > 0 {
		i := h.r.IntN(n)
		end := h.s.Release
		if h.r.IntN(4) == 0 {
			end = h.s.Abandon
		}
		if err := end(h.leases[i].ID); err != nil {
			h.t.Fatal(err)
		}
		h.leases = append(h.leases[:i], h.leases[i+1:]...)
	}
	if n := len(h.dirty); n > 0 {
		i := h.r.IntN(n)
		f := h.dirty[i]
		if err := errors.Join(h.s.Seal(f, 1), h.s.MarkClean(f, 1)); err != nil {
			h.t.Fatal(err)
		}
		h.dirty = append(h.dirty[:i], h.dirty[i+1:]...)
	}
}

// step makes room or grants a lease, as the figures require.
func (h *sharing) step() {
	m := h.s.Stats().Memory
	if m.Free < Unit {
		h.s.Evict(bb.TierMemory, min(m.Evictable, 2*Unit))
		return
	}
	refused := false
	for _, u := range h.users {
		refused = u.need > 0 && !h.give(u) || refused
	}
	if refused {
		h.s.Evict(bb.TierMemory, 2*Unit)
	}
}

// TestSharing: three users share memory of one to three regions. Every request for
// memory is granted in the end, as long as leases end and files are flushed.
func TestSharing(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			o := folders(t)
			o.DiskDir, o.DiskBytes = "", 0
			o.RegionBytes = 4 << 20
			o.MemoryBytes = o.RegionBytes * int64(1+seed%3)
			h := &sharing{t: t, s: open(t, o), r: rand.New(rand.NewPCG(seed, 7))}
			for uid := range uint32(3) {
				h.users = append(h.users, &sharer{uid: 5001 + uid})
			}
			for range 40 {
				for _, u := range h.users {
					if u.need == 0 && h.r.IntN(2) == 0 {
						u.need = 1 + h.r.Int64N(3<<20)
					}
				}
				oldest := h.users[h.r.IntN(3)]
				waitUntil(t, fmt.Sprintf("memory for user %d", oldest.uid), func() bool {
					h.settle()
					h.step()
					return oldest.need == 0
				})
			}
		})
	}
}
