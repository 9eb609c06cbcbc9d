package bbd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
)

// Renames and removals of one name meet while the file is being written. One of them wins, the
// others get the error that the name is gone, no call waits for ever, and the written file ends
// under one name at most.
func TestRenamesMeet(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "meet"})
	others := make([]*client.Buffer, 4)
	for i := range others {
		others[i] = n.dial().Buffer("meet")
	}
	for round := range 100 {
		if err := b.MkdirAll(ctx, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := b.Create(ctx, "d/a")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, round)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i, do := range []func(b *client.Buffer) error{
			func(b *client.Buffer) error { return b.Rename(ctx, "d/a", "d/b") },
			func(b *client.Buffer) error { return b.Rename(ctx, "d/a", "d/b") },
			func(b *client.Buffer) error { return b.Rename(ctx, "d", "e") },
			func(b *client.Buffer) error {
				if round%2 == 0 {
					return b.Rename(ctx, "d/a", "e/a")
				}
				return b.Remove(ctx, "d/a")
			},
		} {
			wg.Go(func() {
				if err := do(others[i]); err != nil && client.KindOf(err) != client.ErrNotFound {
					t.Errorf("round %d, %d: %v", round, i, err)
				}
			})
		}
		wg.Wait()
		if err := f.Close(); err != nil && client.KindOf(err) != client.ErrNotFound {
			t.Errorf("round %d: close: %v", round, err)
		}
		found := 0
		for _, name := range []string{"d/a", "d/b", "e/a", "e/b"} {
			if _, err := b.Stat(ctx, name); err == nil {
				found++
			}
		}
		if found > 1 || found == 0 && round%2 == 0 {
			t.Errorf("round %d: the file has %d names", round, found)
		}
		for _, dir := range []string{"d", "e"} {
			if err := b.RemoveAll(ctx, dir); err != nil && client.KindOf(err) != client.ErrNotFound {
				t.Fatal(err)
			}
		}
	}
}

// Files that are renamed while the flusher locates them are flushed all the same,
// under their new names.
func TestRenamesMeetFlushes(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Flush.Idle = -1 })
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "meet"})
	const writers, files = 8, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range files {
				from, to := fmt.Sprintf("w%d-f%d.tmp", w, i), fmt.Sprintf("w%d-f%d", w, i)
				if err := b.WriteFile(t.Context(), from, []byte(to), 0o644); err != nil {
					t.Error(err)
				}
				if err := b.Rename(t.Context(), from, to); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if report, err := admin.Drain(t.Context(), c, "meet", time.Minute, nil); err != nil {
		t.Errorf("drain: %v (%+v)", err, report)
	}
	for w := range writers {
		for i := range files {
			name := fmt.Sprintf("w%d-f%d", w, i)
			if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != name {
				t.Errorf("%s in the store: %q, %v", name, got, err)
			}
		}
	}
}

// A file that is replaced or removed while others open it is never reported as lost.
func TestOpensMeetReplacements(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "meet", NoFlush: []string{"*"}})
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := b.ReadFile(t.Context(), "f"); err != nil && client.KindOf(err) != client.ErrNotFound {
					t.Error(err)
				}
			}
		})
	}
	for i := range 400 {
		if err := b.WriteFile(t.Context(), "f", fmt.Append(nil, i), 0o644); err != nil {
			t.Error(err)
		}
		if i%3 == 0 {
			if err := b.Remove(t.Context(), "f"); err != nil {
				t.Error(err)
			}
		}
	}
	cancel()
	readers.Wait()
}
