package bbd

import (
	"strings"
	"testing"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

func TestMissingOf(t *testing.T) {
	t.Parallel()
	gone := bb.E(bb.NotFound, "adopt", "f", "nothing of it is here")
	claimed := bb.E(bb.Lost, "adopt", "f", "a damaged commit record claims to be of it")
	broken := bb.E(bb.Internal, "adopt", "f", "the region cannot be read")
	unsummed := bb.E(bb.Checksum, "checksum", "f", "an extent differs")
	open := bb.Entry{Type: bb.TypeFile, File: 7, Generation: 5, Open: true}
	closed := bb.Entry{Type: bb.TypeFile, File: 7, Generation: 5, Size: 9, Checksum: 3}
	clean := closed
	clean.Flushed.Generation = 5
	for name, c := range map[string]struct {
		entry bb.Entry
		found survived
		want  string // in the answer; "": nothing is missing
	}{
		"open, all of it":                           {open, survived{size: 9}, ""},
		"open, nothing of it":                       {open, survived{adopted: gone}, "lost before they were flushed"},
		"open, nothing of it, memory lost":          {open, survived{adopted: gone, memoryLost: true}, "lost before they were flushed"},
		"open, part of it outlived memory":          {open, survived{memoryLost: true, size: 9}, "what is left of bytes 0 to 9"},
		"open, part of it, and no size":             {open, survived{memoryLost: true, unsummed: unsummed}, "what is left on its disk"},
		"open, a damaged record claims to be of it": {open, survived{adopted: claimed, size: 9}, "a damaged commit record"},
		"open, a record that cannot be read":        {open, survived{damage: "slot and header are damaged", size: 9}, "slot and header are damaged"},
		"open, a region that cannot be read":        {open, survived{adopted: broken}, "cannot be read"},
		"closed, all of it":                         {closed, survived{size: 9, sum: 3}, ""},
		"closed, nothing of it":                     {closed, survived{adopted: gone}, "memory of node n1"},
		"closed, all of it is on disk":              {closed, survived{memoryLost: true, size: 9, sum: 3}, ""},
		"closed, part of it is on disk":             {closed, survived{memoryLost: true, size: 4, sum: 3}, "4 of its 9 bytes"},
		"closed, a hole in it":                      {closed, survived{memoryLost: true, size: 9, sum: 4}, "some of its 9 bytes"},
		"closed, damage elsewhere":                  {closed, survived{damage: "a record", size: 9, sum: 3}, ""},
		"closed, a damaged record that counts not":  {closed, survived{adopted: claimed, size: 9, sum: 3}, ""},
		"closed, a damaged record that counts":      {closed, survived{adopted: claimed, size: 5, sum: 8}, "5 of its 9 bytes"},
		"closed, no checksum":                       {closed, survived{unsummed: unsummed}, "an extent differs"},
		"closed, a region that cannot be read":      {closed, survived{adopted: broken}, "cannot be read"},
		"clean, part of it outlived memory":         {clean, survived{memoryLost: true, size: 4, sum: 3}, "4 of its 9 bytes"},
	} {
		c.found.node = "n1"
		got := missingOf(&c.entry, &c.found)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCouldBeIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage store.Damage
		want   bool
	}{
		"a record of the buffer":     {store.Damage{Buffer: "b"}, true},
		"a record of another buffer": {store.Damage{Buffer: "c"}, false},
		"a whole region":             {store.Damage{Segment: -1}, true},
		"a header that is mended":    {store.Damage{Buffer: "b", Mended: true}, false},
	} {
		if got := couldBeIn(&c.damage, "b"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
