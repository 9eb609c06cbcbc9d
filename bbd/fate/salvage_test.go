package fate

import (
	"reflect"
	"testing"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// TestSalvage: of a damaged log, entries of files in memory are stored again, at the places that memory has for
// them. None is clean that is whole in memory, since the store may have it under another name.
func TestSalvage(t *testing.T) {
	t.Parallel()
	clean := bb.Entry{Parent: 1, Name: "f", Type: bb.TypeFile, File: 7, Generation: 5, Size: 9, Checksum: 3, Revision: 10, Flushed: bb.Flushed{Generation: 5, ETag: "x"}}
	dirty := clean
	dirty.Before, dirty.Flushed = &bb.Before{Attempts: []bb.Content{{Size: 9, Checksum: 3}}}, bb.Flushed{}
	older := clean
	older.Flushed.Generation = 4
	evicted := clean
	evicted.Flushed = bb.Flushed{Generation: 5, Codec: "zstd"}
	lost := clean
	lost.Lost = true
	moved := dirty
	moved.Parent, moved.Name, moved.Mode = 2, "g", 0o600
	id := &store.Identity{File: 7, Generation: 5, Dir: 2, Name: "g", Mode: 0o600, Revision: 12}
	before := *id
	before.Revision = 8
	for name, c := range map[string]struct {
		entry  bb.Entry
		h      *Held
		broken bool // memory has not all of the content
		keep   bool
		want   bb.Entry
	}{
		"memory does not have it":          {entry: clean, want: clean},
		"nor of one that is lost":          {entry: lost, keep: true, want: lost},
		"clean, and whole in memory":       {entry: clean, h: &Held{Newest: 5, Resident: 9}, keep: true, want: dirty},
		"clean, and damaged in memory":     {entry: clean, h: &Held{Newest: 5, Resident: 9}, broken: true, keep: true, want: clean},
		"clean, and evicted":               {entry: clean, h: &Held{Newest: 5, Evicted: 9}, keep: true, want: clean},
		"clean, and half of it evicted":    {entry: clean, h: &Held{Newest: 5, Resident: 4, Evicted: 5}, keep: true, want: clean},
		"memory has a newer generation":    {entry: clean, h: &Held{Newest: 6, Resident: 9}, keep: true, want: clean},
		"the store has an older one":       {entry: older, h: &Held{Newest: 5, Resident: 9}, keep: true, want: older},
		"flushed and evicted since":        {entry: older, h: &Held{Newest: 5, Evicted: 9}, keep: true, want: evicted},
		"evicted but for a part":           {entry: older, h: &Held{Newest: 5, Resident: 4, Evicted: 5}, keep: true, want: older},
		"an older generation is evicted":   {entry: older, h: &Held{Newest: 4, Evicted: 9}, keep: true, want: older},
		"renamed since":                    {entry: clean, h: &Held{Newest: 5, Resident: 9, Identity: id}, keep: true, want: moved},
		"the entry is newer than the name": {entry: clean, h: &Held{Newest: 5, Resident: 9, Identity: &before}, keep: true, want: dirty},
	} {
		e := c.entry
		if keep := Salvage(&e, c.h, "zstd", func(*bb.Entry) bool { return !c.broken }); keep != c.keep || !reflect.DeepEqual(e, c.want) {
			t.Errorf("%s: %v, %+v, want %v, %+v", name, keep, e, c.keep, c.want)
		}
	}
}
