package nsbucket

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/embedded"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func benchNamespace(b *testing.B) *Namespace {
	b.Helper()
	dir, memory := b.TempDir(), memoryDir(b)
	s, err := embedded.Start(metatest.Context(b), embedded.Options{Dir: dir, BatchDir: memory})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Shutdown)
	ns := start(b, s, modes[0], "me")
	batches := filepath.Join(dir, "jetstream", "$G", "streams", "KV_"+ns.b.Name(), "batches")
	for at := ""; !strings.HasPrefix(at, memory); at, _ = os.Readlink(batches) {
		time.Sleep(time.Millisecond)
	}
	return ns
}

func benchFile(i uint64) bb.Entry {
	return bb.Entry{
		Parent: bb.RootDir, Name: "part-" + strconv.FormatUint(i, 10) + ".parquet", Type: bb.TypeFile, File: bb.FileID(i + 1),
		Generation: 1, Size: 4096, Checksum: i, Holders: []bb.NodeID{"node-1"}, Mode: 0o644, UID: 1000, GID: 1000,
	}
}

// BenchmarkPut is the limit of budgets row 8. The same bytes put without a namespace.
func BenchmarkPut(b *testing.B) {
	ns := benchNamespace(b)
	data := make([]byte, 100)
	for i := 0; b.Loop(); i++ {
		if _, err := ns.b.Put(b.Context(), "p."+strconv.Itoa(i), data, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	ns := benchNamespace(b)
	for i := uint64(0); b.Loop(); i++ {
		if _, err := ns.Create(b.Context(), benchFile(i)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate64(b *testing.B) {
	ns := benchNamespace(b)
	var n atomic.Uint64
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := ns.Create(b.Context(), benchFile(n.Add(1))); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkStatWarm(b *testing.B) {
	ns := benchNamespace(b)
	d, err := ns.MkdirAll(b.Context(), "a/b", namespace.Owner{})
	if err != nil {
		b.Fatal(err)
	}
	create(b, ns, d.Dir, "part-0001")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ns.Resolve(b.Context(), "a/b/part-0001"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatCold(b *testing.B) {
	ns := benchNamespace(b)
	e := create(b, ns, bb.RootDir, "part-0001")
	for b.Loop() {
		ns.entries.Forget(entryID{e.Parent, e.Name})
		if _, err := ns.Lookup(b.Context(), bb.RootDir, e.Name); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRename(b *testing.B) {
	ns := benchNamespace(b)
	create(b, ns, bb.RootDir, "0")
	for i := 0; b.Loop(); i++ {
		if _, err := ns.Rename(b.Context(), bb.RootDir, strconv.Itoa(i), bb.RootDir, strconv.Itoa(i+1), namespace.RenameOptions{StoreOp: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRename64(b *testing.B) {
	ns := benchNamespace(b)
	var n atomic.Uint64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		at := fmt.Sprint(n.Add(1), "-")
		create(b, ns, bb.RootDir, at+"0")
		for i := 0; pb.Next(); i++ {
			if _, err := ns.Rename(b.Context(), bb.RootDir, at+strconv.Itoa(i), bb.RootDir, at+strconv.Itoa(i+1), namespace.RenameOptions{StoreOp: true}); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkRemove(b *testing.B) {
	ns := benchNamespace(b)
	for i := uint64(0); b.Loop(); i++ {
		b.StopTimer()
		e := benchFile(i)
		if _, err := ns.Create(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := ns.Remove(b.Context(), bb.RootDir, e.Name, namespace.RemoveOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMillion lists and scans a directory of a million files: -benchtime 1x.
func BenchmarkMillion(b *testing.B) {
	const files = 1_000_000
	ns := benchNamespace(b)
	var g errgroup.Group
	for w := range uint64(64) {
		g.Go(func() error {
			for i := w; i < files; i += 64 {
				if _, err := ns.Create(b.Context(), benchFile(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	small := mkdir(b, ns, bb.RootDir, "small")
	for i := range 500 {
		create(b, ns, small.Dir, strconv.Itoa(i))
	}
	medium := mkdir(b, ns, bb.RootDir, "medium")
	for i := range 2000 {
		create(b, ns, medium.Dir, strconv.Itoa(i))
	}
	b.Run("ScanAll", func(b *testing.B) {
		n := 0
		for b.Loop() {
			if err := ns.ScanAll(b.Context(), func(bb.Entry) error { n++; return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("List", func(b *testing.B) {
		n := 0
		for b.Loop() {
			after, more := "", true
			for more {
				var page []bb.Entry
				var err error
				if page, more, err = ns.List(b.Context(), bb.RootDir, after, 1000); err != nil {
					b.Fatal(err)
				}
				n += len(page)
				after = page[len(page)-1].Name
			}
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
		b.ReportMetric(float64(ns.listings.Bytes())/files, "B/entry")
	})
	for name, dir := range map[string]bb.DirID{"List500": small.Dir, "List2000": medium.Dir} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := ns.List(b.Context(), dir, "", 1000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
