package fate

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
		found Survived
		want  string // in the answer; "": nothing is missing
	}{
		"open, all of it":                           {open, Survived{Size: 9}, ""},
		"open, nothing of it":                       {open, Survived{Adopted: gone}, "lost before they were flushed"},
		"open, nothing of it, memory lost":          {open, Survived{Adopted: gone, MemoryLost: true}, "lost before they were flushed"},
		"open, part of it outlived memory":          {open, Survived{MemoryLost: true, Size: 9}, "the rest of bytes 0 to 9"},
		"open, part of it, and no size":             {open, Survived{MemoryLost: true, Unsummed: unsummed}, "the rest on its disk"},
		"open, a damaged record claims to be of it": {open, Survived{Adopted: claimed, Size: 9}, "a damaged commit record"},
		"open, a record that cannot be read":        {open, Survived{Damage: "slot and header are damaged", Size: 9}, "slot and header are damaged"},
		"open, a region that cannot be read":        {open, Survived{Adopted: broken}, "cannot be read"},
		"closed, all of it":                         {closed, Survived{Size: 9, Sum: 3}, ""},
		"closed, nothing of it":                     {closed, Survived{Adopted: gone}, "memory of node n1"},
		"closed, all of it is on disk":              {closed, Survived{MemoryLost: true, Size: 9, Sum: 3}, ""},
		"closed, part of it is on disk":             {closed, Survived{MemoryLost: true, Size: 4, Sum: 3}, "4 of its 9 bytes"},
		"closed, a hole in it":                      {closed, Survived{MemoryLost: true, Size: 9, Sum: 4}, "some of its 9 bytes"},
		"closed, damage elsewhere":                  {closed, Survived{Damage: "a record", Size: 9, Sum: 3}, ""},
		"closed, a damaged record that counts not":  {closed, Survived{Adopted: claimed, Size: 9, Sum: 3}, ""},
		"closed, a damaged record that counts":      {closed, Survived{Adopted: claimed, Size: 5, Sum: 8}, "5 of its 9 bytes"},
		"closed, no checksum":                       {closed, Survived{Unsummed: unsummed}, "an extent differs"},
		"closed, a region that cannot be read":      {closed, Survived{Adopted: broken}, "cannot be read"},
		"clean, part of it outlived memory":         {clean, Survived{MemoryLost: true, Size: 4, Sum: 3}, "4 of its 9 bytes"},
	} {
		c.found.Node = "n1"
		got := Missing(&c.entry, &c.found)
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
		if got := CouldBeIn(&c.damage, "b"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
