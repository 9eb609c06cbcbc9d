// Package table is a namespace in memory: the result of the records of its log. Only their effects change it,
// in their order, each of them once however often it comes. The package must never do I/O.
//
//	       directories: id ─▶ the slot of its entry, the slots of its entries in order
//	operations, outcomes: slots in order
//	                        │
//	                        ▼
//	        package pages: keys, values and revisions
package table

import (
	"slices"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
)

// maxAncestors bounds the way up from a directory. Paths are shorter (bb.MaxDepth), but renames
// can hang a deep tree below another.
const maxAncestors = 16 * bb.MaxDepth

// maxSpans bounds the number of spans of revisions. Of older entries, the table no longer shows
// whether they were removed or lost.
const maxSpans = 1024

// Table is a namespace. It is used by one goroutine at a time, or by several that only read.
type Table struct {
	m        *pages.Map
	dirs     map[bb.DirID]*directory
	ops      list
	byOp     map[uint64]pages.Slot // operations by their revisions
	outcomes list
	others   list
	next     uint64
	spans    []record.Span
}

// directory is a directory, or one that entries name while its own entry was not loaded yet.
type directory struct {
	slot    pages.Slot // of its entry; NoSlot: it has none
	entries list
}

// New returns an empty table. Not even the root is there.
func New() *Table {
	return &Table{m: pages.New(), dirs: map[bb.DirID]*directory{}, byOp: map[uint64]pages.Slot{}}
}

// Close gives the memory back.
func (t *Table) Close() { t.m.Close() }

// Next returns the first revision that was not used yet.
func (t *Table) Next() uint64 { return t.next }

// Spans returns the revisions of which the table has all changes. It shares memory with the
// table until that changes.
func (t *Table) Spans() []record.Span { return t.spans }

// Restore sets the revisions of a manifest.
func (t *Table) Restore(next uint64, spans []record.Span) {
	t.next, t.spans = max(t.next, next), spans
}

// Advance records that the revisions from first up to next were used. Those before first that were
// not are lost.
func (t *Table) Advance(first, next uint64) {
	if next <= t.next {
		return // a record that a manifest covers
	}
	last := len(t.spans) - 1
	if last >= 0 && t.spans[last].First+t.spans[last].Length >= first {
		t.spans[last].Length = next - t.spans[last].First
	} else {
		t.spans = append(t.spans, record.Span{First: first, Length: next - first})
		t.spans = t.spans[max(0, len(t.spans)-maxSpans):]
	}
	t.next = next
}

// Covers reports whether the table has all changes since a revision that one of its items had, or
// may have had. If not, the revision was lost with the end of a log.
func (t *Table) Covers(revision uint64) bool {
	return slices.ContainsFunc(t.spans, func(s record.Span) bool { return revision >= s.First && revision-s.First < s.Length })
}

// Apply carries out an effect of the record of a sequence, unless its key has a newer revision.
// Then it was carried out before.
func (t *Table) Apply(e record.Effect, seq uint64) error {
	s := t.m.Find(e.Key)
	if s != pages.NoSlot && t.m.At(s).Revision >= e.Revision {
		return nil
	}
	if e.Value == nil {
		if s != pages.NoSlot {
			t.unlink(s)
			t.m.Remove(e.Key, seq)
		}
		return nil
	}
	if s != pages.NoSlot {
		t.leave(s, record.PeekDir(e.Value))
	}
	now, before, err := t.m.Put(e.Key, e.Revision, e.Value, seq)
	if err != nil {
		return err
	}
	t.link(now, before)
	return nil
}

// Load fills a page (see pages.Map).
func (t *Table) Load(number int, items []byte, since uint64) error {
	return t.m.Load(number, items, since, func(gone pages.Slot, newer []byte) { t.leave(gone, record.PeekDir(newer)) }, t.link)
}

// listOf returns the list that a key is in, or nil if it is in none.
func (t *Table) listOf(key []byte) *list {
	switch record.KindOf(key) {
	case record.Entry:
		if dir, _, _ := record.EntryKey(key); dir != 0 {
			return &t.dir(dir).entries
		}
	case record.Operation:
		return &t.ops
	case record.Outcomes:
		return &t.outcomes
	case record.Other:
		return &t.others
	}
	return nil
}

func (t *Table) dir(id bb.DirID) *directory {
	d := t.dirs[id]
	if d == nil {
		d = &directory{slot: pages.NoSlot}
		t.dirs[id] = d
	}
	return d
}

// link makes the item of a slot findable. It was in another slot before that is free now, in the
// same one, or in NoSlot.
func (t *Table) link(now, before pages.Slot) {
	item := t.m.At(now)
	if now != before {
		if l := t.listOf(item.Key); l != nil {
			l.put(t.m, item.Key, now, before)
		}
	}
	switch record.KindOf(item.Key) {
	case record.Entry:
		if id := record.PeekDir(item.Value); id != 0 {
			d := t.dir(id)
			if d.slot == pages.NoSlot || d.slot == before || t.m.At(d.slot).Revision < item.Revision {
				d.slot = now
			}
		}
	case record.Operation:
		t.byOp[item.Revision] = now
	}
}

// leave is called before the item of a slot gets another value, that of a directory or, if id is
// 0, of something else.
func (t *Table) leave(s pages.Slot, id bb.DirID) {
	item := t.m.At(s)
	switch record.KindOf(item.Key) {
	case record.Entry:
		if was := record.PeekDir(item.Value); was != 0 && was != id {
			t.unlinkDir(was, s)
		}
	case record.Operation:
		delete(t.byOp, item.Revision)
	}
}

// unlink is called before the item of a slot is removed.
func (t *Table) unlink(s pages.Slot) {
	t.leave(s, 0)
	key := t.m.Key(s)
	l := t.listOf(key)
	if l == nil {
		return
	}
	l.remove(t.m, key)
	if dir, _, ok := record.EntryKey(key); ok {
		t.forgetDir(dir)
	}
}

// unlinkDir records that a directory's entry is no longer in a slot.
func (t *Table) unlinkDir(id bb.DirID, s pages.Slot) {
	if d := t.dirs[id]; d != nil && d.slot == s {
		d.slot = pages.NoSlot
		t.forgetDir(id)
	}
}

// forgetDir drops a directory that neither has an entry nor holds anything.
func (t *Table) forgetDir(id bb.DirID) {
	if d := t.dirs[id]; d != nil && d.slot == pages.NoSlot && d.entries.n == 0 {
		delete(t.dirs, id)
	}
}

// Check returns an error of kind Checksum if an entry lies in a directory that is not there. The
// loaded table is incomplete.
func (t *Table) Check() error {
	for id, d := range t.dirs {
		if d.slot == pages.NoSlot {
			return bb.E(bb.Checksum, "load", "namespace", "directory "+id.String()+" is missing, and entries lie in it").
				WithRemedy("put a copy of the namespace server's folder back")
		}
	}
	return nil
}

// Get returns the item of a key. It is valid until the table changes.
func (t *Table) Get(key []byte) (pages.Item, bool) { return t.m.Get(key) }

// Items returns how many items there are.
func (t *Table) Items() int { return t.m.Len() }

// HasDir reports whether there is a directory.
func (t *Table) HasDir(id bb.DirID) bool {
	d := t.dirs[id]
	return d != nil && d.slot != pages.NoSlot
}

// Len returns how many entries a directory holds.
func (t *Table) Len(id bb.DirID) int {
	if d := t.dirs[id]; d != nil {
		return d.entries.n
	}
	return 0
}

// EntryOf returns the item of a directory's entry.
func (t *Table) EntryOf(id bb.DirID) (pages.Item, bool) {
	if !t.HasDir(id) {
		return pages.Item{}, false
	}
	return t.m.At(t.dirs[id].slot), true
}

// EachDir calls fn with each directory that has an entry, in no order. The item is valid until the table changes.
func (t *Table) EachDir(fn func(id bb.DirID, item pages.Item)) {
	for id, d := range t.dirs {
		if d.slot != pages.NoSlot {
			fn(id, t.m.At(d.slot))
		}
	}
}

// Each calls fn with the items of the entries of a directory whose names are above one, in the
// order of their names, until it returns false. "" is below all names.
func (t *Table) Each(id bb.DirID, after string, fn func(pages.Item) bool) {
	d := t.dirs[id]
	if d == nil {
		return
	}
	key := record.AppendEntryKey(nil, id, after)
	d.entries.from(t.m, key, func(s pages.Slot) bool {
		item := t.m.At(s)
		return string(item.Key) == string(key) || fn(item)
	})
}

// Within reports whether a directory is top, or below it.
func (t *Table) Within(id, top bb.DirID) bool {
	within := false
	_ = t.climb(id, func(id bb.DirID, _ []byte) bool {
		within = id == top
		return !within
	})
	return within || id == top
}

// Path returns the path of a directory, "" for the root.
func (t *Table) Path(id bb.DirID) (string, error) {
	var names []string
	err := t.climb(id, func(_ bb.DirID, name []byte) bool {
		names = append(names, string(name))
		return true
	})
	slices.Reverse(names)
	return strings.Join(names, "/"), err
}

// climb calls fn with a directory and each one above it, but the root, until it returns false.
func (t *Table) climb(id bb.DirID, fn func(id bb.DirID, name []byte) bool) error {
	for range maxAncestors {
		if id == bb.RootDir {
			return nil
		}
		item, ok := t.EntryOf(id)
		if !ok {
			return bb.E(bb.NotFound, "path", id.String(), "the directory has been removed")
		}
		parent, name, _ := record.EntryKey(item.Key)
		if !fn(id, name) {
			return nil
		}
		id = parent
	}
	return bb.E(bb.Internal, "path", id.String(), "is nested too deep")
}

// Operations calls fn with the items of all operations, in their order.
func (t *Table) Operations(fn func(pages.Item)) {
	t.ops.from(t.m, nil, func(s pages.Slot) bool { fn(t.m.At(s)); return true })
}

// OperationAt returns the operation that has a revision.
func (t *Table) OperationAt(revision uint64) (pages.Item, bool) {
	s, ok := t.byOp[revision]
	if !ok {
		return pages.Item{}, false
	}
	return t.m.At(s), true
}

// Outcomes calls fn with the items of a session's outcomes from a number on, in the order of
// their numbers, until it returns false.
func (t *Table) Outcomes(of record.Session, from uint64, fn func(number uint64, item pages.Item) bool) {
	t.outcomes.from(t.m, record.OutcomeKey(of, from), func(s pages.Slot) bool {
		item := t.m.At(s)
		session, number := record.OutcomeOf(item.Key)
		return session == of && fn(number, item)
	})
}

// Others calls fn with the records of other packages whose keys are not below one, in the order
// of their keys, until it returns false.
func (t *Table) Others(from []byte, fn func(pages.Item) bool) {
	t.others.from(t.m, from, func(s pages.Slot) bool { return fn(t.m.At(s)) })
}

// Pages returns how many pages there are. Their numbers begin with 0.
func (t *Table) Pages() int { return t.m.Pages() }

// Since returns the sequence of the first change of a page that was not written, or 0 if all were.
func (t *Table) Since(number int) uint64 { return t.m.Since(number) }

// Written records that a page was written.
func (t *Table) Written(number int) { t.m.Written(number) }

// AppendPage appends a page to b, in the form that Load reads.
func (t *Table) AppendPage(b []byte, number int) []byte { return t.m.AppendPage(b, number) }

// EachIn calls fn with the items of a page that have a revision from one on.
func (t *Table) EachIn(number int, from uint64, fn func(pages.Item)) {
	if t.m.Newest(number) < from {
		return
	}
	t.m.EachIn(number, func(_ pages.Slot, item pages.Item) {
		if item.Revision >= from {
			fn(item)
		}
	})
}
