package store

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/folder"
	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func TestSecondStoreIsRefused(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	defer s.Close()
	for name, change := range map[string]func(*Options){
		"state":  func(o *Options) { o.ShmDir += "2"; o.DiskDir += "2" },
		"memory": func(o *Options) { o.StateDir += "2"; o.DiskDir += "2" },
		"disk":   func(o *Options) { o.StateDir += "2"; o.ShmDir += "2" },
	} {
		other := o
		change(&other)
		_, err := Open(context.Background(), other)
		if !errors.Is(err, bb.Busy) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())+" has it") {
			t.Errorf("same folder for %s: %v", name, err)
		}
	}
}

func TestBadOptionsAreReportedTogether(t *testing.T) {
	_, err := Open(context.Background(), Options{Mount: "maybe", RegionBytes: 5, DiskBytes: 7})
	if !errors.Is(err, bb.Invalid) {
		t.Fatal(err)
	}
	for _, want := range []string{"no state folder", `"maybe"`, "regions of 5 bytes", "7 bytes of disk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func TestInvalidCommitsChangeNothing(t *testing.T) {
	s := open(t, folders(t))
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, []byte("first"))
	good := w.put(0, []byte("good"))
	other, err := s.Lease(LeaseRequest{Buffer: "other", UID: ownUID(), Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Release(ended.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(1, 1); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*NewExtent)) []NewExtent {
		e := good
		change(&e)
		return []NewExtent{good, e}
	}
	l := w.lease
	for name, c := range map[string]Commit{
		"before the lease":      {Extents: with(func(e *NewExtent) { e.SegmentOffset = 0 })},
		"negative in segment":   {Extents: with(func(e *NewExtent) { e.SegmentOffset = -5 })},
		"beyond the floor":      {Extents: with(func(e *NewExtent) { e.SegmentOffset = l.Length - 4 })},
		"no room for a record":  {Extents: with(func(e *NewExtent) { e.SegmentOffset = l.RecordFloor - format.RecordCost(2) - 5; e.Length = 100 })},
		"overflow in segment":   {Extents: with(func(e *NewExtent) { e.SegmentOffset = math.MaxInt64 - 2 })},
		"negative length":       {Extents: with(func(e *NewExtent) { e.Length = -1 })},
		"no length":             {Extents: with(func(e *NewExtent) { e.Length = 0 })},
		"huge length":           {Extents: with(func(e *NewExtent) { e.Length = math.MaxInt64 })},
		"negative file offset":  {Extents: with(func(e *NewExtent) { e.FileOffset = -1 })},
		"overflow in file":      {Extents: with(func(e *NewExtent) { e.FileOffset = math.MaxInt64 - 2 })},
		"beyond the file limit": {Extents: with(func(e *NewExtent) { e.FileOffset = bb.MaxFileSize })},
		"no such lease":         {Extents: with(func(e *NewExtent) { e.Lease = 999 })},
		"ended lease":           {Extents: with(func(e *NewExtent) { e.Lease = ended.ID })},
		"other buffer's lease":  {Extents: with(func(e *NewExtent) { e.Lease, e.SegmentOffset = other.ID, other.DataStart })},
		"base not older":        {Base: 7, Generation: 7, Extents: []NewExtent{good}},
		"no generation":         {Generation: math.MaxUint64, Base: math.MaxUint64, Extents: []NewExtent{good}},
		"sealed":                {File: 1, Generation: 1, Extents: []NewExtent{good}},
		"other base":            {File: 1, Generation: 1, Fresh: false, Base: 0, Buffer: "other", Extents: []NewExtent{good}},
		"bad buffer":            {Buffer: "../x", Extents: []NewExtent{good}},
	} {
		if c.File == 0 {
			c.File = 2
		}
		if c.Generation == 0 {
			c.Generation = 1
		}
		if c.Buffer == "" {
			c.Buffer = "b"
		}
		valid := Commit{File: 3, Generation: 1, Buffer: "b", Extents: []NewExtent{good}}
		before := s.Stats()
		if err := s.Commit(valid, c); !errors.Is(err, bb.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if after := s.Stats(); after.Extents != before.Extents || after.Files != before.Files || after.Memory != before.Memory {
			t.Errorf("%s: changed %+v to %+v", name, before, after)
		}
	}
	if err := s.Commit(Commit{File: 2, Generation: 5, Base: 4, Buffer: "b", Extents: []NewExtent{good}}); !errors.Is(err, bb.NotFound) {
		t.Errorf("unknown base: %v", err)
	}
	if err := s.Commit(Commit{File: 2, Generation: 5, Buffer: "b", Extents: []NewExtent{good}}); err != nil {
		t.Error(err)
	}
	check(t, s, 2, 5, []byte("good"))
}

func TestLeasesGoOnWhereTheyEnded(t *testing.T) {
	s := open(t, folders(t))
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	first := w.lease
	w.done()
	again, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if again.Region != first.Region || again.Offset != first.Offset || again.DataStart != align(format.DataStart+1000) || again.RecordFloor != first.RecordFloor-format.RecordCost(1) {
		t.Errorf("lease %+v after %+v", again, first)
	}
	if err := s.Abandon(again.ID); err != nil {
		t.Fatal(err)
	}
	third, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if third.Region == first.Region && third.Offset == first.Offset {
		t.Error("the rest of an abandoned segment was leased again")
	}
	if err := s.Release(third.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(third.ID); !errors.Is(err, bb.Invalid) {
		t.Errorf("second release: %v", err)
	}
	if n := s.Stats().Segments; n != 1 {
		t.Errorf("%d segments: one without extents should be free at once", n)
	}
	s.Drop(1)
	if st := s.Stats(); st.Segments != 0 || st.Memory.Used != 0 || st.Memory.Live != 0 {
		t.Errorf("after the last drop: %+v", st)
	}
}

func TestNoRoomAndRegionsThatChangeOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: regions of other users stay this user's files")
	}
	o := folders(t)
	o.MemoryBytes = 16 << 20
	gone := make(chan bb.RegionID, 2)
	made := make(chan bb.RegionID)
	o.RegionGone = func(id bb.RegionID) { gone <- id }
	o.RegionMade = func(info RegionInfo, mem []byte) {
		if info.Bytes != int64(len(mem)) || info.Tier != bb.TierMemory {
			t.Errorf("made with %d bytes: %+v", len(mem), info)
		}
		made <- info.ID
	}
	s := open(t, o)
	first := fillRegion(t, s, 1001)
	fillRegion(t, s, 1001)
	_, err := s.Lease(LeaseRequest{Buffer: "b", UID: 1002, Bytes: 1})
	if !errors.Is(err, ErrNoRoom) || !errors.Is(err, bb.NoSpace) || errors.Is(err, ErrPopulating) {
		t.Errorf("all leased: %v", err)
	}
	info, _, err := s.Region(first[0].Region)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(info.Path, &st); err != nil || os.Geteuid() == 0 && st.Uid != 1001 || st.Mode&0o777 != 0o600 {
		t.Errorf("the region of user 1001 belongs to %d, mode %o, %v", st.Uid, st.Mode, err)
	}
	for _, l := range first {
		if err := s.Release(l.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Lease(LeaseRequest{Buffer: "b", UID: 1002, Bytes: 1}); !errors.Is(err, ErrNoRoom) || !errors.Is(err, ErrPopulating) {
		t.Errorf("while a region is replaced: %v", err)
	}
	if id := <-gone; id != info.ID {
		t.Errorf("region %s is gone, not %s", id, info.ID)
	}
	time.Sleep(50 * time.Millisecond) // long enough for a lease that does not wait for RegionMade
	if _, err := s.Lease(LeaseRequest{Buffer: "b", UID: 1002, Bytes: 1}); !errors.Is(err, ErrPopulating) {
		t.Errorf("while those who must know of the region do not: %v", err)
	}
	fresh := <-made
	var l Lease
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if l, err = s.Lease(LeaseRequest{Buffer: "b", UID: 1002, Bytes: 1}); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil || l.Region != fresh {
		t.Errorf("user 1002 has a lease in region %s, %v", l.Region, err)
	}
	if _, err := os.Stat(info.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old region's file: %v", err)
	}
}

// fillRegion leases until a region is full and returns the leases in it.
func fillRegion(t *testing.T, s *Store, uid uint32) (leases []Lease) {
	t.Helper()
	for range 7 { // of 8 units, one is the header
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: uid, Bytes: Unit})
		if err != nil {
			t.Fatal(err)
		}
		if l.Length != Unit || len(leases) > 0 && l.Region != leases[0].Region {
			t.Fatalf("lease %+v", l)
		}
		leases = append(leases, l)
	}
	return leases
}

func TestManyWritersReadersAndMovers(t *testing.T) {
	s := open(t, folders(t))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.Evict(bb.TierMemory, 2<<20)
				if _, err := s.Spill(context.Background(), 1<<20); err != nil && !errors.Is(err, bb.NoSpace) {
					t.Error(err)
				}
				s.Evict(bb.TierDisk, 8<<20)
				s.Stats()
			}
		}
	})
	var writers sync.WaitGroup
	for k := range 6 {
		writers.Go(func() { concurrentWriter(t, s, k) })
	}
	writers.Wait()
	close(stop)
	wg.Wait()
	for info := range s.Files() {
		s.Drop(info.File)
	}
	if st := s.Stats(); st.Memory.Used != 0 || st.Disk.Used != 0 || st.Extents != 0 || st.Memory.Dirty != 0 {
		t.Errorf("after dropping everything: %+v", st)
	}
}

// concurrentWriter appends to a file of its own and to one that all share, reads
// both, makes its own clean and drops it.
func concurrentWriter(t *testing.T, s *Store, k int) {
	const shared = 1000
	for round := range 40 {
		f := bb.FileID(1 + k)
		var l Lease
		for {
			var err error
			if l, err = s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1}); err == nil {
				break
			} else if !errors.Is(err, ErrNoRoom) {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
		p := content(uint64(k*1000+round), 5000)
		copy(l.Mem[l.DataStart:], p)
		g := bb.Generation(round + 1)
		err := s.Commit(
			Commit{File: f, Generation: g, Base: g - 1, Buffer: "b", Extents: []NewExtent{{l.ID, l.DataStart, int64(round) * 1000, 5000, checksum.Sum(p)}}},
			Commit{File: shared, Generation: 1, Buffer: "b", Extents: []NewExtent{{l.ID, l.DataStart, int64(k) * 5000, 5000, checksum.Sum(p)}}},
		)
		if err := errors.Join(err, s.Release(l.ID)); err != nil {
			t.Error(err)
			return
		}
		if v, err := s.Snapshot(shared, 1); err != nil {
			t.Error(err)
		} else {
			pin, err := v.Pin(int64(k)*5000, 5000)
			if err != nil {
				t.Error(err)
			}
			parts, err := v.Slices(int64(k)*5000, 5000, nil)
			if err != nil || !bytes.Equal(bytes.Join(parts, nil), p) {
				t.Errorf("round %d of %d: own part of the shared file differs, %v", round, k, err)
			}
			pin.Release()
			v.Close()
		}
		if err := errors.Join(s.Seal(f, g), s.MarkClean(f, g)); err != nil && !errors.Is(err, bb.Invalid) {
			t.Error(err)
		}
		readPinned(t, s, f, g)
		if round%3 == 0 {
			s.DropGeneration(f, g-1)
		}
	}
}

// readPinned reads a file that others evict and spill at the same time, since resident bytes must
// stay so once they are pinned.
func readPinned(t *testing.T, s *Store, f bb.FileID, g bb.Generation) {
	v, err := s.Snapshot(f, g)
	if err != nil {
		t.Error(err)
		return
	}
	defer v.Close()
	pin, err := v.Pin(0, v.Size())
	if err != nil {
		t.Error(err)
		return
	}
	defer pin.Release()
	for _, e := range v.Extents(0, v.Size(), 0) {
		if e.State == Evicted {
			continue
		}
		time.Sleep(10 * time.Microsecond)
		parts, err := v.Slices(e.FileOffset, e.Length, nil)
		if err != nil {
			t.Errorf("pinned, and resident afterwards: %v", err)
			continue
		}
		if e.State == Resident && e.Length == e.WholeLength && checksum.Sum(bytes.Join(parts, nil)) != e.Checksum {
			t.Errorf("file %s generation %d: pinned range %d+%d changed", f, g, e.FileOffset, e.Length)
		}
	}
}

func TestPinnedSegmentsStay(t *testing.T) {
	s := open(t, folders(t))
	w := newWriter(t, s)
	want := content(1, 1000)
	w.commit(1, 1, 0, 0, want)
	w.done()
	if err := errors.Join(s.Seal(1, 1), s.MarkClean(1, 1)); err != nil {
		t.Fatal(err)
	}
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Pin(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Evict(bb.TierMemory, 1<<30); n != 0 {
		t.Errorf("%d bytes evicted although pinned", n)
	}
	if n, err := s.Spill(context.Background(), 1<<30); n != 0 || err != nil {
		t.Errorf("%d bytes spilled although pinned, %v", n, err)
	}
	s.Drop(1)
	v.Close()
	parts := s.Stats().Memory
	if parts.Pinned == 0 || parts.Used == 0 {
		t.Errorf("dropped and pinned: %+v", parts)
	}
	p.Release()
	p.Release()
	if parts := s.Stats().Memory; parts.Used != 0 {
		t.Errorf("dropped and released: %+v", parts)
	}
	if _, err := v.Pin(0, 1); !errors.Is(err, bb.Invalid) {
		t.Errorf("pin on a closed snapshot: %v", err)
	}
}

// TestMarkDirty: bytes that are missing on the backing store are not evicted any more, until they
// are there. Evicted ones cannot be restored.
func TestMarkDirty(t *testing.T) {
	s := open(t, folders(t))
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	w.done()
	before := s.Stats().Memory
	if err := errors.Join(s.Seal(1, 1), s.MarkClean(1, 1), s.MarkDirty(1, 1)); err != nil {
		t.Fatal(err)
	}
	if n := s.Evict(bb.TierMemory, 1<<30); n != 0 {
		t.Errorf("%d bytes evicted that are dirty", n)
	}
	if now := s.Stats().Memory; now != before {
		t.Errorf("%+v, want %+v", now, before)
	}
	if err := s.MarkClean(1, 1); err != nil {
		t.Fatal(err)
	}
	if n := s.Evict(bb.TierMemory, 1<<30); n == 0 {
		t.Error("nothing was evicted")
	}
	for _, n := range []bb.Generation{1, 2} {
		if err := s.MarkDirty(1, n); !errors.Is(err, bb.Busy) {
			t.Errorf("generation %d, which is not in memory: %v", n, err)
		}
	}
}

func TestFillRefusesOtherBytes(t *testing.T) {
	s := open(t, folders(t))
	w := newWriter(t, s)
	want := content(1, 1000)
	w.commit(1, 1, 0, 0, want)
	w.done()
	if err := errors.Join(s.Seal(1, 1), s.MarkClean(1, 1)); err != nil {
		t.Fatal(err)
	}
	if n := s.Evict(bb.TierMemory, 1); n == 0 {
		t.Fatal("nothing was evicted")
	}
	check := func(p []byte, off int64, kind bb.Kind) {
		t.Helper()
		e := w.put(off, p)
		err := s.Fill(1, 1, FillExtent{e.Lease, e.SegmentOffset, off, e.Length})
		if kind == 0 && err != nil || kind != 0 && !errors.Is(err, kind) {
			t.Errorf("fill %d+%d: %v", off, len(p), err)
		}
	}
	check(content(2, 1000), 0, bb.Checksum)
	check(want[:500], 0, bb.Invalid)
	check(want, 2000, 0) // nothing is evicted there
	check(want, 0, 0)
	check(want, 0, 0) // is there already
	if got := readFile(t, s, 1, 1); !bytes.Equal(got, want) {
		t.Error("filled bytes differ")
	}
	if n := s.Evict(bb.TierMemory, 1<<30); n != 0 {
		t.Errorf("%d bytes evicted of a leased segment", n)
	}
	w.done()
	if n := s.Evict(bb.TierMemory, 1<<30); n == 0 {
		t.Error("what was filled in is not clean")
	}
}

func TestOwnMountSurvivesAndIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := Open(context.Background(), Options{StateDir: t.TempDir(), Mount: MountRequire, MemoryBytes: 8 << 20}); err == nil {
			t.Error("mounted without the right to")
		}
		return
	}
	o := folders(t)
	o.Mount, o.ShmDir = MountRequire, ""
	s, err := Open(context.Background(), o)
	if errors.Is(err, bb.Permission) {
		t.Logf("this container may not mount: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	<-s.Ready()
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, []byte("mounted"))
	instance := s.Instance()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	check(t, s, 1, 1, []byte("mounted"))
	if s.Instance() != instance {
		t.Error("another instance")
	}
	if err := s.Destroy(); err != nil {
		t.Fatal(err)
	}
	if mounted, _, err := folder.TmpfsRoot(o.StateDir); err != nil || mounted {
		t.Errorf("still mounted: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.StateDir, "mem")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	o := folders(t)
	o.RemoveOnClose = true
	s := open(t, o)
	newWriter(t, s).commit(1, 1, 0, 0, []byte("x"))
	first := s.Instance()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.ShmDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("memory folder: %v", err)
	}
	if s = open(t, o); s.Instance() == first {
		t.Error("the same instance although the memory was lost")
	}
	if s.Stats().Files != 0 {
		t.Error("files came back")
	}
}

// The region of the store's own records must not fill up with those that do not
// count any more, even where a few in each segment still do.
func TestOwnRecordsAreTidied(t *testing.T) {
	o := folders(t) // 3 units of them: 36 thousand records
	s := open(t, o)
	const batch = 6000
	for round := range 12 {
		first := bb.FileID(round * batch)
		commits := make([]Commit, 0, batch)
		for f := range bb.FileID(batch) {
			commits = append(commits, Commit{File: first + f + 1, Generation: 1, Buffer: "b"})
		}
		if err := s.Commit(commits...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for f := range bb.FileID(batch) {
			if f%1000 != 0 {
				s.Drop(first + f + 1)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	for round := range 12 {
		for f := 0; f < batch; f += 1000 {
			if n, err := s.Size(bb.FileID(round*batch+f+1), 1); n != 0 || err != nil {
				t.Errorf("an empty file has %d bytes, %v", n, err)
			}
		}
	}
}

func TestDiskRegionsChangeOwner(t *testing.T) {
	o := folders(t)
	o.DiskBytes = o.RegionBytes
	s := open(t, o)
	for uid := range uint32(3) {
		w := newWriter(t, s)
		w.uid = 2001 + uid
		f := bb.FileID(1 + uid)
		w.commit(f, 1, 0, 0, content(uint64(uid), 1000))
		w.done()
		if n, err := s.Spill(context.Background(), 1); n == 0 || err != nil {
			t.Fatalf("user %d: %d bytes spilled, %v", w.uid, n, err)
		}
		check(t, s, f, 1, content(uint64(uid), 1000))
		for _, r := range s.Regions() {
			if r.Tier == bb.TierDisk && r.UID != w.uid {
				t.Errorf("bytes of user %d lie in %+v", w.uid, r)
			}
		}
		s.Drop(f)
	}
}

// cleanFile writes generation 1 of file 1, makes it clean and ends the lease.
func cleanFile(t *testing.T, s *Store, p []byte) {
	t.Helper()
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, p)
	w.done()
	if err := errors.Join(s.Seal(1, 1), s.MarkClean(1, 1)); err != nil {
		t.Fatal(err)
	}
}

// Once the backing store's copy is of generation 2, an open reader of generation 1
// has the only copy of it here.
func TestWhatOnlyOldViewsShowIsKept(t *testing.T) {
	s := open(t, folders(t))
	old := content(1, 1000)
	cleanFile(t, s, old)
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, s)
	w.commit(1, 2, 0, 0, content(2, 1000))
	w.done()
	s.DropGeneration(1, 1)
	if err := errors.Join(s.Seal(1, 2), s.MarkClean(1, 2)); err != nil {
		t.Fatal(err)
	}
	s.Evict(bb.TierMemory, 1<<30)
	if got := read(t, v); !bytes.Equal(got, old) {
		t.Error("the old view changed")
	}
	v.Close()
	s.Evict(bb.TierMemory, 1<<30)
	if used := s.Stats().Memory.Used; used != 0 {
		t.Errorf("%d bytes used: all is clean, and the view closed", used)
	}
}

// A generation whose base left no records builds on the next older one, which must
// not be one that was abandoned.
func TestVoidGenerationsStayVoid(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	first, second := content(1, 1000), content(4, 1000)
	w.commit(1, 1, 0, 0, first)
	w.commit(1, 2, 1, 0, content(2, 1000)) // into the same segment, which generation 1 keeps
	if err := s.Void(1, 2); err != nil {
		t.Fatal(err)
	}
	other := newWriter(t, s)
	other.commit(1, 3, 1, 1000, content(3, 1000))
	w.commit(1, 4, 3, 1000, second)
	s.DropGeneration(1, 3)
	other.done() // frees its segment
	if n := s.Stats().Segments; n != 1 {
		t.Fatalf("%d segments, want the records of generation 3 gone", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	check(t, s, 1, 4, append(first, second...))
}

func TestEvictionPassesOverWhatIsPinnedMeanwhile(t *testing.T) {
	s := open(t, folders(t))
	cleanFile(t, s, content(1, 1000))
	victims := map[*segment]bool{}
	for _, g := range s.leastUsed(func(g *segment) bool { return g.evictable(bb.TierMemory) }) {
		victims[g] = true
	}
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	p, err := v.Pin(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	s.evictFiles([]bb.FileID{1}, victims)
	if len(victims) != 1 {
		t.Errorf("%d victims", len(victims))
	}
	if got := read(t, v); !bytes.Equal(got, content(1, 1000)) {
		t.Error("differs")
	}
}

func TestSpillGivesUpOnWhatIsPinnedMeanwhile(t *testing.T) {
	o := folders(t)
	var v *Snapshot
	var p *Pinned
	o.crash = func(point string) {
		if point == "spill published" && p == nil {
			var err error
			if p, err = v.Pin(0, 1000); err != nil {
				t.Error(err)
			}
		}
	}
	s := open(t, o)
	cleanFile(t, s, content(1, 1000))
	var err error
	if v, err = s.Snapshot(1, 1); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if n, err := s.Spill(context.Background(), 1); n != 0 || err != nil || p == nil {
		t.Fatalf("%d bytes spilled, %v", n, err)
	}
	if e := v.Extents(0, 1000, 0); e[0].Tier != bb.TierMemory {
		t.Errorf("moved: %+v", e)
	}
	if used := s.Stats().Disk.Used; used != 0 {
		t.Errorf("%d bytes used on disk", used)
	}
	p.Release()
	if n, err := s.Spill(context.Background(), 1); n == 0 || err != nil {
		t.Errorf("released: %d bytes spilled, %v", n, err)
	}
}

// Clients of the dead process may still be copying into their leases.
func TestRecoveredSegmentsAreNotLeased(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, []byte("x"))
	before := w.lease
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	for range 7 {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		if l.Region == before.Region && l.Offset == before.Offset {
			t.Error("a segment of the dead process was leased")
		}
	}
}

// Merging evicted extents keeps the index of large, old files small.
func TestEvictedExtentsAreJoined(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	want := content(1, 6<<20)
	for off := 0; off < len(want); off += 64 << 10 {
		w.commit(1, 1, 0, int64(off), want[off:off+64<<10])
	}
	w.done()
	if err := errors.Join(s.Seal(1, 1), s.MarkClean(1, 1)); err != nil {
		t.Fatal(err)
	}
	s.Evict(bb.TierMemory, 1<<30)
	v, err := s.Snapshot(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	list := v.Extents(0, v.Size(), 0)
	v.Close()
	if len(list) != 2 || list[0].Length != MaxEvictedPart || list[0].Checksum != checksum.Sum(want[:MaxEvictedPart]) {
		t.Errorf("%d extents: %+v", len(list), list)
	}
	sum, size, err := s.Checksum(1, 1)
	if err != nil || size != 6<<20 || sum != checksum.Sum(want) {
		t.Errorf("checksum %x of %d bytes, %v", sum, size, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if err := s.AdoptClean(1, 1); err != nil {
		t.Fatal(err)
	}
	if again, size, err := s.Checksum(1, 1); again != sum || size != 6<<20 || err != nil {
		t.Errorf("after a restart: checksum %x of %d bytes, %v", again, size, err)
	}
}

// A region belongs to one user, so one user could keep another out for ever, by
// having a little in every region.
func TestUsersWithoutARegionGetOne(t *testing.T) {
	o := folders(t)
	o.MemoryBytes = 16 << 20
	s := open(t, o)
	for f := range bb.FileID(14) { // one segment each: all there are
		w := newWriter(t, s)
		w.uid = 3001
		w.room(900 << 10)
		w.commit(f+1, 1, 0, 0, content(1, 900<<10))
		if err := s.Abandon(w.lease.ID); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(uid uint32) (Lease, error) { return s.Lease(LeaseRequest{Buffer: "b", UID: uid, Bytes: 1}) }
	if _, err := ask(3002); !errors.Is(err, ErrNoRoom) {
		t.Fatal(err)
	}
	var l Lease
	var err error
	for range 1000 {
		if _, err := s.Spill(context.Background(), Unit); err != nil {
			t.Fatal(err)
		}
		// The greedy one takes all that it gets.
		if l, err := ask(3001); err == nil {
			defer s.Abandon(l.ID)
		}
		if l, err = ask(3002); err == nil || !errors.Is(err, ErrNoRoom) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatalf("user 3002 never got a lease: %v", err)
	}
	if info, _, err := s.Region(l.Region); err != nil || info.UID != 3002 {
		t.Errorf("leased in %+v, %v", info, err)
	}
}

// Without the memory, a store is another instance, and has the bytes on disk.
func TestLostMemory(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, []byte("on disk"))
	w.done()
	if n, err := s.Spill(context.Background(), 1); n == 0 || err != nil {
		t.Fatalf("%d bytes spilled, %v", n, err)
	}
	newWriter(t, s).commit(2, 1, 0, 0, []byte("in memory"))
	instance := s.Instance()
	if err := errors.Join(s.Close(), os.RemoveAll(o.ShmDir)); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if s.Instance() == instance {
		t.Error("the same instance")
	}
	check(t, s, 1, 1, []byte("on disk"))
	if _, err := s.Size(2, 1); !errors.Is(err, bb.NotFound) {
		t.Errorf("file 2: %v", err)
	}
	reopen := func(lost bool) {
		t.Helper()
		if s.MemoryLost() != lost {
			t.Errorf("memory is lost: %v, want %v", !lost, lost)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
	}
	reopen(true) // and again, until the loss is recorded
	if !s.MemoryLost() {
		t.Error("the loss of memory is forgotten")
	}
	s.Settle()
	reopen(true) // in this life still
	reopen(false)
}
