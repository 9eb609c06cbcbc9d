package store

import (
	"errors"
	"fmt"
	"testing"

	"forebay/internal/bb"
)

const carol = 5003 // beside alice and bob

// tenants is a store that users share.
type tenants struct {
	t       *testing.T
	o       Options
	s       *Store
	last    bb.FileID
	files   map[uint32][]bb.FileID
	flushes map[string]bool
}

// newTenants opens a store of so many regions of 4 MiB. Its only buffers are named for their users.
func newTenants(t *testing.T, regions int64, disk bool) *tenants {
	o := folders(t)
	o.RegionBytes, o.Shares = 4<<20, true
	o.MemoryBytes = regions * o.RegionBytes
	if !disk {
		o.DiskDir, o.DiskBytes = "", 0
	}
	return &tenants{t: t, o: o, s: open(t, o), files: map[uint32][]bb.FileID{}, flushes: map[string]bool{}}
}

func bufferOf(uid uint32) string { return fmt.Sprint("b", uid) }

// write writes a file of most of a MiB, or fails as Lease does.
func (h *tenants) write(uid uint32) error {
	fixed := h.o.DiskDir == "" && !h.flushes[bufferOf(uid)]
	l, err := h.s.Lease(LeaseRequest{Buffer: bufferOf(uid), UID: uid, Bytes: Unit, Min: 900 << 10, Fixed: fixed})
	if err != nil {
		return err
	}
	h.last++
	w := &writer{t: h.t, s: h.s, buffer: bufferOf(uid), uid: uid, lease: l, next: l.DataStart, floor: l.RecordFloor}
	w.commit(h.last, 1, 0, 0, content(uint64(h.last), 1000))
	h.files[uid] = append(h.files[uid], h.last)
	return errors.Join(h.s.Abandon(l.ID), h.s.Seal(h.last, 1))
}

// fill writes until there is no room, and returns the number of files written.
func (h *tenants) fill(uid uint32) (n int) {
	for {
		err := h.write(uid)
		switch {
		case err == nil:
			n++
		case errors.Is(err, ErrNoRoom):
			return n
		case errors.Is(err, ErrPopulating):
			populatedNow(h.t, h.s)
		default:
			h.t.Fatal(err)
		}
	}
}

func (h *tenants) clean(uid uint32) {
	h.t.Helper()
	for _, f := range h.files[uid] {
		if err := h.s.MarkClean(f, 1); err != nil {
			h.t.Fatal(err)
		}
	}
	h.files[uid] = nil
}

func (h *tenants) regions(uid uint32) int {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	t := h.s.tenancy()
	for _, u := range t.Users {
		if u.User == uid {
			return u.Regions
		}
	}
	return 0
}

func (h *tenants) room(uid uint32) Room {
	fixed := h.o.DiskDir == "" && !h.flushes[bufferOf(uid)]
	return h.s.MakeRoom(RoomRequest{UID: uid, Bytes: Unit, Fixed: fixed, Flushes: h.flushes})
}

// enter has a user wait until a file is written, with so many attempts at most to make room.
func (h *tenants) enter(uid uint32, attempts int) {
	h.t.Helper()
	h.s.Await([]uint32{uid})
	defer h.s.Await(nil)
	for range attempts {
		err := h.write(uid)
		for errors.Is(err, ErrPopulating) {
			waitUntil(h.t, "a region", func() bool { return h.replaced() })
			err = h.write(uid)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNoRoom) {
			h.t.Fatal(err)
		}
		h.room(uid)
	}
	h.t.Fatalf("user %d is not served after %d attempts", uid, attempts)
}

func (h *tenants) replaced() bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.s.mu.replacing == 0 && !h.s.populator.Busy()
}

// TestOneUserAlone: one user alone gets all memory but the reserve. Without shares, or with two regions, that is all
// memory.
func TestOneUserAlone(t *testing.T) {
	for _, c := range []struct {
		regions int64
		shares  bool
		want    int
	}{{2, true, 2}, {3, true, 2}, {7, true, 6}, {8, true, 6}, {8, false, 8}} {
		h := newTenants(t, c.regions, false)
		h.s.o.Shares = c.shares
		if h.fill(alice); h.regions(alice) != c.want {
			t.Errorf("%d of %d regions (shares: %v), want %d", h.regions(alice), c.regions, c.shares, c.want)
		}
	}
}

// TestNewcomer is served at once, although another user's bytes that nothing can move fill memory.
func TestNewcomer(t *testing.T) {
	h := newTenants(t, 8, false)
	h.fill(alice)
	if m := h.s.Stats().Memory; m.Kept != 2*h.o.RegionBytes-2*Unit {
		t.Errorf("%d bytes are kept", m.Kept)
	}
	if err := h.write(bob); err != nil {
		t.Fatal("a newcomer: ", err)
	}
	if err := h.write(carol); !errors.Is(err, ErrNoRoom) {
		t.Error("root's region is a newcomer's: ", err)
	}
	if err := h.write(0); err != nil {
		t.Error("root: ", err)
	}
	h.s.Await([]uint32{carol})
	if m := h.room(carol); m.Freed != 0 || !m.Others {
		t.Errorf("room from bytes that cannot be moved: %+v", m)
	}
	// Memory that alice releases is for carol, in the queue.
	for _, f := range h.files[alice] {
		h.s.Drop(f)
	}
	h.files[alice] = nil
	h.enter(carol, 1)
}

// TestBorrowedCleanMemory is given back by eviction, of one region at a time.
func TestBorrowedCleanMemory(t *testing.T) {
	h := newTenants(t, 7, false)
	h.flushes[bufferOf(alice)], h.flushes[bufferOf(bob)] = true, true
	h.fill(alice)
	h.clean(alice)
	for h.regions(bob) < 3 {
		before := h.regions(alice)
		h.enter(bob, 3)
		if n := before - h.regions(alice); n > 2 {
			t.Fatalf("%d regions were emptied for one", n)
		}
	}
	if h.regions(alice) < 3 {
		t.Errorf("alice has kept %d regions, less than her share", h.regions(alice))
	}
	h.s.Await([]uint32{bob})
	if err := h.write(alice); err != nil && !errors.Is(err, ErrNoRoom) {
		t.Error(err)
	}
}

// TestCheapestRegionIsVacated: a region of clean bytes rather than one that has to be flushed, and
// rather than one that cannot be emptied. If one turns out to be stuck, another is vacated in its
// place.
func TestCheapestRegionIsVacated(t *testing.T) {
	h := newTenants(t, 7, false)
	h.flushes[bufferOf(alice)], h.flushes[bufferOf(bob)] = true, true
	h.fill(alice)
	h.enter(bob, 1) // the newcomer's
	for h.write(bob) == nil {
	}
	h.s.Await([]uint32{bob})
	m := h.room(bob)
	if m.Freed != 0 || m.Moves == 0 || !m.Others {
		t.Fatalf("nothing is clean: %+v", m)
	}
	vacating := h.vacating()
	if vacating == nil {
		t.Fatal("no region is vacated")
	}
	h.s.mu.Lock()
	var other *region
	for _, r := range h.s.mu.regions {
		if r.used > 0 && r.uid == alice && r != vacating {
			other = r
		}
	}
	h.s.mu.Unlock()
	for _, f := range h.files[alice] {
		if h.in(f, other) {
			if err := h.s.MarkClean(f, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if m := h.room(bob); m.Freed == 0 || m.Moves != 0 {
		t.Errorf("the clean region was not chosen: %+v", m)
	}
	h.s.Await(nil)
	if h.vacating() != nil {
		t.Error("a region is being emptied for nobody")
	}
}

func (h *tenants) vacating() *region {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	for _, r := range h.s.mu.regions {
		if r.vacating && !r.retiring {
			return r
		}
	}
	return nil
}

func (h *tenants) in(f bb.FileID, r *region) bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	for _, g := range r.units {
		if g != nil && len(g.mu.files) > 0 && g.mu.files[0] == f {
			return true
		}
	}
	return false
}

// TestBorrowedDirtyMemory is given back by spilling.
func TestBorrowedDirtyMemory(t *testing.T) {
	h := newTenants(t, 7, true)
	h.fill(alice)
	h.enter(bob, 1)
	for h.write(bob) == nil {
	}
	h.s.Await([]uint32{bob})
	for range 2 { // the first is the next newcomer's
		m := h.room(bob)
		if m.Moves == 0 {
			t.Fatalf("%+v", m)
		}
		if n, err := h.s.SpillFor(t.Context(), bob, m.Moves); err != nil || n < m.Moves {
			t.Fatal(n, err)
		}
		waitUntil(t, "the region to be replaced", h.replaced)
	}
	h.enter(bob, 1)
	if h.regions(bob) != 2 {
		t.Errorf("bob has %d regions", h.regions(bob))
	}
}

// TestFixedBytesStayWithinTheShare while there is another user.
func TestFixedBytesStayWithinTheShare(t *testing.T) {
	h := newTenants(t, 7, false)
	h.flushes[bufferOf(bob)] = true
	if err := h.write(bob); err != nil {
		t.Fatal(err)
	}
	if h.fill(alice); h.regions(alice) != 3 {
		t.Errorf("bytes that cannot be moved fill %d regions, of a share of 3", h.regions(alice))
	}
	h.s.Await([]uint32{alice})
	if m := h.room(alice); m.Others {
		t.Error("alice waits for others, with her share full of her own")
	}
	h.s.Await(nil)
	if h.fill(bob); h.regions(bob) != 3 {
		t.Errorf("bob got %d regions", h.regions(bob))
	}
}

// TestManySmallUsers all write in the end, with more users than regions.
func TestManySmallUsers(t *testing.T) {
	h := newTenants(t, 4, false)
	for round := range 3 {
		for i := range uint32(9) {
			uid := 6000 + i
			h.flushes[bufferOf(uid)] = true
			h.enter(uid, 6)
			h.clean(uid)
		}
		if round == 0 && h.regions(6008) != 1 {
			t.Error("the last one has nothing")
		}
	}
}

// TestHoldingsAfterRestart are counted from the regions that are adopted.
func TestHoldingsAfterRestart(t *testing.T) {
	h := newTenants(t, 8, false)
	h.fill(alice)
	if err := h.write(bob); err != nil {
		t.Fatal(err)
	}
	if err := h.s.Close(); err != nil {
		t.Fatal(err)
	}
	h.s = open(t, h.o)
	if a, b := h.regions(alice), h.regions(bob); a != 6 || b != 1 {
		t.Errorf("alice has %d regions and bob %d", a, b)
	}
	if err := h.write(carol); !errors.Is(err, ErrNoRoom) {
		t.Error("root's region went to a newcomer: ", err)
	}
	if err := h.write(0); err != nil {
		t.Error("root: ", err)
	}
}
