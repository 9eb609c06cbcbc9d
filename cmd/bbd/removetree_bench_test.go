package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// BenchmarkRemoveTree removes a directory of 5,000 files that the store has, below
// FOREBAY_BENCH_DIR (default: the temporary folder), and reports the rates of the call, of the
// call with the drain that brings the store to it, and of os.RemoveAll of as many files there.
func BenchmarkRemoveTree(b *testing.B) {
	const files = 5000
	ctx := b.Context()
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + bbdtest.Start(b).Socket})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	dir, err := os.MkdirTemp(os.Getenv("FOREBAY_BENCH_DIR"), "remove-tree-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, plain := filepath.Join(dir, "store"), filepath.Join(dir, "plain")
	if err := os.Mkdir(store, 0o755); err != nil {
		b.Fatal(err)
	}
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "tree", Backing: "file://" + store}); err != nil {
		b.Fatal(err)
	}
	buffer := c.Buffer("tree")
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	fill := func(write func(name string) error) {
		var writers errgroup.Group
		writers.SetLimit(16)
		for i := range files {
			writers.Go(func() error { return write(strconv.Itoa(i)) })
		}
		must(writers.Wait())
	}
	drain := func() { _, err := admin.Drain(ctx, c, "tree", time.Hour, nil); must(err) }
	var call, drained, alone time.Duration
	for b.Loop() {
		must(buffer.Mkdir(ctx, "t", 0o755))
		fill(func(name string) error { return buffer.WriteFile(ctx, "t/"+name, []byte(name), 0o644) })
		drain()
		began := time.Now()
		must(buffer.RemoveAll(ctx, "t"))
		call += time.Since(began)
		drain()
		drained += time.Since(began)

		must(os.Mkdir(plain, 0o755))
		fill(func(name string) error { return os.WriteFile(filepath.Join(plain, name), []byte(name), 0o644) })
		began = time.Now()
		must(os.RemoveAll(plain))
		alone += time.Since(began)
	}
	rate := func(d time.Duration) float64 { return files * float64(b.N) / d.Seconds() }
	b.ReportMetric(rate(call), "files/s")
	b.ReportMetric(rate(drained), "files/s-drained")
	b.ReportMetric(rate(alone), "files/s-os.RemoveAll")
	b.ReportMetric(0, "ns/op")
}
