package bbd

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
		h    held
		k    known
		want fate
	}{
		{"the entry names what memory has", held{acked: 5, resident: 9}, known{entry: entry(5), here: true}, fateAdopt},
		{"the same, of memory without identities", held{resident: 9}, known{entry: entry(5), here: true}, fateAdopt},
		{"the entry is newer", held{acked: 5, resident: 9}, known{entry: entry(6), here: true}, fateAdopt},
		{"the entry is newer and another node's", held{acked: 5, resident: 9}, known{entry: entry(6)}, fateAdopt},
		{"an older generation is called clean", held{acked: 5, resident: 9}, known{entry: entry(4), here: true}, fateRemake},
		{"an older generation, and its name counts as taken", held{acked: 5, resident: 9}, known{entry: entry(4), here: true, removed: true}, fateRemake},
		{"an older generation has another home", held{acked: 5, resident: 9}, known{entry: entry(4)}, fateKeep},
		{"the newest generation was never acknowledged", held{acked: 4, newest: 5, resident: 9}, known{entry: entry(4), here: true}, fateAdopt},
		{"an older entry, and what was evicted", held{acked: 5, evicted: 9}, known{entry: entry(4), here: true}, fateKeep},
		{"no entry, and the name is free", held{acked: 5, resident: 9}, known{}, fateRemake},
		{"no entry, and an empty file", held{acked: 5}, known{}, fateRemake},
		{"no entry, and something has the name", held{acked: 5, resident: 9}, known{taken: true}, fateSetAside},
		{"removed", held{acked: 5, resident: 9}, known{removed: true}, fateDrop},
		{"removed, and something has the name", held{acked: 5, resident: 9}, known{removed: true, taken: true}, fateDrop},
		{"on the store alone", held{acked: 5, evicted: 9}, known{}, fateDrop},
		{"half of it on the store alone", held{acked: 5, resident: 1, evicted: 8}, known{}, fateKeep},
		{"never acknowledged", held{newest: 5, resident: 9}, known{}, fateDrop},
		{"of a release without identities", held{newest: 5, resident: 9, origin: store.OriginOlder}, known{}, fateDrop},
		{"its identity went with the memory", held{newest: 5, resident: 9, origin: store.OriginForgotten}, known{}, fateSetAside},
		{"so it did, and it was removed", held{newest: 5, resident: 9, origin: store.OriginForgotten}, known{removed: true}, fateDrop},
		{"so it did, and nothing is left", held{newest: 5, origin: store.OriginForgotten}, known{}, fateDrop},
	} {
		if got := decideFate(c.h, c.k); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
