package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Two users have no rights to each other's data. The regions of each are files of theirs.
const (
	alice = 5002
	bob   = 5001
)

// sharedStore opens a store in which bob has written a first file and alice a second one. It needs
// root, which alone can give files to users. ok is false without.
func sharedStore(t *testing.T, o Options) (s *Store, bobs string, ok bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("this user cannot give regions to others")
		return nil, "", false
	}
	s = open(t, o)
	for f, uid := range map[bb.FileID]uint32{1: bob, 2: alice} {
		w := newWriter(t, s)
		w.uid = uid
		w.commit(f, 1, 0, 0, content(uint64(f), 100_000))
		w.done()
	}
	return s, regionOf(t, s, bob), true
}

// regionOf returns the path of a user's region.
func regionOf(t *testing.T, s *Store, uid uint32) string {
	t.Helper()
	for _, r := range s.Regions() {
		if r.Owned && r.UID == uid {
			return r.Path
		}
	}
	t.Fatalf("user %d has no region", uid)
	return ""
}

// rewrite changes a region's bytes as its user can.
func rewrite(t *testing.T, path string, change func(mem []byte)) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	change(mem)
}

// forge writes a header of version 2, and its copy, as the user of pages can.
func forge(mem []byte, change func(*format.RegionHeader)) {
	h, _, err := format.DecodeRegionHeader(mem)
	if err != nil {
		h = format.RegionHeader{ID: 1, Size: int64(len(mem)), UID: bob}
	}
	change(&h)
	encodeOlder(h, mem, format.PagesOnly)
	encodeOlder(h, mem[format.HeaderCopy:], format.PagesOnly)
}

// bothWays runs a test with regions of this release, and with ones of the release before,
// which are adopted as they were forged.
func bothWays(t *testing.T, name string, f func(t *testing.T, older bool)) {
	t.Run(name, func(t *testing.T) { f(t, false) })
	t.Run(name+", before its adoption", func(t *testing.T) { f(t, true) })
}

// stays checks that alice keeps her files, and gets no memory that bob may have mapped.
func stays(t *testing.T, s *Store, bobs string) {
	t.Helper()
	check(t, s, 2, 1, content(2, 100_000))
	for range 100 {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: alice, Bytes: MaxSegment})
		if errors.Is(err, bb.NoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		info, _, err := s.Region(l.Region)
		if err != nil {
			t.Fatal(err)
		}
		if info.Path == bobs {
			t.Fatal("a lease of alice's lies in a region of bob's")
		}
	}
	t.Fatal("memory does not end")
}

func TestStartWithForgedHeaders(t *testing.T) {
	forgeries := map[string]func(mem []byte){
		"version": func(mem []byte) {
			for _, at := range []int{0, format.HeaderCopy} {
				binary.LittleEndian.PutUint32(mem[at+8:], 99)
				binary.LittleEndian.PutUint64(mem[at+format.HeaderSize-8:], checksum.Sum(mem[at:at+format.HeaderSize-8]))
			}
		},
		"nobody's": func(mem []byte) {
			forge(mem, func(h *format.RegionHeader) { h.Flags = 0 })
			clear(mem[format.SlotTable : format.SlotTable+len(mem)/Unit*format.SlotSize])
		},
		"alice's":      func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.UID = alice }) },
		"own records":  func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.Flags = format.RegionLog }) },
		"unknown flag": func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.Flags |= 1 << 20 }) },
		"instance":     func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.Instance = 0x42424242 }) },
		"id":           func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.ID = 1 }) },
		"size":         func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.Size = 2 * Unit }) },
		"tier":         func(mem []byte) { forge(mem, func(h *format.RegionHeader) { h.Tier = bb.TierDisk }) },
		"another owner": func(mem []byte) {
			forge(mem, func(h *format.RegionHeader) { h.Owner = format.Owner{Namespace: 9, Node: "x"} })
		},
		"zeros": func(mem []byte) { clear(mem) },
	}
	for name, change := range forgeries {
		bothWays(t, name, func(t *testing.T, older bool) {
			o := folders(t)
			s, bobs, ok := sharedStore(t, o)
			if !ok {
				return
			}
			instance := s.Instance()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if older {
				makeOlder(t, o, format.PagesOnly)
			}
			rewrite(t, bobs, change)
			for range 2 { // the second time with the first one's result
				s, err := Open(context.Background(), o)
				if err != nil {
					t.Fatalf("the store does not start: %v", err)
				}
				populatedNow(t, s)
				if s.Instance() != instance {
					t.Errorf("the memory is instance %v, was %v", s.Instance(), instance)
				}
				if !older && name != "zeros" {
					check(t, s, 1, 1, content(1, 100_000))
				}
				if d := s.Damage(); !older && len(d) > 0 {
					t.Errorf("what pages say was looked at: %+v", d)
				}
				stays(t, s, bobs)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Bob writes a commit record for alice's file into his pages, with a segment and a header
// that fit it, each as the release before would have. After a restart her file has her bytes.
func TestForgedRecordIsNotBelieved(t *testing.T) {
	for _, generation := range []bb.Generation{1, 2} { // in place of her bytes, and as newer ones
		o := folders(t)
		s, bobs, ok := sharedStore(t, o)
		if !ok {
			return
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		rewrite(t, bobs, func(mem []byte) {
			var id uint64
			if _, err := fmt.Sscanf(filepath.Base(bobs), regionfile.Prefix+"%x", &id); err != nil {
				t.Fatal(err)
			}
			forge(mem, func(h *format.RegionHeader) {
				*h = format.RegionHeader{Flags: format.RegionOwned, ID: bb.RegionID(id), Size: int64(len(mem)), UID: bob, Instance: s.Instance()}
			})
			const unit = 4
			h := format.SegmentHeader{Units: 1, Nonce: 5, Sequence: 1 << 40, UID: bob, Buffer: "b"}
			for _, at := range []int64{format.SlotTable + unit*format.SlotSize, unit * Unit} {
				h.Encode(mem[at:])
				format.Publish(mem, at, format.SegmentMagic)
			}
			seg, body := mem[unit*Unit:(unit+1)*Unit], []byte("FORGED BY BOB")
			copy(seg[format.DataStart:], body)
			r := format.Record{File: 2, Generation: generation, Origin: generation, Sequence: 1 << 62, Parts: 1, Items: []format.RecordExtent{
				{Length: uint32(len(body)), Offset: format.DataStart, Sum: checksum.Sum(body)},
			}}
			low := r.Encode(seg, Unit, h.Nonce)
			clear(seg[low-format.RecordEnd : low])
			format.SetState(seg, Unit, format.RecordComplete, 1)
		})
		s = open(t, o)
		stays(t, s, bobs)
		check(t, s, 1, 1, content(1, 100_000))
		for info := range s.Files() {
			if len(info.Generations) != 1 {
				t.Errorf("file %s has generations %+v", info.File, info.Generations)
			}
		}
	}
}

// A region that is shorter than it was, at the start or before, takes nothing with it.
func TestStartWithShortRegions(t *testing.T) {
	for _, size := range []int64{0, 100, format.HeaderCopy + format.HeaderSize, format.SlotTable, Unit, Unit + 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			o := folders(t)
			s, bobs, ok := sharedStore(t, o)
			if !ok {
				return
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(bobs, size); err != nil {
				t.Fatal(err)
			}
			s = open(t, o)
			stays(t, s, bobs)
			if d := s.Damage(); len(d) == 0 || d[0].Path != bobs {
				t.Errorf("the damage is %+v", d)
			}
		})
	}
}

// scribble writes headers, slots and records to a region of version 2 whose checksums are
// right and whose content is nonsense.
func scribble(r *rand.Rand, mem []byte) {
	pick := func(n ...uint64) uint64 { return n[r.IntN(len(n))] }
	if r.IntN(10) < 6 {
		forge(mem, func(h *format.RegionHeader) {
			h.Flags, h.ID = uint32(pick(0, 1, 2, 3, 1<<9)), bb.RegionID(pick(uint64(h.ID), 1, 0, r.Uint64()))
			h.Size, h.UID = int64(pick(uint64(len(mem)), uint64(len(mem)), 2*Unit)), uint32(pick(0, alice, bob))
			h.Tier, h.Instance = bb.Tier(pick(0, 0, 1)), bb.InstanceID(pick(uint64(h.Instance), 0, 1))
		})
	}
	for unit := 1; unit < len(mem)/Unit; unit++ {
		if r.IntN(2) == 0 {
			continue
		}
		h := format.SegmentHeader{
			Units: int64(pick(1, 1, 2, 8, 64)), Nonce: pick(0, 1, r.Uint64()), Sequence: pick(0, 1, 1<<64-1), UID: bob,
			Buffer: []string{"b", "alicebuf", "", "../x\n\n"}[r.IntN(4)], Tier: bb.Tier(pick(0, 1, 9)),
		}
		for _, at := range []int{format.SlotTable + unit*format.SlotSize, unit * Unit}[:1+r.IntN(2)] {
			h.Encode(mem[at:])
			format.Publish(mem, int64(at), format.SegmentMagic)
		}
		end := (unit + int(h.Units)) * Unit
		if end > len(mem) {
			end = (unit + 1) * Unit
		}
		scribbleRecords(r, mem[unit*Unit:end], h.Nonce)
	}
}

// scribbleRecords writes records to a segment.
func scribbleRecords(r *rand.Rand, seg []byte, nonce uint64) {
	pick := func(n ...uint64) uint64 { return n[r.IntN(len(n))] }
	top := int64(len(seg))
	for range r.IntN(20) {
		rec := format.Record{
			File: bb.FileID(pick(0, 1, 2, 0x800000002)), Generation: bb.Generation(pick(0, 1, 2, 1<<64-1)),
			Base: bb.Generation(pick(0, 1, 5)), Origin: bb.Generation(pick(0, 1, 2)), Sequence: pick(0, 1, 1<<64-1),
			Part: uint16(pick(0, 1)), Parts: uint16(pick(0, 1, 2, 65535)), Flags: uint16(pick(0, 1, 2, 3, 4, 255)),
		}
		if rec.Flags&format.RecordIdentity != 0 {
			rec.Payload = make([]byte, format.RecordItem*r.IntN(6))
		} else {
			for range r.IntN(4) {
				rec.Items = append(rec.Items, format.RecordExtent{
					FileOffset: int64(pick(0, 1<<62, 1<<64-1, 4096)), Offset: uint32(pick(0, 4096, 8192, 1<<32-1)),
					Length: uint32(pick(0, 1, 4096, Unit, 1<<32-1)), Sum: r.Uint64(),
				})
			}
		}
		if top-format.RecordCost(rec.Length()) < format.DataStart+format.RecordEnd {
			return
		}
		low := rec.Encode(seg, top, nonce)
		format.SetState(seg, top, uint32(pick(format.RecordPrepared, format.RecordComplete, format.RecordVoid, 7)), rec.Length())
		clear(seg[low-format.RecordEnd : low])
		top = low
	}
}

// TestStartWithScribbledRegions is that of TestStartWithForgedHeaders with nonsense.
func TestStartWithScribbledRegions(t *testing.T) {
	for seed := range uint64(24) {
		bothWays(t, fmt.Sprint(seed), func(t *testing.T, older bool) {
			o := folders(t)
			s, bobs, ok := sharedStore(t, o)
			if !ok {
				return
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if older {
				makeOlder(t, o, format.PagesOnly)
			}
			rewrite(t, bobs, func(mem []byte) { scribble(rand.New(rand.NewPCG(seed, 1)), mem) })
			s, err := Open(context.Background(), o)
			if err != nil {
				t.Fatalf("the store does not start: %v", err)
			}
			defer s.Close()
			populatedNow(t, s)
			for info := range s.Files() {
				for _, g := range info.Generations {
					_, _, _ = s.Checksum(info.File, g.Generation)
				}
			}
			stays(t, s, bobs)
			s.Evict(bb.TierMemory, 1<<40)
			for info := range s.Files() {
				if info.File != 2 {
					s.Drop(info.File)
				}
			}
			stays(t, s, bobs)
		})
	}
}

// Bob keeps the regions mapped that he has given back, so their memory does not come back
// to a tmpfs that just fits the store. Alice gets less memory, or waits, and no store ends.
func TestMemoryHeldByOldMappings(t *testing.T) {
	c, ok := newCrowded(t, "48m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.MemoryBytes, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), 40<<20, "", 0
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	populatedNow(t, s)
	var held [][]byte
	release := func() {
		for _, m := range held {
			unix.Munmap(m)
		}
		held = nil
	}
	defer release()
	var leases []bb.LeaseID
	for {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: bob, Bytes: MaxSegment})
		if errors.Is(err, bb.NoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l.ID)
		info, _, err := s.Region(l.Region)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, mapAll(t, info))
	}
	for _, id := range leases {
		if err := s.Abandon(id); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for range 20 { // each replaces a region of bob's
			l, err := s.Lease(LeaseRequest{Buffer: "b", UID: alice, Bytes: MaxSegment})
			if err != nil && !errors.Is(err, bb.NoSpace) {
				t.Fatal(err)
			}
			if err == nil {
				l.Mem[l.DataStart] = 1 // a client can write to its leases
				l.Mem[l.RecordFloor-1] = 1
			}
			populatedNow(t, s)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = Open(context.Background(), o)
		if err != nil {
			t.Fatalf("the store does not start: %v", err)
		}
		populatedNow(t, s)
	}
	release()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: alice, Bytes: MaxSegment, Min: 4 << 20})
		if err == nil {
			l.Mem[l.DataStart] = 1
			break
		}
		if !errors.Is(err, bb.NoSpace) || time.Now().After(deadline) {
			t.Fatalf("memory that bob has let go does not come back: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// mapAll maps a region as a client does.
func mapAll(t *testing.T, info RegionInfo) []byte {
	t.Helper()
	f, err := os.Open(info.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
