package store

import (
	"context"
	"errors"
	"os"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/leaselock"
)

// holder is the lock of a client that writes into a lease.
type holder struct {
	t     *testing.T
	f     *os.File
	lease Lease
}

func hold(t *testing.T, s *Store, l Lease) *holder {
	t.Helper()
	info, _, err := s.Region(l.Region)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(info.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := leaselock.Hold(f, l.Offset, l.Length); err != nil {
		t.Fatal(err)
	}
	return &holder{t, f, l}
}

func (h *holder) unlock() {
	h.t.Helper()
	if err := leaselock.Release(h.f, h.lease.Offset, h.lease.Length); err != nil {
		h.t.Fatal(err)
	}
}

// oneRegion is a store with memory of seven segments of 1 MiB.
func oneRegion(t *testing.T, disk int64) Options {
	o := folders(t)
	o.MemoryBytes, o.RegionBytes, o.DiskBytes = 8<<20, 8<<20, disk
	if disk == 0 {
		o.DiskDir = ""
	}
	return o
}

// meets reports whether any of the store's free memory lies in a lease. It leases all of it.
func meets(t *testing.T, s *Store, l Lease) bool {
	t.Helper()
	met := false
	for {
		other, err := s.Lease(LeaseRequest{Buffer: "other", UID: ownUID(), Bytes: 1})
		if errors.Is(err, ErrNoRoom) {
			return met
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release(other.ID)
		met = met || other.Region == l.Region && other.Offset < l.Offset+l.Length && l.Offset < other.Offset+other.Length
	}
}

// TestOccupiedMemoryIsNotLeased: a lease ends with its session while its writer still has
// the segment locked. No other writer gets the memory before it is unlocked.
func TestOccupiedMemoryIsNotLeased(t *testing.T) {
	s := open(t, oneRegion(t, 0))
	l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 2 * Unit})
	if err != nil {
		t.Fatal(err)
	}
	h := hold(t, s, l)
	must(t, s.Abandon(l.ID))
	if m := s.Stats().Memory; m.Occupied != l.Length || m.Free != 7*Unit-l.Length {
		t.Errorf("%d bytes are occupied and %d free", m.Occupied, m.Free)
	}
	if n := s.FreeOccupied(); n != 0 || meets(t, s, l) {
		t.Errorf("%d bytes were freed under a writer", n)
	}
	h.unlock()
	if n := s.FreeOccupied(); n != l.Length || !meets(t, s, l) {
		t.Errorf("%d bytes were freed when the writer had gone", n)
	}
}

// TestOccupiedMemoryOutlivesTheDaemon: the same when the daemon ended, and its memory was
// adopted by the next one. It holds a commit and bytes that are not committed.
func TestOccupiedMemoryOutlivesTheDaemon(t *testing.T) {
	o := oneRegion(t, 0)
	o.KeepUncommitted = true
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, []byte("committed"))
	committed := hold(t, s, w.lease)
	l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
	must(t, err)
	uncommitted := hold(t, s, l)
	must(t, s.Close())
	s = open(t, o)
	s.FreeUncommitted()
	s.Drop(1)
	if meets(t, s, committed.lease) || meets(t, s, uncommitted.lease) {
		t.Error("memory was freed under a writer")
	}
	committed.unlock()
	must(t, uncommitted.f.Close())
	s.FreeOccupied()
	if !meets(t, s, committed.lease) || !meets(t, s, uncommitted.lease) {
		t.Error("memory is not free when the writers have gone")
	}
}

// TestOccupiedMemoryStays: committed bytes beside bytes that are still being written are neither
// evicted nor spilled, and can be read.
func TestOccupiedMemoryStays(t *testing.T) {
	s := open(t, oneRegion(t, 16<<20))
	w := newWriter(t, s)
	want := content(1, 1000)
	w.commit(1, 1, 0, 0, want)
	h := hold(t, s, w.lease)
	must(t, s.Abandon(w.lease.ID))
	spilled, err := s.Spill(context.Background(), 1)
	must(t, err)
	must(t, errors.Join(s.Seal(1, 1), s.MarkClean(1, 1)))
	if freed := s.Evict(bb.TierMemory, 1); spilled != 0 || freed != 0 {
		t.Errorf("%d bytes were spilled and %d evicted under a writer", spilled, freed)
	}
	if m := s.Stats().Memory; m.Occupied != Unit || m.Evictable != 0 || m.Spillable != 0 {
		t.Errorf("counted as %+v", m)
	}
	check(t, s, 1, 1, want)
	h.unlock()
	s.FreeOccupied()
	if m := s.Stats().Memory; m.Occupied != 0 || m.Evictable != Unit || m.Spillable != Unit {
		t.Errorf("when the writer has gone, counted as %+v", m)
	}
	if freed := s.Evict(bb.TierMemory, 1); freed != Unit || meets(t, s, h.lease) == false {
		t.Errorf("%d bytes were evicted when the writer had gone", freed)
	}
}

// TestOccupiedRegionIsNotReplaced: a region that is vacated for another user is replaced only after
// the last writer without a lease has gone.
func TestOccupiedRegionIsNotReplaced(t *testing.T) {
	s := open(t, oneRegion(t, 0))
	l, err := s.Lease(LeaseRequest{Buffer: "b", UID: 4001, Bytes: 1})
	must(t, err)
	h := hold(t, s, l)
	ask := func() error {
		_, err := s.Lease(LeaseRequest{Buffer: "b", UID: 4002, Bytes: 1})
		return err
	}
	if err := ask(); !errors.Is(err, ErrNoRoom) {
		t.Fatal(err)
	}
	must(t, s.Abandon(l.ID))
	s.FreeOccupied()
	if err := ask(); !errors.Is(err, ErrNoRoom) || errors.Is(err, ErrPopulating) {
		t.Errorf("under a writer: %v", err)
	}
	h.unlock()
	s.FreeOccupied()
	waitUntil(t, "the region to be replaced", func() bool { return ask() == nil })
}
