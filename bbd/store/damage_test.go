package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// damagedStore writes five files, closes the store and returns the place of its segment.
func damagedStore(t *testing.T) (o Options, path string, segment int64, length int64) {
	t.Helper()
	o = folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	for f := range bb.FileID(5) {
		w.commit(f+1, 1, 0, 0, content(uint64(f+1), 1000))
	}
	info, _, err := s.Region(w.lease.Region)
	if err != nil {
		t.Fatal(err)
	}
	segment, length = w.lease.Offset, w.lease.Length
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return o, info.Path, segment, length
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedData(t *testing.T) {
	o, path, segment, _ := damagedStore(t)
	flip(t, path, segment+format.DataStart+1024+500) // the second file's
	s := open(t, o)
	for f := range bb.FileID(5) {
		v, err := s.Snapshot(f+1, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		err = v.Verify(context.Background(), 0, 10)
		if f+1 != 2 {
			if err != nil {
				t.Errorf("file %d: %v", f+1, err)
			}
			continue
		}
		if !errors.Is(err, bb.Checksum) || !strings.Contains(err.Error(), "file 0000000000000002 generation 1 range 0+1000") || !strings.Contains(err.Error(), path) {
			t.Errorf("a flipped byte gives %v", err)
		}
	}
}

// TestDamagedRecord flips every byte of the second file's record, one at a time.
func TestDamagedRecord(t *testing.T) {
	o, path, segment, length := damagedStore(t)
	top := segment + length - format.RecordCost(1)
	for i := range format.RecordCost(1) {
		at := top - 1 - i
		flip(t, regionfile.JournalOf(path), at)
		s := open(t, o)
		for f := range bb.FileID(5) {
			if f+1 == 2 {
				if _, err := s.Snapshot(2, 1); !errors.Is(err, bb.NotFound) {
					t.Errorf("byte %d flipped: file 2: %v", i, err)
				}
				continue
			}
			check(t, s, f+1, 1, content(uint64(f+1), 1000))
		}
		d := s.Damage()
		if len(d) != 1 || d[0].Segment != segment || d[0].To != length-format.RecordCost(1) || d[0].From != d[0].To-format.RecordCost(1) || d[0].Buffer != "b" || s.Stats().Damaged != 1 {
			t.Errorf("byte %d flipped: reported %+v", i, d)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		flip(t, regionfile.JournalOf(path), at)
	}
}

func TestAdoptNamesWhatADamagedRecordClaims(t *testing.T) {
	o, path, segment, length := damagedStore(t)
	flip(t, regionfile.JournalOf(path), segment+length-format.RecordCost(1)*5+1) // of the last record, an extent's offset
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(5, 2, 0, 0, []byte("x"))
	if err := s.Adopt(5, 2); err != nil { // starts from nothing, so that it does not need generation 1
		t.Error(err)
	}
	if d := s.Damage(); len(d) != 1 || d[0].File != 5 || d[0].Generation != 1 {
		t.Errorf("reported %+v", d)
	}
	if err := s.Adopt(5, 1); !errors.Is(err, bb.NotFound) {
		t.Errorf("adopting what is damaged: %v", err)
	}
}

func TestDamagedHeaders(t *testing.T) {
	o, path, segment, _ := damagedStore(t)
	path = regionfile.JournalOf(path)
	slot, slotCopy := format.SlotTable+segment/Unit*format.SlotSize, format.SlotCopies+segment/Unit*format.SlotSize
	for name, at := range map[string][]int64{
		"region header": {3}, "region version": {9}, "region header's copy": {format.HeaderCopy + 20},
		"slot": {slot + 20}, "slot's magic": {slot + 1}, "slot's copy": {slotCopy + 30}, "magic of the slot's copy": {slotCopy},
	} {
		for _, b := range at {
			flip(t, path, b)
		}
		s := open(t, o)
		for f := range bb.FileID(5) {
			check(t, s, f+1, 1, content(uint64(f+1), 1000))
		}
		if n := len(s.Damage()); n != 1 && name != "region header's copy" {
			t.Errorf("%s: %d pieces of damage reported", name, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
		if n := len(s.Damage()); n != 0 {
			t.Errorf("%s: was not mended: %+v", name, s.Damage())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if name == "region header's copy" { // it is not read while the header is good
			flip(t, path, at[0])
		}
	}
}

func TestDamagedBeyondMending(t *testing.T) {
	o, path, segment, _ := damagedStore(t)
	flip(t, regionfile.JournalOf(path), format.SlotTable+segment/Unit*format.SlotSize+20)
	flip(t, regionfile.JournalOf(path), format.SlotCopies+segment/Unit*format.SlotSize+20)
	s := open(t, o)
	if d := s.Damage(); len(d) != 1 || d[0].Segment != segment {
		t.Errorf("reported %+v", d)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, regionfile.JournalOf(path), 3)
	flip(t, regionfile.JournalOf(path), format.HeaderCopy+3)
	before, err := os.ReadFile(regionfile.JournalOf(path))
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if d := s.Damage(); len(d) != 1 || d[0].Segment != -1 || d[0].Path != path {
		t.Errorf("reported %+v", d)
	}
	if after, err := os.ReadFile(regionfile.JournalOf(path)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a region that cannot be read was changed: %v", err)
	}
}

func TestUnknownVersionIsNotTouched(t *testing.T) {
	o, path, _, _ := damagedStore(t)
	f, err := os.OpenFile(regionfile.JournalOf(path), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{8, format.HeaderCopy + 8} {
		if _, err := f.WriteAt(binary.LittleEndian.AppendUint32(nil, 7), at); err != nil {
			t.Fatal(err)
		}
	}
	before := folderSums(t, o.ShmDir)
	_, err = Open(context.Background(), o)
	if !errors.Is(err, bb.Unsupported) || !strings.Contains(err.Error(), "version 7 found, versions 1 to 3 supported") || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v", err)
	}
	if after := folderSums(t, o.ShmDir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("files changed: %v, were %v", after, before)
	}
}

func TestUnknownFlagsAreRefused(t *testing.T) {
	p := make([]byte, format.HeaderCopy+format.HeaderSize)
	h := format.RegionHeader{ID: 1, Size: 2 * Unit, Flags: format.RegionFlags, Pages: Unit}
	h.Encode(p)
	if _, _, err := format.DecodeRegionHeader(p); err != nil {
		t.Fatal(err)
	}
	h.Flags |= 1 << 9
	h.Encode(p)
	if _, _, err := format.DecodeRegionHeader(p); !errors.Is(err, bb.Unsupported) || !strings.Contains(err.Error(), "flags 0x207 found, 0x7 supported") {
		t.Errorf("error is %v", err)
	}
}

func folderSums(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	sums := map[string]uint64{}
	paths, err := filepath.Glob(filepath.Join(dir, regionfile.Prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		sums[p] = checksum.Sum(b)
	}
	return sums
}

// A client owns its region's file and can cut it short at any time.
func TestTruncatedRegionIsAnError(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	info, _, err := s.Region(w.lease.Region)
	if err != nil {
		t.Fatal(err)
	}
	e := w.put(0, []byte("more"))
	if err := os.Truncate(info.Path, 0); err != nil {
		t.Fatal(err)
	}
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Verify(context.Background(), 0, 1000); !errors.Is(err, bb.Lost) {
		t.Errorf("verify: %v", err)
	}
	// The record is the store's own, and can be written. No user is given bytes for it.
	if err := s.Commit(Commit{File: 2, Generation: 1, Buffer: "b", Extents: []NewExtent{e}}); err != nil {
		t.Errorf("commit: %v", err)
	}
	if v, err := s.Snapshot(2, 1); err != nil {
		t.Error(err)
	} else {
		if err := v.Verify(context.Background(), 0, 4); !errors.Is(err, bb.Lost) {
			t.Errorf("verify what was committed then: %v", err)
		}
		v.Close()
	}
	s.Drop(1)
	s.Drop(2)
	if l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1}); err != nil || l.Region == info.ID {
		t.Errorf("lease: %+v, %v", l, err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	seg := make([]byte, Unit)
	r := format.Record{File: 1, Generation: 2, Base: 1, Origin: 1, Sequence: 9, Parts: 1, Items: []format.RecordExtent{
		{Offset: format.DataStart, Length: 10, Sum: 5}, {FileOffset: 10, Offset: format.DataStart + 64, Length: 10, Sum: 6},
	}}
	low := r.Encode(seg, Unit, 77)
	format.SetState(seg, Unit, format.RecordComplete, 2)
	f.Add(seg[low:], uint64(77))
	f.Add(seg[low+8:], uint64(77))
	f.Add(make([]byte, 100), uint64(0))
	f.Fuzz(func(t *testing.T, tail []byte, nonce uint64) {
		mem := make([]byte, Unit)
		tail = tail[:min(len(tail), Unit-format.DataStart)]
		copy(mem[Unit-len(tail):], tail)
		g := &segment{nonce: nonce, length: Unit}
		g.mu.region = &region{Files: regionfile.Files{Journal: mem}}
		records := 0
		floor, dataEnd := g.scan(func(r *format.Record, top int64) {
			records++
			if err := r.Check(Unit); err != nil {
				t.Errorf("a record that cannot be was accepted: %v", err)
			}
		}, func(from, to int64, _ *format.Record) {
			if from < 0 || to > Unit || from >= to {
				t.Errorf("damage from %d to %d", from, to)
			}
		})
		if dataEnd < format.DataStart || floor > Unit || dataEnd > Unit {
			t.Errorf("floor %d, data end %d of %d records", floor, dataEnd, records)
		}
	})
}
