package store

import (
	"errors"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// A generation of which only the checksums are left is built on. Once the new one is recorded, a
// restart finds both. Once the rest of the old one is trimmed, its checksum is available.
func TestBuildOnWhatWasNeverInMemory(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	want := content(1, 3000)
	var extents []MirrorExtent
	for at := 0; at < len(want); at += 1000 {
		extents = append(extents, MirrorExtent{FileOffset: int64(at), Length: 1000, Checksum: checksum.Sum(want[at : at+1000])})
	}
	if err := errors.Join(s.Mirror(1, 1, "b", extents), s.RecordEvicted(1, 1), s.RecordEvicted(1, 1)); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, s)
	over := content(2, 500)
	w.commit(1, 2, 1, 700, over) // parts of two extents are left
	w.done()
	if _, _, err := s.Checksum(1, 2); !errors.Is(err, bb.Unavailable) {
		t.Fatalf("the checksum of what is not known: %v", err)
	}
	bad := append([]byte(nil), want...)
	bad[1500]++
	if err := s.Trim(1, 2, 0, bad); !errors.Is(err, bb.Checksum) {
		t.Errorf("trimmed with bytes that differ: %v", err)
	}
	if err := s.Trim(1, 2, 0, want); err != nil {
		t.Fatal(err)
	}
	copy(want[700:], over)
	for range 2 {
		sum, size, err := s.Checksum(1, 2)
		if err != nil || size != 3000 || sum != checksum.Sum(want) {
			t.Errorf("checksum %x of %d bytes, %v", sum, size, err)
		}
		v, err := s.Snapshot(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range v.Extents(0, 3000, 0) {
			if e.Length != e.WholeLength || e.Checksum != checksum.Sum(want[e.FileOffset:e.FileOffset+e.Length]) {
				t.Errorf("%+v", e)
			}
		}
		v.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
		if err := s.Adopt(1, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Seal(1, 2), s.MarkClean(1, 2)); err != nil {
		t.Errorf("what is trimmed can be marked clean: %v", err)
	}
}

// Bytes that come back after a range was pinned are not part of the pin.
func TestPinExtentsAreOfOneMoment(t *testing.T) {
	s := open(t, folders(t))
	want := content(1, 1000)
	cleanFile(t, s, want)
	s.Evict(bb.TierMemory, 1<<30)
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	p, extents, err := v.PinExtents(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	w := newWriter(t, s)
	e := w.put(0, want)
	if err := s.Fill(1, 1, FillExtent{Lease: e.Lease, SegmentOffset: e.SegmentOffset, FileOffset: 0, Length: 1000}); err != nil {
		t.Fatal(err)
	}
	w.done()
	if len(extents) != 1 || extents[0].State != Evicted {
		t.Errorf("what was pinned: %+v", extents)
	}
	if _, err := v.Slices(0, 1000, nil); !errors.Is(err, bb.Invalid) {
		t.Errorf("slices of what is not pinned: %v", err)
	}
	again, extents, err := v.PinExtents(0, 1000)
	if err != nil || len(extents) != 1 || extents[0].State != Resident {
		t.Fatalf("pinned again: %+v, %v", extents, err)
	}
	defer again.Release()
	if parts, err := v.Slices(0, 1000, nil); err != nil || len(parts) != 1 || checksum.Sum(parts[0]) != checksum.Sum(want) {
		t.Errorf("%d slices, %v", len(parts), err)
	}
}
