package bbd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/flusher/storeop"
)

// stored returns the files of a buffer's store with their contents.
func stored(dir string) map[string]string {
	have := map[string]string{}
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			content, _ := os.ReadFile(p)
			name, _ := filepath.Rel(dir, p)
			have[name] = string(content)
		}
		return nil
	})
	return have
}

// wantStore waits until the store has these files and no others.
func wantStore(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the store has %q", want), func() bool { return maps.Equal(stored(dir), want) })
}

// refusing waits until the node's first buffer has nothing left to do on the store but flushes,
// one of which has failed since.
func (n *node) refusing() {
	n.t.Helper()
	hits := n.faults.Hits()
	eventually(n.t, "a flush fails, and no operation is pending", func() bool {
		return n.status().Buffers[0].StoreOps == 0 && n.faults.Hits() > hits
	})
}

// replaced makes a buffer whose store has version 1 of d/latest and no room for version 2, which
// was renamed over it.
func replaced(t *testing.T, n *node) (c *client.Client, b *client.Buffer, dir string) {
	t.Helper()
	c = n.dial()
	b, dir = n.buffer(c, admin.BufferSpec{Name: "ckpt", NoFlush: []string{"*.tmp"}})
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, b, "d/latest", []byte("version 1"))
	drain(t, c, "ckpt")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Full})
	replaceAgain(t, b, "version 2")
	return c, b, dir
}

func replaceAgain(t *testing.T, b *client.Buffer, content string) {
	t.Helper()
	write(t, b, "latest.tmp", []byte(content))
	if err := b.Rename(t.Context(), "latest.tmp", "d/latest"); err != nil {
		t.Fatal(err)
	}
}

// TestReplacedStaysDurable renames a file that was never flushed over a flushed one while the
// store is full. The store keeps the old version until the flush replaces it, or until the name
// is removed or renamed.
func TestReplacedStaysDurable(t *testing.T) {
	t.Parallel()
	old := map[string]string{"d/latest": "version 1"}
	for name, test := range map[string]struct {
		change func(b *client.Buffer) error
		full   map[string]string // on the store while it is full
		want   map[string]string // and after it has room
	}{
		"flushed":  {nil, old, map[string]string{"d/latest": "version 2"}},
		"removed":  {func(b *client.Buffer) error { return b.Remove(t.Context(), "d/latest") }, nil, nil},
		"all gone": {func(b *client.Buffer) error { return b.RemoveAll(t.Context(), "d") }, nil, nil},
		"renamed": {
			func(b *client.Buffer) error { return b.Rename(t.Context(), "d/latest", "other") },
			nil,
			map[string]string{"other": "version 2"},
		},
		"its directory renamed": {
			func(b *client.Buffer) error { return b.Rename(t.Context(), "d", "e") },
			map[string]string{"e/latest": "version 1"},
			map[string]string{"e/latest": "version 2"},
		},
		"removed and made anew": {
			func(b *client.Buffer) error {
				return errors.Join(b.Remove(t.Context(), "d/latest"), b.WriteFile(t.Context(), "d/latest", []byte("version 3"), 0o644))
			}, nil, map[string]string{"d/latest": "version 3"},
		},
		"written again": {
			func(b *client.Buffer) error { return b.WriteFile(t.Context(), "d/latest", []byte("version 3"), 0o644) },
			old,
			map[string]string{"d/latest": "version 3"},
		},
		"replaced again": {
			func(b *client.Buffer) error {
				return errors.Join(b.WriteFile(t.Context(), "x.tmp", []byte("version 3"), 0o644), b.Rename(t.Context(), "x.tmp", "d/latest"))
			}, old, map[string]string{"d/latest": "version 3"},
		},
		"renamed back and forth": {
			func(b *client.Buffer) error {
				return errors.Join(b.Rename(t.Context(), "d/latest", "x.tmp"), b.Rename(t.Context(), "x.tmp", "d/latest"))
			}, nil, map[string]string{"d/latest": "version 2"},
		},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restart=%v", name, restart), func(t *testing.T) {
				t.Parallel()
				n := startNode(t, nil)
				c, b, dir := replaced(t, n)
				n.refusing()
				wantStore(t, dir, old)
				if restart {
					c.Close()
					n.stop()
					n.start()
					c = n.dial()
					b = c.Buffer("ckpt")
				}
				if test.change != nil {
					if err := test.change(b); err != nil {
						t.Fatal(err)
					}
				}
				if len(test.want) > 0 {
					n.refusing()
				}
				wantStore(t, dir, test.full)
				n.faults.Set()
				drain(t, c, "ckpt")
				wantStore(t, dir, test.want)
			})
		}
	}
}

// TestReplacedOutlivesTheNode loses the node before the new version is flushed. Readers get the
// error that it is lost, and that the store has an older one. Removing the name removes that, too.
func TestReplacedOutlivesTheNode(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c, _, dir := replaced(t, n)
	n.refusing()
	c.Close()
	n.stop()
	n.wipe()
	n.start()
	c = n.dial()
	b := c.Buffer("ckpt")
	wantStore(t, dir, map[string]string{"d/latest": "version 1"})
	const older = "the store has an older version"
	if p, err := b.ReadFile(t.Context(), "d/latest"); !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), older) {
		t.Errorf("reading what was lost: %q, %v", p, err)
	}
	lost, err := c.Buffer("ckpt").Lost(t.Context())
	if err != nil || len(lost) != 1 || !strings.Contains(lost[0].Reason, older) {
		t.Errorf("lost: %+v, %v", lost, err)
	}
	wantStore(t, dir, map[string]string{"d/latest": "version 1"})
	if err := b.Remove(t.Context(), "d/latest"); err != nil {
		t.Fatal(err)
	}
	wantStore(t, dir, nil)
}

// TestReplacedByOlderRelease carries out an older release's note of a rename over a flushed file.
// As long as a file has the name, its flush replaces the old version. If there is none, the store
// removes it.
func TestReplacedByOlderRelease(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *client.Buffer) error{
		"there": func(*client.Buffer) error { return nil },
		"replaced": func(b *client.Buffer) error {
			return errors.Join(b.WriteFile(t.Context(), "x.tmp", nil, 0o644), b.Rename(t.Context(), "x.tmp", "d/latest"))
		},
		"renamed": func(b *client.Buffer) error { return b.Rename(t.Context(), "d/latest", "other") },
		"removed": func(b *client.Buffer) error { return b.RemoveAll(t.Context(), "d") },
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, withBuckets) // that release had no other engine
			_, b, dir := replaced(t, n)
			n.refusing()
			resume := n.daemon.PauseFlushes("ckpt") // as before a start
			eventually(t, "no flush is on its way", func() bool { return n.status().Buffers[0].Flushing == 0 })
			carryOut, err := n.daemon.RenamedBefore(t.Context(), "ckpt", "d/latest")
			if err != nil {
				t.Fatal(err)
			}
			if err := change(b); err != nil {
				t.Fatal(err)
			}
			has := name == "there" || name == "replaced"
			kept, ops, err := carryOut()
			if err != nil || kept != has || len(ops) != 1 || ops[0].Kind != storeop.Remove || ops[0].Old != "d/latest" {
				t.Errorf("kept %v, else %+v: %v", kept, ops, err)
			}
			resume()
			if !has {
				return
			}
			n.refusing()
			wantStore(t, dir, map[string]string{"d/latest": "version 1"})
			if err := b.Remove(t.Context(), "d/latest"); err != nil {
				t.Fatal(err)
			}
			wantStore(t, dir, nil)
		})
	}
}

// TestTxnReplacedStaysDurable commits a transaction that replaces directories while the store is
// full. Names that are gone leave the store. Names that are there again keep their old version on
// the store until the new one is flushed.
func TestTxnReplacedStaysDurable(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			t.Parallel()
			n := startNode(t, nil)
			c := n.dial()
			b, dir := n.buffer(c, admin.BufferSpec{Name: "buf"})
			for _, name := range []string{"out/p=1/same", "out/p=1/other", "out/p=2/gone", "out/kept"} {
				if err := b.MkdirAll(t.Context(), filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, b, name, []byte("old"))
			}
			drain(t, c, "buf")
			n.faults.Set(fault.Rule{Op: "put", Kind: fault.Full})
			x := begin(t, b, client.TxnSpec{Destination: "out"})
			attempt(t, b, x, "t", "a", "p=1/same", "p=1/new")
			adopt(t, x, "t", "a")
			commit(t, x, client.CommitOptions{Replace: []string{"p=1", "p=2"}, Wait: true})
			wantFiles(t, b, "out", "p=1/same", "p=1/new", "kept")
			n.refusing()
			wantStore(t, dir, map[string]string{"out/p=1/same": "old", "out/kept": "old"})
			if !lost {
				n.faults.Set()
				drain(t, c, "buf")
				wantStore(t, dir, map[string]string{"out/p=1/same": "t p=1/same", "out/p=1/new": "t p=1/new", "out/kept": "old"})
				return
			}
			c.Close()
			n.stop()
			n.wipe()
			n.start()
			b = n.dial().Buffer("buf")
			if p, err := b.ReadFile(t.Context(), "out/p=1/same"); !errors.Is(err, client.ErrLost) {
				t.Errorf("reading what was lost: %q, %v", p, err)
			}
			wantStore(t, dir, map[string]string{"out/p=1/same": "old", "out/kept": "old"})
		})
	}
}

// TestClusterReplacedStaysDurable replaces another node's flushed file at one node, on request of a
// client of a third, while the store is full.
func TestClusterReplacedStaysDurable(t *testing.T) {
	t.Parallel()
	old := map[string]string{"latest": "version 1"}
	// put writes version 1 at the first node, and version 2 under another name at the second.
	put := func(t *testing.T) (nodes []*node, bs []*client.Buffer, dir string) {
		nodes = startCluster(t, 3)
		c := nodes[0].dial()
		b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "ckpt", NoFlush: []string{"*.tmp"}})
		bs = []*client.Buffer{b, nodes[1].dial().Buffer("ckpt"), nodes[2].dial().Buffer("ckpt")}
		write(t, b, "latest", []byte("version 1"))
		drain(t, c, "ckpt")
		write(t, bs[1], "latest.tmp", []byte("version 2"))
		return nodes, bs, dir
	}
	rename := func(t *testing.T, b *client.Buffer, from, to string) {
		t.Helper()
		if err := b.Rename(t.Context(), from, to); err != nil {
			t.Fatal(err)
		}
	}
	full := func(nodes []*node) {
		for _, n := range nodes {
			n.faults.Set(fault.Rule{Op: "put", Kind: fault.Full})
		}
	}
	t.Run("flushed", func(t *testing.T) {
		t.Parallel()
		nodes, bs, dir := put(t)
		full(nodes)
		rename(t, bs[2], "latest.tmp", "latest")
		nodes[1].refusing()
		eventually(t, "the first node has nothing to do", func() bool { return nodes[0].status().Buffers[0].StoreOps == 0 })
		wantStore(t, dir, old)
		nodes[1].faults.Set()
		drain(t, nodes[0].dial(), "ckpt")
		wantStore(t, dir, map[string]string{"latest": "version 2"})
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		nodes, bs, dir := put(t)
		full(nodes)
		rename(t, bs[2], "latest.tmp", "latest")
		nodes[1].refusing()
		nodes[1].away()
		nodes[1].wipe()
		nodes[1].start()
		if p, err := bs[0].ReadFile(t.Context(), "latest"); !errors.Is(err, client.ErrLost) {
			t.Errorf("reading what was lost: %q, %v", p, err)
		}
		wantStore(t, dir, old)
		if err := bs[0].Remove(t.Context(), "latest"); err != nil {
			t.Fatal(err)
		}
		wantStore(t, dir, nil)
	})
	t.Run("removed", func(t *testing.T) {
		t.Parallel()
		nodes, bs, dir := put(t)
		full(nodes)
		rename(t, bs[2], "latest.tmp", "latest")
		nodes[1].refusing()
		if err := bs[0].Remove(t.Context(), "latest"); err != nil {
			t.Fatal(err)
		}
		wantStore(t, dir, nil)
	})
	t.Run("behind a rename of the other", func(t *testing.T) {
		t.Parallel()
		nodes, bs, dir := put(t)
		nodes[0].faults.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
		rename(t, bs[0], "latest", "final")
		eventually(t, "the store refuses the rename", func() bool { return nodes[0].faults.Hits() > 0 })
		rename(t, bs[2], "latest.tmp", "final")
		if _, err := admin.Drain(t.Context(), nodes[1].dial(), "ckpt", 300*time.Millisecond, nil); err == nil {
			t.Error("drained although an operation is pending")
		}
		wantStore(t, dir, old)
		nodes[0].faults.Set()
		drain(t, nodes[0].dial(), "ckpt")
		wantStore(t, dir, map[string]string{"final": "version 2"})
	})
}
