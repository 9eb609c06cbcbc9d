package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// inFlight runs an operation one at a time, and with 64 in flight.
func inFlight(b *testing.B, name string, do func(n int64) error) {
	var n atomic.Int64
	for what, each := range map[string]int{"one": 1, "64": 64} {
		b.Run(name+"/"+what, func(b *testing.B) {
			var left atomic.Int64
			left.Store(int64(b.N))
			done := make(chan error, each)
			b.ResetTimer()
			for range each {
				go func() {
					for left.Add(-1) >= 0 {
						if err := do(n.Add(1)); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range each {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "/s")
		})
	}
}

// BenchmarkLogStat measures stats of a file below five directories of which nothing changes, by clients of the daemon
// that owns the namespace's log, and of another one.
func BenchmarkLogStat(b *testing.B) {
	c := newLogCluster(b, 3, 0)
	owner := c.owner()
	const path = "all/b/c/d/e/f"
	at := func(i int) *client.Buffer { return lasting(b, c.daemons[i]).Buffer("b") }
	if err := at(owner).MkdirAll(b.Context(), "all/b/c/d/e", 0o755); err != nil {
		b.Fatal(err)
	}
	if err := at(owner).WriteFile(b.Context(), path, []byte("content"), 0o644); err != nil {
		b.Fatal(err)
	}
	for i, what := range map[int]string{owner: "owner", (owner + 1) % 3: "other"} {
		buffer := at(i)
		inFlight(b, what, func(int64) error {
			_, err := buffer.Stat(b.Context(), path)
			return err
		})
	}
}

// BenchmarkLogCreate measures creations by clients of the daemon that owns the namespace's log, of which no, one and
// two other daemons hold the end.
func BenchmarkLogCreate(b *testing.B) {
	for size := 1; size <= 3; size++ {
		c := newLogCluster(b, size, 0)
		owner := c.owner()
		by := lasting(b, c.daemons[owner])
		buffer := by.Buffer("b")
		waitFor(b, "other daemons hold the end of the log", func() bool {
			return len(c.holders(owner)) == size-1 || buffer.WriteFile(b.Context(), fmt.Sprint("all/", time.Now().UnixNano()), nil, 0o644) != nil
		})
		inFlight(b, fmt.Sprint("holders=", size-1), func(n int64) error {
			return buffer.Mkdir(b.Context(), fmt.Sprint("all/", n), 0o755)
		})
		if got := len(c.holders(owner)); got != size-1 {
			b.Errorf("%d daemons hold the end of the log, not %d", got, size-1)
		}
		for _, d := range c.daemons {
			d.Stop()
		}
	}
}

// BenchmarkLogHosts has clients of one to five daemons create files of 64 bytes in one directory of a buffer that is not
// flushed, one at a time and 64 in flight over all daemons, and stat one path that does not change.
func BenchmarkLogHosts(b *testing.B) {
	for size := 1; size <= 5; size++ {
		c := newLogCluster(b, size, 0)
		var at []*client.Buffer
		for _, d := range c.daemons {
			at = append(at, lasting(b, d).Buffer("names"))
		}
		if _, err := admin.CreateBuffer(b.Context(), lasting(b, c.daemons[0]), admin.BufferSpec{Name: "names"}); err != nil {
			b.Fatal(err)
		}
		if err := at[0].MkdirAll(b.Context(), "all/b/c/d/e", 0o755); err != nil {
			b.Fatal(err)
		}
		content := make([]byte, 64)
		inFlight(b, fmt.Sprint("create/hosts=", size), func(n int64) error {
			return at[n%int64(size)].WriteFile(b.Context(), fmt.Sprint("all/", n), content, 0o644)
		})
		inFlight(b, fmt.Sprint("stat/hosts=", size), func(n int64) error {
			_, err := at[n%int64(size)].Stat(b.Context(), "all/b/c/d/e")
			return err
		})
		for _, d := range c.daemons {
			d.Stop()
		}
	}
}

// BenchmarkLogList measures listings of a directory of 100 files of which nothing changes, by clients of the daemon that
// owns the namespace's log, and of another one.
func BenchmarkLogList(b *testing.B) {
	c := newLogCluster(b, 3, 0)
	owner := c.owner()
	at := func(i int) *client.Buffer { return lasting(b, c.daemons[i]).Buffer("b") }
	for n := range 100 {
		if err := at(owner).WriteFile(b.Context(), fmt.Sprint("all/", n), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i, what := range map[int]string{owner: "owner", (owner + 1) % 3: "other"} {
		buffer := at(i)
		inFlight(b, what, func(int64) error {
			entries, _, err := buffer.List(b.Context(), "all", "", 1000)
			if err == nil && len(entries) != 100 {
				err = fmt.Errorf("%d files are listed", len(entries))
			}
			return err
		})
	}
}
