package bbd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// readAll reads an open file from its beginning.
func readAll(t *testing.T, f *client.File, size int) []byte {
	t.Helper()
	got := make([]byte, size)
	if n, err := f.ReadAtContext(limited(t, time.Minute), got, 0); err != nil && err != io.EOF || n != size {
		t.Errorf("%d of %d bytes: %v", n, size, err)
	}
	return got
}

// press evicts all evictable bytes, with files of another buffer.
func (n *node) press() {
	n.t.Helper()
	c := n.dial()
	b := c.Buffer("pressure")
	if _, err := b.Stat(n.t.Context(), "0"); err != nil {
		n.buffer(c, admin.BufferSpec{Name: "pressure"})
	}
	for i := range 10 {
		write(n.t, b, fmt.Sprint(i), random(9<<20))
	}
	drain(n.t, c, "pressure")
}

// TestReaderOfSupersededEvicted opens an evicted file for reading and gives the file's name other
// contents. No rename and no flush waits for the reader's end, and the reader gets the bytes that
// it has opened, also under pressure and once the store has the new ones alone.
func TestReaderOfSupersededEvicted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, n *node, b *client.Buffer, name string, fresh []byte) error{
		"written again": func(ctx context.Context, n *node, b *client.Buffer, name string, fresh []byte) error {
			return b.WriteFile(ctx, name, fresh, 0o644)
		},
		"written twice": func(ctx context.Context, n *node, b *client.Buffer, name string, fresh []byte) error {
			if err := b.WriteFile(ctx, name, random(1<<20), 0o644); err != nil {
				return err
			}
			return b.WriteFile(ctx, name, fresh, 0o644)
		},
		"written again and replaced": func(ctx context.Context, n *node, b *client.Buffer, name string, fresh []byte) error {
			n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
			defer n.faults.Set()
			if err := b.WriteFile(ctx, name, random(1<<20), 0o644); err != nil {
				return err
			}
			if err := b.WriteFile(ctx, "new", fresh, 0o644); err != nil {
				return err
			}
			return b.Rename(ctx, "new", name)
		},
		"under pressure while it is flushed": func(ctx context.Context, n *node, b *client.Buffer, name string, fresh []byte) error {
			n.faults.Set(fault.Rule{Op: "put", Name: name, Kind: fault.Slow, Delay: 3 * time.Second, Count: 1})
			defer n.faults.Set()
			if err := b.WriteFile(ctx, name, fresh, 0o644); err != nil {
				return err
			}
			eventually(n.t, "the flush has begun", func() bool { return n.faults.Hits() > 0 })
			n.press()
			return nil
		},
		"removed and made anew": func(ctx context.Context, n *node, b *client.Buffer, name string, fresh []byte) error {
			if err := b.Remove(ctx, name); err != nil {
				return err
			}
			return b.WriteFile(ctx, name, fresh, 0o644)
		},
	} {
		for _, disk := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/disk=%v", name, disk), func(t *testing.T) {
				t.Parallel()
				n := startNode(t, func(c *bbd.Config) {
					if disk {
						c.Store.DiskDir, c.Store.DiskBytes = t.TempDir(), 128<<20
					}
				})
				c := n.dial()
				b, dir := n.buffer(c, admin.BufferSpec{Name: "ev"})
				contents := map[string][]byte{}
				name := n.evicted(c, b, contents)
				f, err := b.Open(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				ctx := limited(t, time.Minute)
				fresh := random(2 << 20)
				if err := change(ctx, n, b, name, fresh); err != nil {
					t.Fatal(err)
				}
				if report, err := admin.Drain(ctx, c, "ev", 30*time.Second, nil); err != nil {
					t.Fatalf("drain: %v (%+v)", err, report)
				}
				if on, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(on, fresh) {
					t.Errorf("the store has %d bytes (%v), not the new ones", len(on), err)
				}
				n.press()
				if got := readAll(t, f, len(contents[name])); !bytes.Equal(got, contents[name]) {
					t.Error("the reader sees other bytes than it has opened")
				}
				wantFile(t, b, name, fresh)
				n.closesToNothing(c, f, "ev", "pressure")
			})
		}
	}
}

// closesToNothing closes a reader of extents without other references, removes all other files, and
// waits until no byte of any file is in memory or on disk.
func (n *node) closesToNothing(c *client.Client, f *client.File, buffers ...string) {
	n.t.Helper()
	if err := f.Close(); err != nil {
		n.t.Error(err)
	}
	for _, name := range buffers {
		b := c.Buffer(name)
		for e, err := range b.ReadDir(n.t.Context(), "") {
			if err != nil {
				n.t.Fatal(err)
			}
			if err := b.Remove(n.t.Context(), e.Name); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	eventually(n.t, "nothing of any file is in memory or on disk", func() bool {
		s := n.status()
		return s.Memory.Live == 0 && s.Disk.Live == 0
	})
}
