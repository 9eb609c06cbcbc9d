package bbd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/bbd/fabric"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/embedded"
	"forebay/meta/gossip"
)

// directory stands for gossip. All daemons of a test have the same members at once.
type directory struct {
	sync.Mutex
	all  map[bb.NodeID]func() gossip.Member
	full bool // no node that runs accepts files
}

func (d *directory) set(node bb.NodeID, m func() gossip.Member) {
	d.Lock()
	defer d.Unlock()
	d.all[node] = m
}

func (d *directory) Member(node bb.NodeID) (gossip.Member, bool) {
	d.Lock()
	defer d.Unlock()
	m, ok := d.all[node]
	if !ok {
		return gossip.Member{}, false
	}
	return d.reported(m()), true
}

// fill has no node that runs accept files, or those that do anyhow.
func (d *directory) fill(full bool) {
	d.Lock()
	defer d.Unlock()
	d.full = full
}

// reported is a member as gossip reports it. d is locked.
func (d *directory) reported(m gossip.Member) gossip.Member {
	if d.full && m.State == gossip.Ready {
		m.State = gossip.Draining
	}
	return m
}

func (d *directory) Addr() string { return "127.0.0.1:0" }

func (d *directory) Members() []gossip.Member {
	d.Lock()
	defer d.Unlock()
	var all []gossip.Member
	for _, m := range d.all {
		all = append(all, d.reported(m()))
	}
	slices.SortFunc(all, func(x, y gossip.Member) int { return strings.Compare(string(x.Node), string(y.Node)) })
	return all
}

// startCluster starts daemons in this process that share a namespace server.
func startCluster(t *testing.T, count int) []*node {
	t.Helper()
	return startClusterWith(t, count, func(*bbd.Config) {})
}

// startClusterOnBuckets is startCluster for tests in which a server forgets a single name. A log has none.
func startClusterOnBuckets(t *testing.T, count int) []*node {
	t.Helper()
	return startClusterWith(t, count, func(c *bbd.Config) { c.Meta.Engine = meta.EngineBuckets })
}

// clusterOFI has the daemons' settings of libfabric. They use it in a build that has it.
var clusterOFI fabric.OFI

// startClusterWith is startCluster with a change to each daemon's configuration.
func startClusterWith(t *testing.T, count int, change func(*bbd.Config)) []*node {
	t.Helper()
	nodes := newCluster(t, count, change)
	for _, n := range nodes {
		n.start()
	}
	return nodes
}

// newCluster is startClusterWith that starts the server alone.
func newCluster(t *testing.T, count int, change func(*bbd.Config)) []*node {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	members := &directory{all: make(map[bb.NodeID]func() gossip.Member)}
	base := t.TempDir()
	nodes := make([]*node, count)
	for i := range nodes {
		name := bb.NodeID(fmt.Sprintf("n%d", i+1))
		dir, err := os.MkdirTemp("", "bbd")
		if err != nil {
			t.Fatal(err)
		}
		n := &node{t: t, dir: dir, base: base, socket: filepath.Join(dir, "bbd.sock"), faults: fault.NewPlan(), shared: server, members: members}
		n.name = name
		n.change = func(c *bbd.Config) {
			c.Node, c.Members, c.TCP, c.Fabric, c.Insecure = name, members, "127.0.0.1:0", "127.0.0.1:0", true
			c.Meta = meta.Options{InProcess: server, Node: name, Engine: meta.Engine(os.Getenv("FOREBAY_TEST_ENGINE"))}
			c.OFI = clusterOFI
			change(c)
		}
		t.Cleanup(func() {
			n.stop()
			os.RemoveAll(dir)
			os.RemoveAll(n.shm())
		})
		nodes[i] = n
	}
	return nodes
}

func TestClusterReadElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	contents := map[string][]byte{}
	for _, size := range []int{0, 1, 4096, 70_000, 1 << 20, 9<<20 + 7} {
		name := fmt.Sprintf("file%d", size)
		contents[name] = random(size)
		write(t, b, name, contents[name])
	}
	for _, n := range nodes[1:] {
		there := n.dial().Buffer("shared")
		for range 2 { // the second time from the copy
			for name, content := range contents {
				wantFile(t, there, name, content)
			}
		}
	}
	// Files that are removed or replaced at any node are so everywhere.
	there := nodes[2].dial().Buffer("shared")
	if err := there.Remove(t.Context(), "file1"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stat(t.Context(), "file1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file is there: %v", err)
	}
	replaced := random(3 << 20)
	write(t, there, "file4096", replaced)
	wantFile(t, b, "file4096", replaced)
	if err := there.Rename(t.Context(), "file70000", "renamed"); err != nil {
		t.Fatal(err)
	}
	wantFile(t, nodes[1].dial().Buffer("shared"), "renamed", contents["file70000"])
	drain(t, c, "shared")
}

// TestClusterReaderKeepsGeneration: a reader keeps the generation that it opened while the
// file is replaced at its owner (contract 3).
func TestClusterReaderKeepsGeneration(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	first, second := random(5<<20), random(5<<20)
	write(t, b, "f", first)
	reader, err := there.Open(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	write(t, b, "f", second)
	wantFile(t, there, "f", second)
	got := make([]byte, len(first))
	if _, err := reader.ReadAt(got, 0); err != nil || !bytes.Equal(got, first) {
		t.Errorf("the open reader does not see what it opened (%v)", err)
	}
	if err := there.Remove(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.ReadAt(got, 0); err != nil || !bytes.Equal(got, first) {
		t.Errorf("the open reader does not see what it opened after the removal (%v)", err)
	}
}

// TestClusterSharedFile: many writers on all nodes write one file in interleaved records
// that fit nothing, and it becomes one file on POSIX, and one object on S3.
func TestClusterSharedFile(t *testing.T) {
	t.Run("posix", func(t *testing.T) {
		nodes := startCluster(t, 4)
		c := nodes[0].dial()
		_, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
		want := writeShared(t, nodes)
		drain(t, c, "shared")
		got, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("the store has %d bytes, want %d (%v)", len(got), len(want), err)
		}
	})
	t.Run("s3", func(t *testing.T) {
		server := s3Credentials(t)
		nodes := startCluster(t, 4)
		c := nodes[0].dial()
		bucket := server.Bucket(t, "results")
		nodes[0].buffer(c, admin.BufferSpec{Name: "shared", Backing: server.URL(bucket, "run")})
		want := writeShared(t, nodes)
		drain(t, c, "shared")
		wantObjects(t, objects(t, server, bucket, "run"), map[string][]byte{"checkpoint": want})
	})
}

// writeShared has 64 writers on all nodes write a file, and reads it at each.
func writeShared(t *testing.T, nodes []*node) []byte {
	t.Helper()
	const (
		record  = 47_008
		writers = 64
		rounds  = 5
	)
	want := random(record * writers * rounds)
	var wg sync.WaitGroup
	for w := range writers {
		there := nodes[w%len(nodes)].dial().Buffer("shared")
		wg.Go(func() {
			f, err := there.OpenFile(t.Context(), "checkpoint", client.OpenOptions{Write: true, Create: true, Mode: 0o644})
			if err != nil {
				t.Errorf("writer %d: %v", w, err)
				return
			}
			for r := range rounds {
				off := (r*writers + w) * record
				if _, err := f.WriteAt(want[off:off+record], int64(off)); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
				if r == rounds/2 {
					if err := f.Sync(); err != nil {
						t.Errorf("writer %d: sync: %v", w, err)
					}
				}
			}
			if err := f.Close(); err != nil {
				t.Errorf("writer %d: close: %v", w, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, n := range nodes {
		wantFile(t, n.dial().Buffer("shared"), "checkpoint", want)
	}
	return want
}

// TestClusterOpenFileSeenElsewhere: the committed part of a file that is being written is visible
// at other nodes, and no more than that (contract 1).
func TestClusterOpenFileSeenElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	f, err := b.Create(t.Context(), "log")
	if err != nil {
		t.Fatal(err)
	}
	want := random(200_000)
	if _, err := f.Write(want[:100_000]); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, there, "log", want[:100_000])
	if _, err := f.Write(want[100_000:]); err != nil {
		t.Fatal(err)
	}
	wantFile(t, there, "log", want[:100_000])
	if e, err := there.Stat(t.Context(), "log"); err != nil || e.Size != 100_000 {
		t.Errorf("its size is %d elsewhere (%v)", e.Size, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, there, "log", want)
	// A writer at another node continues where this one ended.
	g, err := there.OpenFile(t.Context(), "log", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WriteAt(want[:1000], int64(len(want))); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "log", append(slices.Clone(want), want[:1000]...))
}

// TestClusterUnavailable: a dirty file whose owner is away is unavailable, not lost, and
// a clean one is read from the store.
func TestClusterUnavailable(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", NoFlush: []string{"*.tmp"}})
	clean, dirty := random(2<<20), random(1<<20)
	write(t, b, "clean", clean)
	write(t, b, "dirty.tmp", dirty)
	eventually(t, "the first file is clean", func() bool {
		e, err := b.Stat(t.Context(), "clean")
		return err == nil && e.State == client.StateClean
	})
	there := nodes[1].dial().Buffer("shared")
	c.Close()
	nodes[0].stop()
	wantFile(t, there, "clean", clean)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := there.ReadFile(ctx, "dirty.tmp"); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "n1") {
		t.Errorf("a file whose owner is away: %v", err)
	}
	nodes[0].start()
	wantFile(t, there, "dirty.tmp", dirty)
}

// TestClusterDrain: a drain that is requested from one daemon flushes the files of all.
func TestClusterDrain(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	_, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	want := map[string][]byte{}
	for i, n := range nodes {
		there := n.dial().Buffer("shared")
		for k := range 3 {
			name := fmt.Sprintf("node%d-%d", i, k)
			want[name] = random(300_000 + 1000*k)
			write(t, there, name, want[name])
		}
	}
	report, err := admin.Drain(t.Context(), c, "shared", 30*time.Second, nil)
	if err != nil {
		t.Fatalf("drain: %v (%+v)", err, report)
	}
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s in the store: %d bytes, want %d (%v)", name, len(got), len(content), err)
		}
	}
	// Files of a daemon that is away are named.
	write(t, nodes[2].dial().Buffer("shared"), "late", want["node0-0"])
	nodes[2].away()
	report, err = admin.Drain(t.Context(), c, "shared", 30*time.Second, nil)
	if err == nil || len(report.Failed) != 1 || report.Failed[0].Path != "late" || !strings.Contains(report.Failed[0].Reason, "n3") {
		t.Errorf("a drain without an owner: %v (%+v)", err, report)
	}
}

// away stops the daemon and makes gossip report that.
func (n *node) away() {
	n.stop()
	n.members.set(n.name, func() gossip.Member { return gossip.Member{Node: n.name, State: gossip.Dead} })
}

// TestClusterOpenFileAtSecondCopy: the owner of a file that is being written goes away. Committed
// bytes are read at its second copy, also by clients of that very node.
func TestClusterOpenFileAtSecondCopy(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	f, err := b.Create(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	content := random(3 << 20)
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].dead()
	wantFile(t, nodes[1].dial().Buffer("two"), "f", content)
}

// wipe removes a stopped daemon's memory.
func (n *node) wipe() {
	n.t.Helper()
	if err := os.RemoveAll(n.shm()); err != nil {
		n.t.Fatal(err)
	}
}

// TestClusterDirectoryRename: names in the store follow a directory's rename at one
// node, also of files that other nodes flush.
func TestClusterDirectoryRename(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	want := map[string][]byte{}
	for round := range 5 {
		from, to := fmt.Sprintf("from%d", round), fmt.Sprintf("to%d", round)
		if err := b.Mkdir(t.Context(), from, 0o755); err != nil {
			t.Fatal(err)
		}
		for k := range 10 {
			content := random(100_000)
			write(t, there, fmt.Sprintf("%s/%d", from, k), content)
			want[fmt.Sprintf("%s/%d", to, k)] = content
		}
		if err := b.Rename(t.Context(), from, to); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, c, "shared")
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s in the store: %d bytes, want %d (%v)", name, len(got), len(content), err)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), "from") {
			left, _ := os.ReadDir(filepath.Join(dir, n.Name()))
			t.Errorf("%s is in the store, with %d entries", n.Name(), len(left))
		}
	}
}

// TestClusterNodeDrainTo: a node's files move to the named nodes, without a wait for a store, and
// those without room there move elsewhere.
func TestClusterNodeDrainTo(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	for _, spec := range []admin.BufferSpec{{Name: "scratch"}, {Name: "backed", Backing: "file://" + t.TempDir(), DirtyAge: time.Hour, FlushLimit: 1}} {
		if _, err := admin.CreateBuffer(t.Context(), c, spec); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]byte{}
	for _, size := range []int{0, 70_000, 3 << 20} {
		name := fmt.Sprintf("f%d", size)
		want[name] = random(size)
		write(t, c.Buffer("scratch"), name, want[name])
		write(t, c.Buffer("backed"), name, want[name])
	}
	there := nodes[1].dial()
	if _, err := admin.DrainNode(t.Context(), there, "n1", nil, "n1", "n7"); bb.KindOf(err) != bb.Unavailable {
		t.Errorf("to nodes that are not there: %v", err)
	}
	p, err := admin.DrainNode(t.Context(), there, "n1", nil, "n3", "n7")
	if err != nil || p.FilesDone < 3 {
		t.Fatalf("node drain: %v (%+v)", err, p)
	}
	for _, buffer := range []string{"scratch", "backed"} {
		for name := range want {
			e, err := there.Buffer(buffer).Stat(t.Context(), name)
			if err != nil || e.State != client.StateClean && (len(e.Holders) == 0 || e.Holders[0] != "n3") {
				t.Errorf("%s of %s: %+v (%v)", name, buffer, e, err)
			}
		}
	}
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	for name, content := range want {
		wantFile(t, there.Buffer("scratch"), name, content)
		wantFile(t, there.Buffer("backed"), name, content)
	}
}

// TestClusterNodeDrain: a drained node can go, and nothing is missing.
func TestClusterNodeDrain(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "scratch"}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("scratch")
	want := map[string][]byte{}
	for _, size := range []int{0, 10, 70_000, 5 << 20} {
		name := fmt.Sprintf("f%d", size)
		want[name] = random(size)
		write(t, b, name, want[name])
	}
	there := nodes[1].dial()
	p, err := admin.DrainNode(t.Context(), there, "n1", nil)
	if err != nil {
		t.Fatalf("node drain: %v (%+v)", err, p)
	}
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	for name, content := range want {
		wantFile(t, there.Buffer("scratch"), name, content)
		wantFile(t, nodes[2].dial().Buffer("scratch"), name, content)
	}
	lost, err := there.Buffer("scratch").Lost(t.Context())
	if err != nil || len(lost) != 0 {
		t.Errorf("lost: %v (%v)", lost, err)
	}
}

// TestClusterNodeUndrain: a node that was drained takes nothing in until that is undone, by a
// request to any daemon. While it is being drained that is refused.
func TestClusterNodeUndrain(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	here, there := nodes[0].dial(), nodes[1].dial()
	b := scratch(t, here, "scratch")
	owner := func(name string) admin.NodeID {
		t.Helper()
		write(t, b, name, random(1000))
		e, err := b.Stat(t.Context(), name)
		if err != nil || len(e.Holders) == 0 {
			t.Fatalf("%+v (%v)", e, err)
		}
		return e.Holders[0]
	}
	if _, err := admin.DrainNode(t.Context(), there, "n1", nil); err != nil {
		t.Fatal(err)
	}
	if got := owner("drained"); got != "n2" {
		t.Errorf("a drained node took a file in: %s", got)
	}
	if err := admin.UndrainNode(t.Context(), there, "n1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is ready to all", func() bool {
		ready := 0
		list, err := admin.Nodes(t.Context(), there)
		for _, n := range list {
			if n.State == "ready" {
				ready++
			}
		}
		return err == nil && ready == 2
	})
	if got := owner("undrained"); got != "n1" {
		t.Errorf("a node that was undrained takes nothing in: %s", got)
	}
	nodes[0].daemon.BeginNodeDrain()
	if err := admin.UndrainNode(t.Context(), there, "n1"); client.KindOf(err) != client.ErrBusy {
		t.Errorf("undrained while it is being drained: %v", err)
	}
}

// TestClusterDrainedToUser: files of a drained node go to the node that used them last,
// most of them, and none to one that is full by gossip.
func TestClusterDrainedToUser(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 4)
	eventually(t, "memory can be used: who has none ready yet refuses", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return n.status().Memory.Populating })
	})
	b := scratch(t, nodes[0].dial(), "shared")
	full := nodes[3].daemon.Self
	nodes[3].members.set("n4", func() gossip.Member { m := full(); m.Memory.Free = 0; return m })
	const files = 40
	there := nodes[2].dial().Buffer("shared")
	for i := range files { // half of them are read at n3, half written
		name, content := fmt.Sprint("f", i), random(100)
		write(t, b, name, content)
		if i%2 == 0 {
			wantFile(t, there, name, content)
		} else {
			f, err := there.OpenFile(t.Context(), name, client.OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			f.WriteAt([]byte("more"), 100)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if p, err := admin.DrainNode(t.Context(), nodes[1].dial(), "n1", nil); err != nil {
		t.Fatalf("node drain: %v (%+v)", err, p)
	}
	owners := map[admin.NodeID]int{}
	for i := range files {
		e, err := b.Stat(t.Context(), fmt.Sprint("f", i))
		if err != nil {
			t.Fatal(err)
		}
		owners[e.Holders[0]]++
	}
	// admit.Place gives 38 of 40 to one of two that is near, and 20 if it is not.
	if owners["n3"] < 32 || owners["n4"] > 0 || owners["n1"] > 0 {
		t.Errorf("the files are at %v", owners)
	}
}

// TestClusterForget: files that only a dead node held are unavailable until it is declared dead,
// and lost, by name, from then on. Files on the store stay.
func TestClusterForget(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", NoFlush: []string{"*.tmp"}})
	there := nodes[1].dial()
	clean, dirty := random(2<<20), random(1<<20)
	write(t, b, "clean", clean)
	write(t, b, "dirty.tmp", dirty)
	eventually(t, "the first file is clean", func() bool {
		e, err := b.Stat(t.Context(), "clean")
		return err == nil && e.State == client.StateClean
	})
	if _, err := admin.ForgetNode(t.Context(), there, "n1"); !errors.Is(err, client.ErrBusy) {
		t.Errorf("forgetting a node that answers: %v", err)
	}
	c.Close()
	nodes[0].away()
	if _, err := there.Buffer("shared").ReadFile(t.Context(), "dirty.tmp"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("before it is declared dead: %v", err)
	}
	for range 2 { // the first look changes nothing
		loss, err := admin.NodeLoss(t.Context(), there, "n1")
		if err != nil || len(loss.Lost) != 1 || loss.Lost[0].Address != "bb://shared/dirty.tmp" || loss.LostBytes != 1<<20 || loss.Kept != 1 {
			t.Errorf("would be forgotten: %+v (%v)", loss, err)
		}
	}
	forgotten, err := admin.ForgetNode(t.Context(), there, "n1")
	if err != nil || len(forgotten.Lost) != 1 || forgotten.Lost[0].Address != "bb://shared/dirty.tmp" || forgotten.LostBytes != 1<<20 || forgotten.Kept != 1 {
		t.Errorf("forgotten: %+v (%v)", forgotten, err)
	}
	if _, err := there.Buffer("shared").ReadFile(t.Context(), "dirty.tmp"); !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "n1") {
		t.Errorf("after it was declared dead: %v", err)
	}
	wantFile(t, there.Buffer("shared"), "clean", clean)
	// It comes back with all its memory, and finds that it was declared dead.
	nodes[0].start()
	back := nodes[0].dial().Buffer("shared")
	wantFile(t, back, "clean", clean)
	if _, err := back.ReadFile(t.Context(), "dirty.tmp"); !errors.Is(err, client.ErrLost) {
		t.Errorf("at the node that came back: %v", err)
	}
}

// TestClusterNewInstance: a daemon that comes back without its memory reports at once the files
// that it had alone.
func TestClusterNewInstance(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared", NoFlush: []string{"*.tmp"}})
	there := nodes[1].dial()
	write(t, b, "dirty.tmp", random(1<<20))
	mine := random(1 << 20)
	write(t, there.Buffer("shared"), "mine.tmp", mine)
	wantFile(t, b, "mine.tmp", mine) // a copy, which goes with the memory
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	nodes[0].start()
	lost, err := there.Buffer("shared").Lost(t.Context())
	if err != nil || len(lost) != 1 || !strings.HasSuffix(lost[0].Path, "dirty.tmp") {
		t.Errorf("lost: %+v (%v)", lost, err)
	}
	wantFile(t, nodes[0].dial().Buffer("shared"), "mine.tmp", mine)
}

// TestClusterDestroyedElsewhere: a buffer that another daemon destroyed is gone here,
// with its bytes, and one made anew under its name is another one.
func TestClusterDestroyedElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial()
	write(t, there.Buffer("shared"), "f", random(3<<20))
	if err := admin.DestroyBuffer(t.Context(), c, "shared"); !errors.Is(err, client.ErrBusy) {
		t.Errorf("destroying a buffer that is dirty elsewhere: %v", err)
	}
	if err := admin.DiscardBuffer(t.Context(), c, "shared"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other daemon drops its bytes", func() bool {
		s := nodes[1].status()
		return len(s.Buffers) == 0 && s.Memory.Dirty == 0
	})
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	if _, err := there.Buffer("shared").Stat(t.Context(), "f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the destroyed buffer: %v", err)
	}
	write(t, b, "f", []byte("new"))
	wantFile(t, there.Buffer("shared"), "f", []byte("new"))
}

// TestClusterOverflow: files of a buffer that is never flushed, larger together than one
// node's memory, move to another node while more is written.
func TestClusterOverflow(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "scratch"}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("scratch")
	want := map[string][]byte{}
	for i := range 20 { // 80 MiB, of 64 that a node has
		name := fmt.Sprintf("f%d", i)
		want[name] = random(4 << 20)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := b.WriteFile(ctx, name, want[name], 0o644); err != nil {
			t.Fatalf("writing %s: %v", name, err)
		}
		cancel()
	}
	for _, n := range nodes[:2] {
		there := n.dial().Buffer("scratch")
		for name, content := range want {
			wantFile(t, there, name, content)
		}
	}
}

// TestClusterReplicas: with two copies, synced and closed bytes survive the loss of
// either node (contracts, Durability).
func TestClusterReplicas(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"the owner", "the second node"} {
		t.Run(lost, func(t *testing.T) {
			nodes := startCluster(t, 3)
			c := nodes[0].dial()
			if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "two", Replicas: 2}); err != nil {
				t.Fatal(err)
			}
			b := c.Buffer("two")
			want := map[string][]byte{}
			for _, size := range []int{0, 100, 70_000, 5<<20 + 3} {
				name := fmt.Sprintf("f%d", size)
				want[name] = random(size)
				write(t, b, name, want[name])
			}
			// One that is written again in part, and one that is synced and not closed.
			f, err := b.OpenFile(t.Context(), "f70000", client.OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			copy(want["f70000"][1000:], "changed")
			if _, err := f.WriteAt([]byte("changed"), 1000); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			open, err := b.Create(t.Context(), "open")
			if err != nil {
				t.Fatal(err)
			}
			want["open"] = random(300_000)
			for half := range 2 {
				if _, err := open.Write(want["open"][half*150_000 : (half+1)*150_000]); err != nil {
					t.Fatal(err)
				}
				if err := open.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			e, err := b.Stat(t.Context(), "open")
			if err != nil || len(e.Holders) != 2 || e.Holders[0] != "n1" {
				t.Fatalf("holders: %v (%v)", e.Holders, err)
			}
			gone, left := nodes[0], nodes[1]
			if lost != "the owner" {
				gone, left = left, gone
				for _, n := range nodes {
					if n.name == e.Holders[1] {
						gone = n
					}
				}
			} else {
				c.Close()
			}
			gone.away()
			gone.wipe()
			there := left.dial()
			for name, content := range want { // before the node is declared dead
				wantFile(t, there.Buffer("two"), name, content)
			}
			forgotten, err := admin.ForgetNode(t.Context(), there, gone.name)
			if err != nil || forgotten.LostTotal != 0 {
				t.Errorf("forgotten: %+v (%v)", forgotten, err)
			}
			for name, content := range want {
				wantFile(t, there.Buffer("two"), name, content)
			}
		})
	}
}

// TestClusterReplicaTakesOver: an owner that comes back without its memory gives its files
// to the nodes with the second copies, and nothing is lost.
func TestClusterReplicaTakesOver(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	spec := admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*.tmp"}}
	b, dir := nodes[0].buffer(c, spec)
	want := random(3 << 20)
	write(t, b, "f.tmp", want)
	c.Close()
	nodes[0].away()
	nodes[0].wipe()
	nodes[0].start()
	there := nodes[1].dial()
	eventually(t, "the second node is the owner", func() bool {
		e, err := there.Buffer("two").Stat(t.Context(), "f.tmp")
		return err == nil && e.Holders[0] == "n2"
	})
	wantFile(t, nodes[0].dial().Buffer("two"), "f.tmp", want)
	if err := there.Buffer("two").Rename(t.Context(), "f.tmp", "f"); err != nil {
		t.Fatal(err)
	}
	drain(t, there, "two")
	got, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the store has %d bytes, want %d (%v)", len(got), len(want), err)
	}
	eventually(t, "nothing is dirty", func() bool {
		return nodes[0].status().Memory.Dirty == 0 && nodes[1].status().Memory.Dirty == 0
	})
}

// TestClusterLateDiscard: a node that was declared dead comes back and requests that its files be
// discarded. The node that has taken its place keeps the only copy.
func TestClusterLateDiscard(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*.tmp"}})
	want := random(3 << 20)
	write(t, b, "f.tmp", want)
	c.Close()
	nodes[0].away()
	there := nodes[1].dial()
	if forgotten, err := admin.ForgetNode(t.Context(), there, "n1"); err != nil || forgotten.LostTotal != 0 {
		t.Fatalf("forgotten: %+v (%v)", forgotten, err)
	}
	nodes[0].start()
	for _, all := range []bool{false, true} {
		if err := nodes[0].daemon.Discard(t.Context(), "n2", "two", "f.tmp", all); bb.KindOf(err) != bb.Busy {
			t.Errorf("a discard of the only copy (all: %v): %v", all, err)
		}
		wantFile(t, there.Buffer("two"), "f.tmp", want)
	}
	if err := there.Buffer("two").Rename(t.Context(), "f.tmp", "f"); err != nil {
		t.Fatal(err)
	}
	drain(t, there, "two")
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the store has %d bytes, want %d (%v)", len(got), len(want), err)
	}
	// Files on the store may be dropped.
	if err := nodes[0].daemon.Discard(t.Context(), "n2", "two", "f", false); err != nil {
		t.Errorf("a discard of what the store has: %v", err)
	}
}

// TestClusterDiscardMeetsPromotion: the owner of files requests the node with the second copies to
// discard them, while these become the files. Promoted ones are there.
func TestClusterDiscardMeetsPromotion(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	promoted := 0
	for i := range 40 {
		name, want := fmt.Sprint("f", i), random(4096)
		write(t, b, name, want)
		var both sync.WaitGroup
		var failed error
		both.Go(func() { _ = nodes[0].daemon.Discard(t.Context(), "n2", "two", name, false) })
		both.Go(func() { failed = nodes[1].daemon.Promote(t.Context(), "two", name) })
		both.Wait()
		if failed != nil {
			continue // the discard came first
		}
		promoted++
		wantFile(t, nodes[1].dial().Buffer("two"), name, want)
	}
	t.Logf("%d of 40 files were promoted", promoted)
}

// TestClusterReadsBothHolders: a file with two copies is read from both at once. When the other one
// is gone, it is read from the owner alone.
func TestClusterReadsBothHolders(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "two", Replicas: 2, NoFlush: []string{"*"}})
	want := map[string][]byte{"f": random(20 << 20), "g": random(20 << 20)}
	for name, content := range want {
		write(t, b, name, content)
	}
	e, err := b.Stat(t.Context(), "f")
	if err != nil || len(e.Holders) != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
	second, reader := nodes[1], nodes[2]
	if e.Holders[1] == "n3" {
		second, reader = reader, second
	}
	if n := second.daemon.PeerHandles(); n != 0 {
		t.Fatalf("%d files are open at the second copy's node before anybody reads", n)
	}
	there := reader.dial().Buffer("two")
	r, err := there.Open(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, want["f"]) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if owner, other := nodes[0].daemon.PeerHandles(), second.daemon.PeerHandles(); owner == 0 || other == 0 {
		t.Errorf("the owner has %d files open for the reader, the second copy's node %d", owner, other)
	}
	r.Close()
	eventually(t, "both have closed it", func() bool {
		return nodes[0].daemon.PeerHandles() == 0 && second.daemon.PeerHandles() == 0
	})
	second.away()
	wantFile(t, there, "g", want["g"])
}

// TestNodesAfterDrain: the node itself and the daemon that carried out a drain or its end report
// the node's new state at once, although gossip takes a moment.
func TestNodesAfterDrain(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	nodes[0].members.set("n1", newLateMember(nodes[0].daemon.Self, 300*time.Millisecond).member)
	here, there := nodes[0].dial(), nodes[1].dial()
	want := func(state string) {
		t.Helper()
		for _, c := range []*client.Client{here, there} {
			list, err := admin.Nodes(t.Context(), c)
			if err != nil || len(list) != 2 || list[0].State != state {
				t.Errorf("%+v (%v), want n1 %s", list, err, state)
			}
		}
	}
	want("ready")
	if _, err := admin.DrainNode(t.Context(), there, "n1", nil); err != nil {
		t.Fatal(err)
	}
	want("draining")
	if err := admin.UndrainNode(t.Context(), there, "n1"); err != nil {
		t.Fatal(err)
	}
	want("ready")
}

// lateMember is a node in gossip, with an old state.
type lateMember struct {
	now func() gossip.Member
	by  time.Duration

	mu    sync.Mutex
	shown gossip.State
	since time.Time // when another state than the shown one appeared first
}

func newLateMember(now func() gossip.Member, by time.Duration) *lateMember {
	return &lateMember{now: now, by: by, shown: now().State}
}

func (l *lateMember) member() gossip.Member {
	m := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case m.State == l.shown:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = time.Now()
	case time.Since(l.since) >= l.by:
		l.shown, l.since = m.State, time.Time{}
	}
	m.State = l.shown
	return m
}
