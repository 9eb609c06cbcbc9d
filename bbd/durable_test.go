package bbd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

func safeBuffer() admin.BufferSpec {
	return admin.BufferSpec{Name: "safe", Durability: "flushed", NoFlush: []string{"*.tmp", "_temporary/"}}
}

// wantOnStore fails if the store has not got a file with a content.
func wantOnStore(t *testing.T, dir, name, content string) {
	t.Helper()
	if p, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(p) != content {
		t.Errorf("the store has %q under %s, want %q (%v)", p, name, content, err)
	}
}

// flushFailed reports whether the store has refused a flush of a node's buffer safe.
func flushFailed(n *node) bool {
	for _, b := range n.status().Buffers {
		if b.Name == "safe" {
			return b.LastError != nil
		}
	}
	return false
}

// renames to names that are flushed, which make kept files visible under them.
var renames = map[string]struct {
	wrote, from, to, result string
}{
	"file":      {"result.tmp", "result.tmp", "result", "result"},
	"directory": {"_temporary/0/part", "_temporary/0", "out", "out/part"},
}

func TestFlushedRename(t *testing.T) {
	t.Parallel()
	quick := func(c *bbd.Config) {
		c.Flush.Backoff = [2]time.Duration{5 * time.Millisecond, 20 * time.Millisecond}
	}
	for where, nodes := range map[string][]*node{"alone": {startNode(t, quick)}, "elsewhere": startClusterWith(t, 2, quick)} {
		for name, r := range renames {
			t.Run(name+", "+where, func(t *testing.T) {
				here, there := nodes[0], nodes[len(nodes)-1]
				c := here.dial()
				b, dir := here.buffer(c, safeBuffer())
				defer admin.DiscardBuffer(t.Context(), c, "safe")
				for _, n := range nodes {
					n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
				}
				if err := b.MkdirAll(t.Context(), filepath.Dir(r.wrote), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, b, r.wrote, []byte("precious")) // a kept name; in memory is enough
				other := there.dial().Buffer("safe")
				waiting, cancel := context.WithCancel(t.Context())
				defer cancel()
				renamed := make(chan error, 1)
				go func() { renamed <- other.Rename(waiting, r.from, r.to) }()
				eventually(t, "the store refuses the renamed file", func() bool {
					_, err := b.Stat(t.Context(), r.result)
					return err == nil && slices.ContainsFunc(nodes, flushFailed)
				})
				cancel()
				if err := <-renamed; err == nil {
					t.Fatal("the rename was acknowledged, and the store has refused the file")
				}
				for _, n := range nodes {
					n.faults.Set()
				}
				if err := other.Rename(t.Context(), r.to, r.to+"2"); err != nil {
					t.Fatal(err)
				}
				wantOnStore(t, dir, r.to+"2"+r.result[len(r.to):], "precious")
				if err := other.Rename(t.Context(), r.to+"2", r.to); err != nil { // which is on the store already
					t.Fatal(err)
				}
				wantOnStore(t, dir, r.result, "precious")
			})
		}
	}
}

// TestFlushedCloseOfMany has two clients write a file, as the ranks of a checkpoint do. The close
// of the first waits for that of the second, and both for the store.
func TestFlushedCloseOfMany(t *testing.T) {
	t.Parallel()
	for where, nodes := range map[string][]*node{"alone": {startNode(t, nil)}, "elsewhere": startCluster(t, 2)} {
		t.Run(where, func(t *testing.T) {
			b, dir := nodes[0].buffer(nodes[0].dial(), safeBuffer())
			ranks := []*client.Buffer{b, nodes[len(nodes)-1].dial().Buffer("safe")}
			files := make([]*client.File, len(ranks))
			for i, rank := range ranks {
				var err error
				if files[i], err = rank.OpenFile(t.Context(), "ckpt", client.OpenOptions{Write: true, Create: true}); err != nil {
					t.Fatal(err)
				}
				if _, err := files[i].WriteAt([]byte{'0' + byte(i)}, int64(i)); err != nil {
					t.Fatal(err)
				}
				if err := files[i].Sync(); err != nil {
					t.Fatal(err)
				}
			}
			first := make(chan error, 1)
			go func() { first <- files[1].Close() }()
			eventually(t, "the first close is carried out", func() bool {
				_, writers := nodes[0].daemon.OpenFiles("safe")
				return writers == 1 || len(first) > 0
			})
			select {
			case err := <-first:
				t.Fatalf("the close of the first rank was answered before that of the second: %v", err)
			default:
			}
			if err := files[0].Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			wantOnStore(t, dir, "ckpt", "01")
		})
	}
}

// TestFlushedCloseThatCannotWait closes a file that stays open. One case is a file open by the same
// client, which could not close it while it waited, the other a file open by another client that
// does not close it in time.
func TestFlushedCloseThatCannotWait(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Flush.DirtyAge = 100 * time.Millisecond })
	c := n.dial()
	b, dir := n.buffer(c, safeBuffer())
	for name, with := range map[string]*client.Buffer{"same": b, "other": n.dial().Buffer("safe")} {
		options := client.OpenOptions{Write: true, Create: true}
		one, err := b.OpenFile(t.Context(), name, options)
		if err != nil {
			t.Fatal(err)
		}
		other, err := with.OpenFile(t.Context(), name, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*client.File{one, other} {
			if _, err := f.WriteAt([]byte("precious"), 0); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := one.Close(); !errors.Is(err, client.ErrBusy) {
			t.Errorf("%s: closing a file that stays open: %v", name, err)
		}
		if err := other.Close(); err != nil {
			t.Errorf("%s: the last close: %v", name, err)
		}
		wantOnStore(t, dir, name, "precious")
	}
}

// TestFlushedCommit commits a transaction. Its files are on the store when that is acknowledged,
// also of a commit that is repeated.
func TestFlushedCommit(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Flush.Backoff = [2]time.Duration{5 * time.Millisecond, 20 * time.Millisecond} })
	b, dir := n.buffer(n.dial(), safeBuffer())
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	x := begin(t, b, client.TxnSpec{Destination: "out"})
	attempt(t, b, x, "task", "a", "part")
	adopt(t, x, "task", "a")
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := x.Commit(brief, client.CommitOptions{}); err == nil {
		t.Fatal("the commit was acknowledged, and the store has refused its file")
	}
	n.faults.Set()
	if _, err := x.Commit(t.Context(), client.CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	wantOnStore(t, dir, "out/part", "task part")
}

// TestClusterFlushedFollowed: a client's writes continue in a new generation, since another node has written the file and
// removed it meanwhile. The client's handles of that are counted. A close that would wait for another of them is refused
// at once.
func TestClusterFlushedFollowed(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.Flush.DirtyAge = 5 * time.Second })
	ctx := limited(t, time.Minute)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, safeBuffer())
	there := nodes[1].dial().Buffer("safe")
	r, beside := nodes[0].raw(), nodes[0].raw()
	open := func(r *rawSession, handle uint64) {
		r.open(&wire.Open{Handle: handle, Buffer: "safe", Path: "x", Write: true, Create: true, Mode: 0o644})
	}
	commit := func(r *rawSession) {
		data := []byte("content")
		r.ok(wire.Type_TYPE_COMMIT, &wire.Commit{
			Handle: 1, Extents: []*wire.NewExtent{{Length: int64(len(data)), Checksum: checksum.Sum(data)}},
		}, data, &wire.Committed{})
	}
	open(r, 1)
	open(beside, 1)
	write(t, there, "x", []byte("of another node"))
	commit(beside) // detects it, and continues at the other node
	if err := there.Remove(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node n1 has heard of the removal", func() bool {
		_, err := b.Stat(ctx, "x")
		return errors.Is(err, bb.NotFound)
	})
	commit(r)
	open(r, 2)
	reply := r.call(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 1, Close: true}, nil)
	if !reply.head.Has(wire.FlagError) || !strings.Contains(reply.error(t).Error(), "by this client") {
		t.Errorf("the close of one of two handles: %v", reply.error(t))
	}
	r.ok(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: 2, Close: true}, nil, &wire.Committed{})
	wantOnStore(t, dir, "x", "content")
}
