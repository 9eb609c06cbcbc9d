package bbd_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// lacking is how many files of a node's buffers have no second copy. A node without a buffer lacks
// none.
func (n *node) lacking() (files int) {
	for _, b := range n.status().Buffers {
		files += b.Lacking
	}
	return files
}

// TestClusterSecondCopyAgain: a second copy that went with its node, or with that node's
// memory, is made again without a commit, and is as good as the first.
func TestClusterSecondCopyAgain(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"the node is gone": false, "the node has lost its memory": true} {
		t.Run(name, func(t *testing.T) {
			nodes := startClusterWith(t, 3, func(c *bbd.Config) { c.ResumeGrace = 2 * time.Second })
			byName := map[bb.NodeID]*node{}
			for _, n := range nodes {
				byName[n.name] = n
				n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
			}
			owner := nodes[0]
			c := owner.dial()
			b, _ := owner.buffer(c, admin.BufferSpec{Name: "two", Replicas: 2})
			want := map[string][]byte{}
			for name, size := range map[string]int{"empty": 0, "small": 100, "large": 5<<20 + 3} {
				want[name] = random(size)
				write(t, b, name, want[name])
			}
			want["open"] = random(200_000)
			open, err := b.Create(t.Context(), "open")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := open.Write(want["open"]); err != nil {
				t.Fatal(err)
			}
			if err := open.Sync(); err != nil {
				t.Fatal(err)
			}
			if n := owner.lacking(); n != 0 {
				t.Fatalf("%d files lack a second copy, and all are there", n)
			}
			second := func(name string) bb.NodeID {
				t.Helper()
				e, err := b.Stat(t.Context(), name)
				if err != nil || len(e.Holders) != 2 || e.Holders[0] != "n1" {
					t.Fatalf("%s: holders %v (%v)", name, e.Holders, err)
				}
				return bb.NodeID(e.Holders[1])
			}
			gone := byName[second("open")]
			lost := 0
			for name := range want {
				if second(name) == gone.name {
					lost++
				}
			}
			// No node accepts another copy, however long it takes until the lack of one is
			// detected.
			owner.members.fill(true)
			gone.away()
			gone.wipe()
			if restarted {
				gone.start()
			}
			if n := owner.lacking(); n != lost {
				t.Errorf("%d files are said to lack a second copy, and %d do", n, lost)
			}
			owner.members.fill(false)
			eventually(t, "all have second copies again", func() bool { return owner.lacking() == 0 })
			seconds := []bb.NodeID{}
			for name := range want {
				seconds = append(seconds, second(name))
			}
			if !restarted && slices.Contains(seconds, gone.name) {
				t.Errorf("second copies at %v, of which %s is gone", seconds, gone.name)
			}
			// Now the owner goes, too.
			c.Close()
			owner.away()
			owner.wipe()
			left := nodes[1]
			if left == gone && !restarted {
				left = nodes[2]
			}
			there := left.dial()
			ctx := limited(t, 30*time.Second)
			forgotten, err := admin.ForgetNode(ctx, there, "n1")
			if err != nil || forgotten.LostTotal != 0 {
				t.Errorf("forgotten: %+v (%v)", forgotten, err)
			}
			for name, content := range want {
				wantFile(t, there.Buffer("two"), name, content)
			}
		})
	}
}

// TestClusterSecondCopyTooLate: a second copy that is made again of a file that is
// flushed, or removed, meanwhile leaves nothing behind.
func TestClusterSecondCopyTooLate(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	owner := nodes[0]
	c := owner.dial()
	owner.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	b, _ := owner.buffer(c, admin.BufferSpec{Name: "two", Replicas: 2})
	const files = 30
	for i := range files {
		write(t, b, string(rune('a'+i)), random(300_000))
	}
	e, err := b.Stat(t.Context(), "a")
	if err != nil || len(e.Holders) != 2 {
		t.Fatalf("holders %v (%v)", e.Holders, err)
	}
	var left *node
	for _, n := range nodes[1:] {
		if n.name == bb.NodeID(e.Holders[1]) {
			n.away()
			n.wipe()
		} else {
			left = n
		}
	}
	eventually(t, "the first is made again", func() bool { return left.status().Memory.Dirty > 0 })
	owner.faults.Set()
	for i := range files / 3 {
		if err := b.Remove(t.Context(), string(rune('a'+i))); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, c, "two")
	eventually(t, "nothing is dirty", func() bool {
		return owner.status().Memory.Dirty == 0 && left.status().Memory.Dirty == 0 && owner.lacking() == 0
	})
}

// TestClusterSecondCopyMoves: a file keeps its second copy when it moves, and has a new
// one if it has moved to the node with that.
func TestClusterSecondCopyMoves(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "two", Replicas: 2}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("two")
	want := map[string][]byte{}
	for i := range 12 {
		name := string(rune('a' + i))
		want[name] = random(100_000)
		write(t, b, name, want[name])
	}
	ctx := limited(t, 30*time.Second)
	if p, err := admin.DrainNode(ctx, nodes[1].dial(), "n1", nil); err != nil {
		t.Fatalf("%v (%+v)", err, p)
	}
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	eventually(t, "all have second copies", func() bool { return nodes[1].lacking()+nodes[2].lacking() == 0 })
	nodes[1].away()
	nodes[1].wipe()
	there := nodes[2].dial()
	forgotten, err := admin.ForgetNode(ctx, there, "n2")
	if err != nil || forgotten.LostTotal != 0 {
		t.Errorf("forgotten: %+v (%v)", forgotten, err)
	}
	for name, content := range want {
		wantFile(t, there.Buffer("two"), name, content)
	}
}

// unreachable makes requests to a node fail, which gossip does not show.
func (n *node) unreachable() {
	n.members.set(n.name, func() gossip.Member {
		m := n.daemon.Self()
		m.Session = "127.0.0.1:1" // where no daemon answers
		return m
	})
}

// TestClusterClosedWithItsCopy: the second copy of a file lacks a commit, or has gone with its
// node's memory. When the file is closed, it has a second copy that lacks nothing.
func TestClusterClosedWithItsCopy(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) {
			nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.ResumeGrace = time.Minute })
			owner, second := nodes[0], nodes[1]
			c := owner.dial()
			b, _ := owner.buffer(c, admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
			f, err := b.Create(t.Context(), "f")
			if err != nil {
				t.Fatal(err)
			}
			want := random(300_000)
			if _, err = f.Write(want[:200_000]); err == nil {
				err = f.Sync()
			}
			if err != nil {
				t.Fatal(err)
			}
			if restarted {
				second.away()
				second.wipe()
				second.start()
				second.members.set(second.name, second.daemon.Self)
				want = want[:200_000]
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				second.unreachable()
				owner.daemon.BreakSessions(second.name)
				if _, err := f.Write(want[200_000:]); err != nil {
					t.Fatal(err)
				}
				if err := f.Sync(); !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("a commit without its second copy: %v", err)
				}
				c.Close() // the file has no writer any more
				second.members.set(second.name, second.daemon.Self)
			}
			there := second.dial()
			eventually(t, "the file is closed", func() bool {
				e, err := there.Buffer("two").Stat(t.Context(), "f")
				return err == nil && e.State == client.StateDirty
			})
			owner.away()
			owner.wipe()
			forgotten, err := admin.ForgetNode(limited(t, 30*time.Second), there, "n1")
			if err != nil || forgotten.LostTotal != 0 {
				t.Errorf("forgotten: %+v (%v)", forgotten, err)
			}
			wantFile(t, there.Buffer("two"), "f", want)
		})
	}
}

// TestClusterClosedWithoutItsCopy: a file is closed while the only node with a second copy is away.
// When that node comes back without its memory, the file lacks a second copy.
func TestClusterClosedWithoutItsCopy(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.ResumeGrace = time.Minute })
	owner, second := nodes[0], nodes[1]
	b, _ := owner.buffer(owner.dial(), admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	f, err := b.Create(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.Write(random(200_000)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	second.away()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	second.wipe()
	second.start()
	second.members.set(second.name, second.daemon.Self)
	if n := owner.lacking(); n != 1 {
		t.Errorf("%d files lack a second copy, want 1", n)
	}
}

// TestClusterForgetAsksAgain: a file of a dead node is not lost because its second copy's node is drained, or
// because one request to that failed.
func TestClusterForgetAsksAgain(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	want := random(300_000)
	write(t, b, "f", want)
	e, err := b.Stat(t.Context(), "f")
	if err != nil || len(e.Holders) != 2 {
		t.Fatalf("holders %v (%v)", e.Holders, err)
	}
	second, asked := nodes[1], nodes[2]
	if second.name != bb.NodeID(e.Holders[1]) {
		second, asked = asked, second
	}
	second.daemon.BeginNodeDrain()
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	there := asked.dial()
	ctx := limited(t, 30*time.Second)
	second.unreachable()
	asked.daemon.BreakSessions(second.name)
	if forgotten, err := admin.ForgetNode(ctx, there, "n1"); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "bb://two/f") {
		t.Errorf("forgotten while its second copy cannot be asked for: %+v (%v)", forgotten, err)
	}
	second.members.set(second.name, second.daemon.Self)
	if forgotten, err := admin.ForgetNode(ctx, there, "n1"); err != nil || forgotten.LostTotal != 0 || forgotten.Kept != 1 {
		t.Errorf("forgotten: %+v (%v)", forgotten, err)
	}
	wantFile(t, there.Buffer("two"), "f", want)
}

// TestClusterSecondCopyOfManyExtents: a file of more extents than one message describes gets
// its second copy again, whole, and is written on.
func TestClusterSecondCopyOfManyExtents(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	f, err := b.Create(t.Context(), "wal")
	if err != nil {
		t.Fatal(err)
	}
	const perSync, syncs = 2250, 8 // a message describes 16,384
	want := make([]byte, 2*perSync*syncs)
	for k := range syncs { // as so many appends with a sync each would leave it, since holes keep the runs apart
		for i := range perSync {
			at := 2 * (perSync*k + i)
			want[at] = byte(at/2%251) + 1
			if _, err := f.WriteAt(want[at:at+1], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			t.Fatalf("sync %d: %v", k, err)
		}
	}
	nodes[1].away()
	nodes[1].wipe()
	nodes[1].start()
	nodes[1].members.set(nodes[1].name, nodes[1].daemon.Self)
	eventually(t, "the second copy is made again", func() bool {
		for _, b := range nodes[0].status().Buffers {
			if b.Lacking > 0 {
				return false
			}
		}
		return nodes[1].status().Memory.Dirty > 0
	})
	want = append(want, 'y')
	if _, err := f.WriteAt([]byte("y"), int64(len(want)-1)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("a sync after the second node came back: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	there := nodes[1].dial()
	ctx := limited(t, 30*time.Second)
	if forgotten, err := admin.ForgetNode(ctx, there, "n1"); err != nil || forgotten.LostTotal != 0 {
		t.Errorf("forgotten: %+v (%v)", forgotten, err)
	}
	wantFile(t, there.Buffer("two"), "wal", want)
}
