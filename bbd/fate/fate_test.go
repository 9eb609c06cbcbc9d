package fate

import (
	"testing"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

func TestDecideFate(t *testing.T) {
	t.Parallel()
	entry := func(n bb.Generation) *bb.Entry {
		return &bb.Entry{Type: bb.TypeFile, File: 7, Generation: n, Flushed: bb.Flushed{Generation: n}}
	}
	for _, c := range []struct {
		name string
		h    Held
		k    Known
		want Fate
	}{
		{"the entry names what memory has", Held{Acked: 5, Resident: 9}, Known{Entry: entry(5), Here: true}, Adopt},
		{"the same, of memory without identities", Held{Resident: 9}, Known{Entry: entry(5), Here: true}, Adopt},
		{"the entry is newer", Held{Acked: 5, Resident: 9}, Known{Entry: entry(6), Here: true}, Adopt},
		{"the entry is newer and another node's", Held{Acked: 5, Resident: 9}, Known{Entry: entry(6)}, Adopt},
		{"an older generation is called clean", Held{Acked: 5, Resident: 9}, Known{Entry: entry(4), Here: true}, Remake},
		{"an older generation, and its name counts as taken", Held{Acked: 5, Resident: 9}, Known{Entry: entry(4), Here: true, Removed: true}, Remake},
		{"an older generation has another owner", Held{Acked: 5, Resident: 9}, Known{Entry: entry(4)}, Keep},
		{"the newest generation was never acknowledged", Held{Acked: 4, Newest: 5, Resident: 9}, Known{Entry: entry(4), Here: true}, Adopt},
		{"an older entry, and what was evicted", Held{Acked: 5, Evicted: 9}, Known{Entry: entry(4), Here: true}, Keep},
		{"no entry, and the name is free", Held{Acked: 5, Resident: 9}, Known{}, Remake},
		{"no entry, and an empty file", Held{Acked: 5}, Known{}, Remake},
		{"no entry, and something has the name", Held{Acked: 5, Resident: 9}, Known{Taken: true}, SetAside},
		{"removed", Held{Acked: 5, Resident: 9}, Known{Removed: true}, Drop},
		{"removed, and something has the name", Held{Acked: 5, Resident: 9}, Known{Removed: true, Taken: true}, Drop},
		{"on the store alone", Held{Acked: 5, Evicted: 9}, Known{}, Drop},
		{"half of it on the store alone", Held{Acked: 5, Resident: 1, Evicted: 8}, Known{}, Keep},
		{"never acknowledged", Held{Newest: 5, Resident: 9}, Known{}, Drop},
		{"of a release without identities", Held{Newest: 5, Resident: 9, Origin: store.OriginOlder}, Known{}, Drop},
		{"its identity went with the memory", Held{Newest: 5, Resident: 9, Origin: store.OriginForgotten}, Known{}, SetAside},
		{"so it did, and it was removed", Held{Newest: 5, Resident: 9, Origin: store.OriginForgotten}, Known{Removed: true}, Drop},
		{"so it did, and nothing is left", Held{Newest: 5, Origin: store.OriginForgotten}, Known{}, Drop},
	} {
		if got := Decide(c.h, c.k); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
