package store

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fillFiles commits files of size bytes each, in batches, as a daemon would.
func fillFiles(t testing.TB, s *Store, files, size int) {
	t.Helper()
	w := newWriter(t, s)
	p := content(1, size)
	sum := checksum.Sum(p)
	batch := make([]Commit, 0, 64)
	flush := func() {
		if err := s.Commit(batch...); err != nil {
			t.Fatal(err)
		}
		batch = batch[:0]
	}
	for f := range files {
		if w.lease.ID == 0 || w.next+int64(size)+format.RecordCost(1) > w.floor {
			if len(batch) > 0 {
				flush()
			}
			w.done()
			l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: MaxSegment, Min: int64(size) + format.RecordCost(1)})
			if err != nil {
				t.Fatal(err)
			}
			w.lease, w.next, w.floor = l, l.DataStart, l.RecordFloor
		}
		copy(w.lease.Mem[w.next:], p)
		batch = append(batch, Commit{File: bb.FileID(f + 1), Generation: 1, Buffer: "b", Extents: []NewExtent{
			{w.lease.ID, w.next, 0, int64(size), sum},
		}})
		w.next = align(w.next + int64(size))
		w.floor -= format.RecordCost(1)
		if len(batch) == cap(batch) {
			flush()
		}
	}
	flush()
	w.done()
}

// Memory and regions are budgeted for small files: at most 256 bytes of the daemon's memory for
// each, and less than 10 % of waste.
func TestSmallFilesAreCompact(t *testing.T) {
	const files = 200_000
	o := folders(t)
	o.MemoryBytes, o.RegionBytes = 320<<20, 64<<20
	s := open(t, o)
	before := heap()
	fillFiles(t, s, files, 1024)
	per := float64(heap()-before) / files
	st := s.Stats().Memory
	waste := float64(st.Waste) / float64(st.Used)
	t.Logf("%.0f bytes of memory per file, %.1f %% of the used bytes wasted", per, 100*waste)
	if per > 256 {
		t.Errorf("%.0f bytes of memory per file of one extent", per)
	}
	if waste > 0.10 {
		t.Errorf("%.1f %% of %d bytes wasted", 100*waste, st.Used)
	}
	if format.RecordCost(1) > 96 {
		t.Errorf("a record of one extent takes %d bytes", format.RecordCost(1))
	}
	runtime.KeepAlive(s)
}

// BenchmarkRecovery opens a store of 4 GiB in 10 thousand files, on a tmpfs with
// huge pages if it may mount one.
func BenchmarkRecovery(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "forebay-bench-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := Options{StateDir: filepath.Join(dir, "state"), MemoryBytes: 5 << 30}
	s := open(b, o)
	fillFiles(b, s, 10_000, 4<<30/10_000)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s = open(b, o)
		b.ReportMetric(float64(s.Stats().Recovery.Microseconds())/1000, "ms-recovery")
		if n := s.Stats().Files; n != 10_000 {
			b.Fatalf("%d files", n)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if s, err = Open(b.Context(), o); err != nil {
		b.Fatal(err)
	}
	if err := s.Destroy(); err != nil {
		b.Fatal(err)
	}
}
