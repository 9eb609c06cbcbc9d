package bbd_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/meta/gossip"
)

// suspected has gossip suspect a node, whose address leads nowhere, until back is called. Looks counts requests for its
// record.
func (n *node) suspected() (looks *atomic.Int64, back func()) {
	looks = new(atomic.Int64)
	self := n.daemon.Self
	n.members.set(n.name, func() gossip.Member {
		looks.Add(1)
		m := self()
		m.State, m.Session = gossip.Suspect, "127.0.0.1:1"
		return m
	})
	return looks, func() { n.members.set(n.name, self) }
}

// open writes and syncs a file that stays open.
func open(t *testing.T, b *client.Buffer, path string, content []byte) *client.File {
	t.Helper()
	f, err := b.Create(t.Context(), path)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestClusterOpenFileAway: the size of a file that is open for writing comes from its owner alone. While that may
// answer soon, a request waits for it. Of one that is dead it fails, and it never claims that the file is empty.
func TestClusterOpenFileAway(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "shared", NoFlush: []string{"*"}})
	open(t, b, "f", random(100_000))
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, time.Minute)

	looks, back := nodes[0].suspected()
	type answer struct {
		size int64
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		e, err := there.Stat(ctx, "f")
		got <- answer{e.Size, err}
	}()
	eventually(t, "its owner is looked for again", func() bool { return looks.Load() > 4 || len(got) > 0 })
	back()
	if a := <-got; a.err != nil || a.size != 100_000 {
		t.Errorf("once its owner answers: %d bytes, %v", a.size, a.err)
	}

	write(t, there, "g", []byte("hello"))
	for _, b := range []*client.Buffer{b, there} {
		list, _, err := b.List(ctx, "", "", 0)
		if err != nil || len(list) != 2 || list[0].Name != "f" || list[0].State != client.StateOpen || list[1].Name != "g" || list[1].Size != 5 {
			t.Fatalf("%+v (%v)", list, err)
		}
		if f := list[0]; b == there && (f.Size != 0 || !strings.Contains(f.Reason, "at node n1: its size is known there alone")) {
			t.Errorf("it is listed elsewhere with %d bytes, %q", f.Size, f.Reason)
		} else if b != there && (f.Size != 100_000 || f.Reason != "") {
			t.Errorf("it is listed at its owner with %d bytes, %q", f.Size, f.Reason)
		}
	}

	nodes[0].dead()
	if list, _, err := there.List(ctx, "", "", 0); err != nil || len(list) != 2 || !strings.Contains(list[0].Reason, "node n1") {
		t.Errorf("while its owner is dead, its directory is listed as %+v (%v)", list, err)
	}
	e, err := there.Stat(ctx, "f")
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrUnknownOutcome) || !strings.Contains(err.Error(), "node n1") || !strings.Contains(err.Error(), "bbctl node forget n1") {
		t.Errorf("while its owner is dead: %d bytes, %v", e.Size, err)
	}
	if _, err := admin.ForgetNode(ctx, nodes[1].dial(), "n1"); err != nil {
		t.Fatal(err)
	}
	if e, err := there.Stat(ctx, "f"); err != nil || e.State != client.StateLost {
		t.Errorf("once its owner is forgotten: %v, %v", e.State, err)
	}
}

// TestClusterOpenFileSizeAtSecondCopy: the size of a file that is open for writing at a dead node is that of its second
// copy.
func TestClusterOpenFileSizeAtSecondCopy(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	open(t, b, "f", random(100_000))
	nodes[0].dead()
	for _, n := range nodes[1:] {
		if e, err := n.dial().Buffer("two").Stat(limited(t, time.Minute), "f"); err != nil || e.Size != 100_000 {
			t.Errorf("at %s: %d bytes, %v", n.name, e.Size, err)
		}
	}
}
