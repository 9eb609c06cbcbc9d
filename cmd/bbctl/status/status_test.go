package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"forebay/cmd/bbctl/apptest"

	"github.com/charmbracelet/x/ansi"

	"forebay/client/admin"
	"forebay/cmd/bbctl/layout"
)

// A daemon of an older release reports neither the cluster nor stores. Its figures are shown, and
// so are the nodes of gossip.
func TestStatusOfOlderDaemon(t *testing.T) {
	const text = `{"node":"n1","version":"1.0","state":"ready","memory":{"capacity":1048576},"nats":{"connected":true},
		"buffers":[{"name":"b","state":"active","backing":"file:///s","dirty":10,"stalled":2,"stalled_for":7}]}`
	var s status
	if err := json.Unmarshal([]byte(text), &s.own); err != nil {
		t.Fatal(err)
	}
	out := strings.Join(s.lines(layout.View{}, time.Now()), "\n")
	apptest.WantRow(t, out, "b active 10 B - file:///s")
	apptest.WantLine(t, out, "b: 2 flushes wait for the store, which has not answered for 7s")
	for _, n := range []admin.Node{
		{Name: "n1", State: "ready"},
		{Name: "n2", State: "dead", Memory: admin.TierUsage{Capacity: 4 << 20, Free: 1 << 20, Dirty: 2 << 20}},
		{Name: "n3", State: "ready", Memory: admin.TierUsage{Capacity: 4 << 20, Free: 4 << 20}},
	} {
		s.nodes = append(s.nodes, gossipView(&n, &s.own))
	}
	out = strings.Join(s.lines(layout.View{}, time.Now()), "\n")
	apptest.WantRow(t, out, "n2 dead 4.0 MiB 3.0 MiB? 2.0 MiB?")
	apptest.WantRow(t, out, "n3 ready 4.0 MiB 0 B? 0 B?")
	apptest.WantLine(t, out, "n3: not asked, since node n1 is too old to")
	apptest.WantLine(t, out, "n2: its content may be more: node n1 is too old to count it")
	apptest.WantRow(t, out, "b active 10 B - file:///s")
}

func TestBufferRows(t *testing.T) {
	of := func(b bufferStatus) NodeView {
		b.Name = "b"
		return NodeView{Answers: true, Status: &Daemon{Buffers: []bufferStatus{b}}}
	}
	store := func(state string) *storeStatus { return &storeStatus{State: state} }
	for _, c := range []struct {
		name  string
		nodes []NodeView
		want  bufferRow
	}{
		{
			"sums",
			[]NodeView{of(bufferStatus{Dirty: 1, Resident: 2, Queued: 3, Rate: 4, ETA: 5, OldestDirty: 6}), of(bufferStatus{Dirty: 10, Resident: 20, Queued: 30, Rate: 40, ETA: 3, OldestDirty: 7})},
			bufferRow{dirty: 11, resident: 22, queued: 33, rate: 44, eta: 5, oldest: 7},
		},
		{"one has no rate", []NodeView{of(bufferStatus{Dirty: 1, ETA: 5}), of(bufferStatus{Dirty: 1})}, bufferRow{dirty: 2, eta: 5, endless: true}},
		{"a clean one has no rate", []NodeView{of(bufferStatus{Dirty: 1, ETA: 5}), of(bufferStatus{})}, bufferRow{dirty: 1, eta: 5}},
		{"the worst store", []NodeView{of(bufferStatus{Store: store("silent")}), of(bufferStatus{Store: store("answers")}), of(bufferStatus{})}, bufferRow{store: "silent"}},
		{"a dead node", []NodeView{of(bufferStatus{}), {Holds: []holding{{Buffer: "b", Bytes: 8}}}}, bufferRow{away: 8}},
	} {
		rows := bufferRows(c.nodes)
		c.want.name = "b"
		if len(rows) != 1 || rows[0] != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, rows, c.want)
		}
	}
}

// Dirty bytes have an estimate only if they are flushed.
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
		apptest.WantRow(t, strings.Join(bufferTable(layout.View{}, []bufferRow{c.row}), "\n"), c.want)
	}
}

// One of something has the words of one.
func TestStatusOfOne(t *testing.T) {
	var s Daemon
	s.Waiting.Writers, s.Waiting.For = 1, map[string]int{"others' data": 1}
	s.Buffers = []bufferStatus{{
		Name: "b", stallStatus: stallStatus{Stalled: 1, OldestFlight: 61}, Lacking: 1, Held: 1,
		ruledStatus: ruledStatus{HeldByRule: 3, Superseded: 2, SupersededBytes: 4 << 20, Dropped: 1, DroppedBytes: 2 << 20}, Store: &storeStatus{State: "silent", Waiting: 1, Targets: []string{"fs-OST0001"}},
	}}
	s.StoreWorkers.Hanging = []hungWorker{{UID: 7, Root: "/lustre/a", For: 5}, {UID: 8, Root: "/lustre/b", For: 61}}
	out := strings.Join(s.single(layout.View{}), "\n")
	for _, want := range []string{
		"2 store workers hang, the longest for 1m1s: of uid 8 in /lustre/b", "1 writer waits for room", "1 flush waits for the store", "1 file of this node lacks its second copy", "1 name is held back", "3 files are held back by a flush rule, 2 of them superseded (4.0 MiB)", "1 file of 2.0 MiB dropped from memory", "1 call waits,", "the oldest began 1m1s ago", "no answer from fs-OST0001",
	} {
		apptest.WantLine(t, out, want)
	}
}

// No line of a status is wider than the terminal.
func TestStatusFits(t *testing.T) {
	long := strings.Repeat("a very long reason ", 20)
	s := status{own: Daemon{Node: "n1", Memory: Tier{Capacity: 1 << 40}, Damaged: []string{long}, Buffers: []bufferStatus{{
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
	s.nodes = []NodeView{
		{Node: "n1", State: "ready", Answers: true, Status: &s.own, Server: "bbd 1.2.3"},
		{Node: "n2", State: "dead", Reason: long, Memory: &lastTier{1 << 40, 1, 1}, Holds: []holding{{Buffer: "b", Files: 418, Bytes: 200 << 20}}},
	}
	check("a cluster")
}

// Bytes that nothing explains, and a store that does not answer, are named with a remedy.
func TestStatusOfTrouble(t *testing.T) {
	const text = `{"node": "n1", "state": "ready", "nats": {"connected": true, "logs": [{"buffer": "b", "owner": "n1", "unheld": true},
		{"buffer": "held", "owner": "n1", "held_by": ["n2"], "lost": "2026-01-02T03:04:05Z"}]}, "buffers": [{"name": "b", "backing": "file:///s",
		"stalled": 2, "stalled_for": 60, "unexplained": [{"file": "7", "path": "f", "bytes": 9, "reason": "why"}]}],
		"set_aside": [{"buffer": "torn", "files": 2, "bytes": 4096, "dirty": 1024, "reason": "a page is missing", "remedy": "put it back"}],
		"without_buffer": [{"buffer": "gone", "files": 3, "bytes": 2048, "remedy": "start it"}]}`
	var s Daemon
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	out := strings.Join(s.single(layout.View{}), "\n")
	for _, want := range []string{
		"b: file 7 (f) has 9 B of dirty bytes that no entry explains: why",
		"torn: a page is missing; memory holds 2 files of 4.0 KiB, 1.0 KiB of them dirty; put it back",
		"b: 2 flushes wait for the store, which has not answered for", "gone: memory holds 3 files of 2.0 KiB", "start it",
		"held: since ", "b: no other daemon holds the last changes of the namespace",
	} {
		apptest.WantLine(t, out, want)
	}
	if lines := s.Unheld(); len(lines) != 1 {
		t.Errorf("logs without a holder: %q", lines)
	}
	if n := s.Unexplained(); n != 4 {
		t.Errorf("%d files without an entry", n)
	}
}

// TestStatusOfLogs: the table of logs has each as its owner has it, and nothing of a log whose owner does not answer but
// the owner's name.
func TestStatusOfLogs(t *testing.T) {
	const owner = `{"node": "n1", "nats": {"logs": [{"buffer": "a", "owner": "n1", "held_by": ["n2", "n3"], "since": "2026-01-02T03:04:05Z",
		"leases": {"held": 3, "granted": 40, "revoked": 5, "silent": 2, "silent_seconds": 1.5}}, {"buffer": "b", "owner": "n3", "leases": {"granted": 7}}]}}`
	const other = `{"node": "n2", "nats": {"logs": [{"buffer": "a", "owner": "n1", "leases": {"granted": 9}}, {"buffer": "c"}]}}`
	var nodes []NodeView
	for _, text := range []string{other, owner} {
		var s Daemon
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, NodeView{Node: s.Node, Answers: true, Status: &s})
	}
	now := time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)
	out := strings.Join(clusterLines(layout.View{}, "n2", nodes, now), "\n")
	for _, want := range []string{"LOG OF OWNER FOR HELD BY LEASES GRANTED REVOKED SILENT", "a n1 1m0s n2,n3 3 40 5 2 in 1.5s", "b n3 - - - - - -", "c - - - - - - -"} {
		apptest.WantRow(t, out, want)
	}
	if lines := logTable(layout.View{}, []NodeView{{Status: &Daemon{}}, {}}, now); lines != nil {
		t.Errorf("a table of no logs: %q", lines)
	}
}
