package store

import (
	"bytes"
	"testing"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// oldView opens a view of an evicted generation 1 of file 1, which generation 2 then takes the
// place of. The view alone shows it.
func oldView(t *testing.T, s *Store) (v *Snapshot, old, fresh []byte) {
	t.Helper()
	old, fresh = content(1, 300_000), content(2, 1000)
	w := newWriter(t, s)
	put := func(g bb.Generation, p []byte) {
		w.commit(1, g, 0, 0, p)
		w.done()
		if err := s.Seal(1, g); err != nil {
			t.Fatal(err)
		}
	}
	put(1, old)
	if err := s.MarkClean(1, 1); err != nil {
		t.Fatal(err)
	}
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Evict(bb.TierMemory, 1<<40)
	put(2, fresh)
	s.DropGeneration(1, 1)
	if runs := v.Extents(0, v.Size(), 0); len(runs) != 1 || runs[0].State != Evicted {
		t.Fatalf("%+v", runs)
	}
	return v, old, fresh
}

func lease(t *testing.T, s *Store, n int64) Lease {
	t.Helper()
	l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: n, Tier: bb.TierDisk}) // not beside dirty bytes
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func fillView(t *testing.T, s *Store, v *Snapshot, p []byte) {
	t.Helper()
	l := lease(t, s, int64(len(p))+3*format.DataStart)
	copy(l.Mem[l.DataStart:], p)
	if err := v.Fill(FillExtent{l.ID, l.DataStart, 0, int64(len(p))}); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(l.ID); err != nil {
		t.Fatal(err)
	}
}

// TestFillOfADroppedGeneration: extents in a view alone are filled in, evicted again, filled in and
// kept, spilled, and free once the view is closed.
func TestFillOfADroppedGeneration(t *testing.T) {
	s := open(t, folders(t))
	v, old, _ := oldView(t, s)
	before := s.Stats()
	fillView(t, s, v, old)
	readView(t, v, old)
	if v.Keep(0, 1) && s.Evict(bb.TierMemory, 1<<40) > 0 {
		t.Error("what was to be kept is evicted")
	}
	if n, err := s.Spill(t.Context(), 1<<40); err != nil || n == 0 {
		t.Errorf("%d bytes spilled: %v", n, err)
	}
	readView(t, v, old)
	s.Evict(bb.TierDisk, 1<<40)
	readView(t, v, old)
	v.Close()
	if after := s.Stats(); after.Memory.Live+after.Disk.Live != before.Memory.Live+before.Disk.Live {
		t.Errorf("%d bytes of files, %d before the view was filled", after.Memory.Live+after.Disk.Live, before.Memory.Live)
	}
}

// TestFillOfADroppedGenerationIsEvictedAgain: unless it is to be kept, others may have a view's
// memory for as long as the backing store has the bytes.
func TestFillOfADroppedGenerationIsEvictedAgain(t *testing.T) {
	s := open(t, folders(t))
	v, old, fresh := oldView(t, s)
	fillView(t, s, v, old)
	if s.Evict(bb.TierMemory, 1<<40) == 0 || v.Keep(0, v.Size()) {
		t.Error("nothing of the view is evicted")
	}
	fillView(t, s, v, old)
	if err := s.MarkClean(1, 2); err != nil { // the backing store has the new one instead
		t.Fatal(err)
	}
	s.Evict(bb.TierMemory, 1<<40)
	readView(t, v, old)
	v.Close()
	if got := s.Stats().Memory.Live; got > int64(len(fresh)) {
		t.Errorf("%d bytes of files after the view's end", got)
	}
}

// TestFillOfADroppedGenerationLeavesNoRecord: after a restart the newer generation is the only one.
func TestFillOfADroppedGenerationLeavesNoRecord(t *testing.T) {
	for _, spill := range []bool{false, true} {
		o := folders(t)
		s := open(t, o)
		v, old, fresh := oldView(t, s)
		fillView(t, s, v, old)
		if !v.Keep(0, v.Size()) {
			t.Error("not all of it can be kept")
		}
		if spill {
			if n, err := s.Spill(t.Context(), 1<<40); err != nil || n == 0 {
				t.Errorf("%d bytes spilled: %v", n, err)
			}
		}
		s.Close()
		s = open(t, o)
		for f := range s.Files() {
			for _, g := range f.Generations {
				if g.Generation != 2 && g.Resident > 0 {
					t.Errorf("%d bytes of the old generation were found", g.Resident)
				}
			}
		}
		if err := s.Adopt(1, 2); err != nil {
			t.Error(err)
		}
		if _, err := s.Size(1, 1); bb.KindOf(err) != bb.NotFound {
			t.Errorf("the old generation is there again: %v", err)
		}
		v, err := s.Snapshot(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		readView(t, v, fresh)
		v.Close()
		if got := s.Stats(); got.Memory.Live+got.Disk.Live != int64(len(fresh)) {
			t.Errorf("%d and %d bytes of files", got.Memory.Live, got.Disk.Live)
		}
	}
}

// TestDroppedFileIsKeptForItsViews: the backing store loses a removed file, too, so memory may not
// evict the bytes read of it.
func TestDroppedFileIsKeptForItsViews(t *testing.T) {
	s := open(t, folders(t))
	v, old, _ := oldView(t, s)
	fillView(t, s, v, old)
	s.Drop(1)
	if n := s.Evict(bb.TierMemory, 1<<40); n > 0 {
		t.Errorf("%d bytes evicted", n)
	}
	readView(t, v, old)
	v.Close()
	if got := s.Stats().Memory.Live; got != 0 {
		t.Errorf("%d bytes of files after the view's end", got)
	}
}

func readView(t *testing.T, v *Snapshot, want []byte) {
	t.Helper()
	if got := read(t, v); !bytes.Equal(got, want) {
		t.Errorf("%d bytes are not the %d wanted", len(got), len(want))
	}
}
