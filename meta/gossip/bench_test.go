package gossip

import (
	"fmt"
	"testing"

	"forebay/internal/bb"
)

// BenchmarkMembers is the first step of a decision over all members of a large cluster.
func BenchmarkMembers(b *testing.B) {
	g := &Gossip{}
	g.mu.members, g.mu.byHash = map[bb.NodeID]*seen{}, map[uint64]bb.NodeID{}
	for i := range 10_000 {
		m := member(i)
		m.Node = bb.NodeID(fmt.Sprint("n", i))
		g.add(m.Node).Member = m
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Members()
	}
}
