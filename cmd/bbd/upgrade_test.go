package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/bbd/peer"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/clusterkey"
	"forebay/internal/clustertest"
	"forebay/internal/wire"
	"forebay/meta/embedded"
)

var (
	previous = wire.Versions{Min: max(wire.MinVersion, 1), Max: wire.MaxVersion - 1}
	stranger = wire.Versions{Min: wire.MaxVersion + 5, Max: wire.MaxVersion + 5}
)

// mixedCluster is a cluster of daemons of several versions on this machine, whose
// namespace's server is this process.
type mixedCluster struct {
	t      *testing.T
	nats   string
	dir    string // of the namespace's server
	key    string
	gossip []string // addresses
	added  int
}

func newMixedCluster(t *testing.T, size int) *mixedCluster {
	t.Helper()
	bbdtest.Binary(t) // built now, not while a daemon that is upgraded is down
	dir := t.TempDir()
	server, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	m := &mixedCluster{t: t, nats: server.URL(), dir: dir, key: filepath.Join(t.TempDir(), "key")}
	for range size {
		m.gossip = append(m.gossip, bbdtest.FreePort(t, "127.0.0.1"))
	}
	if err := os.WriteFile(m.key, append(clusterkey.New(), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// add makes a daemon with some protocol versions. It is not started.
func (m *mixedCluster) add(name string, speaks wire.Versions) *bbdtest.Daemon {
	m.t.Helper()
	d := bbdtest.New(m.t, "--name", name, "--memory", "192MiB", "--listen-tcp", "127.0.0.1:0", "--key-file", m.key,
		"--cluster-listen", m.gossip[m.added], "--cluster-join", strings.Join(m.gossip, ","))
	m.added++
	d.Env = []string{"FOREBAY_NATS_URL=" + m.nats}
	d.Speaks = speaks
	return d
}

// upgrade starts a daemon that was stopped as one of this release.
func (m *mixedCluster) upgrade(d *bbdtest.Daemon) {
	m.t.Helper()
	d.Speaks = wire.Versions{}
	d.Start()
}

// seen waits until one daemon reports another in a state, and returns that view.
func (m *mixedCluster) seen(from *client.Client, name string, fits func(admin.Node) bool) admin.Node {
	m.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		nodes, err := admin.Nodes(m.t.Context(), from)
		i := slices.IndexFunc(nodes, func(n admin.Node) bool { return string(n.Name) == name && fits(n) })
		if i >= 0 {
			return nodes[i]
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s is not seen like that: %+v %v", name, nodes, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func ready(max uint32) func(admin.Node) bool {
	return func(n admin.Node) bool { return n.State == "ready" && n.MaxVersion == max }
}

// lasting is a client that outlives its daemon's upgrade.
func lasting(t testing.TB, d *bbdtest.Daemon) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket, RetryFor: 20 * time.Second})
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange runs each request of clients on two daemons with each other's files.
func exchange(t *testing.T, what string, a, b *client.Client) {
	t.Helper()
	ctx := t.Context()
	for i, pair := range [][2]*client.Client{{a, b}, {b, a}} {
		here, there := pair[0].Buffer("work"), pair[1].Buffer("work")
		dir := fmt.Sprintf("%s%d", what, i)
		check := func(step string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s, %s of %s: %v", dir, step, pair[1].Server().Node, err)
			}
		}
		want := func(step, name string, content []byte) {
			t.Helper()
			for _, b := range []*client.Buffer{here, there} {
				got, err := b.ReadFile(ctx, name)
				check(step, err)
				if string(got) != string(content) {
					t.Fatalf("%s, %s: %d bytes of %s are not the %d that were written", dir, step, len(got), name, len(content))
				}
			}
		}
		check("mkdir", here.Mkdir(ctx, dir, 0o755))
		small, large, more := clustertest.Content(1, 1000), clustertest.Content(2, 5<<20), clustertest.Content(3, 3<<20)
		check("write", here.WriteFile(ctx, dir+"/small", small, 0))
		check("write", here.WriteFile(ctx, dir+"/large", large, 0))
		want("read", dir+"/small", small)
		want("read", dir+"/large", large)
		check("replace", there.WriteFile(ctx, dir+"/small", more, 0))
		want("read what replaced it", dir+"/small", more)
		f, err := there.OpenFile(ctx, dir+"/large", client.OpenOptions{Write: true, Append: true})
		check("append", err)
		_, err = f.Write(more)
		check("append", err)
		check("append", f.Close())
		large = append(large, more...)
		want("read what was appended", dir+"/large", large)
		check("rename", there.Rename(ctx, dir+"/small", dir+"/renamed"))
		want("read under the new name", dir+"/renamed", more)
		check("rename of the directory", there.Rename(ctx, dir, dir+"-moved"))
		want("read in the renamed directory", dir+"-moved/large", large)
		check("remove", there.Remove(ctx, dir+"-moved/renamed"))
		if _, err := here.Stat(ctx, dir+"-moved/renamed"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: what was removed elsewhere: %v", dir, err)
		}
	}
}

// drains drains the files of both daemons at one, and stages them out and in.
func drains(t *testing.T, what string, by *client.Client, store string) {
	t.Helper()
	ctx := t.Context()
	for _, step := range []struct {
		name string
		do   func() (admin.Report, error)
	}{
		{"drain", func() (admin.Report, error) { return admin.Drain(ctx, by, "mixed", time.Minute, nil) }},
		{"stage-out", func() (admin.Report, error) {
			return admin.StageOut(ctx, by, admin.StageRequest{Buffer: "mixed", URL: "file://" + store + "/" + what}, nil)
		}},
		{"stage-in", func() (admin.Report, error) {
			return admin.StageIn(ctx, by, admin.StageRequest{Buffer: "mixed", Path: what, URL: "file://" + store + "/" + what}, nil)
		}},
	} {
		if r, err := step.do(); err != nil || r.FilesTotal == 0 && step.name != "drain" {
			t.Fatalf("%s, %s by %s: %+v %v", what, step.name, by.Server().Node, r, err)
		}
	}
}

func wantUnsupported(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", what, err, part)
		}
	}
}

// A cluster of the previous version is upgraded daemon by daemon while clients work at each. The
// versions read, write, rename, remove, drain and stage each other's files, no byte is wrong, and
// functions of the new version are refused until all are new.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another release")
	}
	m := newMixedCluster(t, 3)
	var daemons []*bbdtest.Daemon
	for i := range 3 {
		daemons = append(daemons, m.add(fmt.Sprintf("n%d", i+1), previous))
	}
	bbdtest.StartAll(t, daemons...)
	ctx := t.Context()
	var clients []*client.Client
	for _, d := range daemons {
		clients = append(clients, lasting(t, d))
	}
	for i, c := range clients {
		if v := c.Server().Protocol; v != previous.Max {
			t.Fatalf("a session with %s has version %d", c.Server().Node, v)
		}
		for k := range daemons {
			m.seen(c, fmt.Sprintf("n%d", k+1), ready(previous.Max))
		}
		_ = i
	}
	store := t.TempDir()
	for _, name := range []string{"work", "mixed"} {
		if err := os.Mkdir(filepath.Join(store, name), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateBuffer(ctx, clients[0], admin.BufferSpec{Name: name, Backing: "file://" + filepath.Join(store, name)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.CreateBuffer(ctx, clients[0], admin.BufferSpec{Name: "scratch"}); err != nil {
		t.Fatal(err)
	}
	write := func(at int, buffer, name string, seed uint64, size int) {
		t.Helper()
		if err := clients[at].Buffer(buffer).WriteFile(ctx, name, clustertest.Content(seed, size), 0); err != nil {
			t.Fatal(err)
		}
	}
	want := func(at int, buffer, name string, seed uint64, size int) {
		t.Helper()
		got, err := clients[at].Buffer(buffer).ReadFile(ctx, name)
		if err != nil || string(got) != string(clustertest.Content(seed, size)) {
			t.Errorf("%s/%s at n%d: %d bytes, %v", buffer, name, at+1, len(got), err)
		}
	}
	for i := range daemons {
		write(i, "scratch", fmt.Sprintf("f%d", i), uint64(i), 2<<20)
	}
	peers := []string{"c0", "c1", "c2"}
	var load []*clustertest.Client
	for i, d := range daemons {
		load = append(load, clustertest.Start(t, clustertest.Options{
			Name: peers[i], Address: "unix://" + d.Socket, Buffer: "work", Peers: peers, Seed: uint64(i), MaxSize: 256 << 10,
		}))
	}
	_, err := admin.Operations(ctx, clients[0])
	wantUnsupported(t, "jobs of the previous version", err, "came with protocol version 2", "of node n1 uses version 1", "upgrade")
	two := admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}}
	_, err = admin.CreateBuffer(ctx, clients[0], two)
	wantUnsupported(t, "second copies asked of the previous version", err, "of node n1 uses version 1")

	// The first is stopped and started.
	daemons[0].Stop()
	m.upgrade(daemons[0])
	for i := range daemons[1:] {
		m.seen(clients[i+1], "n1", ready(wire.MaxVersion))
		m.seen(clients[0], fmt.Sprintf("n%d", i+2), ready(previous.Max))
	}
	if v := clients[0].Server().Protocol; v != wire.MaxVersion {
		t.Errorf("the session with the upgraded daemon has version %d", v)
	}
	exchange(t, "mixed", clients[0], clients[1])
	for i, c := range clients[:2] {
		write(0, "mixed", fmt.Sprintf("new%d", i), 7, 100_000)
		write(1, "mixed", fmt.Sprintf("old%d", i), 8, 100_000)
		drains(t, fmt.Sprintf("by%d", i+1), c, store)
	}
	_, err = admin.CreateBuffer(ctx, clients[0], two)
	wantUnsupported(t, "second copies in a mixed cluster", err, "came with protocol version 2", "uses version 1", "upgrade")
	want(0, "scratch", "f1", 1, 2<<20)
	want(1, "scratch", "f0", 0, 2<<20)

	// The second is drained first, by one of the other version. The third is killed.
	if r, err := admin.DrainNode(ctx, clients[0], "n2", nil); err != nil {
		t.Logf("draining n2 under load: %+v %v", r, err) // files may be open
	}
	daemons[1].Stop()
	m.upgrade(daemons[1])
	m.seen(clients[2], "n2", ready(wire.MaxVersion))
	exchange(t, "second", clients[1], clients[2])
	daemons[2].Kill()
	m.upgrade(daemons[2])
	for _, c := range clients {
		m.seen(c, "n3", ready(wire.MaxVersion))
		m.seen(c, "n2", ready(wire.MaxVersion))
		m.seen(c, "n1", ready(wire.MaxVersion))
	}
	exchange(t, "last", clients[2], clients[0])
	clustertest.StopAll(load...)

	// Now there are jobs and second copies.
	if _, err := admin.CreateBuffer(ctx, clients[0], two); err != nil {
		t.Fatal(err)
	}
	const kept = 32 << 20
	write(2, "two", "f", 9, kept)
	write(0, "mixed", "new", 7, 100_000)
	drains(t, "after", clients[1], store)
	if jobs, err := admin.Operations(ctx, clients[2]); err != nil || len(jobs) < 3 {
		t.Errorf("jobs after the upgrade: %+v %v", jobs, err)
	}
	for i := range daemons {
		want(2-i, "scratch", fmt.Sprintf("f%d", i), uint64(i), 2<<20)
	}
	m.judge(load, daemons, store)

	// A daemon that is downgraded refuses records that it must not ignore, and keeps the bytes
	// in its memory for the next one.
	daemons[2].Stop()
	daemons[2].Speaks = previous
	daemons[2].Start()
	old := dial(t, daemons[2])
	_, err = old.Buffer("two").ReadFile(ctx, "f")
	wantUnsupported(t, "a buffer that the older release does not know", err, "record format 3, this release reads 1 to 1", "use the release that wrote it")
	if n := m.seen(clients[0], "n3", ready(previous.Max)); n.Memory.Capacity-n.Memory.Free < kept {
		t.Errorf("it has dropped what it does not know: %+v", n.Memory)
	}
	daemons[2].Stop()
	m.upgrade(daemons[2])
	want(2, "two", "f", 9, kept)
}

// judge compares the acknowledged changes of the load with the final state.
func (m *mixedCluster) judge(load []*clustertest.Client, daemons []*bbdtest.Daemon, store string) {
	t := m.t
	t.Helper()
	journals := clustertest.Journals(load...)
	var seen []clustertest.Observation
	for _, d := range daemons {
		o, err := clustertest.Observe(t.Context(), client.Options{Address: "unix://" + d.Socket}, "work", journals, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, o)
	}
	if r, err := admin.Drain(t.Context(), dial(t, daemons[0]), "work", time.Minute, nil); err != nil {
		t.Fatalf("%+v %v", r, err)
	}
	files, err := clustertest.StoreFiles(filepath.Join(store, "work"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range files { // files of exchange are not in the journals
		if strings.Contains(name, "-moved/") {
			delete(files, name)
		}
	}
	for i := range seen {
		for name := range seen[i].Files {
			if strings.Contains(name, "-moved/") {
				delete(seen[i].Files, name)
			}
		}
	}
	v := clustertest.Check(journals, seen, clustertest.World{Store: files, Drained: true})
	for _, what := range slices.Concat(v.Violations, v.Contents) {
		t.Error(what)
	}
	t.Logf("%d files; operations %v; longest %v", v.Files, v.Outcomes, v.Longest)
	for _, op := range []clustertest.Op{clustertest.Put, clustertest.Sync, clustertest.Rename, clustertest.Remove, clustertest.Read} {
		if v.Outcomes[op][clustertest.OK] < 10 {
			t.Errorf("only %d of %s: the test does not test", v.Outcomes[op][clustertest.OK], op)
		}
	}
}

// hasLog reports whether the namespace of a buffer is a log.
func (m *mixedCluster) hasLog(buffer string) bool {
	m.t.Helper()
	streams := func(prefix string) int {
		found, err := filepath.Glob(filepath.Join(m.dir, "jetstream", "*", "streams", prefix+"_forebay-"+buffer+"-*"))
		if err != nil {
			m.t.Fatal(err)
		}
		return len(found)
	}
	logs, buckets := streams("NS"), streams("KV")
	if logs+buckets != 1 {
		m.t.Fatalf("buffer %s has %d logs and %d buckets", buffer, logs, buckets)
	}
	return logs == 1
}

// TestLogsInAMixedCluster: as long as a daemon of a release without logs is in the cluster, new buffers have buckets, which
// all daemons serve, and a setting that demands a log is refused with its name. After its upgrade they get logs.
func TestLogsInAMixedCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another release")
	}
	t.Parallel()
	m := newMixedCluster(t, 3)
	automatic, demanding, older := m.add("n1", wire.Versions{}), m.add("n2", wire.Versions{}), m.add("n3", previous)
	demanding.Args = append(demanding.Args, withLog...)
	daemons := []*bbdtest.Daemon{automatic, demanding, older}
	bbdtest.StartAll(t, daemons...)
	var clients []*client.Client
	for _, d := range daemons {
		clients = append(clients, lasting(t, d))
	}
	for _, c := range clients[:2] {
		m.seen(c, "n3", ready(previous.Max))
	}
	serve := func(buffer string) {
		t.Helper()
		for i, c := range clients {
			name, text := fmt.Sprint("by", i), fmt.Sprint("n", i+1)
			if err := c.Buffer(buffer).WriteFile(t.Context(), name, []byte(text), 0o644); err != nil {
				t.Fatalf("%s at n%d: %v", buffer, i+1, err)
			}
			for k, other := range clients {
				if got, err := other.Buffer(buffer).ReadFile(t.Context(), name); err != nil || string(got) != text {
					t.Errorf("%s of %s at n%d: %q, %v", name, buffer, k+1, got, err)
				}
			}
		}
	}
	create := func(by int, buffer string) error {
		_, err := admin.CreateBuffer(t.Context(), clients[by], admin.BufferSpec{Name: buffer})
		return err
	}
	if err := create(0, "early"); err != nil || m.hasLog("early") {
		t.Fatalf("in a mixed cluster, by n1: a log: %v (%v)", m.hasLog("early"), err)
	}
	if text := automatic.Log(); !strings.Contains(text, "kept in a bucket") || !strings.Contains(text, "of node n3 uses version 1") {
		t.Errorf("n1 does not log why:\n%s", text)
	}
	wantUnsupported(t, "a log in a mixed cluster", create(1, "refused"), "namespaces that are logs", "of node n3 uses version 1", "upgrade")
	if err := create(2, "old"); err != nil || m.hasLog("old") {
		t.Fatalf("by n3: a log: %v (%v)", m.hasLog("old"), err)
	}
	serve("early")
	older.Stop()
	m.upgrade(older)
	for _, c := range clients {
		m.seen(c, "n3", ready(wire.MaxVersion))
	}
	for by, buffer := range []string{"late0", "late1", "late2"} {
		if err := create(by, buffer); err != nil || !m.hasLog(buffer) {
			t.Fatalf("after the upgrade, by n%d: a log: %v (%v)", by+1, m.hasLog(buffer), err)
		}
		serve(buffer)
	}
	serve("early")
}

// A daemon that has no version in common with those that serve does not begin to, is shown, and
// disturbs no other. When they are gone it serves, and they wait.
func TestStranger(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another release")
	}
	t.Parallel()
	m := newMixedCluster(t, 2)
	n1, n9 := m.add("n1", wire.Versions{}), m.add("n9", stranger)
	args := n1.Args
	n1.Args = append(slices.Clone(args), "--cluster-join", m.gossip[0]) // it need not look for another
	n1.Start()
	n1.Args = args
	c := dial(t, n1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	store := t.TempDir()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	starts := func(d *bbdtest.Daemon) chan error {
		d.Build()
		started := make(chan error, 1)
		go func() { started <- d.TryStart() }()
		return started
	}
	waits := func(d *bbdtest.Daemon, parts ...string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(d.Log(), "the start waits, without clients"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it does not wait:\n%s", d.Log())
			}
		}
		for _, part := range parts {
			if !strings.Contains(d.Log(), part) {
				t.Errorf("it does not say %q:\n%s", part, d.Log())
			}
		}
	}
	started := starts(n9)
	waits(n9, "of node n9 supports protocol version 7", "of node n1 supports protocol versions 1 to 2", "upgrade bbd", "to a release that supports version 7")
	n := m.seen(c, "n9", func(n admin.Node) bool { return n.State == "starting" && n.MaxVersion == stranger.Max })
	if !strings.Contains(n.Refused, "supports protocol version 7") || !strings.Contains(n.Refused, "of node n1 to a release that supports version 7") {
		t.Errorf("n1 says of it: %q", n.Refused)
	}
	// Work of all daemons continues without it.
	if err := errors.Join(b.Mkdir(ctx, "d", 0o755), b.WriteFile(ctx, "d/f", clustertest.Content(1, 1<<20), 0), b.Rename(ctx, "d", "e")); err != nil {
		t.Fatal(err)
	}
	if r, err := admin.Drain(ctx, c, "b", time.Minute, nil); err != nil {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := admin.StageOut(ctx, c, admin.StageRequest{Buffer: "b", URL: "file://" + store + "/out"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "two", Replicas: 2}); err != nil {
		t.Errorf("it keeps others from their version: %v", err)
	}
	select {
	case err := <-started:
		t.Fatalf("it started: %v", err)
	default:
	}

	// The others are gone. Now it serves, and clients of other versions get an error that names the
	// versions.
	n1.Stop()
	if err := <-started; err != nil {
		t.Fatalf("%v\n%s", err, n9.Log())
	}
	_, err := client.Dial(ctx, client.Options{Address: "unix://" + n9.Socket, Name: "old client"})
	wantUnsupported(t, "a client of another version", err, "old client supports protocol versions 1 to 2", "of node n9 supports protocol version 7", "upgrade old client to a release that supports version 7")
	started = starts(n1)
	waits(n1, "of node n1 supports protocol versions 1 to 2", "of node n9 supports protocol version 7", "upgrade bbd")
	n9.Stop()
	if err := <-started; err != nil {
		t.Fatalf("%v\n%s", err, n1.Log())
	}
	got, err := dial(t, n1).Buffer("b").ReadFile(ctx, "e/f")
	if err != nil || string(got) != string(clustertest.Content(1, 1<<20)) {
		t.Errorf("what was there: %d bytes, %v", len(got), err)
	}
}

// A request between daemons of incompatible versions fails in the handshake.
func TestStrangerPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another release")
	}
	t.Parallel()
	d := bbdtest.New(t)
	address := bbdtest.FreePort(t, "127.0.0.1")
	d.Config = fmt.Sprintf(`
name: n9
listen: {tcp: %q, admin: "127.0.0.1:0"}
insecure: true
memory: {size: 128MiB, region_size: 64MiB}
`, address)
	d.Speaks = stranger
	d.Start()
	_, err := peer.Dial(t.Context(), "n9", address, &peer.Identity{Node: "n1", Version: "1.2"}, peer.Who{System: true}, nil)
	var e *bb.Error
	if !errors.As(err, &e) || e.Kind != bb.Unsupported || e.Node != "n9" {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"bbd 1.2 of node n1 supports protocol versions 1 to 2", "of node n9 supports protocol version 7", "upgrade bbd 1.2 of node n1 to a release that supports version 7"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
