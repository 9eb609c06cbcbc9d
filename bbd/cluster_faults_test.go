package bbd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/bbd/peer"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// limited is a context of a test that must not wait for ever.
func limited(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// scratch makes a buffer that is never flushed.
func scratch(t *testing.T, c *client.Client, name string) *client.Buffer {
	t.Helper()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: name}); err != nil {
		t.Fatal(err)
	}
	return c.Buffer(name)
}

// pieces writes a file in commits of a size each, so that it has as many extents.
func pieces(t *testing.T, b *client.Buffer, name string, content []byte, size int) {
	t.Helper()
	f, err := b.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for p := content; len(p) > 0; p = p[min(size, len(p)):] {
		if _, err := f.Write(p[:min(size, len(p))]); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// larger starts the daemon again with more memory.
func (n *node) larger(bytes int64) {
	n.stop()
	n.wipe()
	change := n.change
	n.change = func(c *bbd.Config) { change(c); c.Store.MemoryBytes = bytes }
	n.start()
}

// dead makes gossip report a living daemon as dead, a partition.
func (n *node) dead() {
	n.members.set(n.name, func() gossip.Member { return gossip.Member{Node: n.name, State: gossip.Dead} })
}

// TestClusterOpenAfterReplacedElsewhere: a file whose writer is at its owner is replaced by a rename
// at another node. That writer fails. A later open of the name does not.
func TestClusterOpenAfterReplacedElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, 30*time.Second)
	f, err := there.Create(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	f.Write(random(100_000))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	write(t, b, "g", []byte("other"))
	if err := b.Rename(ctx, "g", "f"); err != nil {
		t.Fatal(err)
	}
	f.Write(random(100_000))
	t.Log("the writer of what was replaced:", f.Close())
	f.Abort()
	wantFile(t, there, "f", []byte("other"))
	for range 3 {
		if err := there.WriteFile(ctx, "f", []byte("new"), 0o644); err != nil {
			t.Errorf("writing the file that is there now: %v", err)
		}
	}
	wantFile(t, b, "f", []byte("new"))
}

// TestClusterOpenAfterForgotten: the same of a node that was declared dead although it runs.
func TestClusterOpenAfterForgotten(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial()
	ctx := limited(t, 30*time.Second)
	f, err := b.Create(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	f.Write(random(100_000))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	nodes[0].dead()
	if _, err := admin.ForgetNode(ctx, there, "n1"); err != nil {
		t.Fatal(err)
	}
	f.Write(random(100_000))
	t.Log("the writer whose file was given up:", f.Close())
	f.Abort()
	nodes[0].members.set("n1", nodes[0].daemon.Self)
	for range 3 {
		if err := b.WriteFile(ctx, "f", []byte("new"), 0o644); err != nil {
			t.Errorf("writing it anew: %v", err)
		}
	}
	wantFile(t, there.Buffer("shared"), "f", []byte("new"))
}

// TestClusterReaderOfIdleCopy: a reader that finds a copy from an earlier one keeps its generation
// while the file is replaced (contract 3).
func TestClusterReaderOfIdleCopy(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	for _, n := range nodes {
		n.larger(192 << 20)
	}
	b := scratch(t, nodes[0].dial(), "shared")
	there := nodes[1].dial().Buffer("shared")
	content := random(47 << 20) // idle copies may take 48, and clients read windows of 32
	pieces(t, b, "f", content, 1<<20)
	ctx := limited(t, 30*time.Second)
	got := make([]byte, 1000)
	open := func() *client.File {
		f, err := there.Open(ctx, "f")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		return f
	}
	open().Close()
	eventually(t, "the copy rests", func() bool { return nodes[0].daemon.PeerHandles() == 0 })
	f := open()
	defer f.Close()
	write(t, b, "f", []byte("new"))
	if _, err := f.ReadAt(got, 46<<20); err != nil || !bytes.Equal(got, content[46<<20:][:1000]) {
		t.Errorf("what was opened before it was replaced: %v", err)
	}
}

// TestClusterCopyOfMovedFile: a copy of a file outlives the move of the file.
func TestClusterCopyOfMovedFile(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	for _, n := range nodes {
		n.larger(192 << 20)
	}
	c := nodes[0].dial()
	b := scratch(t, c, "shared")
	there := nodes[2].dial().Buffer("shared")
	content := random(47 << 20) // idle copies may take 48, and clients read windows of 32
	pieces(t, b, "f", content, 1<<20)
	ctx := limited(t, 60*time.Second)
	f, err := there.Open(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 1000), 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	// The reader's node must not become its owner.
	self := nodes[2].daemon.Self
	nodes[2].members.set("n3", func() gossip.Member { m := self(); m.Memory.Free = 0; return m })
	if p, err := admin.DrainNode(ctx, nodes[1].dial(), "n1", nil); err != nil {
		t.Fatalf("%v (%+v)", err, p)
	}
	got, err := there.ReadFile(ctx, "f")
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("after it moved: %d bytes, %v", len(got), err)
	}
	c.Close()
	nodes[0].away()
	got, err = there.ReadFile(ctx, "f")
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("after its first owner has gone: %d bytes, %v", len(got), err)
	}
}

// TestClusterWriterOfMovedFile: a file moves while a writer has it open that has not
// committed anything yet.
func TestClusterWriterOfMovedFile(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	content := random(1 << 20)
	write(t, b, "f", content)
	ctx := limited(t, 30*time.Second)
	f, err := b.OpenFile(ctx, "f", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is open", func() bool { n, _ := nodes[0].daemon.OpenFiles("shared"); return n == 1 })
	p, err := admin.DrainNode(ctx, nodes[1].dial(), "n1", nil)
	t.Logf("node drain: %v (%+v)", err, p)
	if _, err := f.WriteAt([]byte("more"), 1<<20); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing what was open when the file moved: %v", err)
		f.Abort()
	}
	if !t.Failed() {
		wantFile(t, b, "f", append(bytes.Clone(content), "more"...))
	}
}

// TestClusterFabricLost: a forwarding daemon whose one-sided connection breaks, and not its session, opens the
// file again. It is closed when its writer closes it.
func TestClusterFabricLost(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	there := nodes[1].dial().Buffer("shared")
	content := random(2 << 20)
	ctx := limited(t, 30*time.Second)
	write(t, b, "f", []byte("x")) // dirty: its owner is n1
	f, err := there.OpenFile(ctx, "f", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt(content[:1<<20], 0)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].daemon.BreakFabric(ctx, "n1"); err != nil {
		t.Fatal(err)
	}
	f.WriteAt(content[1<<20:], 1<<20)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "f", content)
	if e, err := b.Stat(ctx, "f"); err != nil || e.State == client.StateOpen {
		t.Errorf("its only writer has closed it, and it is %v (%v)", e.State, err)
	}
	if files, writers := nodes[0].daemon.OpenFiles("shared"); files != 0 {
		t.Errorf("%d files are open by %d writers, handles %d, leases %d", files, writers, nodes[0].daemon.PeerHandles(), nodes[0].daemon.PeerLeases())
	}
}

// TestClusterCancelledOpens: an open that is cancelled on its way to the owner leaves nothing open
// there.
func TestClusterCancelledOpens(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	far := nodes[1].dial()
	there := far.Buffer("shared")
	write(t, b, "f", random(100_000))
	write(t, b, "r", random(100_000))
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*10)*time.Microsecond)
		if f, err := there.OpenFile(ctx, "f", client.OpenOptions{Write: true}); err == nil {
			f.Abort()
		}
		if f, err := there.Open(ctx, "r"); err == nil {
			f.Close()
		}
		cancel()
	}
	far.Close() // handles that it gave up itself end with its session
	eventually(t, "no file is open for a node that has closed all, but one that it keeps for a copy", func() bool { return nodes[0].daemon.PeerHandles() <= 1 })
	write(t, b, "f", []byte("last"))
	if e, err := b.Stat(t.Context(), "f"); err != nil || e.State == client.StateOpen {
		_, writers := nodes[0].daemon.OpenFiles("shared")
		t.Errorf("it is %v, by %d writers (%v)", e.State, writers, err)
	}
}

// TestClusterDrainTimeout: a drain that ends before everything is saved lists the rest.
func TestClusterDrainTimeout(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "f", random(1000))
	report, err := admin.Drain(limited(t, 30*time.Second), c, "shared", time.Second, nil)
	if err == nil || len(report.Failed) != 1 || report.Failed[0].Path != "f" {
		t.Errorf("a drain of what cannot be saved: %v (%+v)", err, report)
	}
}

// TestClusterDrainOfMovedFile: if a file has only moved to a node that was done already, a drain
// does not report it as saved.
func TestClusterDrainOfMovedFile(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	nodes[1].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "f", random(100_000))
	var (
		report   admin.Report
		drainErr error
		wg       sync.WaitGroup
	)
	wg.Go(func() { report, drainErr = admin.Drain(t.Context(), c, "shared", 10*time.Second, nil) })
	time.Sleep(500 * time.Millisecond)
	p, err := admin.DrainNode(limited(t, 20*time.Second), nodes[1].dial(), "n1", nil)
	t.Logf("node drain: %v (%+v)", err, p)
	wg.Wait()
	if _, err := os.Stat(filepath.Join(dir, "f")); err != nil && drainErr == nil {
		t.Errorf("the drain says that all is saved (%+v), and the store has no f", report)
	}
}

// TestClusterTakeCancelled: a move that is cancelled half way loses nothing.
func TestClusterTakeCancelled(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	there := nodes[1].dial()
	want := map[string][]byte{}
	for i := range 500 {
		name := fmt.Sprintf("f%d", i)
		want[name] = random(20_000)
		write(t, b, name, want[name])
	}
	cancelled := 0
	for i := range 600 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(8000+i*137%12000)*time.Microsecond)
		_, err := admin.DrainNode(ctx, there, "n1", nil)
		cancel()
		if err == nil {
			break
		}
		cancelled++
	}
	t.Logf("%d times cancelled", cancelled)
	time.Sleep(time.Second)
	for name, content := range want {
		got, err := there.Buffer("shared").ReadFile(limited(t, 20*time.Second), name)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestClusterBufferMadeAgain: a buffer that is made anew at a node right after another one has
// destroyed its namesake keeps its files.
func TestClusterBufferMadeAgain(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	for i := range 60 {
		c, there := nodes[0].dial(), nodes[1].dial()
		scratch(t, c, "shared")
		if _, err := there.Buffer("shared").Stat(t.Context(), "f"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := admin.DiscardBuffer(t.Context(), c, "shared"); err != nil {
			t.Fatal(err)
		}
		content := random(50_000)
		write(t, scratch(t, there, "shared"), "g", content)
		time.Sleep(20 * time.Millisecond)
		got, err := there.Buffer("shared").ReadFile(t.Context(), "g")
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("round %d: %d bytes, %v", i, len(got), err)
		}
		if err := admin.DiscardBuffer(t.Context(), there, "shared"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClusterPoolDeadline: no caller waits beyond its deadline for a silent node.
func TestClusterPoolDeadline(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pool := peer.NewPool(&peer.Identity{Node: "n1"}, nil)
	defer pool.Close()
	patient, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { pool.Session(patient, "n2", l.Addr().String(), peer.Who{}) })
	time.Sleep(200 * time.Millisecond)
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	begun := time.Now()
	if _, err := pool.Session(ctx, "n2", l.Addr().String(), peer.Who{}); err == nil {
		t.Error("a session with a node that says nothing")
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("with a deadline of 300 ms it took %v", took)
	}
	begun = time.Now()
	pool.Drop("n2")
	if took := time.Since(begun); took > time.Second {
		t.Errorf("dropping a node that is gone took %v", took)
	}
	wg.Wait()
}

// TestClusterRenameRacesMove: a file that is renamed while it moves is still flushed, and
// one that is removed does not come back.
func TestClusterRenameRacesMove(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", NoFlush: []string{"*.tmp"}})
	there := nodes[1].dial()
	want := map[string][]byte{}
	const files = 40
	for i := range files {
		name := fmt.Sprintf("f%d", i)
		want[name] = random(200_000)
		write(t, b, name+".tmp", want[name])
	}
	ctx := limited(t, 60*time.Second)
	var wg sync.WaitGroup
	wg.Go(func() {
		p, err := admin.DrainNode(ctx, there, "n1", nil)
		t.Logf("node drain: %v (%d of %d, failed %d)", err, p.FilesDone, p.FilesTotal, len(p.Failed))
	})
	for i := range files {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 5 * time.Millisecond)
			if err := b.Rename(ctx, fmt.Sprintf("f%d.tmp", i), fmt.Sprintf("f%d", i)); err != nil {
				t.Errorf("rename: %v", err)
			}
		})
	}
	wg.Wait()
	report, err := admin.Drain(ctx, c, "shared", 20*time.Second, nil)
	if err != nil {
		t.Errorf("drain: %v (%+v)", err, report)
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, content) {
			e, statErr := b.Stat(ctx, name)
			t.Errorf("%s in the store: %d bytes, %v; in the buffer it is %v (%v)", name, len(got), err, e.State, statErr)
		}
	}
}

// TestClusterCloseLostAnswer: a close that the owner carried out and whose answer was lost
// is not a failure.
func TestClusterCloseLostAnswer(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	there := nodes[1].dial().Buffer("shared")
	write(t, b, "f", []byte("x"))
	ctx := limited(t, 60*time.Second)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				nodes[1].daemon.BreakSessions("n1")
			}
		}
	})
	failed := 0
	for i := range 150 {
		f, err := there.OpenFile(ctx, "f", client.OpenOptions{Write: true})
		if err != nil {
			continue
		}
		f.WriteAt(fmt.Append(nil, i), 0)
		if err := f.Close(); err != nil {
			failed++
			t.Log(err)
			f.Abort()
		}
	}
	close(stop)
	wg.Wait()
	if failed > 0 {
		t.Errorf("%d of 150 closes failed though the owner was there", failed)
	}
}

// TestClusterStageInElsewhere: stage-in over a file that another node has, dirty.
func TestClusterStageInElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	there := nodes[1].dial()
	write(t, b, "f", []byte("old"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("staged"), 0o644); err != nil {
		t.Fatal(err)
	}
	report, err := admin.StageIn(limited(t, 20*time.Second), there, admin.StageRequest{Buffer: "shared", URL: "file://" + dir}, nil)
	if err != nil {
		t.Errorf("stage-in: %v (%+v)", err, report)
	}
	wantFile(t, b, "f", []byte("staged"))
}

// TestClusterRenameWhileStarting: a directory can be renamed while another daemon is starting.
func TestClusterRenameWhileStarting(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	nodes[1].stop() // gossip lists it as leaving, for as long as it has not detected that
	err := b.Rename(limited(t, 20*time.Second), "d", "e")
	if err != nil {
		t.Errorf("rename of a directory while a daemon that holds nothing is on its way out: %v", err)
	}
	if _, err := b.Stat(t.Context(), "e"); errors.Is(err, fs.ErrNotExist) {
		t.Error("it is not there")
	}
}

// TestClusterDrainedNodeTakesNothing: after a node drain, files written at the node are not in its
// memory alone.
func TestClusterDrainedNodeTakesNothing(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b := scratch(t, c, "shared")
	write(t, b, "before", random(100_000))
	there := nodes[1].dial()
	if p, err := admin.DrainNode(limited(t, 20*time.Second), there, "n1", nil); err != nil {
		t.Fatalf("%v (%+v)", err, p)
	}
	err := b.WriteFile(t.Context(), "after", []byte("late"), 0o644)
	if err != nil {
		t.Logf("refused: %v", err)
		return
	}
	c.Close()
	nodes[0].away()
	if _, err := there.Buffer("shared").ReadFile(limited(t, 20*time.Second), "after"); err != nil {
		t.Errorf("what was written at a drained node, which then went: %v", err)
	}
}

var _ = bb.NotFound

// TestClusterRemoveRacesMove: a file that is removed while it moves does not come back in the
// store, and takes no memory.
func TestClusterRemoveRacesMove(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	slow := fault.Rule{Op: "put", Kind: fault.Slow, Delay: 500 * time.Millisecond}
	nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	nodes[1].faults.Set(slow)
	there := nodes[1].dial()
	const files = 60
	for i := range files {
		write(t, b, fmt.Sprintf("f%d", i), random(200_000))
	}
	ctx := limited(t, 60*time.Second)
	var wg sync.WaitGroup
	wg.Go(func() {
		p, err := admin.DrainNode(ctx, there, "n1", nil)
		t.Logf("node drain: %v (%d of %d, failed %d)", err, p.FilesDone, p.FilesTotal, len(p.Failed))
	})
	for i := range files {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 4 * time.Millisecond)
			if err := b.Remove(ctx, fmt.Sprintf("f%d", i)); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
	wg.Wait()
	drain(t, c, "shared")
	time.Sleep(2 * time.Second)
	names, _ := filepath.Glob(filepath.Join(dir, "f*"))
	if len(names) > 0 {
		t.Errorf("in the store are %d that were removed: %v", len(names), names)
	}
	for _, n := range nodes {
		if m := n.status().Memory; m.Dirty > 0 {
			t.Errorf("%s: %d bytes are dirty of files that were removed", n.name, m.Dirty)
		}
	}
}

// TestClusterLateOpener: a writer that opens a shared file while the connection of the
// others' node is broken for a moment does not end their generation.
func TestClusterLateOpener(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b := scratch(t, nodes[0].dial(), "shared")
	there := nodes[1].dial().Buffer("shared")
	write(t, b, "f", []byte("x"))
	ctx := limited(t, 60*time.Second)
	f, err := there.OpenFile(ctx, "f", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt(random(1000), 0)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	nodes[1].daemon.BreakSessions("n1")
	eventually(t, "its owner notices", func() bool { _, w := nodes[0].daemon.OpenFiles("shared"); return w == 0 })
	late, err := b.OpenFile(ctx, "f", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	late.WriteAt([]byte("late"), 2000)
	if err := late.Sync(); err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("more"), 1000)
	if err := f.Close(); err != nil {
		t.Errorf("the writer whose node's connection broke for a moment: %v", err)
		f.Abort()
	}
	if err := late.Close(); err != nil {
		t.Errorf("the late one: %v", err)
	}
}

// TestClusterReturnedNodeMemory: a node that was declared dead and comes back does not keep the
// bytes of lost files in memory for ever.
func TestClusterReturnedNodeMemory(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b := scratch(t, c, "shared")
	write(t, b, "f", random(10<<20))
	c.Close()
	nodes[0].away()
	there := nodes[1].dial()
	ctx := limited(t, 20*time.Second)
	if _, err := admin.ForgetNode(ctx, there, "n1"); err != nil {
		t.Fatal(err)
	}
	nodes[0].start()
	if err := there.Buffer("shared").Remove(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if m := nodes[0].status().Memory; m.Dirty > 0 {
		t.Errorf("%d bytes are dirty of a file that was lost, and removed", m.Dirty)
	}
}

// TestClusterSharedSessionLimits: the files that many clients of one node write at another one, or
// read from it, are not bounded by the limits of one session.
func TestClusterSharedSessionLimits(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	owner := nodes[0]
	owner.stop()
	change := owner.change
	owner.change = func(c *bbd.Config) { change(c); c.Limits.Leases, c.Limits.InFlight = 8, 24 }
	owner.start()
	b := scratch(t, owner.dial(), "shared")
	const files = 32
	for i := range files {
		write(t, b, fmt.Sprintf("w%d", i), []byte("x"))
		write(t, b, fmt.Sprintf("r%d", i), random(200_000))
	}
	ctx := limited(t, 40*time.Second)
	var wg, written sync.WaitGroup
	written.Add(files)
	for i := range files {
		there := nodes[1].dial().Buffer("shared") // each a client of its own
		wg.Go(func() {
			if _, err := there.ReadFile(ctx, fmt.Sprintf("r%d", i)); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
		wg.Go(func() {
			f, err := there.OpenFile(ctx, fmt.Sprintf("w%d", i), client.OpenOptions{Write: true})
			if err != nil {
				t.Errorf("writer %d: %v", i, err)
				written.Done()
				return
			}
			f.WriteAt(random(100_000), 0)
			err = f.Sync()
			written.Done()
			if err != nil {
				t.Errorf("writer %d: %v", i, err)
				f.Abort()
				return
			}
			written.Wait() // as ranks do
			if err := f.Close(); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// TestClusterReadersFallBack: several readers of a copy whose owner has gone continue with the
// store's object.
func TestClusterReadersFallBack(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	for _, n := range nodes {
		n.larger(192 << 20)
	}
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	content := random(47 << 20)
	pieces(t, b, "f", content, 4<<20)
	drain(t, c, "shared")
	ctx := limited(t, 60*time.Second)
	var readers []*client.File
	for range 4 {
		f, err := nodes[1].dial().Buffer("shared").Open(ctx, "f")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		readers = append(readers, f)
	}
	c.Close()
	nodes[0].stop()
	var wg sync.WaitGroup
	for _, f := range readers {
		wg.Go(func() {
			got := make([]byte, 1000)
			if _, err := f.ReadAt(got, 40<<20); err != nil || !bytes.Equal(got, content[40<<20:][:1000]) {
				t.Errorf("read: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestClusterBufferMadeAgainAtOnce: the same of one that is being requested when its namesake is
// destroyed.
func TestClusterBufferMadeAgainAtOnce(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	for i := range 40 {
		c, there := nodes[0].dial(), nodes[1].dial()
		scratch(t, c, "shared")
		if _, err := there.Buffer("shared").Stat(t.Context(), "f"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		ctx := limited(t, 10*time.Second)
		var (
			made   sync.WaitGroup
			exists atomic.Bool
		)
		for range 4 {
			again := nodes[1].dial()
			made.Go(func() {
				for ctx.Err() == nil && !exists.Load() {
					if _, err := admin.CreateBuffer(ctx, again, admin.BufferSpec{Name: "shared"}); err == nil {
						exists.Store(true)
					}
				}
			})
		}
		if err := admin.DiscardBuffer(t.Context(), c, "shared"); err != nil {
			t.Fatal(err)
		}
		made.Wait()
		content := random(50_000)
		last := nodes[1].dial()
		write(t, last.Buffer("shared"), "g", content)
		time.Sleep(50 * time.Millisecond)
		got, err := last.Buffer("shared").ReadFile(t.Context(), "g")
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("round %d: %d bytes, %v", i, len(got), err)
		}
		if err := admin.DiscardBuffer(t.Context(), last, "shared"); err != nil {
			t.Fatal(err)
		}
	}
}
