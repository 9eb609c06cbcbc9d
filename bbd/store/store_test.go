package store

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// folders makes the folders of a store, on a tmpfs, and options for it.
func folders(t testing.TB) Options {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "forebay-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Options{
		StateDir: filepath.Join(dir, "state"), Mount: MountOff, ShmDir: filepath.Join(dir, "shm"),
		MemoryBytes: 32 << 20, RegionBytes: 8 << 20,
		DiskDir: filepath.Join(dir, "disk"), DiskBytes: 64 << 20,
		PopulateThreads: 2,
	}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	populatedNow(t, s)
	return s
}

func populatedNow(t testing.TB, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.Stats().Populating; {
		if time.Now().After(deadline) {
			t.Fatal("memory is not populated")
		}
		time.Sleep(time.Millisecond)
	}
}

func content(seed uint64, n int) []byte {
	src := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(src.Uint32())
	}
	return p
}

// writer fills leases like a client.
type writer struct {
	t      testing.TB
	s      *Store
	buffer string
	uid    uint32
	lease  Lease
	next   int64 // where the next byte goes
	floor  int64
}

func (w *writer) room(n int) {
	w.t.Helper()
	if w.lease.ID != 0 && w.next+int64(n)+format.RecordCost(1) <= w.floor {
		return
	}
	w.done()
	l, err := w.s.Lease(LeaseRequest{Buffer: w.buffer, UID: w.uid, Bytes: int64(n) + 8192, Min: int64(n) + format.RecordCost(1)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.lease, w.next, w.floor = l, l.DataStart, l.RecordFloor
}

func (w *writer) done() {
	if w.lease.ID != 0 {
		if err := w.s.Release(w.lease.ID); err != nil {
			w.t.Fatal(err)
		}
	}
	w.lease = Lease{}
}

// put copies p into the lease and describes it.
func (w *writer) put(off int64, p []byte) NewExtent {
	w.room(len(p))
	e := NewExtent{Lease: w.lease.ID, SegmentOffset: w.next, FileOffset: off, Length: int64(len(p))}
	e.Checksum = checksum.Copy(w.lease.Mem[w.next:], p, 0)
	w.next = align(w.next + int64(len(p)))
	w.floor -= format.RecordCost(1)
	return e
}

func (w *writer) commit(f bb.FileID, g, base bb.Generation, off int64, p []byte) {
	w.t.Helper()
	if err := w.s.Commit(Commit{File: f, Generation: g, Base: base, Buffer: w.buffer, Extents: []NewExtent{w.put(off, p)}}); err != nil {
		w.t.Fatal(err)
	}
}

func newWriter(t testing.TB, s *Store) *writer {
	return &writer{t: t, s: s, buffer: "b", uid: uint32(os.Geteuid())}
}

// read returns the bytes of a snapshot, verified.
func read(t testing.TB, v *Snapshot) []byte {
	t.Helper()
	p, err := v.Pin(0, v.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if err := v.Verify(context.Background(), 0, v.Size()); err != nil {
		t.Fatal(err)
	}
	parts, err := v.Slices(0, v.Size(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(parts, nil)
}

func readFile(t testing.TB, s *Store, f bb.FileID, g bb.Generation) []byte {
	t.Helper()
	v, err := s.Snapshot(f, g)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	return read(t, v)
}

func check(t testing.TB, s *Store, f bb.FileID, g bb.Generation, want []byte) {
	t.Helper()
	if got := readFile(t, s, f, g); !bytes.Equal(got, want) {
		t.Fatalf("file %s generation %d: %d bytes differ from the %d expected", f, g, len(got), len(want))
	}
	sum, size, err := s.Checksum(f, g)
	if err != nil || size != int64(len(want)) || sum != checksum.Sum(want) {
		t.Fatalf("file %s generation %d: checksum %x of %d bytes, error %v", f, g, sum, size, err)
	}
}

func TestCommitReadRestart(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	a, b := content(1, 100_000), content(2, 3000)
	w.commit(1, 1, 0, 0, a)
	w.commit(1, 1, 0, 5000, b)
	want := bytes.Clone(a)
	copy(want[5000:], b)
	check(t, s, 1, 1, want)
	w.commit(1, 2, 1, 200_000, b) // a hole, and a base
	want2 := make([]byte, 203_000)
	copy(want2, want)
	copy(want2[200_000:], b)
	check(t, s, 1, 2, want2)
	check(t, s, 1, 1, want)
	instance := s.Instance()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if s.Instance() != instance {
		t.Error("the instance changed although regions were adopted")
	}
	check(t, s, 1, 2, want2)
	check(t, s, 1, 1, want)
	if err := s.Adopt(1, 2); err != nil {
		t.Fatal(err)
	}
	check(t, s, 1, 2, want2)
	if _, err := s.Snapshot(1, 1); !errors.Is(err, bb.NotFound) {
		t.Errorf("generation 1 after generation 2 was adopted: %v", err)
	}
	if d := s.Damage(); len(d) != 0 {
		t.Errorf("damage without cause: %+v", d)
	}
}
