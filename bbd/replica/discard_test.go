package replica

import (
	"testing"

	"forebay/internal/bb"
)

func TestDiscardedCounts(t *testing.T) {
	t.Parallel()
	dirty := bb.Entry{Type: bb.TypeFile, File: 1, Generation: 5}
	open, clean, lost := dirty, dirty, dirty
	open.Open, lost.Lost = true, true
	clean.SetFlushed(bb.Flushed{Generation: 5})
	for _, c := range []struct {
		name          string
		entry         *bb.Entry
		generation    bb.Generation
		owner, second bb.NodeID
		asks          bb.NodeID
		want          bool
	}{
		{"the owner's dirty generation", &dirty, 5, "me", "", "other", true},
		{"all of the owner's dirty file", &dirty, 0, "me", "other", "other", true},
		{"the owner's open generation", &open, 5, "me", "", "other", true},
		{"one that was replaced", &dirty, 4, "me", "", "other", false},
		{"one that is newer than the entry", &dirty, 6, "me", "", "other", true},
		{"what the store has", &clean, 5, "me", "", "other", false},
		{"what was declared lost", &lost, 5, "me", "", "other", false},
		{"a second copy, by its owner", &dirty, 5, "other", "me", "other", false},
		{"a second copy, by a node that was the owner", &dirty, 5, "third", "me", "other", true},
		{"a copy that the namespace does not name", &dirty, 5, "third", "", "other", false},
		{"a removed file", nil, 0, "", "", "other", false},
		{"an older generation without an entry", nil, 4, "", "", "other", false},
		{"an acknowledged generation without an entry", nil, 5, "", "", "other", true},
	} {
		x := discarded{file: 1, generation: c.generation, acked: 5, entry: c.entry, owner: c.owner, second: c.second, node: "me", asks: c.asks}
		if got := x.counts(); got != c.want {
			t.Errorf("%s: counts: %v, want %v", c.name, got, c.want)
		}
	}
}
