package bbd_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"forebay/bbd"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/flusher/backing/asuser/serve"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/embedded"
)

func TestMain(m *testing.M) {
	identity.Stands = map[uint64]uint64{unix.FUSE_SUPER_MAGIC: lustre.Magic} // file systems of tests play it
	if len(os.Args) > 1 && os.Args[1] == protocol.Command {
		os.Exit(serve.Main(os.Args[2:]))
	}
	if os.Getenv(intruderEnv) != "" {
		os.Exit(intrude())
	}
	if told := os.Getenv(stagerEnv); told != "" {
		os.Exit(stageAll(told))
	}
	if path := os.Getenv(hoarderEnv); path != "" {
		os.Exit(hoard(path))
	}
	if path := os.Getenv(flooderEnv); path != "" {
		os.Exit(flood(path))
	}
	if path := os.Getenv(knockerEnv); path != "" {
		os.Exit(knock(path))
	}
	goleak.VerifyTestMain(m)
}

// node is a daemon in this process with its environment.
type node struct {
	t      *testing.T
	dir    string
	base   string // of the directories behind buffers
	socket string
	faults *fault.Plan
	change func(*bbd.Config)

	name    bb.NodeID        // of a cluster's node
	shared  *embedded.Server // of a cluster; nil: each node has its own
	members *directory

	server  *embedded.Server
	daemon  *bbd.Daemon
	workers *asuser.Workers
}

// startNode starts a daemon with small memory, whose stores fail by the plan.
func startNode(t *testing.T, change func(*bbd.Config)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "bbd")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, base: t.TempDir(), socket: filepath.Join(dir, "bbd.sock"), faults: fault.NewPlan(), change: change}
	t.Cleanup(func() {
		n.stop()
		os.RemoveAll(dir)
		os.RemoveAll(n.shm())
	})
	n.start()
	return n
}

func (n *node) shm() string { return "/dev/shm/" + filepath.Base(n.dir) }

func (n *node) start() {
	n.t.Helper()
	if err := n.tryStart(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// tryStart is start that returns the error.
func (n *node) tryStart(ctx context.Context) error {
	n.t.Helper()
	server := n.shared
	if server == nil {
		var err error
		if server, err = embedded.Start(ctx, embedded.Options{Dir: filepath.Join(n.dir, "nats")}); err != nil {
			n.t.Fatal(err)
		}
	}
	cfg := bbd.Config{
		Node: "n1", Version: "test", StateDir: n.dir, Socket: n.socket, Admin: "127.0.0.1:0",
		Store: store.Options{
			StateDir: n.dir, Mount: store.MountOff, ShmDir: n.shm(), MemoryBytes: 64 << 20, RegionBytes: 32 << 20,
		},
		Meta:   meta.Options{InProcess: server, SoleWriter: true, Engine: meta.Engine(os.Getenv("FOREBAY_TEST_ENGINE"))},
		Limits: bbd.DefaultLimits(), ResumeGrace: 500 * time.Millisecond,
		Flush: bbd.FlushConfig{Workers: 4, DirtyAge: time.Minute, High: 0.8, Low: 0.5},
		Log:   slog.New(slog.NewTextHandler(n.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	cfg.Backing.Faults = n.faults
	if os.Geteuid() == 0 {
		var err error
		if n.workers, err = asuser.New(asuser.Options{Logger: cfg.Log}); err != nil {
			n.t.Fatal(err)
		}
		cfg.Backing.Workers = n.workers
	}
	if n.change != nil {
		n.change(&cfg)
	}
	daemon, err := bbd.New(ctx, cfg)
	if err != nil {
		if n.shared == nil {
			server.Shutdown()
		}
		n.closeWorkers()
		return err
	}
	n.server, n.daemon = server, daemon
	if n.members != nil {
		n.members.set(n.name, daemon.Self)
	}
	return nil
}

func (n *node) stop() {
	if n.daemon == nil {
		return
	}
	if err := n.daemon.Stop(context.Background()); err != nil {
		n.t.Errorf("stopping the daemon: %v", err)
	}
	if n.shared == nil {
		n.server.Shutdown()
	}
	n.closeWorkers()
	n.daemon = nil
}

func (n *node) closeWorkers() {
	if n.workers == nil {
		return
	}
	if err := n.workers.Close(); err != nil {
		n.t.Errorf("stopping the store workers: %v", err)
	}
	n.workers = nil
}

func (n *node) dial() *client.Client {
	n.t.Helper()
	c, err := client.Dial(n.t.Context(), client.Options{Address: "unix://" + n.socket})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// buffer makes a buffer in front of a fresh directory.
func (n *node) buffer(c *client.Client, spec admin.BufferSpec) (*client.Buffer, string) {
	n.t.Helper()
	dir, err := os.MkdirTemp(n.base, "store")
	if err != nil {
		n.t.Fatal(err)
	}
	if spec.Backing == "" {
		spec.Backing = "file://" + dir
	}
	if _, err := admin.CreateBuffer(n.t.Context(), c, spec); err != nil {
		n.t.Fatal(err)
	}
	return c.Buffer(spec.Name), dir
}

func (n *node) status() (s status.Status) {
	n.t.Helper()
	s = n.daemon.Status()
	if _, err := json.Marshal(s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

func random(n int) []byte {
	p := make([]byte, n)
	rand.Read(p)
	return p
}

func write(t *testing.T, b *client.Buffer, name string, content []byte) {
	t.Helper()
	if err := b.WriteFile(t.Context(), name, content, 0o644); err != nil {
		t.Fatalf("writing %s: %v", name, err)
	}
}

func wantFile(t *testing.T, b *client.Buffer, name string, content []byte) {
	t.Helper()
	got, err := b.ReadFile(t.Context(), name)
	if err != nil || string(got) != string(content) {
		t.Fatalf("%s: %d bytes, want %d (%v)", name, len(got), len(content), err)
	}
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func drain(t *testing.T, c *client.Client, buffer string) {
	t.Helper()
	if report, err := admin.Drain(t.Context(), c, buffer, 2*time.Minute, nil); err != nil {
		t.Fatalf("drain: %v (%+v)", err, report)
	}
}

func TestWriteReadDrain(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "one"})
	contents := map[string][]byte{}
	for _, size := range []int{0, 1, 100, 4096, 70_000, 1 << 20, 9<<20 + 7} {
		name := fmt.Sprintf("d%d/file", size)
		if err := b.MkdirAll(t.Context(), filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		contents[name] = random(size)
		write(t, b, name, contents[name])
		wantFile(t, b, name, contents[name])
	}
	drain(t, c, "one")
	for name, content := range contents {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != string(content) {
			t.Errorf("%s in the store: %d bytes, want %d (%v)", name, len(got), len(content), err)
		}
		e, err := b.Stat(t.Context(), name)
		if err != nil || e.State != client.StateClean {
			t.Errorf("%s is %v after the drain (%v)", name, e.State, err)
		}
	}
}

func TestVisibility(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c, other := n.dial(), n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "vis"})
	seen := other.Buffer("vis")
	ctx := t.Context()

	f, err := b.Create(ctx, "log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	if _, err := seen.ReadFile(ctx, "log"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("uncommitted bytes are visible: %v", err)
	}
	own := make([]byte, 5)
	if _, err := f.ReadAt(own, 0); err != nil || string(own) != "first" {
		t.Fatalf("its own writer reads %q (%v)", own, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, seen, "log", []byte("first"))

	reader, err := seen.Open(ctx, "log")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := f.Write([]byte(" second")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, seen, "log", []byte("first"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, seen, "log", []byte("first second"))
	// A reader keeps the content that it opened, also when the file is replaced and removed.
	write(t, b, "log", []byte("replaced"))
	if err := b.Remove(ctx, "log"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 20)
	k, err := reader.ReadAt(got, 0)
	if string(got[:k]) != "first" {
		t.Errorf("the open reader sees %q (%v)", got[:k], err)
	}
}

func TestStoreFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{
		fault.Refused, fault.Reset, fault.Slow, fault.Full, fault.Busy, fault.WrongChecksum, fault.Truncated,
	} {
		t.Run(string(kind), func(t *testing.T) {
			n := startNode(t, nil)
			c := n.dial()
			b, dir := n.buffer(c, admin.BufferSpec{Name: "faulty"})
			n.faults.Set(fault.Rule{Op: "put", Kind: kind, Delay: 200 * time.Millisecond})
			content := random(300_000)
			write(t, b, "f", content)
			progress := make(chan error, 1)
			go func() {
				_, err := admin.Drain(context.WithoutCancel(t.Context()), c, "faulty", 30*time.Second, nil)
				progress <- err
			}()
			eventually(t, "the fault strikes", func() bool { return n.faults.Hits() > 0 })
			if kind != fault.Slow {
				eventually(t, "the reason shows in the status", func() bool {
					s := n.status()
					return len(s.Buffers) == 1 && s.Buffers[0].LastError != nil && s.Buffers[0].Dirty > 0
				})
				e, err := b.Stat(t.Context(), "f")
				if err != nil || e.State != client.StateDirty {
					t.Errorf("the file is %v (%v)", e.State, err)
				}
			}
			wantFile(t, b, "f", content)
			n.faults.Set()
			if err := <-progress; err != nil {
				t.Fatalf("after the store recovered: %v", err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "f"))
			if err != nil || string(got) != string(content) {
				t.Errorf("in the store: %d bytes (%v)", len(got), err)
			}
			if s := n.status(); s.Buffers[0].LastError != nil || s.Buffers[0].Dirty != 0 {
				t.Errorf("after the drain: %+v", s.Buffers[0])
			}
		})
	}
}

// Memory is filled three times over while the store is slow. No write fails, all arrives.
func TestPressure(t *testing.T) {
	n := startNode(t, nil)
	const writers, files, size = 4, 12, 4 << 20
	stores := map[string]string{}
	contents := map[string][]byte{}
	clients := map[string]*client.Client{}
	for w := range writers {
		c := n.dial()
		name := fmt.Sprintf("p%d", w)
		_, stores[name] = n.buffer(c, admin.BufferSpec{Name: name, FlushLimit: 60 << 20})
		contents[name], clients[name] = random(size), c
	}
	errs := make(chan error, writers)
	for name, c := range clients {
		go func() {
			for i := range files {
				if err := c.Buffer(name).WriteFile(context.Background(), fmt.Sprint("f", i), contents[name], 0o644); err != nil {
					errs <- fmt.Errorf("%s f%d: %w", name, i, err)
					return
				}
				if m := n.daemon.Status().Memory; m.Used > m.Capacity {
					errs <- fmt.Errorf("%d bytes of memory are used, %d are allowed", m.Used, m.Capacity)
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range clients {
		drain(t, c, name)
		for i := range files {
			got, err := os.ReadFile(filepath.Join(stores[name], fmt.Sprint("f", i)))
			if err != nil || string(got) != string(contents[name]) {
				t.Errorf("%s f%d in the store: %d bytes (%v)", name, i, len(got), err)
			}
			wantFile(t, c.Buffer(name), fmt.Sprint("f", i), contents[name]) // evicted ones come back
		}
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.faults.Set(fault.Rule{Op: "put", Name: "dirty", Kind: fault.Refused})
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "again"})
	clean, dirty := random(100_000), random(200_000)
	write(t, b, "clean", clean)
	drain(t, c, "again")
	write(t, b, "dirty", dirty)
	c.Close()
	n.stop()
	n.start()
	c = n.dial()
	b = c.Buffer("again")
	wantFile(t, b, "clean", clean)
	wantFile(t, b, "dirty", dirty)
	n.faults.Set()
	drain(t, c, "again")
	got, err := os.ReadFile(filepath.Join(dir, "dirty"))
	if err != nil || string(got) != string(dirty) {
		t.Errorf("in the store: %d bytes (%v)", len(got), err)
	}
}

// Memory is lost at a restart. Files on the store come back, and the rest is named.
func TestLostMemoryIsNamed(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "lossy"})
	saved := random(100_000)
	write(t, b, "saved", saved)
	drain(t, c, "lossy")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "unsaved", random(50_000))
	c.Close()
	n.stop()
	if err := os.RemoveAll(n.shm()); err != nil {
		t.Fatal(err)
	}
	n.start()
	c = n.dial()
	b = c.Buffer("lossy")
	wantFile(t, b, "saved", saved)
	if _, err := b.ReadFile(t.Context(), "unsaved"); !errors.Is(err, client.ErrLost) {
		t.Errorf("reading what was lost: %v", err)
	}
	lost, err := c.Buffer("lossy").Lost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Name != "unsaved" || lost[0].Reason == "" {
		t.Errorf("lost: %+v (%v)", lost, err)
	}
}

func TestRenameAndRemoveReachTheStore(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "names"})
	ctx := t.Context()
	for _, d := range []string{"a", "keep"} {
		if err := b.Mkdir(ctx, d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, b, "a/1", []byte("one"))
	write(t, b, "a/2", []byte("two"))
	write(t, b, "x", []byte("ex"))
	write(t, b, "result.tmp", []byte("passing"))
	report, err := admin.Drain(ctx, c, "names", 30*time.Second, nil)
	if err == nil || report.ExcludedTotal != 1 {
		t.Errorf("a drain that held a name back: %+v (%v)", report, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "result.tmp")); err == nil {
		t.Error("a passing name was flushed")
	}
	for from, to := range map[string]string{"a": "b", "x": "keep/x", "result.tmp": "result"} {
		if err := b.Rename(ctx, from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Remove(ctx, "b/1"); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "names")
	want := map[string]string{"b/2": "two", "keep/x": "ex", "result": "passing"}
	eventually(t, "the store follows", func() bool {
		have := map[string]string{}
		filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				text, _ := os.ReadFile(p)
				name, _ := filepath.Rel(dir, p)
				have[name] = string(text)
			}
			return nil
		})
		return fmt.Sprint(have) == fmt.Sprint(want)
	})
}

func TestEventsTellWhatHappens(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c, listener := n.dial(), n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "told"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, done := map[admin.EventKind]bool{}, make(chan error, 1)
	go func() {
		for e, err := range admin.Events(ctx, listener, "told") {
			if err != nil {
				done <- err
				return
			}
			if e.Path == "f" {
				seen[e.Kind] = true
			}
			if seen[admin.EventCommitted] && seen[admin.EventFlushed] && seen[admin.EventRemoved] {
				done <- nil
				return
			}
		}
	}()
	// The subscription is ready some time after the call. The test writes until it gets an event.
	for i := 0; ; i++ {
		write(t, b, "f", random(1000+i))
		drain(t, c, "told")
		if err := b.Remove(t.Context(), "f"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("heard %v (%v)", seen, err)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
		if i > 200 {
			t.Fatal("no event comes")
		}
	}
}

// TestUncommittedOutlivesShortage: memory is full when a daemon starts again. A writer's
// uncommitted bytes stay as they are until the writer has copied it into the room that the flush of
// other files makes.
func TestUncommittedOutlivesShortage(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.ResumeGrace = time.Minute })
	c, ctx := n.dial(), t.Context()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	content := random(24 << 20)
	w, err := b.Create(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	other := random(28 << 20)
	write(t, n.dial().Buffer("b"), "other", other) // of another client: in segments of its own
	n.stop()
	n.start()
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "w", content)
	wantFile(t, b, "other", other)
}

// TestUncommittedOutlivesStop: two writers have not committed when a daemon stops in order. The
// first one's memory is not given to the second one, which comes back sooner.
func TestUncommittedOutlivesStop(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.ResumeGrace = time.Minute })
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	write(t, b, "kept", random(1<<20)) // by which their region stays
	contents := [][]byte{random(6 << 20), random(6 << 20)}
	var writers []*client.File
	for i, content := range contents {
		w, err := n.dial().Buffer("b").Create(t.Context(), fmt.Sprint(i))
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	n.stop()
	n.start()
	for _, w := range slices.Backward(writers) {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, content := range contents {
		wantFile(t, b, fmt.Sprint(i), content)
	}
}

// withBuckets is for tests that reach below a namespace which is kept in buckets.
func withBuckets(c *bbd.Config) { c.Meta.Engine = meta.EngineBuckets }

// eachEngine runs a test on a node for each engine that a namespace may have.
func eachEngine(t *testing.T, test func(*testing.T, *node)) {
	t.Parallel()
	for _, engine := range []meta.Engine{meta.EngineBuckets, meta.EngineLog} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			test(t, startNode(t, func(c *bbd.Config) { c.Meta.Engine = engine }))
		})
	}
}
