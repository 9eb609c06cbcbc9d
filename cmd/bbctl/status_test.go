package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"forebay/client/admin"
	"forebay/cmd/bbctl/layout"
)

// The status shows the whole cluster, with what a dead node holds; --node shows one.
func TestStatusCluster(t *testing.T) {
	n1, n2 := twoNodes(t)
	put := filepath.Join(t.TempDir(), "only.bin")
	if err := os.WriteFile(put, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FOREBAY_SOCKET", n1.Socket)
	bbctl(t, exitDone, "buffer", "create", "ckpt")
	bbctl(t, exitDone, "put", put, "bb://ckpt/")
	t.Setenv("FOREBAY_SOCKET", n2.Socket)
	out := statusWith(t, "cluster of 2 nodes, asked at n2")
	wantRow(t, out, "n1 ready 128 MiB 3.0 MiB")
	wantRow(t, out, "n2 ready 128 MiB 0 B")
	wantRow(t, out, "ckpt active 3.0 MiB")
	if out := bbctl(t, exitDone, "status", "--node", "n1"); !strings.HasPrefix(out, "node n1, ready") || strings.Contains(out, "n2") {
		t.Errorf("status of n1:\n%s", out)
	}
	n1.Pause() // gossip does not know yet
	out = statusWith(t, "n1: does not answer: ")
	wantLine(t, out, "n1: holds 1 file of 3.0 MiB that no store has")
	n1.Kill()
	unanswering(t, n2, "n1")

	out = bbctl(t, exitDone, "status")
	wantLine(t, out, "cluster of 2 nodes, 1 without an answer, asked at n2")
	wantRow(t, out, "n1 dead 128 MiB 3.0 MiB")
	wantLine(t, out, "n1: does not answer: the daemon is dead")
	wantLine(t, out, "n1: holds 1 file of 3.0 MiB that no store has: ckpt 1 of 3.0 MiB")
	wantRow(t, out, "BUFFER DIRTY AWAY")
	wantRow(t, out, "ckpt active 0 B 3.0 MiB")
	var s struct {
		Node    string `json:"node"` // as ever: that of the daemon that was asked
		Memory  tier   `json:"memory"`
		Cluster []nodeView
	}
	if err := json.Unmarshal([]byte(bbctl(t, exitDone, "status", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node != "n2" || s.Memory.Capacity == 0 || len(s.Cluster) != 2 || s.Cluster[0].Answers || s.Cluster[0].held() != 3<<20 || s.Cluster[1].Status == nil {
		t.Errorf("JSON: %+v", s)
	}
	bbctl(t, exitUnavailable, "status", "--node", "n1")
	bbctl(t, exitUnavailable, "status", "--node", "nobody")
	bbctl(t, exitDamaged, "node", "forget", "n1", "--yes")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out := bbctl(t, exitDone, "status")
		if !strings.Contains(out, "holds 1 file ") { // the last count is used for a moment
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a node that was forgotten still holds files:\n%s", out)
		}
	}
}

// statusWith waits for a status that has some text, and returns it.
func statusWith(t *testing.T, want string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out := bbctl(t, exitDone, "status")
		if strings.Contains(out, want) {
			return out
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q never came to be in\n%s", want, out)
		}
	}
}

// wantRow looks for a line that has some texts in this order, each separated by spaces.
func wantRow(t *testing.T, out, want string) {
	t.Helper()
	for line := range strings.Lines(out) {
		rest, found := line, true
		for word := range strings.FieldsSeq(want) {
			if _, rest, found = strings.Cut(rest, word); !found {
				break
			}
		}
		if found {
			return
		}
	}
	t.Errorf("no line has %q in\n%s", want, out)
}

// A daemon of an older release knows neither the cluster nor stores: what it has is shown, and
// so are the nodes that gossip knows.
func TestStatusOfOlderDaemon(t *testing.T) {
	const text = `{"node":"n1","version":"1.0","state":"ready","memory":{"capacity":1048576},"nats":{"connected":true},
		"buffers":[{"name":"b","state":"active","backing":"file:///s","dirty":10,"stalled":2,"stalled_for":7}]}`
	var s status
	if err := json.Unmarshal([]byte(text), &s.own); err != nil {
		t.Fatal(err)
	}
	out := strings.Join(s.lines(layout.View{}, time.Now()), "\n")
	wantRow(t, out, "b active 10 B - file:///s")
	wantLine(t, out, "b: 2 flushes wait for the store, which has not answered for 7s")
	for _, n := range []admin.Node{
		{Name: "n1", State: "ready"},
		{Name: "n2", State: "dead", Memory: admin.TierUsage{Capacity: 4 << 20, Free: 1 << 20, Dirty: 2 << 20}},
		{Name: "n3", State: "ready", Memory: admin.TierUsage{Capacity: 4 << 20, Free: 4 << 20}},
	} {
		s.nodes = append(s.nodes, gossipView(&n, &s.own))
	}
	out = strings.Join(s.lines(layout.View{}, time.Now()), "\n")
	wantRow(t, out, "n2 dead 4.0 MiB 3.0 MiB? 2.0 MiB?")
	wantRow(t, out, "n3 ready 4.0 MiB 0 B? 0 B?")
	wantLine(t, out, "n3: not asked, since node n1 is too old to")
	wantLine(t, out, "n2: what it holds may be more: node n1 is too old to count it")
	wantRow(t, out, "b active 10 B - file:///s")
}

// olderRelease is of daemons that know neither how to ask the others nor how stores answer.
const olderRelease = "2998de8"

// In a cluster of two releases, a daemon of either one shows all nodes.
func TestStatusOfTwoReleases(t *testing.T) {
	n1, n2 := nodesOf(t, olderRelease, "")
	t.Setenv("FOREBAY_SOCKET", n1.Socket)
	out := statusWith(t, "cluster of 2 nodes, asked at n1")
	wantLine(t, out, "n2: not asked, since node n1 is too old to")
	wantLine(t, bbctl(t, exitUsage, "status", "--node", "n2"), "too old to ask another one")
	wantLine(t, bbctl(t, exitDone, "status", "--json"), `"cluster":[{"node":"n1"`)
	t.Setenv("FOREBAY_SOCKET", n2.Socket)
	out = statusWith(t, "cluster of 2 nodes, asked at n2")
	wantRow(t, out, "n1 ready 128 MiB 0 B 0 B")
	wantLine(t, bbctl(t, exitDone, "status", "--node", "n1"), "node n1, ready")
}

func TestBufferRows(t *testing.T) {
	of := func(b bufferStatus) nodeView {
		b.Name = "b"
		return nodeView{Answers: true, Status: &daemonStatus{Buffers: []bufferStatus{b}}}
	}
	store := func(state string) *storeStatus { return &storeStatus{State: state} }
	for _, c := range []struct {
		name  string
		nodes []nodeView
		want  bufferRow
	}{
		{
			"sums",
			[]nodeView{of(bufferStatus{Dirty: 1, Resident: 2, Queued: 3, Rate: 4, ETA: 5, OldestDirty: 6}), of(bufferStatus{Dirty: 10, Resident: 20, Queued: 30, Rate: 40, ETA: 3, OldestDirty: 7})},
			bufferRow{dirty: 11, resident: 22, queued: 33, rate: 44, eta: 5, oldest: 7},
		},
		{"one has no rate", []nodeView{of(bufferStatus{Dirty: 1, ETA: 5}), of(bufferStatus{Dirty: 1})}, bufferRow{dirty: 2, eta: 5, endless: true}},
		{"a clean one has no rate", []nodeView{of(bufferStatus{Dirty: 1, ETA: 5}), of(bufferStatus{})}, bufferRow{dirty: 1, eta: 5}},
		{"the worst store", []nodeView{of(bufferStatus{Store: store("silent")}), of(bufferStatus{Store: store("answers")}), of(bufferStatus{})}, bufferRow{store: "silent"}},
		{"a dead node", []nodeView{of(bufferStatus{}), {Holds: []holding{{Buffer: "b", Bytes: 8}}}}, bufferRow{away: 8}},
	} {
		rows := bufferRows(c.nodes)
		c.want.name = "b"
		if len(rows) != 1 || rows[0] != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, rows, c.want)
		}
	}
}

// What is dirty has an estimate only where it is flushed.
func TestNoRateNoETA(t *testing.T) {
	for _, c := range []struct {
		row  bufferRow
		want string
	}{
		{bufferRow{dirty: 1 << 20, rate: 1 << 10, eta: 1024}, "b 1.0 MiB 0 B 0 1.0 KiB/s 17m4s - -"},
		{bufferRow{dirty: 1 << 20}, "b 1.0 MiB 0 B 0 0 B/s - - -"},
		{bufferRow{dirty: 1 << 20, rate: 1 << 10, eta: 1024, endless: true}, "b 1.0 MiB 0 B 0 1.0 KiB/s - - -"},
		{bufferRow{}, "b 0 B 0 B 0 0 B/s - - -"},
	} {
		c.row.name = "b"
		wantRow(t, strings.Join(bufferTable(layout.View{}, []bufferRow{c.row}), "\n"), c.want)
	}
}

// One of something has the words of one.
func TestStatusOfOne(t *testing.T) {
	var s daemonStatus
	s.Waiting.Writers, s.Waiting.For = 1, map[string]int{"others' data": 1}
	s.Buffers = []bufferStatus{{Name: "b", Stalled: 1, OldestFlight: 61, Lacking: 1, Held: 1, Store: &storeStatus{State: "silent", Waiting: 1, Targets: []string{"fs-OST0001"}}}}
	s.StoreWorkers.Hanging = []hungWorker{{UID: 7, Root: "/lustre/a", For: 5}, {UID: 8, Root: "/lustre/b", For: 61}}
	out := strings.Join(s.single(layout.View{}), "\n")
	for _, want := range []string{
		"2 store workers hang, the longest for 1m1s: of uid 8 in /lustre/b", "1 writer waits for room", "1 flush waits for the store", "1 file of this node lacks its second copy", "1 name is held back", "1 call waits,", "the oldest began 1m1s ago", "no answer from fs-OST0001",
	} {
		wantLine(t, out, want)
	}
}

// No line of a status is wider than the terminal.
func TestStatusFits(t *testing.T) {
	long := strings.Repeat("a very long reason ", 20)
	s := status{own: daemonStatus{Node: "n1", Memory: tier{Capacity: 1 << 40}, Damaged: []string{long}, Buffers: []bufferStatus{{
		Name: strings.Repeat("buffer", 5), State: "active", Backing: "s3://bucket/" + strings.Repeat("prefix/", 10), Dirty: 1 << 30,
		Store: &storeStatus{State: "failing", Reason: long, Since: time.Now()},
	}}}}
	check := func(what string) {
		t.Helper()
		for _, width := range []int{10, 20, 40, 80, 120} {
			for _, line := range s.lines(layout.View{Width: width, Colour: true}, time.Now()) {
				if ansi.StringWidth(line) > width {
					t.Errorf("%s, %d: %q", what, width, line)
				}
			}
		}
	}
	check("one daemon")
	s.nodes = []nodeView{
		{Node: "n1", State: "ready", Answers: true, Status: &s.own, Server: "bbd 1.2.3"},
		{Node: "n2", State: "dead", Reason: long, Memory: &lastTier{1 << 40, 1, 1}, Holds: []holding{{Buffer: "b", Files: 418, Bytes: 200 << 20}}},
	}
	check("a cluster")
}
