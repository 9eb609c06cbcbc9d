package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/netnstest"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

const config = `
listen: {tcp: "{{.Host.Addr}}:7481", admin: "127.0.0.1:7480"}
key_file: {{.Dir}}/key
memory: {size: 256MiB, region_size: 64MiB}
flush: {dirty_age: 1s}
`

// daemonWithKey starts a daemon on a host, with a buffer and its store.
func daemonWithKey(t *testing.T, h *netnstest.Host) (d *bbdtest.Daemon, key, store string) {
	t.Helper()
	d = bbdtest.On(t, h, config)
	key, store = filepath.Join(d.Dir, "key"), t.TempDir()
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	c := dial(t, d)
	defer c.Close()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "work", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	return d, key, store
}

func dial(t *testing.T, d *bbdtest.Daemon) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	return c
}

// The workload with one daemon, clients on its host and on another, and every fault of one daemon.
func TestWorkload(t *testing.T) {
	hosts := netnstest.New(t, 2)
	near, far := hosts.Hosts[0], hosts.Hosts[1]
	d, key, store := daemonWithKey(t, near)
	peers := []string{"c0", "c1", "c2", "c3", "c4"}
	var clients []*Client
	for i, name := range peers {
		o := Options{Name: name, Host: near, Address: "unix://" + d.Socket, Buffer: "work", Peers: peers, Seed: uint64(i), OpTimeout: 5 * time.Second}
		if i >= 3 {
			o.Host, o.Address, o.KeyFile = far, fmt.Sprintf("tcp://%v:7481", near.Addr), key
		}
		clients = append(clients, Start(t, o))
	}
	sleep := func() { time.Sleep(1500 * time.Millisecond) }
	sleep()
	clients[2].Kill()
	d.Kill()
	d.Start()
	sleep()
	hosts.Partition([]*netnstest.Host{near}, []*netnstest.Host{far})
	sleep()
	d.Pause()
	sleep()
	d.Resume()
	hosts.Heal()
	far.Netem("delay 5ms loss 1% rate 20mbit")
	sleep()
	far.ClearNetem()
	sleep()
	StopAll(clients...)

	journals := Journals(clients...)
	c := dial(t, d)
	defer c.Close()
	report, err := admin.Drain(t.Context(), c, "work", time.Minute, nil)
	if err != nil {
		t.Fatalf("%v: %+v", err, report)
	}
	files, err := StoreFiles(store)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := Observe(t.Context(), client.Options{Address: "unix://" + d.Socket}, "work", journals, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	v := Check(journals, []Observation{seen}, World{Store: files, Drained: true})
	for _, what := range slices.Concat(v.Violations, v.Contents) {
		t.Error(what)
	}
	t.Logf("%d files; operations %v; longest %v", v.Files, v.Outcomes, v.Longest)
	for _, op := range []Op{Put, Sync, Create, Rename, Remove, Read, List} {
		if v.Outcomes[op][OK] < 10 {
			t.Errorf("only %d of %s: the test does not test", v.Outcomes[op][OK], op)
		}
	}
}

// A machine that loses its memory comes back as a new instance, and the losses are named. The
// checker accepts it with that node gone, and not without.
func TestWorkloadOnLostNode(t *testing.T) {
	hosts := netnstest.New(t, 1)
	d, _, _ := daemonWithKey(t, hosts.Hosts[0])
	before := dial(t, d)
	defer before.Close()
	instance := before.Server().Instance
	c := Start(t, Options{Name: "c0", Host: hosts.Hosts[0], Address: "unix://" + d.Socket, Buffer: "work", Seed: 1})
	time.Sleep(2 * time.Second)
	gone := Now()
	c.Kill()
	d.Crash()
	d.Start()
	after := dial(t, d)
	defer after.Close()
	if now := after.Server().Instance; now == instance {
		t.Errorf("still instance %d", now)
	}
	journals := Journals(c)
	seen, err := Observe(t.Context(), client.Options{Address: "unix://" + d.Socket}, "work", journals, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	v := Check(journals, []Observation{seen}, World{Gone: map[string]int64{"n1": gone}})
	for _, what := range slices.Concat(v.Violations, v.Contents) {
		t.Error(what)
	}
	if len(v.Lost) == 0 {
		t.Error("nothing was lost: the test does not test")
	}
	if v := Check(journals, []Observation{seen}, World{}); len(v.Violations) < len(v.Lost) {
		t.Errorf("%d files lost with no node, and %d violations", len(v.Lost), len(v.Violations))
	}
}
