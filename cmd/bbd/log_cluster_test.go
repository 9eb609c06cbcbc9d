package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clusterkey"
	"forebay/internal/clustertest"
	"forebay/meta/conn"
	"forebay/meta/embedded"
	"forebay/meta/kv/kvtest"
	"forebay/meta/stream"
)

const (
	logKills   = 6 // or FOREBAY_KILLS
	logWorkers = 2 // at each daemon
)

// logCluster is daemons on loopback that share a namespace which is a log, and clients of each that work.
type logCluster struct {
	t       testing.TB
	daemons []*bbdtest.Daemon
	workers []*namer
	stop    context.CancelFunc
	wait    sync.WaitGroup
	options embedded.Options // of the namespace's server in this process
	server  *embedded.Server // nil: daemons run the servers
}

// newLogCluster starts daemons. The first ones run the namespace's servers; none: this process runs it.
func newLogCluster(t testing.TB, size, servers int) *logCluster {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, clusterkey.New(), 0o600); err != nil {
		t.Fatal(err)
	}
	host := func(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }
	_, gossip, _ := strings.Cut(bbdtest.FreePort(t, host(0)), ":")
	var nats string
	c := &logCluster{t: t, options: embedded.Options{Dir: t.TempDir(), Listen: bbdtest.FreePort(t, "127.0.0.1")}}
	if servers == 0 {
		c.serve()
		t.Cleanup(func() { c.server.Shutdown() })
		nats = fmt.Sprintf("url: %q", c.server.URL())
	} else {
		var at []string
		_, port, _ := strings.Cut(bbdtest.FreePort(t, host(0)), ":")
		for i := range servers {
			at = append(at, host(i)+":"+port)
		}
		nats = fmt.Sprintf("servers: %q", strings.Join(at, ","))
	}
	store := t.TempDir() // is removed after the daemons have ended
	for i := range size {
		d := bbdtest.New(t, withLog...)
		d.Config = fmt.Sprintf(`
name: n%d
listen: {tcp: %q, admin: "127.0.0.1:0"}
cluster: {listen: "%[3]s:%[4]s", advertise: %[3]q, join: "%[5]s:%[4]s,%[6]s:%[4]s"}
nats: {%[7]s}
key_file: %[8]s
memory: {size: 128MiB, region_size: 64MiB}
flush: {dirty_age: 1s}
`, i+1, bbdtest.FreePort(t, host(i)), host(i), gossip, host(0), host(1), nats, key)
		c.daemons = append(c.daemons, d)
	}
	bbdtest.StartAll(t, c.daemons...)
	by := lasting(t, c.daemons[0])
	waitFor(t, "all daemons know each other", func() bool {
		nodes, err := admin.Nodes(t.Context(), by)
		return err == nil && len(nodes) == size && !slices.ContainsFunc(nodes, func(n admin.Node) bool { return n.State != "ready" })
	})
	if _, err := admin.CreateBuffer(t.Context(), by, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	if err := by.Buffer("b").Mkdir(t.Context(), "all", 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// serve starts the namespace's server.
func (c *logCluster) serve() {
	c.t.Helper()
	var err error
	if c.server, err = embedded.Start(c.t.Context(), c.options); err != nil {
		c.t.Fatal(err)
	}
}

// owner returns which daemon was the last to log that it owns the namespace.
func (c *logCluster) owner() int {
	c.t.Helper()
	last, when := -1, ""
	for i, d := range c.daemons {
		for line := range strings.Lines(d.Log()) {
			if !strings.Contains(line, "this daemon owns the namespace") || !strings.Contains(line, "buffer=b") {
				continue
			}
			if at, _, _ := strings.Cut(line, " "); at > when {
				last, when = i, at
			}
		}
	}
	if last < 0 {
		c.t.Fatal("no daemon has logged that it owns the namespace")
	}
	return last
}

// work starts the clients.
func (c *logCluster) work() {
	ctx, stop := context.WithCancel(c.t.Context())
	c.stop = stop
	c.t.Cleanup(func() { stop(); c.wait.Wait() })
	for i, d := range c.daemons {
		for k := range logWorkers {
			w := &namer{
				at: i, name: fmt.Sprintf("w%d-%d-", i, k), b: lasting(c.t, d).Buffer("b"), rng: rand.New(rand.NewPCG(uint64(i), uint64(k))),
				has: map[string][]byte{}, gone: map[string]bool{}, unknown: map[string]bool{},
			}
			c.workers = append(c.workers, w)
			c.wait.Go(func() { w.work(ctx) })
		}
	}
}

// served waits until clients of all daemons but some have completed an operation that began after a time.
func (c *logCluster) served(what string, after time.Time, but ...int) time.Duration {
	c.t.Helper()
	waitFor(c.t, what, func() bool {
		for _, w := range c.workers {
			if !slices.Contains(but, w.at) && (w.began.Load() == nil || !w.began.Load().After(after)) {
				return false
			}
		}
		return true
	})
	return time.Since(after)
}

// killed kills a daemon, waits until the others' clients are served, and starts it again.
func (c *logCluster) killed(i int) time.Duration {
	c.t.Helper()
	c.turned(i)
	c.daemons[i].Kill()
	took := c.served(fmt.Sprintf("names are served after n%d was killed", i+1), time.Now(), i)
	c.daemons[i].Start()
	c.turned(i)
	c.served(fmt.Sprintf("n%d serves names again", i+1), time.Now())
	return took
}

// turned records that a daemon is about to end, or has started again.
func (c *logCluster) turned(i int) {
	for _, w := range c.workers {
		if w.at == i {
			w.ends.Add(1)
		}
	}
}

// judge ends the work and compares the names at each daemon with the acknowledged ones.
func (c *logCluster) judge() {
	c.t.Helper()
	c.stop()
	c.wait.Wait()
	for i, d := range c.daemons {
		b := lasting(c.t, d).Buffer("b")
		listed := map[string]bool{}
		for e, err := range b.ReadDir(c.t.Context(), "all") {
			if err != nil {
				c.t.Fatal(err)
			}
			listed[e.Name] = true
		}
		for _, w := range c.workers {
			for _, fault := range w.faults {
				c.t.Error(fault)
			}
			w.faults = nil
			for _, fault := range w.compare(listed) {
				c.t.Errorf("at n%d: %s", i+1, fault)
			}
			for name, content := range w.has {
				if got, err := b.ReadFile(c.t.Context(), "all/"+name); err != nil || !bytes.Equal(got, content) {
					c.t.Errorf("at n%d: %s has %d bytes of %d (%v)", i+1, name, len(got), len(content), err)
				}
			}
		}
	}
	names, removed, unknown := 0, 0, 0
	for _, w := range c.workers {
		names, removed, unknown = names+len(w.has), removed+len(w.gone), unknown+len(w.unknown)
	}
	c.t.Logf("%d names, %d removed or renamed, %d of unknown outcome", names, removed, unknown)
	if names < 100 || removed < 100 {
		c.t.Error("the clients have done too little")
	}
}

// namer is a client that creates, renames, removes and lists names of its own in a directory of all.
type namer struct {
	at      int
	name    string
	b       *client.Buffer
	rng     *rand.Rand
	made    int
	has     map[string][]byte
	gone    map[string]bool
	unknown map[string]bool // names that an operation without an answer was about
	faults  []string
	began   atomic.Pointer[time.Time] // the last operation that has an answer
	ends    atomic.Int64              // of its daemon and the starts after them: odd while that is down
}

const opTime = 30 * time.Second

func (w *namer) work(ctx context.Context) {
	for ctx.Err() == nil {
		began, ends := time.Now(), w.ends.Load()
		err := w.step(ctx)
		switch {
		case err == nil:
			w.began.Store(&began)
		case ctx.Err() == nil && ends%2 == 0 && w.ends.Load() == ends:
			w.faults = append(w.faults, fmt.Sprintf("at n%d, whose daemon runs: %v after %v", w.at+1, err, time.Since(began)))
		}
		time.Sleep(time.Duration(w.rng.IntN(4)) * time.Millisecond)
	}
}

// step is one operation. An error leaves its outcome unknown.
func (w *namer) step(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTime)
	defer cancel()
	var name string
	for name = range w.has {
		break
	}
	switch kind := w.rng.IntN(20); {
	case name == "" || kind < 9:
		return w.create(limited)
	case kind < 13:
		return w.rename(limited, name)
	case kind < 17:
		return w.remove(limited, name)
	}
	return w.list(limited)
}

func (w *namer) next() string {
	w.made++
	return w.name + strconv.Itoa(w.made)
}

func (w *namer) create(ctx context.Context) error {
	name := w.next()
	content := clustertest.Content(w.rng.Uint64(), clustertest.MinSize+w.rng.IntN(3000))
	if err := w.b.WriteFile(ctx, "all/"+name, content, 0o644); err != nil {
		w.unknown[name] = true
		return fmt.Errorf("create %s: %w", name, err)
	}
	w.has[name] = content
	return nil
}

func (w *namer) rename(ctx context.Context, name string) error {
	to, content := w.next(), w.has[name]
	delete(w.has, name)
	if err := w.b.Rename(ctx, "all/"+name, "all/"+to); err != nil {
		w.unknown[name], w.unknown[to] = true, true
		return fmt.Errorf("rename %s to %s: %w", name, to, err)
	}
	w.gone[name], w.has[to] = true, content
	return nil
}

func (w *namer) remove(ctx context.Context, name string) error {
	delete(w.has, name)
	if err := w.b.Remove(ctx, "all/"+name); err != nil {
		w.unknown[name] = true
		return fmt.Errorf("remove %s: %w", name, err)
	}
	w.gone[name] = true
	return nil
}

func (w *namer) list(ctx context.Context) error {
	listed := map[string]bool{}
	for e, err := range w.b.ReadDir(ctx, "all") {
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		listed[e.Name] = true
	}
	w.faults = append(w.faults, w.compare(listed)...)
	for name := range w.gone {
		if _, err := w.b.Stat(ctx, "all/"+name); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				w.faults = append(w.faults, name+" is there again")
			}
			return err
		}
		break
	}
	return nil
}

// compare returns the differences between a listing and the names acknowledged to this client.
func (w *namer) compare(listed map[string]bool) (faults []string) {
	for name := range w.has {
		if !listed[name] {
			faults = append(faults, name+" was acknowledged, and is not listed")
		}
	}
	for name := range listed {
		if _, has := w.has[name]; strings.HasPrefix(name, w.name) && !has && !w.unknown[name] {
			faults = append(faults, name+" was removed, and is listed")
		}
	}
	return faults
}

// TestLogOwnerKilled: the owner of a log that daemons share is killed again and again while clients
// of each daemon create, rename, remove and list names. Acknowledged changes stay, removed names do
// not come back, and clients of the other daemons see no error.
func TestLogOwnerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	c := newLogCluster(t, 3, 0)
	c.work()
	c.served("all clients work", time.Now())
	var longest time.Duration
	for range logKillsAsked() {
		owner := c.owner()
		took := c.killed(owner)
		longest = max(longest, took)
		if now := c.owner(); now == owner {
			t.Logf("n%d owns the namespace again", owner+1)
		}
		t.Logf("n%d killed: names are served after %v", owner+1, took.Round(time.Millisecond))
	}
	c.judge()
	t.Logf("names were served again after %v at the latest", longest.Round(time.Millisecond))
}

func logKillsAsked() int {
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		return n
	}
	return logKills
}

// TestLogWithServersKilled is TestLogOwnerKilled with three namespace servers, in daemons. A daemon
// that is not the owner is killed with its server, then the owner, which may run a server as well.
func TestLogWithServersKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	c := newLogCluster(t, 4, 3)
	c.work()
	c.served("all clients work", time.Now())
	for round := range logKillsAsked() {
		owner := c.owner()
		victim, what := owner, "the owner"
		if owner < 3 {
			what = "the owner, with a namespace server"
		}
		if round%2 == 0 {
			victim, what = (owner+1)%3, "a namespace server" // one of the first three, and not the owner
		}
		took := c.killed(victim)
		t.Logf("n%d killed, %s: names are served after %v", victim+1, what, took.Round(time.Millisecond))
	}
	c.judge()
}

// holders returns the daemons that hold the end of the log for its owner.
func (c *logCluster) holders(owner int) []string {
	c.t.Helper()
	var s struct {
		NATS struct {
			Logs []struct {
				Owner  string   `json:"owner"`
				HeldBy []string `json:"held_by"`
			} `json:"logs"`
		} `json:"nats"`
	}
	text, err := admin.Status(c.t.Context(), lasting(c.t, c.daemons[owner]), "")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || len(s.NATS.Logs) != 1 || s.NATS.Logs[0].Owner != fmt.Sprintf("n%d", owner+1) {
		return nil
	}
	return s.NATS.Logs[0].HeldBy
}

// holder returns a daemon that holds the end of the log for its owner.
func (c *logCluster) holder(owner int) int {
	c.t.Helper()
	var by []string
	waitFor(c.t, "two daemons hold the end of the log", func() bool {
		by = c.holders(owner)
		return len(by) == 2
	})
	n, err := strconv.Atoi(strings.TrimPrefix(by[0], "n"))
	if err != nil {
		c.t.Fatal(err)
	}
	return n - 1
}

// TestLogForgottenAtTwoDeaths: the owner of a log and a daemon that holds its end are killed, and the namespace's server
// comes back with an older copy of its files, as after a loss of power. Another daemon holds the changes acknowledged
// since.
func TestLogForgottenAtTwoDeaths(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	c := newLogCluster(t, 4, 0)
	c.work()
	for range 3 {
		c.served("all clients work", time.Now())
		c.server.Shutdown()
		copied := copyOf(t, c.options.Dir)
		c.serve()
		for range 20 {
			c.served("names are changed since the copy", time.Now())
		}
		owner := c.owner()
		holder := c.holder(owner)
		for _, i := range []int{owner, holder} {
			c.turned(i)
			c.daemons[i].Kill()
		}
		killed := time.Now()
		c.server.Shutdown()
		putBack(t, c.options.Dir, copied)
		c.serve()
		took := c.served("names are served after a loss of power", killed, owner, holder)
		for _, i := range []int{owner, holder} {
			c.daemons[i].Start()
			c.turned(i)
		}
		t.Logf("n%d and n%d killed: names are served after %v", owner+1, holder+1, took.Round(time.Millisecond))
	}
	c.judge()
	c.restored()
}

// TestLogForgottenAtOwnersDeath: the owner of a log is killed, and the namespace's server comes
// back with an older copy of its files, as after a loss of power. Another daemon holds the changes
// acknowledged since.
func TestLogForgottenAtOwnersDeath(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	c := newLogCluster(t, 3, 0)
	c.work()
	for range 3 {
		c.served("all clients work", time.Now())
		c.server.Shutdown()
		copied := copyOf(t, c.options.Dir)
		c.serve()
		for range 20 {
			c.served("names are changed since the copy", time.Now())
		}
		owner := c.owner()
		c.turned(owner)
		c.daemons[owner].Kill()
		killed := time.Now()
		c.server.Shutdown()
		putBack(t, c.options.Dir, copied)
		c.serve()
		took := c.served("names are served after a loss of power", killed, owner)
		c.daemons[owner].Start()
		c.turned(owner)
		t.Logf("n%d killed: names are served after %v", owner+1, took.Round(time.Millisecond))
	}
	c.judge()
	c.restored()
}

// restored fails unless changes were stored again, and none was lost.
func (c *logCluster) restored() {
	c.t.Helper()
	restored := 0
	for _, d := range c.daemons {
		restored += strings.Count(d.Log(), "they are stored again from the memory of daemons")
		if strings.Contains(d.Log(), "no daemon holds the rest") {
			c.t.Error("a loss is logged")
		}
	}
	if restored == 0 {
		c.t.Error("nothing was forgotten: the test does not test")
	}
}

// TestLogDeleted: the stream of a log is deleted while daemons run. The owner makes it again, with all names, and
// clients see no error. When the owner is killed then, the next one reads the new stream.
func TestLogDeleted(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	c := newLogCluster(t, 3, 0)
	by := kvtest.Dial(t, conn.Options{InProcess: c.server})
	streams, err := stream.Names(t.Context(), by, "NS_forebay-b-")
	if err != nil || len(streams) != 1 {
		t.Fatalf("the log of the buffer is in %q (%v)", streams, err)
	}
	c.work()
	for round := range 2 {
		for range 20 {
			c.served("names are changed", time.Now())
		}
		if err := stream.New(by, streams[0]).Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		took := c.served("names are served after the log was deleted", time.Now())
		t.Logf("names are served %v after the log was deleted", took.Round(time.Millisecond))
		if round%2 == 1 {
			owner := c.owner()
			t.Logf("n%d killed: names are served after %v", owner+1, c.killed(owner).Round(time.Millisecond))
		}
	}
	c.judge()
	again := 0
	for _, d := range c.daemons {
		again += strings.Count(d.Log(), "it is made again, and all is stored again from memory")
	}
	if again != 2 {
		t.Errorf("the log was made again %d times of 2", again)
	}
}

// TestLogOfOneIsJoined: a daemon that stood alone with a log gets the configuration of a cluster, alone at first. Another
// daemon joins later, has all names, and owns the log when the first one is killed.
func TestLogOfOneIsJoined(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, clusterkey.New(), 0o600); err != nil {
		t.Fatal(err)
	}
	store := t.TempDir() // is removed after the daemons have ended
	const common = "key_file: %s\nmemory: {size: 128MiB, region_size: 64MiB}\nflush: {dirty_age: 1s}\n"
	first := bbdtest.New(t, withLog...)
	first.Config = "name: n1\nlisten: {admin: \"127.0.0.1:0\"}\n" + fmt.Sprintf(common, key)
	first.Start()
	by := lasting(t, first)
	if _, err := admin.CreateBuffer(t.Context(), by, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	add := func(b *client.Buffer, name string) {
		t.Helper()
		want[name] = []byte(name)
		if err := b.WriteFile(t.Context(), name, want[name], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	add(by.Buffer("b"), "alone")
	by.Close()
	first.Stop()

	nats := bbdtest.FreePort(t, "127.0.0.1")
	_, gossip, _ := strings.Cut(bbdtest.FreePort(t, "127.0.0.1"), ":")
	config := func(i int) string {
		host := fmt.Sprintf("127.0.0.%d", i)
		return fmt.Sprintf(`
name: n%d
listen: {tcp: %q, admin: "127.0.0.1:0"}
cluster: {listen: "%[3]s:%[4]s", advertise: %[3]q, join: "127.0.0.1:%[4]s,127.0.0.2:%[4]s"}
nats: {servers: %[5]q}
`, i, bbdtest.FreePort(t, host), host, gossip, nats) + fmt.Sprintf(common, key)
	}
	first.Config = config(1)
	first.Start()
	by = lasting(t, first)
	add(by.Buffer("b"), "first of a cluster")
	second := bbdtest.New(t)
	second.Config = config(2) // its new buffers have no logs
	second.Start()
	to := lasting(t, second)
	add(to.Buffer("b"), "joined")
	if _, err := admin.Drain(t.Context(), to, "b", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client.Client{by, to} {
		for name, content := range want {
			if got, err := c.Buffer("b").ReadFile(t.Context(), name); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %q (%v)", name, got, err)
			}
		}
	}
	first.Kill()
	first.Start()
	add(to.Buffer("b"), "after a kill")
	for name, content := range want {
		if got, err := to.Buffer("b").ReadFile(t.Context(), name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("after a kill: %s: %q (%v)", name, got, err)
		}
	}
}
