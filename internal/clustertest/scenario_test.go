package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/netnstest"
)

// clusterConfig is one configuration for all daemons of a cluster, of which the first
// three run the namespace servers.
const clusterConfig = `
listen: {tcp: "{{.Host.Addr}}:7481", admin: "127.0.0.1:7480"}
cluster: {listen: "{{.Host.Addr}}:7483", advertise: "{{.Host.Addr}}", join: "%[1]v:7483,%[2]v:7483"}
nats: {servers: "%[1]v,%[2]v,%[3]v"}
key_file: {{.Dir}}/key
memory: {size: 256MiB, region_size: 64MiB}
flush: {dirty_age: 1s}
`

// scenario is a cluster of four hosts, a daemon on each, under load from four clients on
// each.
type scenario struct {
	t       *testing.T
	net     *netnstest.Cluster
	daemons []*bbdtest.Daemon
	clients []*Client
	store   string
	slow    time.Duration // the deadline of an operation
}

// fault is how long a fault of a scenario lasts. FOREBAY_FAULT=60s makes them long.
func fault(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("FOREBAY_FAULT")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newScenario(t *testing.T, change func(i int, d *bbdtest.Daemon)) *scenario {
	t.Helper()
	s := newHosts(t)
	hosts := s.net.Hosts
	s.start(fmt.Sprintf(clusterConfig, hosts[0].Addr, hosts[1].Addr, hosts[2].Addr), change)
	return s
}

// newHosts makes the hosts of a scenario.
func newHosts(t *testing.T) *scenario {
	t.Helper()
	if testing.Short() {
		t.Skip("a scenario takes half a minute, and longer under the race detector")
	}
	return &scenario{t: t, net: netnstest.New(t, 4), store: t.TempDir(), slow: 20 * time.Second}
}

// start starts a daemon on each host, waits until each has all as members, and makes the buffer.
func (s *scenario) start(config string, change func(i int, d *bbdtest.Daemon)) {
	t, hosts := s.t, s.net.Hosts
	t.Helper()
	for i, h := range hosts {
		d := bbdtest.On(t, h, config)
		if err := os.WriteFile(filepath.Join(d.Dir, "key"), []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(i, d)
		}
		s.daemons = append(s.daemons, d)
	}
	bbdtest.StartAll(t, s.daemons...)
	c := dial(t, s.daemons[0])
	defer c.Close()
	deadline := time.Now().Add(20 * time.Second)
	for nodes, err := admin.Nodes(t.Context(), c); len(nodes) < len(hosts) || !allReady(nodes); nodes, err = admin.Nodes(t.Context(), c) {
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("members after 20 s: %+v (%v)", nodes, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "work", Backing: "file://" + s.store}); err != nil {
		t.Fatal(err)
	}
}

func allReady(nodes []admin.Node) bool {
	for _, n := range nodes {
		if n.State != "ready" {
			return false
		}
	}
	return true
}

// load starts so many clients on each host.
func (s *scenario) load(each int) {
	var peers []string
	for i := range each * len(s.daemons) {
		peers = append(peers, fmt.Sprintf("c%d", i))
	}
	for i, name := range peers {
		n := i % len(s.daemons)
		s.clients = append(s.clients, Start(s.t, Options{
			Name: name, Host: s.net.Hosts[n], Address: "unix://" + s.daemons[n].Socket, Buffer: "work", Peers: peers,
			Seed: uint64(i), OpTimeout: s.slow, MaxSize: 256 << 10,
		}))
	}
}

// settle stops the load, drains, reads everything from every daemon but those that are gone, and
// checks.
func (s *scenario) settle(w World, gone ...int) Verdict {
	s.t.Helper()
	w.Looks = append(w.Looks, s.lookAtStore())
	AwaitOK(s.t, enough, 2*time.Minute, s.clients, Put, Read) // on a slow machine they have done little
	StopAll(s.clients...)
	w.Looks = append(w.Looks, s.lookAtStore())
	journals := Journals(s.clients...)
	isGone := map[int]bool{}
	for _, i := range gone {
		isGone[i] = true
	}
	for i, d := range s.daemons {
		if isGone[i] {
			continue
		}
		c := dial(s.t, d)
		report, err := admin.Drain(s.t.Context(), c, "work", 2*time.Minute, nil)
		if len(w.Gone) == 0 && err != nil || len(w.Gone) > 0 && !onlyLost(report, err) {
			s.t.Errorf("draining from %s: %v: %+v", s.net.Hosts[i].Name, err, report)
		}
		for _, f := range report.Failed {
			w.Unsaved = append(w.Unsaved, f.Path)
		}
		c.Close()
		break
	}
	files, err := StoreFiles(s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	w.Store, w.Drained = files, true
	var observations []Observation
	for i, d := range s.daemons {
		if isGone[i] {
			continue
		}
		seen, err := Observe(s.t.Context(), client.Options{Address: "unix://" + d.Socket}, "work", journals, s.slow)
		if err != nil {
			s.t.Fatal(err)
		}
		observations = append(observations, seen)
	}
	v := Check(journals, observations, w)
	for i, what := range slices.Concat(v.Violations, v.Contents) {
		if i == 30 {
			s.t.Errorf("and %d more", len(v.Violations)+len(v.Contents)-i)
			break
		}
		s.t.Error(what)
	}
	s.t.Logf("%d files; operations %v; longest %v; lost %d", v.Files, v.Outcomes, v.Longest, len(v.Lost))
	return v
}

func (s *scenario) lookAtStore() StoreLook {
	s.t.Helper()
	l, err := LookAtStore(s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// enough operations of a kind make a test of it.
const enough = 100

// forget declares a node dead as soon as the others accept that. Before, the answer is busy.
func (s *scenario) forget(node admin.NodeID) {
	s.t.Helper()
	c := dial(s.t, s.daemons[0])
	defer c.Close()
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := admin.ForgetNode(s.t.Context(), c, node)
		if err == nil {
			return
		}
		if !errors.Is(err, client.ErrBusy) || time.Now().After(deadline) {
			s.t.Fatalf("forgetting %s: %v", node, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// onlyLost reports whether a drain saved everything but files that are lost, and named those.
func onlyLost(r admin.Report, err error) bool {
	return errors.Is(err, client.ErrLost) && len(r.Failed) > 0 && r.ExcludedTotal == 0 && r.OpenTotal == 0 &&
		!slices.ContainsFunc(r.Failed, func(f admin.Failure) bool { return f.Kind != client.ErrLost })
}

func TestNodeKilledForGood(t *testing.T) {
	s := newScenario(t, nil)
	s.load(4)
	time.Sleep(3 * time.Second)
	gone := Now()
	s.daemons[3].Crash()
	time.Sleep(5 * time.Second)
	s.forget("n4")
	time.Sleep(2 * time.Second)
	v := s.settle(World{Gone: map[string]int64{"n4": gone}}, 3)
	if len(v.Lost) == 0 {
		t.Error("nothing was lost: the test does not test")
	}
}

// under loads the daemons, makes a fault for a while, and checks some time after its end.
func (s *scenario) under(begin func(), lasts time.Duration, end func(), after time.Duration) {
	s.t.Helper()
	s.load(4)
	time.Sleep(2 * time.Second)
	begin()
	time.Sleep(fault(s.t, lasts))
	end()
	time.Sleep(after)
	s.settle(World{})
}

func TestNamespaceServerKilled(t *testing.T) {
	s := newScenario(t, nil)
	s.under(s.daemons[2].Kill, 5*time.Second, s.daemons[2].Start, 3*time.Second)
}

func TestPartition(t *testing.T) {
	s := newScenario(t, nil)
	h := s.net.Hosts
	parted := func() { s.net.Partition([]*netnstest.Host{h[0], h[1]}, []*netnstest.Host{h[2], h[3]}) }
	s.under(parted, 12*time.Second, s.net.Heal, 6*time.Second)
}

// TestSlowNode: one host has a slow link, another one that loses packets.
func TestSlowNode(t *testing.T) {
	s := newScenario(t, nil)
	h := s.net.Hosts
	slow := func() { h[1].Netem("rate 10mbit delay 2ms"); h[3].Netem("loss 2%") }
	s.under(slow, 8*time.Second, func() { h[1].ClearNetem(); h[3].ClearNetem() }, time.Second)
}

func TestClocksApart(t *testing.T) {
	s := newScenario(t, func(i int, d *bbdtest.Daemon) { d.Clock = time.Duration(i%3-1) * time.Hour })
	s.load(4)
	time.Sleep(6 * time.Second)
	s.settle(World{})
}

func TestStoppedAndContinued(t *testing.T) {
	s := newScenario(t, nil)
	s.under(s.daemons[1].Pause, 10*time.Second, s.daemons[1].Resume, 5*time.Second)
}

func TestRollingRestart(t *testing.T) {
	s := newScenario(t, nil)
	s.load(4)
	time.Sleep(2 * time.Second)
	for i, d := range s.daemons {
		if i%2 == 0 {
			d.Stop()
		} else {
			d.Kill()
		}
		d.Start()
		time.Sleep(2 * time.Second)
	}
	s.settle(World{})
}

// TestSharedFile: 64 writers on four hosts write one file in interleaved records that fit
// nothing, and every host reads every byte.
func TestSharedFile(t *testing.T) {
	const (
		record  = 47_008
		writers = 64
		rounds  = 16
	)
	s := newScenario(t, nil)
	want := Content(1, record*writers*rounds)
	var clients []*client.Client
	for _, d := range s.daemons {
		c := dial(t, d)
		defer c.Close()
		clients = append(clients, c)
	}
	var group errgroup.Group
	for w := range writers {
		b := clients[w%len(clients)].Buffer("work")
		group.Go(func() error {
			f, err := b.OpenFile(t.Context(), "checkpoint", client.OpenOptions{Write: true, Create: true, Mode: 0o644})
			if err != nil {
				return err
			}
			for r := range rounds {
				off := (r*writers + w) * record
				if _, err := f.WriteAt(want[off:off+record], int64(off)); err != nil {
					return err
				}
			}
			return f.Close()
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, c := range clients {
		got, err := c.Buffer("work").ReadFile(t.Context(), "checkpoint")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("host %d reads %d bytes, want %d (%v)", i+1, len(got), len(want), err)
		}
	}
	if report, err := admin.Drain(t.Context(), clients[3], "work", time.Minute, nil); err != nil {
		t.Errorf("drain: %v (%+v)", err, report)
	}
	files, err := StoreFiles(s.store)
	if err != nil || len(files) != 1 || !bytes.Equal(files["checkpoint"], want) {
		t.Errorf("the store has %d files, and %d bytes of this one (%v)", len(files), len(files["checkpoint"]), err)
	}
}
