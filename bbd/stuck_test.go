package bbd_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// TestLargerThanMemory: files that are larger than memory, and smaller than memory and the disk tier,
// are written by one client and by two. Their committed bytes are spilled while they are open.
func TestLargerThanMemory(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Store.DiskDir, c.Store.DiskBytes = t.TempDir(), 512<<20 })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "large"})
	contents := [][]byte{random(150 << 20), random(50 << 20), random(50 << 20)}
	write(t, b, "f0", contents[0])
	var all sync.WaitGroup
	for i, content := range contents[1:] {
		other := n.dial().Buffer("large")
		all.Go(func() {
			if err := other.WriteFile(t.Context(), fmt.Sprint("f", i+1), content, 0o644); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, content := range contents {
		wantFile(t, b, fmt.Sprint("f", i), content)
	}
	drain(t, c, "large")
}

// wantNoRoom checks the error of a write whose wait would have no end.
func wantNoRoom(t *testing.T, err error, of string) {
	t.Helper()
	var e *bb.Error
	if !errors.Is(err, client.ErrNoSpace) || !strings.Contains(err.Error(), of) || !errors.As(err, &e) {
		t.Errorf("a write whose wait has no end: %v", err)
	}
}

// TestNeverFits: a file that is larger than memory is refused, with a remedy, and leaves nothing. Its
// memory is there for the next one.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	for name, shares := range map[string]bool{"shares": true, "no shares": false} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, func(c *bbd.Config) { c.Store.RegionBytes, c.Store.Shares = 16<<20, shares })
			c := n.dial()
			b, _ := n.buffer(c, admin.BufferSpec{Name: "large"})
			wantNoRoom(t, b.WriteFile(t.Context(), "f", random(100<<20), 0o644), "fill their whole share of 64 MiB of memory, and an open file is not flushed (write smaller files")
			content := random(30 << 20)
			write(t, b, "g", content)
			wantFile(t, b, "g", content)
			drain(t, c, "large")
		})
	}
}

// TestNeverFitsTogether: files that fit one after the other, and not together, wait for each other
// alone. Of the files of two clients one is refused, and the other one continues. Those of one
// client share their segments, so that both may be.
func TestNeverFitsTogether(t *testing.T) {
	t.Parallel()
	for name, clients := range map[string]int{"two clients": 2, "one client": 1} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nil)
			n.buffer(n.dial(), admin.BufferSpec{Name: "large"})
			const files = 2
			errs := make([]error, files)
			// Both are open before either is written.
			var all sync.WaitGroup
			var open []*client.File
			c := n.dial()
			for i := range files {
				if i < clients && i > 0 {
					c = n.dial()
				}
				f, err := c.Buffer("large").Create(t.Context(), fmt.Sprint("f", i))
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, f)
			}
			// Each gets half of the memory, step by step, so that neither is ahead.
			for range 24 {
				for _, f := range open {
					addTo(t, f, random(1<<20))
				}
			}
			for i, f := range open {
				all.Go(func() {
					if _, errs[i] = f.Write(random(20 << 20)); errs[i] != nil {
						f.Abort()
						return
					}
					errs[i] = f.Close()
				})
			}
			all.Wait()
			failed := 0
			for _, err := range errs {
				if err != nil {
					wantNoRoom(t, err, "an open file is not flushed")
					failed++
				}
			}
			if failed == 0 || failed == files && clients > 1 {
				t.Errorf("%d of %d files were refused: %v", failed, files, errs)
			}
		})
	}
}

// TestWaitsForOthers: a write is not refused while another client has memory that it may give back, nor
// while a file of the same client is open that does not wait.
func TestWaitsForOthers(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprint("the same client: ", same), func(t *testing.T) {
			n := startNode(t, nil)
			c := n.dial()
			b, _ := n.buffer(c, admin.BufferSpec{Name: "large"})
			holder := b
			if !same {
				holder = n.dial().Buffer("large")
			}
			held, err := holder.Create(t.Context(), "held")
			if err != nil {
				t.Fatal(err)
			}
			addTo(t, held, random(24<<20))
			done := make(chan error, 1)
			content := random(50 << 20)
			go func() { done <- b.WriteFile(t.Context(), "f", content, 0o644) }()
			eventually(t, "the writer waits for longer than one whose wait has no end", func() bool {
				return n.status().Waiting.Longest > 3
			})
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			if err := held.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wantFile(t, b, "f", content)
		})
	}
}

// TestNeverFitsCapacity: committed bytes of an open file that fill the buffer's capacity are refused
// more. Those of other files are flushed first.
func TestNeverFitsCapacity(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "small", Capacity: 8 << 20})
	write(t, b, "other", random(6<<20))
	f, err := b.Create(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	written := 0
	for range 16 {
		if _, err = f.Write(random(1 << 20)); err != nil {
			break
		}
		if err = f.Sync(); err != nil {
			break
		}
		written++
	}
	wantNoRoom(t, err, "larger than the buffer's capacity of 8 MiB, and an open file is not flushed (write smaller files")
	if written < 8 {
		t.Errorf("%d MiB were written to a buffer of 8 MiB", written)
	}
}
