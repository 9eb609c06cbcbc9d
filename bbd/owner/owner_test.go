package owner

import (
	"testing"

	"forebay/internal/bb"
)

func TestNode(t *testing.T) {
	t.Parallel()
	file := func(holders ...bb.NodeID) bb.Entry {
		return bb.Entry{Type: bb.TypeFile, Generation: 3, Holders: holders}
	}
	clean, lost := file("n2", "n3"), file("n2", "n3")
	clean.Flushed.Generation = 3
	lost.Lost = true
	for name, c := range map[string]struct {
		entry                bb.Entry
		alone                bool
		of                   bb.NodeID
		elsewhere, adoptable bool
		replica              bb.NodeID
	}{
		"its own":                        {entry: file("n1"), of: "n1"},
		"of a release without holders":   {entry: file(), of: "n1"},
		"its own with a second copy":     {entry: file("n1", "n2"), of: "n1", replica: "n2"},
		"another node's":                 {entry: file("n2"), of: "n2", elsewhere: true},
		"another node's, copied here":    {entry: file("n2", "n1"), of: "n2", elsewhere: true, replica: "n1"},
		"another node's, on the store":   {entry: clean, of: "n2", elsewhere: true, adoptable: true, replica: "n3"},
		"another node's, lost":           {entry: lost, of: "n2", adoptable: true},
		"another node's, without others": {entry: file("n2"), alone: true, of: "n2"},
		"a directory":                    {entry: bb.Entry{Type: bb.TypeDirectory, Holders: []bb.NodeID{"n2"}}, of: "n2", adoptable: true},
	} {
		n := Node{Self: "n1", Alone: c.alone}
		if got := n.Of(&c.entry); got != c.of {
			t.Errorf("%s: the owner is %s, want %s", name, got, c.of)
		}
		if got := n.OwnedElsewhere(&c.entry); got != c.elsewhere {
			t.Errorf("%s: owned elsewhere is %v", name, got)
		}
		if got := Adoptable(&c.entry); got != c.adoptable {
			t.Errorf("%s: adoptable is %v", name, got)
		}
		if got := Replica(&c.entry); got != c.replica {
			t.Errorf("%s: the second copy is at %q, want %q", name, got, c.replica)
		}
	}
}
