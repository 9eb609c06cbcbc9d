package store

import (
	"context"
	"testing"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// spilledToDisk makes a store with one segment that belongs on disk, and spills it. It
// closes the store and returns its options and the content of file 7.
func spilledToDisk(t *testing.T) (Options, []byte) {
	t.Helper()
	o := folders(t)
	s := open(t, o)
	l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: Unit, Tier: bb.TierDisk})
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, s: s, buffer: "b", uid: ownUID(), lease: l, next: l.DataStart, floor: l.RecordFloor}
	want := content(1, 900<<10)
	w.commit(7, 1, 0, 0, want)
	if err := s.Abandon(l.ID); err != nil {
		t.Fatal(err)
	}
	if n, err := s.SpillMisplaced(context.Background(), 1); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return o, want
}

// checkNoDamage checks that recovery adopts the spilled segment as it is, with its tier.
func checkNoDamage(t *testing.T, o Options, want []byte) {
	t.Helper()
	for range 2 { // records of a recovery are read by the next one
		s := open(t, o)
		for _, d := range s.Damage() {
			t.Errorf("nothing was damaged, and recovery reports %+v", d)
		}
		check(t, s, 7, 1, want)
		for g := range s.mu.segments {
			if g.mu.region.Tier == bb.TierDisk && g.tier != bb.TierDisk {
				t.Errorf("segment %d has tier %s after the restart", g.sequence, g.tier)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpilledSegmentKeepsItsTier(t *testing.T) {
	o, want := spilledToDisk(t)
	checkNoDamage(t, o, want)
}

// Earlier releases wrote the slots of spilled segments without the tier.
func TestSlotOfASpillWithoutATierIsNoDamage(t *testing.T) {
	o, want := spilledToDisk(t)
	found, err := findRegions(o.DiskDir, bb.TierDisk)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	r, err := found[0].adopt()
	if err != nil {
		t.Fatal(err)
	}
	h, err := format.DecodeSegmentHeader(r.Slot(1))
	if err != nil {
		t.Fatal(h, err)
	}
	h.Tier = bb.TierMemory
	h.Encode(r.Slot(1))
	format.Publish(r.Slot(1), 0, format.SegmentMagic)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	checkNoDamage(t, o, want)
}
