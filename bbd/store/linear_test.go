package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func linearOptions(t testing.TB) Options {
	o := folders(t)
	o.MemoryBytes, o.RegionBytes, o.DiskBytes = 96<<20, 16<<20, 96<<20
	return o
}

// linearFile commits a file whose extents overlap, which has a hole, and which begins and ends within one. It seals the
// file, and returns its bytes.
func linearFile(w *writer, f bb.FileID, n bb.Generation) []byte {
	want := content(uint64(f), 10<<20)
	for off := 0; off < len(want); off += 1 << 20 {
		if off != 5<<20 {
			w.commit(f, n, 0, int64(off), want[off:off+1<<20])
		}
	}
	clear(want[5<<20 : 6<<20])
	over := content(uint64(f)+1, 300_000)
	w.commit(f, n, 0, 1_900_000, over)
	copy(want[1_900_000:], over)
	last := content(uint64(f)+2, 77)
	w.commit(f, n, 0, int64(len(want)), last)
	w.done()
	must(w.t.(*testing.T), w.s.Seal(f, n))
	return append(want, last...)
}

// checkLinear checks that a generation's bytes are all of a file in the memory tier's folder, and returns its path.
func checkLinear(t *testing.T, s *Store, f bb.FileID, n bb.Generation, want []byte) string {
	t.Helper()
	check(t, s, f, n, want)
	v, err := s.Snapshot(f, n)
	must(t, err)
	defer v.Close()
	path := ""
	for _, e := range v.Extents(0, v.Size(), 0) {
		if e.State == Hole {
			continue
		}
		info, _, err := s.Region(e.Region)
		must(t, err)
		if path == "" {
			path = info.Path
		}
		if e.State != Resident || e.RegionOffset != e.FileOffset || info.Path != path {
			t.Fatalf("the extent at %d is %s, and lies at %d of %s, not in %s", e.FileOffset, e.State, e.RegionOffset, info.Path, path)
		}
	}
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s has %d bytes, which differ from the file's %d", path, len(got), len(want))
	}
	return path
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// awaitMemory waits until all memory is in regions again, so many bytes at least.
func awaitMemory(t *testing.T, s *Store, total int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		settled := s.mu.replacing == 0
		s.mu.Unlock()
		if st := s.Stats().Memory; settled && st.Total+2*Unit > total && !s.Stats().Populating {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("of %d bytes of memory, %d are there again: %+v", total, st.Total, st)
		}
	}
}

func TestLinearise(t *testing.T) {
	for _, isClean := range []bool{false, true} {
		t.Run(fmt.Sprint("clean ", isClean), func(t *testing.T) {
			o := linearOptions(t)
			s := open(t, o)
			total := s.Stats().Memory.Total
			want := linearFile(newWriter(t, s), 1, 3)
			if isClean {
				must(t, s.MarkClean(1, 3))
			}
			sum, _, err := s.Checksum(1, 3)
			must(t, err)
			must(t, s.Linearise(t.Context(), 1, 3))
			path := checkLinear(t, s, 1, 3, want)
			must(t, s.Linearise(t.Context(), 1, 3))
			if again := checkLinear(t, s, 1, 3, want); again != path {
				t.Errorf("what is linear was moved from %s to %s", path, again)
			}
			if now, _, err := s.Checksum(1, 3); now != sum || err != nil {
				t.Errorf("checksum %x, which was %x: %v", now, sum, err)
			}
			must(t, s.Close())
			s = open(t, o)
			for _, d := range s.Damage() {
				t.Errorf("damage: %+v", d)
			}
			adopt := s.Adopt
			if isClean {
				adopt = s.AdoptClean
			}
			must(t, adopt(1, 3))
			if again := checkLinear(t, s, 1, 3, want); again != path {
				t.Errorf("after a restart it lies in %s", again)
			}
			st := s.Stats().Memory
			if dirty := st.Dirty > 0; dirty == isClean {
				t.Errorf("%d bytes are dirty", st.Dirty)
			}
			if isClean {
				s.Evict(bb.TierMemory, 1)
			} else {
				_, err := s.Spill(t.Context(), o.MemoryBytes)
				must(t, err)
				check(t, s, 1, 3, want)
			}
			awaitMemory(t, s, total)
			if !gone(path) {
				t.Errorf("%s is still there", path)
			}
			must(t, s.Close())
			s = open(t, o)
			for _, d := range s.Damage() {
				t.Errorf("damage after the region is gone: %+v", d)
			}
			if !isClean {
				check(t, s, 1, 3, want)
			}
		})
	}
}

// TestLinearPinned checks that readers keep a linear file's pages: nothing evicts or spills a part of them, and once the file is
// removed they stay until the last reader is done.
func TestLinearPinned(t *testing.T) {
	s := open(t, linearOptions(t))
	total := s.Stats().Memory.Total
	want := linearFile(newWriter(t, s), 1, 3)
	must(t, s.MarkClean(1, 3))
	must(t, s.Linearise(t.Context(), 1, 3))
	path := checkLinear(t, s, 1, 3, want)
	v, err := s.Snapshot(1, 3)
	must(t, err)
	p, err := v.Pin(0, 1)
	must(t, err)
	if n := s.Evict(bb.TierMemory, 1<<30); n != 0 {
		t.Errorf("%d bytes were evicted below a reader", n)
	}
	_, err = s.Spill(t.Context(), 1<<30)
	must(t, err)
	checkLinear(t, s, 1, 3, want)
	s.Drop(1)
	v.Close()
	if gone(path) {
		t.Error("a reader's pages are gone")
	}
	p.Release()
	awaitMemory(t, s, total)
	if !gone(path) {
		t.Errorf("%s is still there", path)
	}
}

// TestLinearReaders checks that views of before keep their bytes, and that a newer generation may build on linear bytes.
func TestLinearReaders(t *testing.T) {
	s := open(t, linearOptions(t))
	w := newWriter(t, s)
	want := linearFile(w, 1, 3)
	v, err := s.Snapshot(1, 3)
	must(t, err)
	must(t, s.Linearise(t.Context(), 1, 3))
	if got := read(t, v); !bytes.Equal(got, want) {
		t.Error("a view of before shows other bytes")
	}
	v.Close()
	path := checkLinear(t, s, 1, 3, want)
	w.commit(1, 4, 3, 100, []byte("new"))
	w.done()
	newer := slices.Clone(want)
	copy(newer[100:], "new")
	check(t, s, 1, 4, newer)
	checkLinear(t, s, 1, 3, want)
	must(t, s.Seal(1, 4))
	must(t, s.Linearise(t.Context(), 1, 4))
	if again := checkLinear(t, s, 1, 4, newer); again == path {
		t.Error("pages that readers may have were written to")
	}
	checkLinear(t, s, 1, 3, want)
}

func TestNotLinear(t *testing.T) {
	s := open(t, linearOptions(t))
	w := newWriter(t, s)
	refused := func(what string, f bb.FileID, want bb.Kind) {
		t.Helper()
		if err := s.Linearise(t.Context(), f, 3); bb.KindOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("unknown", 9, bb.NotFound)
	w.commit(1, 3, 0, 0, []byte("small"))
	must(t, s.Seal(1, 3))
	refused("small", 1, bb.Unsupported)
	p := content(2, 1<<20)
	for off := int64(0); off < 9<<20; off += 1 << 20 {
		w.commit(2, 3, 0, off, p)
	}
	w.done()
	refused("open for writing", 2, bb.Busy)
	populatedNow(t, s)
	must(t, s.Seal(2, 3))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Linearise(ctx, 2, 3); bb.KindOf(err) != bb.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
	awaitMemory(t, s, 96<<20)
	must(t, s.MarkClean(2, 3))
	s.Evict(bb.TierMemory, 1<<30)
	refused("evicted", 2, bb.Unsupported)
	var leases []bb.LeaseID
	awaitMemory(t, s, 0)
	for {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 4 << 20})
		if err != nil {
			break
		}
		leases = append(leases, l.ID)
		w.lease = l
	}
	for i := 0; i < len(leases); i += 2 {
		must(t, s.Release(leases[i]))
	}
	w.lease = Lease{}
	for off := int64(0); off < 9<<20; off += 1 << 20 {
		w.commit(4, 3, 0, off, p)
	}
	w.done()
	must(t, s.Seal(4, 3))
	refused("no empty region", 4, bb.NoSpace)
	check(t, s, 4, 3, bytes.Repeat(p, 9))
}

// TestLinearKilled kills a process at each step of a move to a linear region. Afterwards the bytes are there, here or there.
func TestLinearKilled(t *testing.T) {
	for _, point := range []string{"linear copied", "linear laid out", "record written", "part complete", "linear shown"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			o := linearOptions(t)
			env, err := json.Marshal(crashPlan{Dir: filepath.Dir(o.StateDir), Point: point, Pass: 1, Linear: true})
			must(t, err)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), crashEnv+"="+string(env))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child was not killed: %v %s", err, out)
			}
			s := open(t, o)
			for _, d := range s.Damage() {
				t.Errorf("damage: %+v", d)
			}
			must(t, s.Adopt(1, 3))
			want := content(1, 9<<20)
			check(t, s, 1, 3, want)
			must(t, s.Seal(1, 3))
			awaitMemory(t, s, 0)
			must(t, s.Linearise(t.Context(), 1, 3))
			path := checkLinear(t, s, 1, 3, want)
			s.Drop(1)
			awaitMemory(t, s, 92<<20)
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+regionfile.Unfinished)); len(left) > 0 || err != nil {
				t.Errorf("left over: %v, %v", left, err)
			}
			w := newWriter(t, s)
			w.commit(2, 1, 0, 0, []byte("after"))
			check(t, s, 2, 1, []byte("after"))
		})
	}
}

// linearChild makes a file linear, and is killed.
func linearChild(o Options) error {
	o.MemoryBytes, o.RegionBytes, o.DiskBytes = 96<<20, 16<<20, 96<<20
	point := o.crash
	o.crash = nil
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	<-s.Ready()
	for s.Stats().Populating {
		time.Sleep(time.Millisecond)
	}
	want := content(1, 9<<20)
	for off := int64(0); off < int64(len(want)); off += 1 << 20 {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 2 << 20, Min: 1<<20 + 4096})
		if err != nil {
			return err
		}
		p := want[off : off+1<<20]
		e := NewExtent{l.ID, l.DataStart, off, 1 << 20, checksum.Copy(l.Mem[l.DataStart:], p, 0)}
		if err := s.Commit(Commit{File: 1, Generation: 3, Buffer: "b", Extents: []NewExtent{e}}); err != nil {
			return err
		}
		if err := s.Release(l.ID); err != nil {
			return err
		}
	}
	if err := s.Seal(1, 3); err != nil {
		return err
	}
	s.o.crash = point
	if err := s.Linearise(context.Background(), 1, 3); err != nil {
		return err
	}
	return errors.New("the point was not reached")
}
