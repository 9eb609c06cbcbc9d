package table

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
)

// history is a table with all that its log and its pages ever were, so that it can be loaded again
// from any remains of them.
type history struct {
	t        *testing.T
	rnd      *rand.Rand
	table    *Table
	log      [][]record.Effect // one record for each sequence, from 1 on
	versions map[int][]version
	starts   []manifest
	ids      uint64
}

// version is a page as it was written after a sequence.
type version struct {
	seq   uint64
	items []byte
}

type manifest struct {
	start, at, next uint64
	spans           []record.Span
}

func (h *history) seq() uint64 { return uint64(len(h.log)) }

// apply carries out one record.
func (h *history) apply(effects ...record.Effect) {
	h.log = append(h.log, nil)
	first := h.table.Next()
	for i := range effects {
		effects[i].Revision = first + 2*uint64(i)
		if err := h.table.Apply(effects[i], h.seq()); err != nil {
			h.t.Fatal(err)
		}
	}
	h.table.Advance(first, first+2*uint64(len(effects)))
	h.log[len(h.log)-1] = effects
}

func key(dir bb.DirID, name string) []byte { return record.AppendEntryKey(nil, dir, name) }

func entry(h *history, e bb.Entry) []byte {
	b, err := record.AppendEntry(nil, &e)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// change makes a random change that a namespace allows, in one record.
func (h *history) change() {
	dir, name := h.someDir(), fmt.Sprint("n", h.rnd.IntN(40))
	item, there := h.table.Get(key(dir, name))
	value := bytes.Clone(item.Value)
	h.ids++
	switch n := h.rnd.IntN(10); {
	case !there && n < 2:
		h.apply(record.Effect{Key: key(dir, name), Value: entry(h, bb.Entry{Type: bb.TypeDirectory, Dir: bb.DirID(1000 + h.ids)})})
	case !there || n < 3 && record.PeekDir(value) == 0:
		grown := h.rnd.IntN(400)
		h.apply(record.Effect{Key: key(dir, name), Value: entry(h, bb.Entry{Type: bb.TypeFile, File: bb.FileID(h.ids), Lost: true, Reason: string(make([]byte, grown))})})
	case n < 6:
		if id := record.PeekDir(value); id == 0 || h.table.Len(id) == 0 {
			h.apply(record.Effect{Key: key(dir, name)})
		}
	default:
		to, other := h.someDir(), fmt.Sprint("n", h.rnd.IntN(40))
		id := record.PeekDir(value)
		old, taken := h.table.Get(key(to, other))
		if string(key(to, other)) == string(key(dir, name)) || id != 0 && h.table.Within(to, id) || taken && h.table.Len(record.PeekDir(old.Value)) > 0 {
			return
		}
		h.apply(record.Effect{Key: key(to, other), Value: value}, record.Effect{Key: key(dir, name)})
	}
}

func (h *history) someDir() bb.DirID {
	all := slices.Sorted(maps.Keys(h.table.dirs))
	return all[h.rnd.IntN(len(all))]
}

// write writes some of the pages that have changed, or all and then a manifest.
func (h *history) write(all bool) {
	for number := range h.table.Pages() {
		if h.table.Since(number) != 0 && (all || h.rnd.IntN(2) == 0) {
			h.versions[number] = append(h.versions[number], version{h.seq(), h.table.AppendPage(nil, number)})
			h.table.Written(number)
		}
	}
	if all {
		h.starts = append(h.starts, manifest{h.seq() + 1, h.seq(), h.table.Next(), slices.Clone(h.table.Spans())})
	}
}

// load makes a table from any version of each page that is not older than a manifest, and the
// log from there on.
func (h *history) load() *Table {
	t := New()
	h.t.Cleanup(t.Close)
	m := manifest{start: 1}
	if len(h.starts) > 0 {
		m = h.starts[h.rnd.IntN(len(h.starts))]
	}
	t.Restore(m.next, slices.Clone(m.spans))
	for number, versions := range h.versions {
		from := 0
		for from+1 < len(versions) && versions[from+1].seq <= m.at {
			from++
		}
		if versions[from].seq > m.at && h.rnd.IntN(2) == 0 {
			continue // the page did not exist yet
		}
		v := versions[from+h.rnd.IntN(len(versions)-from)]
		if err := t.Load(number, v.items, m.start); err != nil {
			h.t.Fatal(err)
		}
	}
	next := m.next
	for seq := m.start; seq <= h.seq(); seq++ {
		for _, e := range h.log[seq-1] {
			if err := t.Apply(e, seq); err != nil {
				h.t.Fatal(err)
			}
			next = e.Revision + 2
		}
		t.Advance(next-2*uint64(len(h.log[seq-1])), next)
	}
	return t
}

// dump returns the content of a table, read in each possible way.
func dump(t *testing.T, table *Table) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
	for id := range table.dirs {
		names := 0
		after := ""
		table.Each(id, "", func(item pages.Item) bool {
			dir, name, _ := record.EntryKey(item.Key)
			if dir != id || string(name) <= after {
				t.Fatalf("%q comes after %q in %v, and is of %v", name, after, id, dir)
			}
			after = string(name)
			names++
			out[string(item.Key)] = fmt.Sprintf("%d %x", item.Revision, item.Value)
			if got, ok := table.Get(item.Key); !ok || got.Revision != item.Revision {
				t.Fatalf("%q of %v is listed, and found: %v", name, id, ok)
			}
			if child := record.PeekDir(item.Value); child != 0 {
				if own, ok := table.EntryOf(child); !ok || !bytes.Equal(own.Key, item.Key) {
					t.Fatalf("%v lies at %q, and its own entry is %q (%v)", child, item.Key, own.Key, ok)
				}
			}
			return true
		})
		if names != table.Len(id) {
			t.Fatalf("%v lists %d entries, and has %d", id, names, table.Len(id))
		}
		if _, err := table.Path(id); err != nil {
			t.Fatal(err)
		}
	}
	if len(out)+1 != table.Items() {
		t.Fatalf("%d entries can be reached, there are %d", len(out)+1, table.Items())
	}
	return out
}

// TestModel makes random changes to a table, and loads it again from each mixture of pages and log
// that a crash may leave. The content read is that of a map of the same effects.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		h := &history{t: t, rnd: rand.New(rand.NewPCG(seed, 9)), table: New(), versions: map[int][]version{}}
		defer h.table.Close()
		h.apply(record.Effect{Key: record.RootKey, Value: entry(h, bb.Entry{Type: bb.TypeDirectory, Dir: bb.RootDir})})
		for step := range 3000 {
			h.change()
			if n := h.rnd.IntN(300); n < 2 {
				h.write(n == 0)
			}
			if step%600 == 599 {
				want := map[string]string{}
				for _, effects := range h.log {
					for _, e := range effects {
						if delete(want, string(e.Key)); e.Value != nil {
							want[string(e.Key)] = fmt.Sprintf("%d %x", e.Revision, e.Value)
						}
					}
				}
				delete(want, string(record.RootKey))
				for what, table := range map[string]*Table{"the table": h.table, "a table that was loaded": h.load(), "another one": h.load()} {
					if got := dump(t, table); !maps.Equal(got, want) {
						t.Fatalf("seed %d, step %d: %s has %d entries, want %d", seed, step, what, len(got), len(want))
					}
					if table.Next() != h.table.Next() || !slices.Equal(table.Spans(), h.table.Spans()) {
						t.Fatalf("seed %d: %s goes on at %d, has %v", seed, what, table.Next(), table.Spans())
					}
				}
			}
		}
	}
}

// Revisions that were lost with the end of a log are covered by no span.
func TestSpans(t *testing.T) {
	t.Parallel()
	table := New()
	defer table.Close()
	table.Advance(10, 20)
	table.Advance(20, 24)
	table.Advance(100, 104)
	table.Advance(20, 24) // comes again
	for revision, want := range map[uint64]bool{9: false, 10: true, 23: true, 24: false, 99: false, 100: true, 103: true, 104: false} {
		if table.Covers(revision) != want {
			t.Errorf("revision %d is covered: %v", revision, !want)
		}
	}
	if table.Next() != 104 {
		t.Errorf("next is %d", table.Next())
	}
}

// An effect that comes again after newer ones changes nothing.
func TestOldEffects(t *testing.T) {
	t.Parallel()
	h := &history{t: t, table: New()}
	defer h.table.Close()
	h.apply(record.Effect{Key: record.RootKey, Value: entry(h, bb.Entry{Type: bb.TypeDirectory, Dir: bb.RootDir})})
	h.apply(record.Effect{Key: key(bb.RootDir, "f"), Value: entry(h, bb.Entry{Type: bb.TypeFile, File: 1})})
	h.apply(record.Effect{Key: key(bb.RootDir, "f")})
	h.apply(record.Effect{Key: key(bb.RootDir, "f"), Value: entry(h, bb.Entry{Type: bb.TypeFile, File: 2})})
	want := dump(t, h.table)
	for seq, effects := range h.log[1:3] {
		if err := h.table.Apply(effects[0], uint64(seq)); err != nil {
			t.Fatal(err)
		}
		if got := dump(t, h.table); !maps.Equal(got, want) {
			t.Errorf("after effect %d came again: %v, want %v", seq, got, want)
		}
	}
}

// A directory of which the entry was not loaded is found.
func TestCheck(t *testing.T) {
	t.Parallel()
	h := &history{t: t, table: New()}
	defer h.table.Close()
	h.apply(record.Effect{Key: record.RootKey, Value: entry(h, bb.Entry{Type: bb.TypeDirectory, Dir: bb.RootDir})})
	h.apply(record.Effect{Key: key(77, "f"), Value: entry(h, bb.Entry{Type: bb.TypeFile, File: 1})})
	if err := h.table.Check(); bb.KindOf(err) != bb.Checksum {
		t.Errorf("a table without the directory of a file: %v", err)
	}
}
