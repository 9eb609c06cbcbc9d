package kv

import (
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"forebay/meta/metatest"
)

// BenchmarkScan reads a bucket that is too large for one answer, through a consumer.
func BenchmarkScan(b *testing.B) {
	const keys = 50_000
	bucket := testBucket(b)
	var g errgroup.Group
	for w := range 64 {
		g.Go(func() error {
			for i := w; i < keys; i += 64 {
				if _, err := bucket.Put(metatest.Context(b), "k."+strconv.Itoa(i), make([]byte, 100), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		err := bucket.Scan(metatest.Context(b), "k.>", func(*Record) error { n++; return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
	if n < b.N*keys {
		b.Fatalf("%d records of %d scans", n, b.N)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
