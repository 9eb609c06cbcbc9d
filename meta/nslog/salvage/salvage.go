// Package salvage reads what can be read of a damaged log, and begins another one with that. It must never know what
// becomes of the names that are missing.
package salvage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
)

// Entries are what was read of a damaged log.
type Entries struct {
	Dirs  []bb.Entry // each after the one that it lies in, with their attributes alone
	Files []bb.Entry // in these directories
}

// Read returns what can be read of a damaged log but what transactions have not committed: all directories, and
// those files of which keep, which may change them, returns true. What was removed by a record that cannot be read is
// among them, and what was changed by such a record is as it was before.
func Read(ctx context.Context, log owner.Log, keep func(*bb.Entry) bool) (Entries, error) {
	t, err := owner.Salvage(ctx, log)
	if err != nil {
		return Entries{}, err
	}
	defer t.Close()
	s := look{t: t, taken: map[bb.Place]bool{}}
	t.EachDir(s.dir)
	slices.SortFunc(s.dirs, func(x, y dir) int { return cmp.Or(cmp.Compare(x.depth, y.depth), cmp.Compare(x.Dir, y.Dir)) })
	var all Entries
	there := make(map[bb.DirID]bool)
	for i := range s.dirs {
		all.Dirs, there[s.dirs[i].Dir] = append(all.Dirs, s.dirs[i].Entry), true
	}
	for i := range s.dirs {
		t.Each(s.dirs[i].Dir, "", func(item pages.Item) bool {
			e, ok := openItem(item)
			if !ok || e.IsDir() || !keep(&e) {
				return true
			}
			if at := e.Place(); there[at.Dir] && !s.taken[at] {
				all.Files, s.taken[at] = append(all.Files, e), true
			}
			return true
		})
	}
	return all, nil
}

// look is a look at a table of which parts are missing.
type look struct {
	t     *table.Table
	dirs  []dir
	taken map[bb.Place]bool
}

type dir struct {
	bb.Entry
	depth int
}

// dir takes up a directory if all above it are there.
func (s *look) dir(id bb.DirID, item pages.Item) {
	path, err := s.t.Path(id)
	if err != nil || bb.Hidden(path) {
		return
	}
	e, ok := openItem(item)
	if !ok {
		return
	}
	depth := 0
	if id != bb.RootDir {
		depth = 1 + strings.Count(path, "/")
	}
	s.taken[e.Place()] = true
	s.dirs = append(s.dirs, dir{bb.Entry{
		Parent: e.Parent, Name: e.Name, Type: bb.TypeDirectory, Dir: e.Dir, Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.MTime,
	}, depth})
}

// openItem returns the entry of an item; false: it cannot be decoded.
func openItem(item pages.Item) (bb.Entry, bool) {
	parent, name, ok := record.EntryKey(item.Key)
	if !ok {
		return bb.Entry{}, false
	}
	e, err := record.OpenEntry(parent, string(name), item.Value, item.Revision)
	return e, err == nil
}

// recordBytes bounds, about, the effects of a record that Begin stores.
const recordBytes = 128 << 10

// Begin stores entries in a log that nobody has used yet, with a root for where there is none among them. Applied
// of the options is not used.
func Begin(ctx context.Context, log owner.Log, found *Entries, root *bb.Entry, o owner.Options) error {
	o.Applied, o.Unused = func([]byte) {}, true
	w, err := owner.Open(ctx, log, o)
	if err != nil {
		return err
	}
	defer w.Close()
	if len(found.Dirs) == 0 || found.Dirs[0].Dir != bb.RootDir {
		if err := store(ctx, w, []bb.Entry{*root}); err != nil {
			return err
		}
	}
	if err := store(ctx, w, found.Dirs); err != nil {
		return err
	}
	return store(ctx, w, found.Files)
}

func store(ctx context.Context, w *owner.Owner, entries []bb.Entry) error {
	for len(entries) > 0 {
		stored := 0 // of the round's goroutine, until the change is answered
		err := w.Do(ctx, "restore", entries[0].Name, func(b *owner.Round) error {
			stored = 0
			for begun := b.Bytes(); stored < len(entries) && b.Bytes()-begun < recordBytes; stored++ {
				e := &entries[stored]
				value, err := record.AppendEntry(nil, e)
				if err != nil {
					return err
				}
				b.StoreEntry(record.AppendEntryKey(nil, e.Parent, e.Name), value)
			}
			return nil
		})
		if err != nil {
			return err
		}
		entries = entries[stored:]
	}
	return nil
}
