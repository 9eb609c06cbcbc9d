package bbd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/flusher/codec"
)

// wantStored waits until the store has a content under a name. nil means that nothing is there.
func wantStored(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if content == nil && os.IsNotExist(err) || content != nil && err == nil && bytes.Equal(got, content) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the store has %q… as %s (%v), want %q…", got[:min(6, len(got))], name, err, content[:min(6, len(content))])
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// late blocks the calls of an operation on a node's store from now on, until the returned function is called, or
// the test ends.
func (n *node) late(t *testing.T, op string) (release func()) {
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	n.faults.Set(fault.Rule{Op: op, Kind: fault.Slow, Until: held})
	return release
}

// TestClusterLateFlush: a node that is declared dead while it flushes a file, and runs. After any
// change of the name meanwhile, and although the late flush is the last that writes, the store ends
// with the buffer's content.
func TestClusterLateFlush(t *testing.T) {
	t.Parallel()
	old, fresh := bytes.Repeat([]byte("old"), 1000), bytes.Repeat([]byte("NEW"), 1000)
	for name, test := range map[string]struct {
		meanwhile func(*testing.T, *client.Buffer)
		want      map[string][]byte
	}{
		"written again": {func(t *testing.T, b *client.Buffer) { write(t, b, "d/f", fresh) }, map[string][]byte{"d/f": fresh}},
		"removed": {func(t *testing.T, b *client.Buffer) {
			if err := b.Remove(t.Context(), "d/f"); err != nil {
				t.Error(err)
			}
		}, map[string][]byte{"d/f": nil}},
		"made anew": {func(t *testing.T, b *client.Buffer) {
			if err := b.Remove(t.Context(), "d/f"); err != nil {
				t.Error(err)
			}
			write(t, b, "d/f", fresh)
		}, map[string][]byte{"d/f": fresh}},
		"replaced by a rename": {func(t *testing.T, b *client.Buffer) {
			write(t, b, "g", fresh)
			if err := b.Rename(t.Context(), "g", "d/f"); err != nil {
				t.Error(err)
			}
		}, map[string][]byte{"d/f": fresh, "g": nil}},
		"lost":    {func(*testing.T, *client.Buffer) {}, map[string][]byte{"d/f": old}},
		"in vain": {nil, map[string][]byte{"d/f": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := startCluster(t, 2)
			c := nodes[0].dial()
			release := nodes[0].late(t, "put")
			b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
			there := nodes[1].dial()
			if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, b, "d/f", old)
			ctx := limited(t, 40*time.Second)
			var flushing sync.WaitGroup
			flushing.Go(func() { admin.Drain(ctx, c, "shared", 10*time.Second, nil) })
			eventually(t, "the flush has begun", func() bool { return nodes[0].faults.Hits() > 0 })
			nodes[0].dead()
			if f, err := admin.ForgetNode(ctx, there, "n1"); err != nil || len(f.Lost) != 1 {
				t.Fatalf("%+v (%v)", f, err)
			}
			if test.meanwhile == nil { // its whole directory goes
				if err := there.Buffer("shared").RemoveAll(ctx, "d"); err != nil {
					t.Fatal(err)
				}
			} else {
				test.meanwhile(t, there.Buffer("shared"))
			}
			report, err := admin.Drain(ctx, there, "shared", 10*time.Second, nil)
			t.Logf("drain: %v (%+v)", err, report.Progress)
			nodes[0].members.set("n1", nodes[0].daemon.Self)
			release()
			flushing.Wait()
			eventually(t, "the late flush has ended", func() bool {
				s := nodes[0].status().Buffers[0]
				return s.Queued+s.Flushing+s.StoreOps == 0
			})
			for name, content := range test.want {
				wantStored(t, dir, name, content)
				if content != nil {
					wantFile(t, there.Buffer("shared"), name, content)
					eventually(t, "it is clean", func() bool {
						e, err := there.Buffer("shared").Stat(ctx, name)
						return err == nil && e.State == client.StateClean
					})
				}
			}
		})
	}
}

// TestClusterTakenOver: a node took over a rename on the store from a node that was declared dead.
// When that one comes back, it does not carry the rename out again.
func TestClusterTakenOver(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	write(t, b, "a", []byte("first"))
	drain(t, c, "shared")
	nodes[0].faults.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
	ctx := limited(t, 60*time.Second)
	if err := b.Rename(ctx, "a", "b"); err != nil { // the store still has it under a
		t.Fatal(err)
	}
	nodes[0].dead() // and continues
	there := nodes[1].dial()
	if _, err := admin.ForgetNode(ctx, there, "n1"); err != nil {
		t.Fatal(err)
	}
	wantStored(t, dir, "b", []byte("first"))
	write(t, there.Buffer("shared"), "a", []byte("second"))
	if report, err := admin.Drain(ctx, there, "shared", 10*time.Second, nil); err != nil {
		t.Fatalf("%v (%+v)", err, report)
	}
	nodes[0].faults.Set()
	nodes[0].members.set("n1", nodes[0].daemon.Self) // the partition ends
	eventually(t, "the one that was given up has nothing left to do", func() bool { return nodes[0].status().Buffers[0].StoreOps == 0 })
	wantStored(t, dir, "a", []byte("second"))
	wantStored(t, dir, "b", []byte("first"))
}

// TestClusterLateRename: the same of a rename that had begun, and reaches the store when
// its names are in use again.
func TestClusterLateRename(t *testing.T) {
	t.Parallel()
	for _, tree := range []bool{false, true} {
		nodes := startCluster(t, 2)
		c := nodes[0].dial()
		b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
		there := nodes[1].dial()
		ctx := limited(t, 60*time.Second)
		from, to, file := "a", "b", ""
		if tree {
			file = "/x/f"
			if err := b.MkdirAll(ctx, "a/x", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, b, from+file, []byte("first"))
		drain(t, c, "shared")
		hits := nodes[0].faults.Hits()
		release := nodes[0].late(t, "rename")
		if err := b.Rename(ctx, from, to); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rename has begun", func() bool { return nodes[0].faults.Hits() > hits })
		nodes[0].dead()
		if _, err := admin.ForgetNode(ctx, there, "n1"); err != nil {
			t.Fatal(err)
		}
		wantStored(t, dir, to+file, []byte("first"))
		wantFile(t, there.Buffer("shared"), to+file, []byte("first")) // now in its memory, too
		if tree {
			if err := there.Buffer("shared").MkdirAll(ctx, "a/x", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, there.Buffer("shared"), from+file, []byte("second"))
		if report, err := admin.Drain(ctx, there, "shared", 10*time.Second, nil); err != nil {
			t.Fatalf("%v (%+v)", err, report)
		}
		release()
		nodes[0].members.set("n1", nodes[0].daemon.Self)
		eventually(t, "the late rename is done", func() bool { return nodes[0].status().Buffers[0].StoreOps == 0 })
		wantStored(t, dir, from+file, []byte("second"))
		wantStored(t, dir, to+file, []byte("first"))
	}
}

// TestClusterSlowFlush: a flush that took long, of a node that was declared dead meanwhile,
// does not reach the name at all.
func TestClusterSlowFlush(t *testing.T) {
	t.Parallel()
	for range 5 {
		if slowFlush(t) {
			return
		}
	}
	t.Fatal("no flush was slow")
}

// slowFlush reports whether the flush lasted until another node had written the file anew. If the
// daemon detects that, it ends the flush sooner.
func slowFlush(t *testing.T) bool {
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", FlushLimit: 2 << 20})
	there := nodes[1].dial()
	write(t, b, "f", random(10<<20)) // 4 MiB at once, 3 s for the rest
	ctx := limited(t, 40*time.Second)
	var flushing sync.WaitGroup
	flushing.Go(func() { admin.Drain(ctx, c, "shared", 10*time.Second, nil) })
	eventually(t, "the flush has begun", func() bool { return nodes[0].status().Buffers[0].Flushing > 0 })
	nodes[0].dead()
	if f, err := admin.ForgetNode(ctx, there, "n1"); err != nil || len(f.Lost) != 1 {
		t.Fatalf("%+v (%v)", f, err)
	}
	fresh := []byte("fresh")
	write(t, there.Buffer("shared"), "f", fresh)
	drain(t, there, "shared")
	slow := nodes[0].status().Buffers[0].Flushing > 0
	for ended := false; !ended; {
		s := nodes[0].status().Buffers[0]
		ended = s.Queued+s.Flushing+s.StoreOps == 0
		if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, fresh) {
			t.Fatalf("the store has %d bytes as f (%v)", len(got), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	flushing.Wait()
	return slow
}

// TestClusterLateFlushAndRestart: the same of a node that dies after its write and before its
// report.
func TestClusterLateFlushAndRestart(t *testing.T) {
	t.Parallel()
	there, dir := lateBeforeRestart(t, admin.ExistingOverwrite)
	wantStored(t, dir, "f", []byte("NEW"))
	drain(t, there, "shared")
}

// TestClusterLateFlushIsKept: a buffer that keeps objects of others has both contents then, and
// reports that.
func TestClusterLateFlushIsKept(t *testing.T) {
	t.Parallel()
	there, dir := lateBeforeRestart(t, admin.ExistingKeep)
	eventually(t, "the conflict is noticed", func() bool {
		r, err := admin.Drain(t.Context(), there, "shared", 0, nil)
		list := r.Conflicts()
		return err != nil && len(list) == 1 && list[0].Path == "f"
	})
	wantStored(t, dir, "f", []byte("old"))
	wantFile(t, there.Buffer("shared"), "f", []byte("NEW"))
	if _, err := admin.Overwrite(t.Context(), there, "shared", "f", 0, nil); err != nil {
		t.Fatal(err)
	}
	wantStored(t, dir, "f", []byte("NEW"))
}

// lateBeforeRestart has a node start again whose flush has put an older content in place of a newer
// one, as a file system can be made to that compares nothing in the step.
func lateBeforeRestart(t *testing.T, existing admin.Existing) (there *client.Client, dir string) {
	t.Helper()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", Existing: existing})
	nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "f", []byte("old"))
	c.Close()
	nodes[0].away()
	there = nodes[1].dial()
	ctx := limited(t, 20*time.Second)
	if _, err := admin.ForgetNode(ctx, there, "n1"); err != nil {
		t.Fatal(err)
	}
	write(t, there.Buffer("shared"), "f", []byte("NEW"))
	drain(t, there, "shared")
	if err := os.WriteFile(filepath.Join(dir, "late"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "late"), filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	nodes[0].start()
	return there, dir
}

// TestClusterLateEvicted: a file that a late flush replaces after its eviction from memory is named
// as lost, and does not count as clean.
func TestClusterLateEvicted(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	write(t, b, "f", []byte("content"))
	drain(t, c, "shared")
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	nodes[0].daemon.DropFiles("shared") // as if it was evicted, and its owner started again
	ctx := limited(t, 20*time.Second)
	if err := nodes[1].daemon.Recheck(ctx, "shared", "f"); err != nil {
		t.Fatal(err)
	}
	if e, err := b.Stat(ctx, "f"); err != nil || e.State != client.StateLost || e.Reason == "" {
		t.Errorf("it is %v, %q (%v)", e.State, e.Reason, err)
	}
	// The right bytes under another entity tag are the right bytes.
	wantLostInDrain(t, c, "shared", "", "f")
	if err := b.Remove(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	write(t, b, "g", []byte("content"))
	drain(t, c, "shared")
	if err := os.WriteFile(filepath.Join(dir, "copy"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "copy"), filepath.Join(dir, "g")); err != nil {
		t.Fatal(err)
	}
	nodes[0].daemon.DropFiles("shared")
	if err := nodes[1].daemon.Recheck(ctx, "shared", "g"); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "g", []byte("content"))
}

// TestClusterInheritorRestarts: the heir of a dead node's store operations carries them out
// although it is restarted meanwhile.
func TestClusterInheritorRestarts(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	content := random(1000)
	write(t, b, "d/f", content)
	drain(t, c, "shared")
	refuse := fault.Rule{Op: "rename", Kind: fault.Refused}
	nodes[0].faults.Set(refuse)
	nodes[1].faults.Set(refuse)
	if err := b.Rename(t.Context(), "d", "e"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	nodes[0].away()
	there := nodes[1].dial()
	if _, err := admin.ForgetNode(limited(t, 20*time.Second), there, "n1"); err != nil {
		t.Fatal(err)
	}
	there.Close()
	nodes[1].stop()
	nodes[1].faults.Set()
	nodes[1].start()
	there = nodes[1].dial()
	write(t, there.Buffer("shared"), "e/g", []byte("new"))
	report, err := admin.Drain(limited(t, 20*time.Second), there, "shared", 5*time.Second, nil)
	if err != nil {
		t.Errorf("drain: %v (%+v)", err, report)
	}
	wantStored(t, dir, "e/f", content)
	wantStored(t, dir, "e/g", []byte("new"))
}

// TestClusterDeadNodesOperations: renames do not wait for operations that another node cannot carry
// out on the store. One goroutine repeats them, not one for each, and they reach the store in the
// end.
func TestClusterDeadNodesOperations(t *testing.T) {
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	if err := b.MkdirAll(t.Context(), "d/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	content := random(1000)
	write(t, b, "d/sub/f", content)
	drain(t, c, "shared")
	nodes[0].faults.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
	if err := b.Rename(t.Context(), "d", "e"); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	ctx := limited(t, 30*time.Second)
	const renames = 41
	for i := range renames {
		from, to := "e/sub", "e/bus"
		if i%2 == 1 {
			from, to = to, from
		}
		if err := there.Rename(ctx, from, to); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	if n := runtime.NumGoroutine() - before; n > renames/2 {
		t.Errorf("%d goroutines wait for the other node", n)
	}
	nodes[0].faults.Set()
	drain(t, c, "shared")
	wantStored(t, dir, "e/bus/f", content)
}

// TestClusterFlushedUnrecorded: a flushed file of a node that died before it could record the flush
// is not lost with it. Other bytes of the same size under the name do not count as the file.
func TestClusterFlushedUnrecorded(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("flushed"), 1000)
	for name, test := range map[string]struct {
		codec  string
		stored []byte
		lost   int64
	}{
		"as it is":    {"", content, 0},
		"compressed":  {"zstd", content, 0},
		"other bytes": {"", bytes.Repeat([]byte("another"), 1000), 1},
		"fewer":       {"zstd", content[:100], 1},
		"nothing":     {"", nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := startCluster(t, 2)
			c := nodes[0].dial()
			b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", Codec: test.codec})
			nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
			write(t, b, "f", content)
			c.Close()
			nodes[0].away()
			if test.stored != nil {
				var packed bytes.Buffer
				w, err := codec.NewWriter(test.codec, &packed)
				if err == nil {
					_, err = w.Write(test.stored)
				}
				if err == nil {
					err = w.Close()
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, "f"+codec.Suffix(test.codec)), packed.Bytes(), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			there := nodes[1].dial()
			ctx := limited(t, 20*time.Second)
			f, err := admin.ForgetNode(ctx, there, "n1")
			if err != nil || f.LostTotal != test.lost || f.Kept != 1-test.lost {
				t.Fatalf("%+v (%v)", f, err)
			}
			if test.lost > 0 {
				return
			}
			wantFile(t, there.Buffer("shared"), "f", content)
			if e, err := there.Buffer("shared").Stat(ctx, "f"); err != nil || e.State != client.StateClean {
				t.Errorf("%+v (%v)", e, err)
			}
		})
	}
}

// TestClusterReadUnrenamed: a file under its old name on the store, whose renamer died before the
// store followed, can be read before that node is declared dead.
func TestClusterReadUnrenamed(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	ctx := limited(t, 20*time.Second)
	if err := b.Mkdir(ctx, "d", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, b, "d/a", []byte("content"))
	drain(t, c, "shared")
	nodes[0].faults.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
	for _, names := range [][2]string{{"d/a", "d/b"}, {"d", "e"}, {"e/b", "f"}} {
		if err := b.Rename(ctx, names[0], names[1]); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].dead()
	wantFile(t, nodes[1].dial().Buffer("shared"), "f", []byte("content"))
}

// TestClusterStartsAmongDestruction: a daemon that starts while others destroy buffers that it has
// just listed, continues without those.
func TestClusterStartsAmongDestruction(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c, theirs := nodes[0].dial(), nodes[1].dial()
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprint("passing", i))
		if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: names[i]}); err != nil {
			t.Fatal(err)
		}
		write(t, theirs.Buffer(names[i]), "f", []byte("content"))
	}
	write(t, theirs.Buffer(names[0]), "stays", []byte("content"))
	theirs.Close()
	nodes[1].stop()
	destroyed := make(chan error, 1)
	go func() {
		for _, name := range names[1:] {
			if err := admin.DiscardBuffer(t.Context(), c, name); err != nil {
				destroyed <- err
				return
			}
		}
		destroyed <- nil
	}()
	nodes[1].start()
	if err := <-destroyed; err != nil {
		t.Fatal(err)
	}
	b := nodes[1].dial().Buffer(names[0])
	wantFile(t, b, "stays", []byte("content"))
	eventually(t, "it serves no buffer that was destroyed", func() bool { return len(nodes[1].status().Buffers) == 1 })
}
