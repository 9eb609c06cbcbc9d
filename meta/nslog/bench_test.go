package nslog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/stream"
)

// flushedFile makes an entry as most files end: closed and flushed.
func flushedFile(dir bb.DirID, i int) bb.Entry {
	e := namespacetest.File(dir, fmt.Sprintf("part-%08d.parquet", i))
	e.Generation, e.Size, e.Checksum = 1, 4096, 0x1234567890abcdef
	e.Holders, e.UID, e.GID, e.MTime = []bb.NodeID{"node-0123"}, 1000, 1000, time.Unix(1_780_000_000, 123_456_789)
	e.SetFlushed(bb.Flushed{Generation: 1, ETag: "12345678:1780000000123456789", Size: 4096, Checksum: 0x1234567890abcdef, At: e.MTime, By: "node-0123"})
	return e
}

// BenchmarkChanges compares creations with plain puts of as many bytes to a key-value bucket of
// the same server, with 1 and 64 callers.
func BenchmarkChanges(b *testing.B) {
	c := kvtest.Dial(b, conn.Options{InProcess: metatest.StartServer(b, b.TempDir())})
	s := stream.New(c, "NS_buf")
	if err := s.Ensure(metatest.Context(b)); err != nil {
		b.Fatal(err)
	}
	e := openOn(b, s, nslog.Options{Node: "me"})
	bucket := kvtest.Bucket(b, c, "puts")
	var last atomic.Int64
	value := make([]byte, 160)
	for _, callers := range []int{1, 64} {
		run := func(name string, do func(i int) error) {
			b.Run(fmt.Sprint(name, "/callers=", callers), func(b *testing.B) {
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if err := do(int(last.Add(1))); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
			})
		}
		run("put", func(i int) error {
			_, err := bucket.Put(context.Background(), "k"+strconv.Itoa(i), value, 0)
			return err
		})
		run("create", func(i int) error {
			_, err := e.Create(context.Background(), flushedFile(bb.RootDir, i))
			return err
		})
	}
	b.Run("stat", func(b *testing.B) {
		first := flushedFile(bb.RootDir, int(last.Add(1)))
		if _, err := e.Create(context.Background(), first); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := e.Lookup(context.Background(), bb.RootDir, first.Name); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// rss returns the memory of the process that is resident.
func rss(b *testing.B) int {
	b.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil {
		b.Fatal(err)
	}
	return n << 10
}

// BenchmarkMillion makes a million flushed files in a thousand directories, and starts anew. It
// reports how long the start takes, and a scan of all.
func BenchmarkMillion(b *testing.B) {
	for b.Loop() {
		s := newStream(b, metatest.StartServer(b, b.TempDir()))
		measure(b, s, 1000, func() int { return 0 })
	}
}

// BenchmarkNames makes 10³ to 10⁷ flushed files, a thousand to a directory, and starts anew. The log is in memory and
// takes no time, so the rates are those of the table and its owner, with 64 callers. It is there before the memory is
// measured, so that a server's other memory does not count.
func BenchmarkNames(b *testing.B) {
	for _, dirs := range []int{1, 10, 100, 1000, 10_000} {
		b.Run(strconv.Itoa(dirs*filesEach), func(b *testing.B) {
			for b.Loop() {
				measure(b, purging{&process{simulated: &simulated{}}}, dirs, func() int { return rss(b) })
			}
		})
	}
}

const filesEach = 1000 // in a directory

// purging is a log in memory that no purged message comes back to.
type purging struct{ *process }

func (p purging) PurgeBelow(ctx context.Context, subject string, seq uint64) error {
	err := p.process.PurgeBelow(ctx, subject, seq)
	return errors.Join(err, p.step(func() { p.purged = nil }))
}

func measure(b *testing.B, log owner.Log, dirs int, memory func() int) {
	all := float64(dirs * filesEach)
	e := openFor(b, log)
	begun := time.Now()
	fill(b, e, dirs)
	b.ReportMetric(all/time.Since(begun).Seconds(), "creates/s")
	if err := e.Checkpoint(b.Context()); err != nil {
		b.Fatal(err)
	}
	e.Close()
	before := memory()
	begun = time.Now()
	e = openFor(b, log)
	defer e.Close()
	b.ReportMetric(time.Since(begun).Seconds(), "s/start")
	b.ReportMetric(float64(memory()-before)/all, "B/file")
	begun = time.Now()
	n := 0
	if err := e.ScanAll(b.Context(), func(bb.Entry) error { n++; return nil }); err != nil || n != dirs*filesEach+dirs {
		b.Fatal(n, err)
	}
	b.ReportMetric(time.Since(begun).Seconds(), "s/scan")
	last, err := e.Lookup(b.Context(), bb.RootDir, fmt.Sprint("task-", dirs-1))
	if err != nil {
		b.Fatal(err)
	}
	const lookups = 100_000
	begun = time.Now()
	for i := range lookups {
		if _, err := e.Lookup(b.Context(), last.Dir, flushedFile(last.Dir, i%filesEach).Name); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(lookups/time.Since(begun).Seconds(), "look-ups/s")
}

func openFor(b *testing.B, log owner.Log) *nslog.Engine {
	e, err := nslog.Open(b.Context(), log, newIDs(), nslog.Options{Buffer: "buf"})
	if err == nil {
		err = e.Prepare(b.Context(), &bb.Buffer{Name: "buf", Mode: 0o755})
	}
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// fill makes files in directories, by many callers.
func fill(b *testing.B, e *nslog.Engine, dirs int) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < dirs; i = int(next.Add(1)) - 1 {
				d, err := e.Mkdir(b.Context(), bb.RootDir, fmt.Sprint("task-", i), namespace.Owner{Mode: 0o755})
				for n := 0; n < filesEach && err == nil; n++ {
					_, err = e.Create(b.Context(), flushedFile(d.Dir, n))
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
