package writeback

import (
	"strings"
	"testing"

	"forebay/bbd/owner"
	"forebay/internal/bb"
)

var among = owner.Node{Self: "n1"}

// file returns the entry of generation 5 of a file of a node.
func file(holder bb.NodeID) bb.Entry {
	return bb.Entry{Type: bb.TypeFile, Parent: bb.RootDir, Name: "f", File: 7, Generation: 5, Size: 9, Checksum: 3, Holders: []bb.NodeID{holder}}
}

func changed(e bb.Entry, change func(*bb.Entry)) bb.Entry {
	change(&e)
	return e
}

func TestDue(t *testing.T) {
	t.Parallel()
	clean := func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: e.Generation}) }
	for name, c := range map[string]struct {
		entry  bb.Entry
		queued bb.Generation
		alone  bool
		want   verdict
	}{
		"dirty":                              {entry: file("n1"), queued: 5, want: flushIt},
		"dirty, with an older flush":         {entry: changed(file("n1"), func(e *bb.Entry) { e.Flushed.Generation = 4 }), queued: 5, want: flushIt},
		"clean":                              {entry: changed(file("n1"), clean), queued: 5, want: isStored},
		"clean, at another node":             {entry: changed(file("n2"), clean), queued: 5, want: isStored},
		"clean, of a newer generation":       {entry: changed(file("n1"), clean), queued: 4, want: superseded},
		"a newer generation":                 {entry: file("n1"), queued: 4, want: superseded},
		"a newer generation at another node": {entry: file("n2"), queued: 4, want: superseded},
		"open again":                         {entry: changed(file("n1"), func(e *bb.Entry) { e.Open = true }), queued: 5, want: superseded},
		"lost":                               {entry: changed(file("n2"), func(e *bb.Entry) { e.Lost = true }), queued: 5, want: superseded},
		"another node's":                     {entry: file("n2"), queued: 5, want: isForeign},
		"of an earlier name of this node":    {entry: file("n2"), queued: 5, alone: true, want: flushIt},
	} {
		if got := due(owner.Node{Self: "n1", Alone: c.alone}, &c.entry, c.queued); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	lost := func(e *bb.Entry) { e.Lost, e.Reason = true, "declared dead" }
	for name, c := range map[string]struct {
		entry bb.Entry
		alone bool
		want  string // in the reason; "": it is recorded
	}{
		"as it was":                            {entry: file("n1")},
		"open again":                           {entry: changed(file("n1"), func(e *bb.Entry) { e.Open, e.Generation = true, 6 })},
		"another file":                         {entry: changed(file("n1"), func(e *bb.Entry) { e.File = 8 }), want: "does not exist"},
		"another file, alone":                  {entry: changed(file("n1"), func(e *bb.Entry) { e.File = 8 }), alone: true, want: "does not exist"},
		"another node's":                       {entry: file("n2"), want: "n2"},
		"another node's, alone":                {entry: file("n2"), alone: true},
		"lost with this content":               {entry: changed(file("n2"), lost)},
		"lost with another generation":         {entry: changed(changed(file("n2"), lost), func(e *bb.Entry) { e.Generation = 6 }), want: "n2"},
		"lost with other bytes":                {entry: changed(changed(file("n2"), lost), func(e *bb.Entry) { e.Checksum = 4 }), want: "n2"},
		"flushed since, of a newer generation": {entry: changed(file("n1"), func(e *bb.Entry) { e.Generation = 6; e.Flushed.Generation = 6 }), want: "newer generation"},
	} {
		flushed := file("n1")
		was := c.entry
		got := record(owner.Node{Self: "n1", Alone: c.alone}, &c.entry, &flushed, bb.Flushed{Generation: 5, ETag: "tag"})
		if got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		switch {
		case c.want == "" && (c.entry.Flushed.ETag != "tag" || c.entry.Lost || c.entry.Reason != ""):
			t.Errorf("%s: the entry is %+v", name, c.entry)
		case c.want != "" && (c.entry.Flushed != was.Flushed || c.entry.Lost != was.Lost):
			t.Errorf("%s: the entry was changed to %+v", name, c.entry)
		}
	}
}

func TestOrphan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry bb.Entry
		want  bool
	}{
		"never durable":                 {file("n1"), true},
		"flushed before":                {changed(file("n1"), func(e *bb.Entry) { e.Flushed.Generation = 4 }), false},
		"in the place of a flushed one": {changed(file("n1"), func(e *bb.Entry) { e.SetBefore(bb.Flushed{Generation: 4}, nil) }), false},
		"another node's":                {file("n2"), false},
		"lost":                          {changed(file("n1"), func(e *bb.Entry) { e.Lost = true }), false},
		"a directory":                   {bb.Entry{Type: bb.TypeDirectory}, false},
	} {
		if got := orphan(among, &c.entry); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
