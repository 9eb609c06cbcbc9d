package status

import (
	"testing"
	"time"

	"forebay/internal/bb"
)

// TestHoldings: holdings are shown of nodes that do not answer, also of one that only entries name, in
// the buffers that the user may enter.
func TestHoldings(t *testing.T) {
	t.Parallel()
	file := func(owner, second bb.NodeID, size int64, state bb.State) *bb.Entry {
		e := &bb.Entry{Type: bb.TypeFile, Size: size, Generation: 2, Holders: []bb.NodeID{owner}}
		if second != "" {
			e.Holders = append(e.Holders, second)
		}
		switch state {
		case bb.StateOpen:
			e.Open = true
		case bb.StateClean:
			e.Flushed.Generation = 2
		case bb.StateLost:
			e.Lost = true
		}
		return e
	}
	found := census{held: make(map[bb.NodeID]map[string]Holding)}
	add := func(buffer string, e *bb.Entry) {
		nodes := [2]bb.NodeID{} // owner and replica
		copy(nodes[:], e.Holders)
		found.add(buffer, e, nodes[0], nodes[1])
	}
	for _, e := range []*bb.Entry{
		file("n1", "", 1, bb.StateDirty), file("n2", "n1", 10, bb.StateDirty), file("n2", "", 100, bb.StateOpen),
		file("n2", "", 1000, bb.StateClean), file("n2", "", 1000, bb.StateLost),
		{Type: bb.TypeDirectory},
	} {
		add("b", e)
	}
	add("secret", file("n2", "", 7, bb.StateDirty))
	add("b", file("gone", "", 5, bb.StateDirty))
	nodes := withHoldings([]Node{{Node: "n2"}, {Node: "n1", Answers: true}}, found, func(b string) bool { return b != "secret" })
	if len(nodes) != 3 || nodes[0].Node != "gone" || nodes[1].Node != "n1" || nodes[2].Node != "n2" {
		t.Fatalf("nodes: %+v", nodes)
	}
	if n := nodes[0]; n.State != "unknown" || n.Reason == "" || len(n.Holds) != 1 || n.Holds[0].Bytes != 5 {
		t.Errorf("a node that only entries name: %+v", n)
	}
	if n := nodes[1]; n.Holds != nil {
		t.Errorf("a node that answers: %+v", n)
	}
	want := Holding{Buffer: "b", Files: 2, Bytes: 110, Open: 1, Seconds: 1}
	if n := nodes[2]; len(n.Holds) != 1 || n.Holds[0] != want {
		t.Errorf("a dead node: %+v, want %+v", n.Holds, want)
	}
}

// TestCensusAge: a census is used for longer if it took longer.
func TestCensusAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		age, took time.Duration
		want      bool
	}{
		{time.Second, time.Millisecond, true},
		{2 * time.Second, time.Millisecond, false},
		{15 * time.Second, 2 * time.Second, true},
		{20 * time.Second, 2 * time.Second, false},
	} {
		if got := fresh(c.age, c.took); got != c.want {
			t.Errorf("%v old, took %v: %v", c.age, c.took, got)
		}
	}
}
