package bbd_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
)

// begin begins a transaction for a test.
func begin(t *testing.T, b *client.Buffer, spec client.TxnSpec) *client.Txn {
	t.Helper()
	x, err := b.Begin(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// attempt writes files as one attempt of a task.
func attempt(t *testing.T, b *client.Buffer, x *client.Txn, task, name string, files ...string) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(32)
	made := map[string]bool{}
	for _, f := range files {
		p := path.Join(x.Path(task, name), f)
		if dir := path.Dir(p); !made[dir] {
			made[dir] = true
			if err := b.MkdirAll(t.Context(), dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		g.Go(func() error { return b.WriteFile(t.Context(), p, []byte(task+" "+f), 0o644) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func adopt(t *testing.T, x *client.Txn, task, name string) string {
	t.Helper()
	winner, err := x.Adopt(t.Context(), task, name)
	if err != nil {
		t.Fatal(err)
	}
	return winner
}

func commit(t *testing.T, x *client.Txn, o client.CommitOptions) client.TxnInfo {
	t.Helper()
	info, err := x.Commit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// files returns the files below a directory, relative to it.
func files(ctx context.Context, b *client.Buffer, dir string) ([]string, error) {
	all := []string{}
	for e, err := range b.Walk(ctx, dir) {
		if err != nil {
			return nil, err
		}
		if !e.IsDir() {
			all = append(all, strings.TrimPrefix(e.Path, dir+"/"))
		}
	}
	slices.Sort(all)
	return all, nil
}

func wantFiles(t *testing.T, b *client.Buffer, dir string, want ...string) {
	t.Helper()
	got, err := files(t.Context(), b, dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

// TestTxn takes one transaction through its life on one daemon with a store.
func TestTxn(t *testing.T) { eachEngine(t, testTxn) }

func testTxn(t *testing.T, n *node) {
	c := n.dial()
	b, store := n.buffer(c, admin.BufferSpec{Name: "buf"})
	ctx := t.Context()
	write(t, b, "top", []byte("x"))
	if err := b.MkdirAll(ctx, "out/p=1", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, b, "out/p=1/old", []byte("old"))
	write(t, b, "out/kept", []byte("kept"))
	drain(t, c, "buf")

	x := begin(t, b, client.TxnSpec{Destination: "out", Key: "job 1"})
	if again := begin(t, b, client.TxnSpec{Destination: "out", Key: "job 1"}); again.ID() != x.ID() {
		t.Errorf("begun again as %s, was %s", again.ID(), x.ID())
	}
	attempt(t, b, x, "t1", "a", "p=1/f1", "p=2/f1")
	attempt(t, b, x, "t1", "b", "p=1/f1", "p=3/zombie")
	attempt(t, b, x, "t2", "a", "p=2/f2", "g")
	attempt(t, b, x, "t3", "never adopted", "p=9/f")
	late, err := b.Create(ctx, x.Path("t1", "b")+"/open")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Abort()
	if _, err := late.Write([]byte("zombie")); err != nil {
		t.Fatal(err)
	}
	if err := late.Sync(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a", "a", "a"} {
		if winner := adopt(t, x, "t1", []string{"a", "b", "a"}[i]); winner != want {
			t.Errorf("attempt %d: the winner is %s", i, winner)
		}
	}
	adopt(t, x, "t2", "a")

	// Nothing is visible yet, and nothing is flushed. A zombie is fenced.
	wantFiles(t, b, "out", "p=1/old", "kept")
	root, _, err := b.List(ctx, "", "", 0)
	if err != nil || len(root) != 2 {
		t.Errorf("the root shows %v (%v)", root, err)
	}
	if err := late.Close(); err == nil {
		t.Error("a loser's file could be closed")
	}
	if err := b.MkdirAll(ctx, x.Path("t1", "b")+"/p=4", 0o755); client.KindOf(err) != client.ErrCancelled {
		t.Errorf("a loser could go on: %v", err)
	}
	for what, err := range map[string]error{
		"mkdir of a transaction":    b.MkdirAll(ctx, ".txn/0000000000000001/attempt", 0o755),
		"rename out of an attempt":  b.Rename(ctx, x.Path("t3", "never adopted")+"/p=9/f", "out/f"),
		"rename into the output":    b.Rename(ctx, "out/kept", ".txn/"+x.ID()+"/output/f"),
		"file in the output":        b.WriteFile(ctx, ".txn/"+x.ID()+"/output/f", nil, 0o644),
		"file instead of a task":    b.WriteFile(ctx, ".txn/"+x.ID()+"/attempt/f", nil, 0o644),
		"removal of the hidden dir": b.RemoveAll(ctx, ".txn"),
		"removal of the output":     b.RemoveAll(ctx, ".txn/"+x.ID()+"/output"),
	} {
		if err == nil {
			t.Errorf("%s was not refused", what)
		}
	}
	wantStore := func(want ...string) {
		t.Helper()
		var got []string
		filepath.WalkDir(store, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(store, p)
				got = append(got, rel)
			}
			return err
		})
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the store holds %v, want %v", got, want)
		}
	}
	wantStore("top", "out/p=1/old", "out/kept")

	info := commit(t, x, client.CommitOptions{Replace: []string{"p=1"}})
	if info.State != client.TxnCommitted && info.State != client.TxnFolded {
		t.Errorf("committed, and %s", info.State)
	}
	committed := []string{"p=1/f1", "p=2/f1", "p=2/f2", "g", "kept"}
	wantFiles(t, b, "out", committed...)
	if again := commit(t, x, client.CommitOptions{Wait: true}); again.State != client.TxnFolded {
		t.Errorf("a commit that waits: %s", again.State)
	}
	wantFiles(t, b, "out", committed...)
	wantFile(t, b, "out/p=2/f2", []byte("t2 p=2/f2"))
	if _, err := x.Abort(ctx); client.KindOf(err) != client.ErrBusy {
		t.Errorf("abort of a committed one: %v", err)
	}
	if _, err := x.Adopt(ctx, "t3", "never adopted"); client.KindOf(err) != client.ErrBusy {
		t.Errorf("a zombie's adoption after the commit: %v", err)
	}
	if err := b.MkdirAll(ctx, x.Path("t3", "again"), 0o755); err == nil {
		t.Error("a zombie could write after the commit")
	}
	drain(t, c, "buf")
	wantStore("top", "out/p=1/f1", "out/p=2/f1", "out/p=2/f2", "out/g", "out/kept")
	eventually(t, "the removal of the hidden tree", func() bool { // it follows the fold
		_, err := b.Stat(ctx, ".txn/"+x.ID())
		return client.KindOf(err) == client.ErrNotFound
	})

	// Two into one directory. One is aborted.
	y, z := begin(t, b, client.TxnSpec{Destination: "out"}), begin(t, b, client.TxnSpec{Destination: "out"})
	attempt(t, b, y, "y", "0", "g", "y/f")
	attempt(t, b, z, "z", "0", "g", "z/f")
	adopt(t, y, "y", "0")
	adopt(t, z, "z", "0")
	v := begin(t, b, client.TxnSpec{Destination: "out", Key: "v"})
	attempt(t, b, v, "v", "0", "g", "v/f")
	adopt(t, v, "v", "0")
	if info, err := v.Abort(ctx); err != nil || info.State != client.TxnAborted {
		t.Errorf("abort: %v %v", info.State, err)
	}
	commit(t, y, client.CommitOptions{})
	// Changes wait for the fold, and find the committed files.
	if err := b.Rename(ctx, "out/y/f", "out/y/renamed"); err != nil {
		t.Error(err)
	}
	commit(t, z, client.CommitOptions{})
	if err := b.RemoveAll(ctx, "out/z"); err != nil {
		t.Error(err)
	}
	wantFile(t, b, "out/g", []byte("z g"))
	wantFiles(t, b, "out", append(committed, "y/renamed")...)
	if _, err := v.Commit(ctx, client.CommitOptions{}); client.KindOf(err) != client.ErrCancelled {
		t.Errorf("commit of an aborted one: %v", err)
	}
	all, err := b.Txns(ctx)
	if err != nil || len(all) != 4 || all[0].State != client.TxnAborted {
		t.Errorf("listed: %+v %v", all, err)
	}

	// All is replaced, and the directory is removed before it is folded.
	w := begin(t, b, client.TxnSpec{Destination: "out"})
	attempt(t, b, w, "w", "0", "all")
	adopt(t, w, "w", "0")
	commit(t, w, client.CommitOptions{Replace: []string{"."}})
	wantFiles(t, b, "out", "all")
	if err := b.RemoveAll(ctx, "out"); err != nil {
		t.Error(err)
	}
	drain(t, c, "buf")
	wantStore("top")
}

// TestTxnBegunAgain lets a job's tasks request its transaction, during the job and when it is over.
func TestTxnBegunAgain(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "buf"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := admin.Events(ctx, n.dial(), "buf")
	var heard, aborted atomic.Bool
	var begun atomic.Int32
	var listener sync.WaitGroup
	listener.Go(func() {
		for e, err := range events {
			switch {
			case err != nil:
				return
			case e.Kind == admin.EventCommitted:
				heard.Store(true)
			case e.Kind == admin.EventTxnBegun:
				begun.Add(1)
			case e.Kind == admin.EventTxnAborted:
				aborted.Store(true)
			}
		}
	})
	// The subscription is ready some time after the call. The test writes until it gets an event.
	eventually(t, "events are heard", func() bool {
		write(t, b, "told", []byte("x"))
		return heard.Load()
	})
	spec := client.TxnSpec{Destination: "a/out", Key: "job"}
	x := begin(t, b, spec)
	for range 3 {
		if again := begin(t, b, spec); again.ID() != x.ID() {
			t.Errorf("begun again as %s, was %s", again.ID(), x.ID())
		}
	}
	other := client.TxnSpec{Destination: "a/other", Key: "job"}
	if _, err := b.Begin(ctx, other); client.KindOf(err) != client.ErrExists {
		t.Errorf("another destination: %v", err)
	}
	if _, err := x.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its abort is told", aborted.Load)
	cancel()
	listener.Wait()
	if n := begun.Load(); n != 1 {
		t.Errorf("it was told %d times that it began", n)
	}
	if err := b.RemoveAll(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if info, err := begin(t, b, spec).Info(t.Context()); err != nil || info.State != client.TxnAborted {
		t.Errorf("after the abort it is %s (%v)", info.State, err)
	}
	if _, err := b.Stat(t.Context(), "a"); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("whoever was too late has made the destination again: %v", err)
	}
}

// TestTxnLease: a transaction ends with its client, and one that is renewed continues.
func TestTxnLease(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Limits.Reap = 50 * time.Millisecond })
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "buf"})
	dead := begin(t, b, client.TxnSpec{Destination: "out", Lease: 5 * time.Second})
	attempt(t, b, dead, "t", "a", "f")
	adopt(t, dead, "t", "a")
	alive := begin(t, b, client.TxnSpec{Destination: "out", Lease: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var renewal sync.WaitGroup
	renewal.Go(func() { _ = alive.Keep(ctx) })
	eventually(t, "the one that nobody renews is aborted", func() bool {
		info, err := dead.Info(t.Context())
		return err == nil && info.State == client.TxnAborted
	})
	eventually(t, "what it has left is removed", func() bool {
		_, err := b.Stat(t.Context(), ".txn/"+dead.ID())
		return client.KindOf(err) == client.ErrNotFound
	})
	if info, err := alive.Info(t.Context()); err != nil || info.State != client.TxnOpen {
		t.Errorf("the other one is %s (%v)", info.State, err)
	}
	cancel()
	renewal.Wait()
}

// TestTxnLeaseElsewhere lets a transaction expire in a buffer that was never requested at the
// daemon which looks after transactions.
func TestTxnLeaseElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b, _ := nodes[1].buffer(nodes[1].dial(), admin.BufferSpec{Name: "buf"})
	dead := begin(t, b, client.TxnSpec{Destination: "out", Lease: 200 * time.Millisecond})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		info, err := dead.Info(t.Context())
		if err == nil && info.State == client.TxnAborted {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %s (%v)", info.State, err)
		}
	}
}

// TestTxnRestart stops the daemon between adoption and commit, and after the decision.
func TestTxnRestart(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Limits.Reap = 100 * time.Millisecond })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "buf"})
	x := begin(t, b, client.TxnSpec{Destination: "out"})
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf("p=%d/f%d", i%20, i))
	}
	attempt(t, b, x, "t", "a", all...)
	adopt(t, x, "t", "a")
	n.stop()
	n.start()
	b = n.dial().Buffer("buf")
	commit(t, b.Txn(x.ID()), client.CommitOptions{})
	n.stop() // at any point of the fold
	n.start()
	c = n.dial()
	b = c.Buffer("buf")
	wantFiles(t, b, "out", all...)
	eventually(t, "the daemon goes on folding", func() bool {
		info, err := b.Txn(x.ID()).Info(t.Context())
		return err == nil && info.State == client.TxnFolded
	})
	wantFiles(t, b, "out", all...)
	drain(t, c, "buf")
}

// TestTxnReaders commits many files in many partitions while readers at two daemons loop. Each gets
// none of them or all.
func TestTxnReaders(t *testing.T) {
	t.Parallel()
	tasks, partitions, each := 4, 15, 2
	if testing.Short() {
		tasks, partitions, each = 2, 8, 2
	}
	nodes := startCluster(t, 2)
	c1, c2 := nodes[0].dial(), nodes[1].dial()
	first, _ := nodes[0].buffer(c1, admin.BufferSpec{Name: "buf"})
	bs := []*client.Buffer{first, c2.Buffer("buf")}
	x := begin(t, bs[0], client.TxnSpec{Destination: "out"})
	var g errgroup.Group
	for task := range tasks {
		g.Go(func() error {
			b := bs[task%2]
			var names []string
			for p := range partitions {
				for f := range each {
					names = append(names, fmt.Sprintf("p=%d/t%d-%d", p, task, f))
				}
			}
			name := fmt.Sprint(task)
			attempt(t, b, b.Txn(x.ID()), name, "0", names...)
			_, err := b.Txn(x.ID()).Adopt(t.Context(), name, "0")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	total := tasks * partitions * each

	var none, some atomic.Int64
	var done atomic.Bool
	var readers sync.WaitGroup
	for _, b := range bs {
		readers.Go(func() {
			for !done.Load() {
				got, err := files(t.Context(), b, "out")
				switch {
				case err != nil:
					t.Error(err)
					return
				case len(got) == 0:
					none.Add(1)
				case len(got) == total:
					some.Add(1)
				default:
					t.Errorf("a reader sees %d of %d files", len(got), total)
					return
				}
			}
		})
	}
	eventually(t, "readers are at it", func() bool { return none.Load() > 2 })
	began := time.Now()
	commit(t, bs[1].Txn(x.ID()), client.CommitOptions{})
	decided := time.Since(began)
	commit(t, bs[0].Txn(x.ID()), client.CommitOptions{Wait: true})
	t.Logf("%d files: decided after %v, folded after %v", total, decided, time.Since(began))
	before := some.Load()
	eventually(t, "readers see all", func() bool { return some.Load() > before+2 })
	done.Store(true)
	readers.Wait()
	for _, b := range bs {
		got, err := files(t.Context(), b, "out")
		if err != nil || len(got) != total {
			t.Errorf("%d files, want %d (%v)", len(got), total, err)
		}
	}
}
