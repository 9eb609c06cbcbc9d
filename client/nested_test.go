package client_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/wire"
)

// breaker loses the answer to a commit, and breaks the connection again at chosen requests
// after it. The daemon detects the first break only at the second one, so that the resumed writer
// finds its generation open at first, and closed later.
type breaker struct {
	closing bool // the commit
	applied bool // it was carried out
	at      []int

	mu    sync.Mutex
	armed bool
	lost  bool
	seen  int
	left  []func()
}

// see is the fake's hook.
func (k *breaker) see(c *fakeConn, h wire.Header, m proto.Message) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.armed:
		return false
	case k.lost:
		return k.breaksAt(c, h)
	}
	commit, ok := m.(*wire.Commit)
	if !ok || commit.Close != k.closing {
		return false
	}
	k.lost = true
	k.lose(c, commit)
	return true
}

// lose closes the connection without an answer. Its handles stay open.
func (k *breaker) lose(c *fakeConn, m *wire.Commit) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if k.applied {
		if _, _, err := c.commit(m, c.data); err != nil {
			c.f.t.Errorf("commit: %v", err)
		}
	}
	for id, fh := range c.handles {
		k.left = append(k.left, func() { c.leave(fh) })
		delete(c.handles, id)
	}
	c.conn.Close()
}

// breaksAt breaks the connection if it is time to. All handles end then.
func (k *breaker) breaksAt(c *fakeConn, h wire.Header) bool {
	switch h.Type {
	case wire.Type_TYPE_OPEN, wire.Type_TYPE_LEASE, wire.Type_TYPE_COMMIT, wire.Type_TYPE_EXTENTS:
	default:
		return false
	}
	k.seen++
	if len(k.at) == 0 || k.seen < k.at[0] {
		return false
	}
	k.at = k.at[1:]
	k.end(c.f)
	c.closeWrite()
	c.conn.Close()
	return true
}

// end makes the daemon detect the first break.
func (k *breaker) end(f *fake) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, leave := range k.left {
		leave()
	}
	k.left = nil
}

// TestBreaksWhileResuming: the connection breaks again while a writer, whose commit was not
// answered, writes pending bytes again. All of it is in the file in the end.
func TestBreaksWhileResuming(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{false, true} {
		for _, applied := range []bool{false, true} {
			for name, distances := range map[string][]int{"once": nil, "twice": {2}, "often": {1, 2, 3}} {
				t.Run(fmt.Sprintf("closing=%v/applied=%v/%s", closing, applied, name), func(t *testing.T) {
					const enough = 40
					for first := 1; ; first++ {
						k := &breaker{closing: closing, applied: applied, at: []int{first}}
						for _, d := range distances {
							k.at = append(k.at, k.at[len(k.at)-1]+d)
						}
						breakWhileResuming(t, k)
						if t.Failed() {
							t.Fatalf("the connection broke first at request %d of the resumed writer", first)
						}
						if len(k.at) > 0 { // the writer was done before
							if first == 1 && len(k.at) > len(distances) {
								t.Error("the connection did not break again")
							}
							return
						}
						if first == enough {
							t.Fatal("the writer does not come to an end")
						}
					}
				})
			}
		}
	}
}

func breakWhileResuming(t *testing.T, k *breaker) {
	ctx := context.Background()
	f := newFake(t)
	f.hook(k.see)
	b := f.connect(client.Options{}).Buffer("b")
	data := random(2<<20 + 9)
	const synced, piece = 200_000, 600_000
	w := must[*client.File](t)(b.Create(ctx, "x"))
	must[int](t)(w.Write(data[:synced]))
	check(t, w.Sync())
	for p := data[synced:]; len(p) > 0; {
		n := must[int](t)(w.Write(p[:min(len(p), piece)]))
		p = p[n:]
	}
	k.mu.Lock()
	k.armed = true
	k.mu.Unlock()
	if !k.closing {
		check(t, w.Sync())
	}
	check(t, w.Close())
	f.hook(nil)
	k.end(f)
	if !k.lost {
		t.Error("no answer was lost")
	}
	reader := f.connect(client.Options{}).Buffer("b")
	if got := readAll(t, reader, "x"); !bytes.Equal(got, data) {
		t.Errorf("content differs: %d bytes, want %d", len(got), len(data))
	}
}

// loseFirst carries the first open and the first commit of a writer out, and closes the
// connection without having answered either.
func loseFirst(c *fakeConn, m proto.Message) (handled, lost bool) {
	switch m := m.(type) {
	case *wire.Open:
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if _, _, err := c.open(m); err != nil {
			c.f.t.Errorf("open: %v", err)
		}
		return true, false
	case *wire.Commit:
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if _, _, err := c.commit(m, c.data); err != nil {
			c.f.t.Errorf("commit: %v", err)
		}
		c.conn.Close()
		return true, true
	}
	return false, false
}

// TestSyncAfterTruncatedAgain: neither the open that truncates nor the first sync is answered, and
// another writer joins the reopened file, which is empty. Bytes of the acknowledged sync are in the
// file in the end.
func TestSyncAfterTruncatedAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b, other := f.connect(client.Options{}).Buffer("b"), f.connect(client.Options{}).Buffer("b")
	var lost, joined bool
	var second *client.File
	f.hook(func(c *fakeConn, _ wire.Header, m proto.Message) (handled bool) {
		if !lost {
			handled, lost = loseFirst(c, m)
			return handled
		}
		if open, ok := m.(*wire.Open); ok && !open.Write && !joined {
			joined = true
			var err error
			if second, err = other.OpenFile(ctx, "x", client.OpenOptions{Write: true}); err != nil {
				t.Errorf("the second writer: %v", err)
			}
		}
		return false
	})
	data := random(100_000)
	w := must[*client.File](t)(b.OpenFile(ctx, "x", client.OpenOptions{Write: true, Create: true, Truncate: true}))
	must[int](t)(w.Write(data))
	check(t, w.Sync())
	if second == nil {
		t.Fatal("no second writer has joined")
	}
	check(t, second.Close())
	check(t, w.Close())
	f.hook(nil)
	if got := readAll(t, f.connect(client.Options{}).Buffer("b"), "x"); !bytes.Equal(got, data) {
		t.Errorf("the file has %d bytes, and %d were synced", len(got), len(data))
	}
}

// TestGoesOnWithItsFile: a writer whose generation was closed, and whose connection breaks
// again while it opens the next one, does not write into another file of that name.
func TestGoesOnWithItsFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b, other := f.connect(client.Options{}).Buffer("b"), f.connect(client.Options{}).Buffer("b")
	w := must[*client.File](t)(b.Create(ctx, "x"))
	must[int](t)(w.Write(random(100_000)))
	check(t, w.Sync())
	must[int](t)(w.Write(random(100_000)))
	f.cut()
	eventually(t, "the generation is closed", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.entries["b/x"].Open
	})
	var replaced atomic.Bool
	f.hook(func(c *fakeConn, _ wire.Header, m proto.Message) bool {
		open, ok := m.(*wire.Open)
		if !ok || open.ResumeFile != 0 || !replaced.CompareAndSwap(false, true) {
			return false
		}
		f.mu.Lock()
		delete(f.entries, "b/x")
		f.mu.Unlock()
		check(t, other.WriteFile(ctx, "x", []byte("another"), 0o644))
		c.closeWrite()
		c.conn.Close()
		return true
	})
	if err := w.Sync(); err == nil || !strings.Contains(err.Error(), "another file has this name") {
		t.Errorf("sync: %v", err)
	}
	_ = w.Close()
	if !replaced.Load() {
		t.Error("the connection did not break while the next generation was opened")
	}
	if got := readAll(t, other, "x"); string(got) != "another" {
		t.Errorf("the other file has %d bytes", len(got))
	}
}
