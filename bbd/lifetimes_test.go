package bbd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
)

// aJob is a lifetime with a buffer of its own in front of a directory.
func aJob(key, store string) (admin.Lifetime, admin.LifetimeOptions) {
	l := admin.Lifetime{Key: key, Cluster: "c", Job: strings.TrimPrefix(key, "job-"), Buffer: key}
	spec := admin.BufferSpec{Name: key}
	if store != "" {
		spec.Backing = "file://" + store
	}
	return l, admin.LifetimeOptions{Create: []admin.BufferSpec{spec}, Attach: true}
}

// comeTo has a job come to all nodes at once.
func comeTo(t *testing.T, nodes []*node, l admin.Lifetime, o admin.LifetimeOptions) {
	t.Helper()
	l.ExpectedNodes = len(nodes)
	var all sync.WaitGroup
	for _, n := range nodes {
		c := n.dial()
		all.Go(func() {
			now, err := admin.OpenLifetime(t.Context(), c, l, o)
			if err != nil || now.State != admin.LifetimeOpen {
				t.Errorf("%s: %+v (%v)", n.name, now, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func leave(t *testing.T, nodes []*node, key string) {
	t.Helper()
	for _, n := range nodes {
		if _, err := admin.LeaveLifetime(t.Context(), n.dial(), key, admin.LeaveOptions{}); err != nil {
			t.Fatalf("%s: %v", n.name, err)
		}
	}
}

func wantState(t *testing.T, c *client.Client, key string, state bb.LifetimeState) (l admin.Lifetime) {
	t.Helper()
	eventually(t, key+" is "+string(state), func() bool {
		var err error
		l, err = admin.LifetimeByKey(t.Context(), c, key)
		return err == nil && l.State == state
	})
	return l
}

func wantInStore(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != string(content) {
		t.Errorf("%s in the store: %d bytes, want %d (%v)", name, len(got), len(content), err)
	}
}

// TestLifetime: a job comes to three nodes at once, finds the staged-in files, leaves them one
// after the other, and then everything is on its store and the buffer is gone.
func TestLifetime(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	store, from, to := t.TempDir(), t.TempDir(), t.TempDir()
	content := source(t, from, 20)
	l, o := aJob("job-12", store)
	l.In = []admin.LifetimeStage{{Buffer: l.Key, Path: "in", URL: "file://" + from}}
	l.Out = []admin.LifetimeStage{
		{Buffer: l.Key, Path: "result", URL: "file://" + to + "/result"},
		{Buffer: l.Key, Path: "nothing", URL: "file://" + to + "/failed", OnSuccess: true},
	}
	comeTo(t, nodes, l, o)
	for name, want := range content {
		wantFile(t, nodes[1].dial().Buffer(l.Key), "in/"+name, want)
	}
	result, passing := random(100_000), random(1000)
	write(t, nodes[2].dial().Buffer(l.Key), "result", result)
	write(t, nodes[1].dial().Buffer(l.Key), "passing.tmp", passing)

	leave(t, nodes[:2], l.Key)
	time.Sleep(3 * keepEvery)
	if now, err := admin.LifetimeByKey(t.Context(), c, l.Key); err != nil || now.State != admin.LifetimeOpen || len(now.Nodes) != 3 || now.Nodes[0].Attached || !now.Nodes[2].Attached {
		t.Fatalf("with a node to leave: %+v (%v)", now, err)
	}
	if _, err := admin.LeaveLifetime(t.Context(), nodes[2].dial(), l.Key, admin.LeaveOptions{Failed: true}); err != nil {
		t.Fatal(err)
	}
	leave(t, nodes, l.Key) // again
	now := wantState(t, c, l.Key, admin.LifetimeGone)
	wantInStore(t, store, "result", result)
	wantInStore(t, to, "result", result)
	if _, err := admin.BufferInfo(t.Context(), c, l.Key); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("its buffer: %v", err)
	}
	if now.Succeeded || now.Total().Absorbed < 101_000 || now.Total().PeakDirty < 100_000 {
		t.Errorf("what is known of it: %+v", now)
	}
	if b := now.Losses; b.Total != 1 || b.Bytes != 1000 || len(b.Files) != 1 || b.Files[0].Path != "bb://job-12/passing.tmp" || !strings.Contains(b.Files[0].Reason, "*.tmp") {
		t.Errorf("its bill: %+v", b)
	}
	if _, err := admin.OpenLifetime(t.Context(), c, l, o); !errors.Is(err, client.ErrBusy) {
		t.Errorf("coming back: %v", err)
	}
	if list, err := admin.Lifetimes(t.Context(), c, "12"); err != nil || len(list) != 1 || list[0].Key != l.Key {
		t.Errorf("by its id: %+v (%v)", list, err)
	}
}

// keepEvery is how often daemons check lifetimes.
const keepEvery = 500 * time.Millisecond

// TestLifetimeOrphan: a store that is dead at a job's end makes an orphan of its buffer,
// whose bytes stay until it is back.
func TestLifetimeOrphan(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c, store := nodes[0].dial(), t.TempDir()
	l, o := aJob("job-7", store)
	comeTo(t, nodes, l, o)
	for _, n := range nodes {
		n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	}
	content := random(50_000)
	write(t, c.Buffer(l.Key), "f", content)
	leave(t, nodes, l.Key)
	now := wantState(t, c, l.Key, admin.LifetimeOrphan)
	if now.Reason == "" {
		t.Errorf("an orphan without a reason: %+v", now)
	}
	time.Sleep(3 * time.Second) // which is more than it takes to look again
	if j := onlyOperation(t, c); j.Kind != "drain" || j.State != "running" {
		t.Errorf("the drain: %+v", j)
	}
	eventually(t, "the buffer is an orphan", func() bool {
		spec, err := admin.BufferInfo(t.Context(), c, l.Key)
		return err == nil && spec.State == admin.BufferOrphan
	})
	wantFile(t, nodes[1].dial().Buffer(l.Key), "f", content)
	nodes[0].stop() // the reconciler of its jobs changes
	nodes[0].start()
	for _, n := range nodes {
		n.faults.Set()
	}
	now = wantState(t, nodes[0].dial(), l.Key, admin.LifetimeGone)
	wantInStore(t, store, "f", content)
	if now.Losses.Total != 0 || now.Reason != "" {
		t.Errorf("the bill of what was saved: %+v", now)
	}
}

// TestLifetimeWithLostFile: files that a job has lost with a node end up in its bill, and do not
// keep the rest from being saved, nor the job from its end.
func TestLifetimeWithLostFile(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c, store := nodes[0].dial(), t.TempDir()
	l, o := aJob("job-15", store)
	comeTo(t, nodes[:1], l, o)
	nodes[1].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, nodes[1].dial().Buffer(l.Key), "lost", random(1234))
	write(t, c.Buffer(l.Key), "saved", []byte("saved"))
	nodes[1].dead()
	if f, err := admin.ForgetNode(t.Context(), c, "n2"); err != nil || f.LostTotal != 1 {
		t.Fatalf("%+v (%v)", f, err)
	}
	leave(t, nodes[:1], l.Key)
	now := wantState(t, c, l.Key, admin.LifetimeGone)
	if b := now.Losses; b.Total != 1 || b.Bytes != 1234 || len(b.Files) != 1 || b.Files[0].Path != "bb://job-15/lost" || !strings.Contains(b.Files[0].Reason, "n2") {
		t.Errorf("the bill: %+v", b)
	}
	wantInStore(t, store, "saved", []byte("saved"))
}

// TestLifetimeHurry: abandoned files are in the bill.
func TestLifetimeHurry(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	l, o := aJob("job-8", t.TempDir())
	comeTo(t, nodes, l, o)
	for _, n := range nodes {
		n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	}
	write(t, c.Buffer(l.Key), "f", random(1234))
	if now, err := admin.EndLifetime(t.Context(), c, l.Key, admin.EndOptions{}); err != nil || now.State == admin.LifetimeOpen {
		t.Fatalf("ended: %+v (%v)", now, err)
	}
	wantState(t, c, l.Key, admin.LifetimeOrphan)
	if _, err := admin.EndLifetime(t.Context(), c, l.Key, admin.EndOptions{Hurry: true}); err != nil {
		t.Fatal(err)
	}
	now := wantState(t, c, l.Key, admin.LifetimeGone)
	if now.Losses.Total != 1 || now.Losses.Bytes != 1234 || !strings.Contains(now.Losses.Files[0].Reason, "buffer was destroyed") {
		t.Errorf("the bill: %+v", now.Losses)
	}
}

// TestLifetimePersistent: a buffer that outlives the job that made it ends with the job that
// destroys it, and not while another one uses it.
func TestLifetimePersistent(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c, store := nodes[0].dial(), t.TempDir()
	first := admin.Lifetime{Key: "job-1", Job: "1"}
	shared := admin.LifetimeOptions{Create: []admin.BufferSpec{{Name: "shared", Backing: "file://" + store}}, Attach: true}
	comeTo(t, nodes, first, shared)
	comeTo(t, nodes, first, shared) // again
	content := random(4096)
	write(t, c.Buffer("shared"), "f", content)
	leave(t, nodes, "job-1")
	wantState(t, c, "job-1", admin.LifetimeGone)

	user := admin.Lifetime{Key: "job-2", Job: "2", Uses: []string{"shared"}}
	last := admin.Lifetime{Key: "job-3", Job: "3", Uses: []string{"shared"}, Destroys: []admin.LifetimeEnd{{Buffer: "shared"}}}
	comeTo(t, nodes[:1], user, admin.LifetimeOptions{Attach: true})
	comeTo(t, nodes[1:], last, admin.LifetimeOptions{Attach: true})
	wantFile(t, c.Buffer("shared"), "f", content)
	leave(t, nodes[1:], "job-3")
	if now := wantState(t, c, "job-3", admin.LifetimeOrphan); !strings.Contains(now.Reason, "job 2 still uses it") {
		t.Errorf("it waits for %q", now.Reason)
	}
	leave(t, nodes[:1], "job-2")
	wantState(t, c, "job-3", admin.LifetimeGone)
	if _, err := admin.BufferInfo(t.Context(), c, "shared"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("the buffer: %v", err)
	}
	wantInStore(t, store, "f", content)
}

// TestLifetimeRefused: jobs get what their users may, and no other user decides about them.
func TestLifetimeRefused(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c := nodes[0].dial()
	mine := t.TempDir() // no other user may enter it
	theirs, o := aJob("job-4", mine)
	theirs.UID, theirs.GID = intruderUID, intruderUID
	if _, err := admin.OpenLifetime(t.Context(), c, theirs, o); !errors.Is(err, client.ErrPermission) {
		t.Errorf("a store that the job's user may not write: %v", err)
	}
	theirs, o = aJob("job-5", "")
	theirs.UID, theirs.GID = intruderUID, intruderUID
	theirs.In = []admin.LifetimeStage{{Buffer: "job-5", URL: "file://" + mine}}
	if _, err := admin.OpenLifetime(t.Context(), c, theirs, o); !errors.Is(err, client.ErrPermission) {
		t.Errorf("a source that the job's user may not read: %v", err)
	}
	held, o := aJob("job-8", mine)
	if err := os.WriteFile(filepath.Join(mine, "held"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Create[0].Existing = admin.ExistingRefuse
	if _, err := admin.OpenLifetime(t.Context(), c, held, o); !errors.Is(err, client.ErrExists) || !strings.Contains(err.Error(), "it holds files already") {
		t.Errorf("a store that holds a file, for a buffer that refuses one: %v", err)
	}
	if _, err := admin.OpenLifetime(t.Context(), c, admin.Lifetime{Key: "job-5", Job: "5"}, admin.LifetimeOptions{}); !errors.Is(err, client.ErrExists) {
		t.Errorf("another user's: %v", err)
	}
	nodes[0].buffer(c, admin.BufferSpec{Name: "own"})
	theirs = admin.Lifetime{Key: "job-6", Job: "6", UID: intruderUID, GID: intruderUID, Uses: []string{"own"}}
	if _, err := admin.OpenLifetime(t.Context(), c, theirs, admin.LifetimeOptions{}); !errors.Is(err, client.ErrPermission) {
		t.Errorf("another user's buffer: %v", err)
	}
	for _, bad := range []admin.Lifetime{
		{},
		{Key: "A"},
		{Key: "job-7", Buffer: "other"},
		{Key: "job-7", Uses: []string{"../x"}},
		{Key: "job-7", In: []admin.LifetimeStage{{Buffer: "b", Path: "../..", URL: "file:///x"}}},
		{Key: "job-7", Out: []admin.LifetimeStage{{Buffer: "b", URL: "ftp://x"}}},
	} {
		if _, err := admin.OpenLifetime(t.Context(), c, bad, admin.LifetimeOptions{}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := admin.LeaveLifetime(t.Context(), c, "job-9", admin.LeaveOptions{}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("one that never was: %v", err)
	}
}

// TestLifetimeGoverned: a job is over when its batch system reports so and it has left its nodes,
// refused requests are noted, and its buffer's figures are known after its nodes' daemons were
// started again.
func TestLifetimeGoverned(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	store, to := t.TempDir(), t.TempDir()
	l, o := aJob("job-20", store)
	l.SchedulerManaged, l.Pool, l.Granted = true, "memory", 1<<20
	l.Out = []admin.LifetimeStage{
		{Buffer: l.Key, Path: "never", URL: "file://" + to + "/never"},
		{Buffer: l.Key, Path: "f", URL: "file://" + to + "/f"},
	}
	o.Attach = false // it waits in the queue
	comeTo(t, nodes[:1], l, o)
	comeTo(t, nodes, l, admin.LifetimeOptions{Attach: true, Ran: true})
	first, second := random(300_000), random(200_000)
	write(t, nodes[0].dial().Buffer(l.Key), "f", first)
	nodes[0].stop()
	nodes[0].start()
	c := nodes[1].dial()
	wantAbsorbed := func(bytes int64) {
		t.Helper()
		eventually(t, "what was absorbed is known", func() bool {
			now, err := admin.LifetimeByKey(t.Context(), nodes[0].dial(), l.Key)
			return err == nil && now.Total().Absorbed >= bytes
		})
	}
	wantAbsorbed(300_000)
	write(t, nodes[0].dial().Buffer(l.Key), "g", second)
	wantAbsorbed(500_000)
	leave(t, nodes[:1], l.Key)
	if now, err := admin.EndLifetime(t.Context(), c, l.Key, admin.EndOptions{WhenLeft: true, Failed: true}); err != nil || now.Over.IsZero() {
		t.Fatalf("%+v (%v)", now, err)
	}
	time.Sleep(3 * keepEvery)
	if now, err := admin.LifetimeByKey(t.Context(), c, l.Key); err != nil || now.State != admin.LifetimeOpen {
		t.Fatalf("with a node to leave: %+v (%v)", now, err)
	}
	leave(t, nodes[1:], l.Key)
	now := wantState(t, c, l.Key, admin.LifetimeGone)
	wantInStore(t, store, "g", second)
	wantInStore(t, to, "f", first)
	if now.Succeeded || !now.Ran || now.Granted != 1<<20 || now.Losses.Total != 0 {
		t.Errorf("%+v", now)
	}
	eventually(t, "what was flushed is known", func() bool {
		now, err := admin.LifetimeByKey(t.Context(), c, l.Key)
		f := now.Total()
		return err == nil && f.Absorbed >= 500_000 && f.Flushed >= 500_000 && f.Flushing > 0
	})
	if out := now.Out; !strings.Contains(out[0].Note, "nothing was written") || out[1].Bytes != 300_000 || out[1].Seconds <= 0 || out[1].Note != "" {
		t.Errorf("what was copied out: %+v", out)
	}
}

// TestLifetimeNotRun: a job that was cancelled before it ran leaves nothing, and takes
// nothing with it but its own buffer.
func TestLifetimeNotRun(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c, to := nodes[0].dial(), t.TempDir()
	nodes[0].buffer(c, admin.BufferSpec{Name: "kept"})
	l, o := aJob("job-21", "")
	l.SchedulerManaged, l.Destroys = true, []admin.LifetimeEnd{{Buffer: "kept", Discard: true}}
	l.Out = []admin.LifetimeStage{{Buffer: l.Key, Path: "", URL: "file://" + to + "/out"}}
	o.Attach = false
	if _, err := admin.OpenLifetime(t.Context(), c, l, o); err != nil {
		t.Fatal(err)
	}
	write(t, c.Buffer(l.Key), "staged-in", random(100))
	if _, err := admin.EndLifetime(t.Context(), c, l.Key, admin.EndOptions{WhenLeft: true}); err != nil {
		t.Fatal(err)
	}
	wantState(t, c, l.Key, admin.LifetimeGone)
	if _, err := admin.BufferInfo(t.Context(), c, "kept"); err != nil {
		t.Errorf("a buffer that it was to destroy: %v", err)
	}
	if _, err := os.Stat(to + "/out"); err == nil {
		t.Error("it was copied out")
	}
	if _, err := admin.BufferInfo(t.Context(), c, l.Key); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("its buffer: %v", err)
	}
	if _, err := admin.OpenLifetime(t.Context(), c, l, admin.LifetimeOptions{Ran: true}); !errors.Is(err, client.ErrBusy) {
		t.Errorf("running now: %v", err)
	}
}

// TestLifetimeStageInNodeGone: a node goes while a job's data is staged in, and takes its copies
// along. The job's stage-in fails and names files, and is not reported as done.
func TestLifetimeStageInNodeGone(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	from := t.TempDir()
	source(t, from, 500)
	others := nodes[:2]
	for _, n := range others { // they cannot end before the node is gone
		n.slowly("get", time.Second)
	}
	nodes[2].slowly("get", 5*time.Millisecond)
	l, o := aJob("job-7", "")
	l.In = []admin.LifetimeStage{{Buffer: l.Key, Path: "x", URL: "file://" + from}}
	opened := make(chan error, 1)
	go func() {
		_, err := admin.OpenLifetime(t.Context(), c, l, o)
		opened <- err
	}()
	eventually(t, "the node has copied files", func() bool { return onlyOperationOrNone(t, nodes[1].dial()).FilesDone >= 200 })
	nodes[2].away()
	for _, n := range others {
		n.faults.Set()
	}
	want := func(err error) {
		t.Helper()
		if bb.KindOf(err) != bb.Unavailable || !strings.Contains(err.Error(), "files failed, the first is x/") ||
			!strings.Contains(err.Error(), "the others are x/") || !strings.Contains(err.Error(), "n3") {
			t.Errorf("a stage-in whose files went with a node: %v", err)
		}
	}
	want(<-opened)
	now, err := admin.LifetimeByKey(t.Context(), c, l.Key)
	if err != nil || len(now.In) != 1 || !strings.Contains(now.In[0].Note, "files failed") {
		t.Errorf("what is noted of it: %+v (%v)", now.In, err)
	}
	_, err = admin.OpenLifetime(t.Context(), nodes[1].dial(), l, o) // the job comes to another node, later
	want(err)
}
