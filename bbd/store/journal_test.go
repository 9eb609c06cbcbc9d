package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// encodeOlder is encode as releases had it that wrote headers into the pages.
func encodeOlder(h format.RegionHeader, p []byte, v uint32) {
	h.Encode(p)
	le := binary.LittleEndian
	le.PutUint32(p[8:], v)
	le.PutUint64(p[format.HeaderSize-8:], checksum.Sum(p[:format.HeaderSize-8]))
	if v == format.Ownerless {
		clear(p[format.OldHeaderSize-8 : format.HeaderSize])
		le.PutUint64(p[format.OldHeaderSize-8:], checksum.Sum(p[:format.OldHeaderSize-8]))
	}
}

// makeOlder makes the regions of a closed store those of an older version. The journals' content
// goes into the pages, and the journals go.
func makeOlder(t testing.TB, o Options, v uint32) {
	t.Helper()
	for tier, dir := range map[bb.Tier]string{bb.TierMemory: o.ShmDir, bb.TierDisk: o.DiskDir} {
		if dir == "" {
			continue
		}
		found, err := findRegions(dir, tier)
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			if found[i].Err != nil {
				t.Fatal(found[i].Err)
			}
			r, err := found[i].adopt()
			if err != nil {
				t.Fatal(err)
			}
			r.makeOlder(found[i].Header, v)
			if err := errors.Join(r.Close(), os.Remove(regionfile.JournalOf(r.Path))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (r *region) makeOlder(h format.RegionHeader, v uint32) {
	for _, at := range []int64{0, format.HeaderCopy} {
		encodeOlder(h, r.Mem[at:], v)
	}
	for unit := int64(1); unit < int64(len(r.units)); unit++ {
		sh, err := format.DecodeSegmentHeader(r.Slot(unit))
		if err != nil {
			continue
		}
		copy(r.Mem[format.SlotTable+unit*format.SlotSize:], r.Slot(unit))
		copy(r.Mem[unit*Unit:], r.SlotCopy(unit))
		g := &segment{nonce: sh.Nonce, length: sh.Units * Unit}
		g.mu.region, g.mu.offset = r, unit*Unit
		floor, _ := g.scan(func(*format.Record, int64) {}, nil)
		copy(g.mem()[floor:], g.records()[floor:])
		unit += sh.Units - 1
	}
}

// oldStore is a closed store of an older version with files of many kinds, in memory and on
// disk, and their contents.
func oldStore(t testing.TB, o Options, v uint32) (want map[bb.FileID][]byte) {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	populatedNow(t, s)
	want = map[bb.FileID][]byte{}
	w := newWriter(t, s)
	for f := bb.FileID(1); f <= 40; f++ {
		want[f] = content(uint64(f), 1000*int(f))
		w.commit(f, 1, 0, 0, want[f])
		if f == 20 {
			w.done()
			if _, err := s.Spill(context.Background(), 1); err != nil {
				t.Fatal(err)
			}
			w = newWriter(t, s)
		}
	}
	if s.Stats().Disk.Used == 0 {
		t.Fatal("nothing was spilled")
	}
	if err := s.Commit(Commit{File: 41, Generation: 1, Buffer: "b"}); err != nil {
		t.Fatal(err)
	}
	want[41] = nil
	if err := s.Void(7, 1); err != nil {
		t.Fatal(err)
	}
	delete(want, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	makeOlder(t, o, v)
	return want
}

func checkAll(t *testing.T, s *Store, want map[bb.FileID][]byte) {
	t.Helper()
	for f, p := range want {
		check(t, s, f, 1, p)
	}
	if n := s.Stats().Files; int(n) != len(want) {
		t.Errorf("%d files, want %d", n, len(want))
	}
	if d := s.Damage(); len(d) > 0 {
		t.Errorf("reported %+v", d)
	}
}

func TestOlderVersionsAreAdopted(t *testing.T) {
	for _, v := range []uint32{format.Ownerless, format.PagesOnly} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			o := folders(t)
			want := oldStore(t, o, v)
			for range 2 {
				s := open(t, o)
				checkAll(t, s, want)
				w := newWriter(t, s)
				for f := bb.FileID(100); f < 110; f++ {
					want[f] = content(uint64(f), 10_000)
					if _, err := s.Size(f, 1); err != nil {
						w.commit(f, 1, 0, 0, want[f])
					}
				}
				checkAll(t, s, want)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for _, dir := range []string{o.ShmDir, o.DiskDir} {
				found, err := findRegions(dir, bb.TierMemory)
				if err != nil || len(found) == 0 {
					t.Fatalf("%v, %v", found, err)
				}
				for _, c := range found {
					if c.Older {
						t.Errorf("%s has no journal", c.Path)
					}
				}
			}
		})
	}
}

// A damaged record of an older region is reported as the release that wrote it would.
func TestDamagedRecordIsAdopted(t *testing.T) {
	o, path, segment, length := damagedStore(t)
	makeOlder(t, o, format.PagesOnly)
	flip(t, path, segment+length-format.RecordCost(1)*3+5)
	for range 2 {
		s := open(t, o)
		for _, f := range []bb.FileID{1, 2, 4, 5} {
			check(t, s, f, 1, content(uint64(f), 1000))
		}
		d := s.Damage()
		if len(d) != 1 || d[0].From != length-3*format.RecordCost(1) || d[0].To != length-2*format.RecordCost(1) || d[0].Mended {
			t.Errorf("reported %+v", d)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The daemon is killed while it adopts, again and again. Nothing is lost, and nothing is there
// twice.
func TestKilledWhileAdopting(t *testing.T) {
	for point, passes := range map[string][]int{"segment copied": {1, 2, 3}, "journal copied": {1, 2, 3}, "journal named": {1, 2, 3}} {
		for _, v := range []uint32{format.Ownerless, format.PagesOnly} {
			t.Run(fmt.Sprintf("%s %d", point, v), func(t *testing.T) {
				dir := filepath.Dir(folders(t).StateDir)
				o := crashOptions(dir)
				want := oldStore(t, o, v)
				for _, pass := range passes {
					killed(t, crashPlan{Dir: dir, Point: point, Pass: pass})
				}
				s := open(t, o)
				checkAll(t, s, want)
				if left, err := filepath.Glob(filepath.Join(dir, "*", "*"+regionfile.Unfinished)); err != nil || len(left) > 0 {
					t.Errorf("left over: %v, %v", left, err)
				}
			})
		}
	}
}

// killed starts a daemon that is killed at a point, if it gets there.
func killed(t *testing.T, plan crashPlan) {
	t.Helper()
	plan.OpenOnly = true
	env, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+string(env))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() || err == nil && plan.Pass > 1 {
		return
	}
	t.Fatalf("the child was not killed at %q pass %d: %v %s", plan.Point, plan.Pass, err, out)
}

// Pages without a journal that no older release wrote are set aside, named and left as they are,
// with any content. The rest is served.
func TestPagesWithoutJournalAreSetAside(t *testing.T) {
	for name, change := range map[string]func(mem []byte){
		"nothing": func([]byte) {},
		"version 3": func(mem []byte) {
			for _, at := range []int{0, format.HeaderCopy} {
				format.RegionHeader{ID: 1, Size: int64(len(mem)), UID: bob, Flags: format.RegionOwned}.Encode(mem[at:])
			}
		},
		"version 99": func(mem []byte) {
			for _, at := range []int{0, format.HeaderCopy} {
				encodeOlder(format.RegionHeader{ID: 1, Size: int64(len(mem)), UID: bob}, mem[at:], 99)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := folders(t)
			s, bobs, ok := sharedStore(t, o)
			if !ok {
				return
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			rewrite(t, bobs, change)
			if err := os.Remove(regionfile.JournalOf(bobs)); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(bobs)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s = open(t, o)
				stays(t, s, bobs)
				if d := s.Damage(); len(d) != 1 || d[0].Path != bobs || d[0].Mended {
					t.Errorf("reported %+v", d)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if after, err := os.ReadFile(bobs); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the pages were changed: %v", err)
			}
		})
	}
}

// A journal without pages is deleted if it has no segment, and named otherwise.
func TestJournalWithoutPages(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	info, _, err := s.Region(w.lease.Region)
	if err != nil {
		t.Fatal(err)
	}
	var empty string
	for _, r := range s.mu.regions {
		if r.used == 0 && !r.Log {
			empty = r.Path
		}
	}
	if err := errors.Join(s.Close(), os.Remove(info.Path), os.Remove(empty)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s = open(t, o)
	if d := s.Damage(); len(d) != 1 || d[0].Path != info.Path {
		t.Errorf("reported %+v", d)
	}
	if _, err := os.Stat(regionfile.JournalOf(empty)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty journal: %v", err)
	}
	if _, err := os.Stat(regionfile.JournalOf(info.Path)); err != nil || !strings.Contains(log.String(), info.Path) {
		t.Errorf("a journal with records: %v\n%s", err, &log)
	}
}

// Only the daemon's user can open a journal, for pages of any user. A region that goes takes its
// journal along.
func TestJournalsAreTheStoresOwn(t *testing.T) {
	o := folders(t)
	s, _, ok := sharedStore(t, o)
	if !ok {
		return
	}
	var paths []string
	for _, r := range s.mu.regions {
		var st unix.Stat_t
		if err := unix.Stat(regionfile.JournalOf(r.Path), &st); err != nil || st.Uid != ownUID() || st.Mode&0o777 != 0o600 {
			t.Errorf("%s: user %d, mode %o, %v", regionfile.JournalOf(r.Path), st.Uid, st.Mode, err)
		}
		paths = append(paths, r.Path)
	}
	if err := s.Destroy(); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// FuzzJournal has recovery read journals of any content. A start continues, and nothing that it
// accepts lies outside of the region.
func FuzzJournal(f *testing.F) {
	dir, err := os.MkdirTemp("/dev/shm", "forebay-fuzz-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	o := Options{
		StateDir: filepath.Join(dir, "state"), Mount: MountOff, ShmDir: filepath.Join(dir, "shm"),
		MemoryBytes: 4 << 20, RegionBytes: 4 << 20, PopulateThreads: 1,
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		f.Fatal(err)
	}
	<-s.Ready()
	w := newWriter(f, s)
	for n := range 3 {
		w.commit(bb.FileID(1+n), 1, 0, 0, content(uint64(n), 1000))
	}
	region, at := s.Regions()[0], w.lease.Offset+w.lease.Length
	w.done()
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(regionfile.JournalOf(region.Path))
	if err != nil {
		f.Fatal(err)
	}
	head := slices.Clone(whole[:format.HeaderSize])
	f.Add(head, whole[format.SlotTable:format.SlotTable+4*format.SlotSize], whole[format.SlotCopies:format.SlotCopies+4*format.SlotSize], whole[at-400:at], uint32(at))
	f.Add(head, whole[format.SlotTable:format.SlotTable+4*format.SlotSize], []byte{}, whole[at-400:at], uint32(at-8))
	f.Fuzz(func(t *testing.T, head, slots, copies, records []byte, end uint32) {
		p := slices.Clone(whole)
		copy(p[:format.HeaderSize], head)
		copy(p[format.HeaderCopy:format.HeaderCopy+format.HeaderSize], head)
		copy(p[format.SlotTable:format.SlotTable+4*format.SlotSize], slots)
		copy(p[format.SlotCopies:format.SlotCopies+4*format.SlotSize], copies)
		to := int(end) % (len(p) + 1)
		records = records[:min(len(records), to)]
		copy(p[to-len(records):to], records)
		if err := os.WriteFile(regionfile.JournalOf(region.Path), p, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := findRegions(o.ShmDir, bb.TierMemory)
		if err != nil {
			if errors.Is(err, bb.Unsupported) {
				return // of another release
			}
			t.Fatal(err)
		}
		s := &Store{o: o, log: slog.New(slog.DiscardHandler), memDir: o.ShmDir}
		s.mu.segments = map[*segment]struct{}{}
		s.mu.partial = map[partialKey][]*segment{}
		for i := range found {
			if found[i].Path != region.Path {
				continue
			}
			for _, r := range s.recoverRegion(&found[i], map[uint64]bool{}) {
				if err := r.Check(r.seg.length); err != nil {
					t.Errorf("a record that cannot be was accepted: %v", err)
				}
			}
		}
		for g := range s.mu.segments {
			if g.mu.offset < Unit || g.mu.offset+g.length > region.Bytes || g.mu.dataEnd > g.length || g.mu.floor > g.length {
				t.Errorf("a segment at %d of %d bytes, data up to %d, records from %d", g.mu.offset, g.length, g.mu.dataEnd, g.mu.floor)
			}
		}
		for _, r := range s.mu.regions {
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A journal has holes. On a tmpfs with huge pages, too, a touched page takes no 2 MiB.
func TestJournalIsSparseOnHugePages(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("huge", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256m,huge=always"); err != nil {
		t.Logf("no tmpfs with huge pages: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	o := folders(t)
	o.ShmDir, o.MemoryBytes, o.RegionBytes, o.DiskDir, o.DiskBytes = filepath.Join(dir, "shm"), 64<<20, 32<<20, "", 0
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	check := func() {
		t.Helper()
		for _, r := range s.mu.regions {
			if most := 2 * regionfile.JournalLeast(int64(len(r.Mem))); !r.Log && blocks(t, regionfile.JournalOf(r.Path)) > most {
				t.Errorf("a journal takes %d bytes, not %d", blocks(t, regionfile.JournalOf(r.Path)), most)
			}
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	check()
}

// The journal has a region's user. Pages that are still the daemon's own are given to that user
// again. Pages of another user are set aside.
func TestPagesOfAnotherUser(t *testing.T) {
	for uid, aside := range map[int]bool{0: false, alice: true} {
		o := folders(t)
		s, bobs, ok := sharedStore(t, o)
		if !ok {
			return
		}
		if err := errors.Join(s.Close(), os.Chown(bobs, uid, -1)); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
		stays(t, s, bobs)
		if d := s.Damage(); aside != (len(d) > 0) {
			t.Errorf("pages of user %d: %+v", uid, d)
		}
		var st unix.Stat_t
		if err := unix.Stat(bobs, &st); err != nil || !aside && st.Uid != bob {
			t.Errorf("the pages are user %d's, %v", st.Uid, err)
		}
		if _, err := s.Size(1, 1); (err == nil) == aside {
			t.Errorf("pages of user %d: %v", uid, err)
		}
	}
}
