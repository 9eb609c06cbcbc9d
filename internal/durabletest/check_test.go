package durabletest

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// v is a version for histories.
func v(n int) Version { return Version{true, int64(n), uint64(n)} }

func event(op Op, begin, end int64, o Outcome, changes ...Change) Event {
	return Event{Op: op, Begin: begin, End: end, Outcome: o, Changes: changes}
}

func put(begin, end int64, p string, version Version) Event {
	return event(Close, begin, end, Done, Change{p, version})
}

// begun is a put of unknown outcome, which is over at a time.
func begun(begin, end int64, p string, version Version) Event {
	return event(Close, begin, end, Unknown, Change{p, version})
}

func remove(begin, end int64, p string) Event {
	return event(Remove, begin, end, Done, Change{p, Absent})
}

func rename(begin, end int64, from, to string, version Version) Event {
	return event(Rename, begin, end, Done, Change{from, Absent}, Change{to, version})
}

func drain(begin, end int64, unsaved ...string) Event {
	return Event{Op: Drain, Begin: begin, End: end, Outcome: Done, Unsaved: unsaved}
}

func as(e Event, change func(*Event)) Event {
	change(&e)
	return e
}

func fault(at int64, takes Level) Event {
	return Event{Op: Fault, Begin: at, End: at, Outcome: Done, Takes: takes}
}

// look is an observation of the buffer: names and contents.
func look(at int64, files map[string]Found, lost ...string) Observation {
	return Observation{Begin: at, End: at + 1, Files: files, Lost: lost}
}

func store(at int64, files map[string]Found) Observation {
	return Observation{Begin: at, End: at + 1, Store: true, Files: files}
}

// stageOut is one to the folder that out observes.
func stageOut(begin, end int64, o Outcome, below string) Event {
	return Event{Op: StageOut, Begin: begin, End: end, Outcome: o, Below: below, To: "out"}
}

func out(at int64, files map[string]Found) Observation {
	return Observation{Begin: at, End: at + 1, Copy: "out", Files: files}
}

type files = map[string]Found

func is(version Version) Found { return Found{Version: version} }

func isClean(version Version) Found { return Found{Version: version, Clean: true} }

var isLost = Found{Problem: Lost}

// judgements are histories, and which rules they break.
var judgements = []struct {
	name   string
	events []Event
	seen   []Observation
	broken []Rule
}{
	// Acknowledged bytes are read.
	{"read what was written", []Event{put(1, 2, "a", v(1)), fault(5, 0)}, []Observation{look(10, files{"a": is(v(1))})}, nil},
	{"zeros", []Event{put(1, 2, "a", v(1)), fault(5, 0)}, []Observation{look(10, files{"a": is(v(99))})}, []Rule{Kept}},
	{"older bytes", []Event{put(1, 2, "a", v(1)), put(3, 4, "a", v(2))}, []Observation{look(10, files{"a": is(v(1))})}, []Rule{Kept}},
	{"an unknown one", []Event{put(1, 2, "a", v(1)), begun(3, 5, "a", v(2))}, []Observation{look(10, files{"a": is(v(2))})}, nil},
	{"before an unknown one", []Event{put(1, 2, "a", v(1)), begun(3, 5, "a", v(2))}, []Observation{look(10, files{"a": is(v(1))})}, nil},
	{
		"an unknown one, and older bytes afterwards",
		[]Event{put(1, 2, "a", v(1)), begun(3, 5, "a", v(2))},
		[]Observation{look(10, files{"a": is(v(2))}), look(20, files{"a": is(v(1))})},
		[]Rule{Kept},
	},
	{
		"an unknown one that was not, and comes late",
		[]Event{put(1, 2, "a", v(1)), begun(3, 5, "a", v(2))},
		[]Observation{look(10, files{"a": is(v(1))}), look(20, files{"a": is(v(2))})},
		[]Rule{Kept},
	},
	{
		"an unknown one that may come late",
		[]Event{put(1, 2, "a", v(1)), begun(3, Forever, "a", v(2))},
		[]Observation{look(10, files{"a": is(v(1))}), look(20, files{"a": is(v(2))})},
		nil,
	},
	{"one that failed", []Event{put(1, 2, "a", v(1)), event(Close, 3, 4, Failed, Change{"a", v(2)})}, []Observation{look(10, files{"a": is(v(2))})}, []Rule{Kept}},
	{"it cannot be read", []Event{put(1, 2, "a", v(1))}, []Observation{look(10, files{"a": {Problem: "checksum"}})}, []Rule{Kept}},

	// An atomic change is there as a whole or not at all.
	{
		"half a rename",
		[]Event{put(1, 2, "a", v(1)), event(Rename, 3, 5, Unknown, Change{"a", Absent}, Change{"b", v(1)})},
		[]Observation{look(10, files{"a": is(v(1)), "b": is(v(1))})},
		[]Rule{Kept},
	},
	{
		"the other half",
		[]Event{put(1, 2, "a", v(1)), event(Rename, 3, 5, Unknown, Change{"a", Absent}, Change{"b", v(1)})},
		[]Observation{look(10, files{"a": is(Absent), "b": is(Absent)})},
		[]Rule{Kept},
	},
	{
		"a whole rename",
		[]Event{put(1, 2, "a", v(1)), event(Rename, 3, 5, Unknown, Change{"a", Absent}, Change{"b", v(1)})},
		[]Observation{look(10, files{"a": is(Absent), "b": is(v(1))})},
		nil,
	},
	{
		"half a transaction",
		[]Event{put(1, 2, "a", v(1)), event(Txn, 3, 5, Unknown, Change{"a", v(2)}, Change{"b", v(3)}, Change{"c", v(4)})},
		[]Observation{look(10, files{"a": is(v(2)), "b": is(v(3)), "c": is(Absent)})},
		[]Rule{Kept},
	},
	{
		"a transaction, and a file of it changed since",
		[]Event{put(1, 2, "a", v(1)), event(Txn, 3, 5, Done, Change{"a", v(2)}, Change{"b", v(3)}), put(6, 7, "a", v(1))},
		[]Observation{look(10, files{"a": is(v(1)), "b": is(v(3))})},
		nil,
	},

	// A removed name does not come back.
	{"removed", []Event{put(1, 2, "a", v(1)), remove(3, 4, "a")}, []Observation{look(10, files{"a": is(Absent)})}, nil},
	{"it came back", []Event{put(1, 2, "a", v(1)), remove(3, 4, "a")}, []Observation{look(10, files{"a": is(v(1))})}, []Rule{Gone}},
	{
		"it comes back to the store after a drain",
		[]Event{put(1, 2, "a", v(1)), remove(3, 4, "a"), drain(5, 6)},
		[]Observation{store(10, files{"a": is(v(1))})},
		[]Rule{Gone},
	},
	{
		"its removal from the store is queued",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), remove(5, 6, "a")},
		[]Observation{store(10, files{"a": is(v(1))}), store(20, nil)},
		nil,
	},
	{
		"it comes back to the store",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), remove(5, 6, "a")},
		[]Observation{store(10, nil), store(20, files{"a": is(v(1))})},
		[]Rule{Gone},
	},
	{
		"it passes through a name on the store, by renames that were queued",
		[]Event{put(1, 2, "a", v(1)), rename(3, 4, "a", "b", v(1)), rename(5, 6, "b", "c", v(1)), remove(7, 8, "c")},
		[]Observation{store(10, files{"a": is(v(1))}), store(20, files{"b": is(v(1))}), store(30, files{"c": is(v(1))}), store(40, nil)},
		nil,
	},
	{
		"it comes by a rename whose end was seen",
		[]Event{put(1, 2, "a", v(1)), put(1, 2, "d", v(2)), rename(3, 4, "a", "b", v(1)), remove(7, 8, "b")},
		[]Observation{store(10, files{"a": is(v(1))}), look(15, files{"d": isClean(v(2))}), store(20, files{"b": is(v(1)), "d": is(v(2))})},
		[]Rule{Gone},
	},
	{
		"it comes by a rename, from where it was not",
		[]Event{put(1, 2, "a", v(1)), rename(3, 4, "a", "b", v(1)), remove(7, 8, "b")},
		[]Observation{store(10, nil), store(20, files{"b": is(v(1))})},
		[]Rule{Gone},
	},

	// Confirmed files are on the store.
	{"drained", []Event{put(1, 2, "a", v(1)), drain(3, 4)}, []Observation{store(10, files{"a": is(v(1))})}, nil},
	{"half a file on the store", []Event{put(1, 2, "a", v(1))}, []Observation{store(10, files{"a": is(v(99))})}, []Rule{Stored}},
	{"older bytes after a drain", []Event{put(1, 2, "a", v(1)), put(3, 4, "a", v(2)), drain(5, 6)}, []Observation{store(10, files{"a": is(v(1))})}, []Rule{Stored}},
	{"older bytes before it", []Event{put(1, 2, "a", v(1)), put(3, 4, "a", v(2))}, []Observation{store(10, files{"a": is(v(1))})}, nil},
	{"newer bytes after a drain", []Event{put(1, 2, "a", v(1)), drain(3, 4), put(5, 6, "a", v(2))}, []Observation{store(10, files{"a": is(v(2))})}, nil},
	{
		"a flushed close",
		[]Event{as(put(1, 2, "a", v(1)), func(e *Event) { e.Keeps = OnStore }), fault(5, OffNode)},
		[]Observation{store(10, nil)},
		[]Rule{Stays},
	},
	{
		"a drain of another directory",
		[]Event{put(1, 2, "a/x", v(1)), as(drain(3, 4), func(e *Event) { e.Below = "b" })},
		[]Observation{store(10, nil)},
		nil,
	},
	{
		"a drain of its directory",
		[]Event{put(1, 2, "a/x", v(1)), as(drain(3, 4), func(e *Event) { e.Below = "a" })},
		[]Observation{store(10, nil)},
		[]Rule{Stays},
	},
	{"a drain that names what it did not save", []Event{put(1, 2, "a", v(1)), drain(3, 4, "a")}, []Observation{store(10, nil)}, nil},
	{
		"a rename takes along what the store has",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), put(5, 6, "a", v(2)), rename(7, 8, "a", "b", v(2))},
		[]Observation{store(10, files{"b": is(v(1))})},
		nil,
	},

	// A stage-out copies the present files, and nothing follows it.
	{"a stage-out of another directory", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "b")}, []Observation{out(10, nil)}, nil},
	{"a stage-out without its file", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a")}, []Observation{out(10, nil)}, []Rule{Stored}},
	{"a stage-out to another folder", []Event{put(1, 2, "a/x", v(1)), as(stageOut(3, 4, Done, "a"), func(e *Event) { e.To = "other" })}, []Observation{out(10, nil)}, nil},
	{"a stage-out is no drain", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a")}, []Observation{store(10, nil)}, nil},
	{"a copy", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a"), put(5, 6, "a/x", v(2))}, []Observation{out(10, files{"a/x": is(v(1))})}, nil},
	{"bytes that came after the stage-out", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a"), put(5, 6, "a/x", v(2))}, []Observation{out(10, files{"a/x": is(v(2))})}, []Rule{Stored}},
	{"bytes of before the stage-out", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a"), put(5, 6, "a/x", v(2)), stageOut(7, 8, Done, "a")}, []Observation{out(10, files{"a/x": is(v(1))})}, []Rule{Stored}},
	{"a file written while it is copied", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 6, Done, "a"), put(4, 5, "a/x", v(2))}, []Observation{out(10, files{"a/x": is(v(1))}), out(12, files{"a/x": is(v(2))})}, nil},
	{"a mix of two versions", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 6, Unknown, "a"), put(4, 5, "a/x", v(2))}, []Observation{out(10, files{"a/x": is(v(3))})}, []Rule{Stored}},
	{
		"a stage-out that was cut off",
		[]Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a"), put(5, 6, "a/x", v(2)), stageOut(7, 8, Unknown, "a")},
		[]Observation{out(10, files{"a/x": is(v(1))}), out(12, files{"a/x": is(v(2))})},
		nil,
	},
	{
		"a stage-out that was cut off before the last",
		[]Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Unknown, "a"), put(5, 6, "a/x", v(2)), stageOut(7, 8, Done, "a")},
		[]Observation{out(10, files{"a/x": is(v(1))})},
		[]Rule{Stored},
	},
	{"a file that was not copied and is named", []Event{put(1, 2, "a/x", v(1)), as(stageOut(3, 4, Done, "a"), func(e *Event) { e.Unsaved = []string{"a/x"} })}, []Observation{out(10, nil)}, nil},
	{"a copy of what was removed since", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a"), remove(5, 6, "a/x"), stageOut(7, 8, Done, "a")}, []Observation{out(10, files{"a/x": is(v(1))})}, nil},
	{"a copy is gone", []Event{put(1, 2, "a/x", v(1)), stageOut(3, 4, Done, "a"), stageOut(5, 6, Unknown, "a")}, []Observation{out(10, nil)}, []Rule{Stored}},

	// Some durable version of a name exists until its removal is requested.
	{
		"an atomic replacement removes the durable copy",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), put(5, 6, "a.tmp", v(2)), rename(7, 8, "a.tmp", "a", v(2))},
		[]Observation{store(10, nil)},
		[]Rule{Stays},
	},
	{
		"an atomic replacement keeps it",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), put(5, 6, "a.tmp", v(2)), rename(7, 8, "a.tmp", "a", v(2))},
		[]Observation{store(10, files{"a": is(v(1))})},
		nil,
	},
	{
		"a transaction removes the durable copy",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), event(Txn, 5, 6, Done, Change{"a", v(2)}, Change{"b", v(3)})},
		[]Observation{store(10, nil)},
		[]Rule{Stays},
	},
	{"clean, and gone", []Event{put(1, 2, "a", v(1)), put(11, 12, "a", v(2))}, []Observation{look(5, files{"a": isClean(v(1))}), store(20, nil)}, []Rule{Stays}},
	{"clean, and other bytes", []Event{put(1, 2, "a", v(1)), put(3, 4, "a", v(2))}, []Observation{look(5, files{"a": isClean(v(2))}), store(20, files{"a": is(v(1))})}, []Rule{Stored}},
	{"clean, and replaced since", []Event{put(1, 2, "a", v(1)), put(11, 12, "a", v(2))}, []Observation{look(5, files{"a": isClean(v(1))}), store(20, files{"a": is(v(1))}), store(25, files{"a": is(v(2))})}, nil},
	{"clean, and removed", []Event{put(1, 2, "a", v(1)), remove(11, 12, "a")}, []Observation{look(5, files{"a": isClean(v(1))}), store(20, nil)}, nil},
	{"clean, and lost on its way to another name", []Event{put(1, 2, "a", v(1)), rename(11, 12, "a", "b", v(1))}, []Observation{look(5, files{"a": isClean(v(1))}), store(20, nil)}, []Rule{Stays}},
	{"on the store, called clean by nobody, and gone", []Event{put(1, 2, "a", v(1)), put(11, 12, "a", v(2))}, []Observation{store(5, files{"a": is(v(1))}), store(20, nil)}, []Rule{Stays}},
	{"on the store, called clean by nobody, and replaced by a rename", []Event{put(1, 2, "a", v(1)), rename(11, 12, "b", "a", v(2))}, []Observation{store(5, files{"a": is(v(1))}), store(20, nil)}, nil},
	{"on the store, called clean by nobody, and gone with a rename", []Event{put(1, 2, "a", v(1)), rename(11, 12, "a", "b", v(1))}, []Observation{store(5, files{"a": is(v(1))}), store(20, nil)}, nil},
	{"on the store, called clean by nobody, and the power is cut", []Event{put(1, 2, "a", v(1)), fault(8, InMemory)}, []Observation{store(5, files{"a": is(v(1))}), store(20, nil)}, nil},
	{
		"removed and made again, the removal from the store comes late",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), remove(5, 6, "a"), put(7, 8, "a", v(2))},
		[]Observation{store(10, files{"a": is(v(1))}), store(20, nil)},
		nil,
	},
	{"a rename moves it", []Event{put(1, 2, "a", v(1)), drain(3, 4), rename(5, 6, "a", "b", v(1))}, []Observation{store(10, files{"b": is(v(1))})}, nil},
	{"a rename loses it", []Event{put(1, 2, "a", v(1)), drain(3, 4), rename(5, 6, "a", "b", v(1))}, []Observation{store(10, nil)}, []Rule{Stays}},
	{
		"replaced by a file that was never durable, which moves on",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), put(5, 6, "b", v(2)), rename(7, 8, "b", "a", v(2)), rename(11, 12, "a", "c", v(2))},
		[]Observation{store(9, files{"a": is(v(1))}), store(20, nil)},
		nil,
	},
	{
		"renamed and removed",
		[]Event{put(1, 2, "a", v(1)), drain(3, 4), rename(5, 6, "a", "b", v(1)), remove(7, 8, "b")},
		[]Observation{store(10, nil)},
		nil,
	},

	// Absent files are named.
	{"lost with its node", []Event{put(1, 2, "a", v(1)), fault(5, InMemory)}, []Observation{look(10, files{"a": isLost}, "a")}, nil},
	{"lost with its node, not listed", []Event{put(1, 2, "a", v(1)), fault(5, InMemory)}, []Observation{look(10, files{"a": isLost})}, []Rule{Named}},
	{"silently gone", []Event{put(1, 2, "a", v(1)), fault(5, InMemory)}, []Observation{look(10, files{"a": is(Absent)})}, []Rule{Named}},
	{"lost without a fault", []Event{put(1, 2, "a", v(1)), fault(5, 0)}, []Observation{look(10, files{"a": isLost}, "a")}, []Rule{Named}},
	{
		"lost, with a disk tier",
		[]Event{as(put(1, 2, "a", v(1)), func(e *Event) { e.Keeps = OffNode }), fault(5, InMemory)},
		[]Observation{look(10, files{"a": isLost}, "a")},
		[]Rule{Named},
	},
	{
		"lost with another node",
		[]Event{as(put(1, 2, "a", v(1)), func(e *Event) { e.Holders = []string{"n1"} }), as(fault(5, InMemory), func(e *Event) { e.Node = "n2" })},
		[]Observation{look(10, files{"a": isLost}, "a")},
		[]Rule{Named},
	},
	{"written after the fault, and lost", []Event{fault(1, InMemory), put(2, 3, "a", v(1))}, []Observation{look(10, files{"a": isLost}, "a")}, []Rule{Named}},
	{"lost and drained", []Event{put(1, 2, "a", v(1)), drain(3, 4), fault(5, InMemory)}, []Observation{look(10, files{"a": isLost}, "a")}, []Rule{Stored}},
	{
		"a drain that leaves out what is lost",
		[]Event{put(1, 2, "a", v(1)), fault(3, InMemory), drain(5, 6)},
		[]Observation{store(10, nil)},
		[]Rule{Stays},
	},

	// A namespace that loses entries.
	{
		"below lost+found",
		[]Event{put(1, 2, "a", v(1)), as(fault(5, 0), func(e *Event) { e.Forgets = true })},
		[]Observation{look(10, files{"a": is(Absent), LostAndFound + "1": is(v(1))})},
		nil,
	},
	{
		"forgotten",
		[]Event{put(1, 2, "a", v(1)), as(fault(5, 0), func(e *Event) { e.Forgets = true })},
		[]Observation{look(10, files{"a": is(Absent)})},
		[]Rule{Named},
	},
	{
		"forgotten, and older bytes in its place",
		[]Event{put(1, 2, "a", v(1)), put(3, 4, "a", v(2)), as(fault(5, 0), func(e *Event) { e.Forgets = true })},
		[]Observation{look(10, files{"a": is(v(1))})},
		[]Rule{Kept},
	},
}

func TestCheck(t *testing.T) {
	shown := map[Rule]bool{}
	for _, c := range judgements {
		t.Run(c.name, func(t *testing.T) {
			var broken []Rule
			found := Check(c.events, c.seen)
			for _, f := range found {
				if !slices.Contains(broken, f.Rule) {
					broken = append(broken, f.Rule)
				}
				shown[f.Rule] = true
			}
			if !slices.Equal(broken, c.broken) {
				t.Errorf("broken are %v, want %v: %v", broken, c.broken, found)
			}
		})
	}
	for _, r := range []Rule{Stays, Stored, Named, Kept, Gone} {
		if !shown[r] {
			t.Errorf("no history breaks %q", r)
		}
	}
}

// A history that many goroutines record is checked as it comes.
func TestHistory(t *testing.T) {
	h := NewHistory()
	var wg sync.WaitGroup
	for i := range 8 {
		name := string(rune('a' + i))
		wg.Go(func() {
			for n := range 50 {
				ended := h.Begin(Event{Op: Close, Changes: []Change{{name, v(n + 1)}}})
				if n < 49 {
					ended(Done)
				}
			}
		})
	}
	wg.Wait()
	h.Over()
	at := h.Now()
	for i, version := range []Version{v(49), v(50), v(48), v(51), v(50), v(50), v(49), v(49)} {
		name := string(rune('a' + i))
		found := h.Observe(Observation{Begin: at, Files: files{name: is(version)}})
		if bad := version == v(48) || version == v(51); bad != (len(found) > 0) {
			t.Errorf("%s holds %v: %v", name, version, found)
		}
	}
	if found := h.Observe(Observation{Begin: h.Now(), Files: files{"b": is(v(49))}}); len(found) != 1 || found[0].Rule != Kept {
		t.Errorf("older bytes than were seen before: %v", found)
	}
}

func TestContent(t *testing.T) {
	c := Content{}.With(7, 0, 100).With(8, 50, 30).With(9, 200, 64)
	p := c.Bytes()
	if len(p) != 264 || c.Size() != 264 {
		t.Fatalf("%d bytes, want 264", len(p))
	}
	for _, w := range []struct {
		id        uint64
		off, size int
	}{{7, 0, 50}, {8, 50, 30}, {7, 80, 20}, {9, 200, 64}} {
		want := make([]byte, w.size)
		Fill(want, w.id, w.off)
		if string(p[w.off:w.off+w.size]) != string(want) {
			t.Errorf("bytes %d+%d are not of write %d", w.off, w.size, w.id)
		}
	}
	if strings.Trim(string(p[100:200]), "\x00") != "" {
		t.Error("what was not written is not zero")
	}
	if a, b := c.With(10, 0, 1), c.With(11, 0, 1); string(a.Bytes()) == string(b.Bytes()) {
		t.Error("two contents that go on from one share their writes")
	}
}

func TestDescribe(t *testing.T) {
	of := func(id uint64, off, size int) []byte {
		p := make([]byte, size)
		Fill(p, id, off)
		return p
	}
	for _, c := range []struct {
		p    []byte
		want string
	}{
		{nil, ""},
		{of(3, 0, 64), "0+64 of write 3"},
		{make([]byte, 64), "0+64 zeros"},
		{append(of(3, 0, 64), of(4, 64, 70)...), "0+64 of write 3, 64+64 of write 4, 128+6 cut"},
		{append(of(3, 0, 32), of(3, 0, 32)...), "0+32 of write 3, 32+32 of write 3, for another place"},
		{append(of(3, 0, 40), of(4, 40, 24)...), "0+32 of write 3, 32+32 cut or of no write"},
	} {
		if got := Describe(c.p); got != c.want {
			t.Errorf("Describe of %d bytes: %q, want %q", len(c.p), got, c.want)
		}
	}
}
