package nslog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
)

const (
	scanPage = 512
	maxScans = 8 // passes over entries that changed during a scan, before one that keeps changes out

	entryKeyBytes = 9 + 255
)

// find returns the entry of a place.
func find(t *table.Table, dir bb.DirID, name string) (bb.Entry, bool, error) {
	var key [entryKeyBytes]byte
	item, ok := t.Get(record.AppendEntryKey(key[:0], dir, name))
	if !ok {
		return bb.Entry{}, false, nil
	}
	e, err := record.OpenEntry(dir, name, item.Value, item.Revision)
	return e, err == nil, err
}

// decode returns the entry of an item.
func decode(item pages.Item) (bb.Entry, error) {
	dir, name, ok := record.EntryKey(item.Key)
	if !ok {
		return bb.Entry{}, bb.E(bb.Checksum, "decode", "an entry", "its key is malformed")
	}
	return record.OpenEntry(dir, string(name), item.Value, item.Revision)
}

func (e *Engine) address(names ...string) string {
	return bb.Scheme + "://" + e.o.Buffer + "/" + strings.Join(names, "/")
}

func checkPlace(dir bb.DirID, name string) error {
	if dir == 0 {
		return bb.E(bb.Invalid, "name", name, "its directory has no id")
	}
	return bb.CheckName(name)
}

func notFound(op, path string) error {
	return bb.E(bb.NotFound, op, path, "there is no such file or directory")
}

// Root returns the root directory's entry. It has neither parent nor name.
func (e *Engine) Root(ctx context.Context) (root bb.Entry, err error) {
	err = e.owner.Read(ctx, "stat", e.address(), func(t *table.Table) (err error) {
		var ok bool
		if root, ok, err = find(t, 0, ""); err == nil && !ok {
			err = kv.ErrNoBucket
		}
		return err
	})
	return root, kv.Wrap("stat", e.address(), err)
}

// Lookup returns the entry of a name in a directory, or NotFound if there is none.
func (e *Engine) Lookup(ctx context.Context, dir bb.DirID, name string) (found bb.Entry, err error) {
	if err := checkPlace(dir, name); err != nil {
		return bb.Entry{}, err
	}
	err = e.owner.Read(ctx, "lookup", name, func(t *table.Table) (err error) {
		var ok bool
		if found, ok, err = find(t, dir, name); err == nil && !ok {
			err = notFound("lookup", name)
		}
		return err
	})
	return found, bb.Wrap("lookup", name, err)
}

// Find is Lookup that reports whether there is an entry, and not with an error.
func (e *Engine) Find(ctx context.Context, dir bb.DirID, name string) (found bb.Entry, ok bool, err error) {
	if err := checkPlace(dir, name); err != nil {
		return bb.Entry{}, false, err
	}
	err = e.owner.Read(ctx, "lookup", name, func(t *table.Table) (err error) {
		found, ok, err = find(t, dir, name)
		return err
	})
	return found, ok, bb.Wrap("lookup", name, err)
}

// Refresh does nothing, since no answer is cached.
func (e *Engine) Refresh(bb.DirID, string) {}

// SoleWriter is true, since only the owner changes the namespace.
func (e *Engine) SoleWriter() bool { return true }

// DirGone reports whether a directory has been removed.
func (e *Engine) DirGone(ctx context.Context, dir bb.DirID) (gone bool, err error) {
	err = e.owner.Read(ctx, "lookup", dir.String(), func(t *table.Table) error {
		gone = !t.HasDir(dir)
		return nil
	})
	return gone && err == nil, err
}

// LookupAgain is Lookup, since no answer is cached.
func (e *Engine) LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	return e.Lookup(ctx, dir, name)
}

// Removed reports whether a name, under which a file was in a revision, is free since a change that
// the namespace has, since it was removed or renamed. It is false where the name is in use, and
// where the log has lost the revision.
func (e *Engine) Removed(ctx context.Context, dir bb.DirID, name string, _ bb.FileID, revision uint64) (removed bool, err error) {
	if err := checkPlace(dir, name); err != nil {
		return false, err
	}
	err = e.owner.Read(ctx, "lookup", name, func(t *table.Table) error {
		_, ok, err := find(t, dir, name)
		removed = !ok && err == nil && t.Covers(revision)
		return err
	})
	return removed && err == nil, err
}

// Resolve follows a path from the root and returns the entry at its end, all at one moment.
// NotFound and NotDirectory name the component that is missing, or is a file.
func (e *Engine) Resolve(ctx context.Context, path string) (found bb.Entry, err error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, err
	}
	if len(names) == 0 {
		return e.Root(ctx)
	}
	err = e.owner.Read(ctx, "lookup", e.address(names...), func(t *table.Table) error {
		dir, err := e.walk(t, names[:len(names)-1])
		if err != nil {
			return err
		}
		var ok bool
		if found, ok, err = find(t, dir, names[len(names)-1]); err == nil && !ok {
			err = notFound("lookup", e.address(names...))
		}
		return bb.Wrap("lookup", e.address(names...), err)
	})
	return found, err
}

// ResolveParent follows a path to the directory of its last name, which need not exist.
// Invalid for the root, which is in no directory.
func (e *Engine) ResolveParent(ctx context.Context, path string) (dir bb.DirID, name string, err error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return 0, "", err
	}
	if len(names) == 0 {
		return 0, "", bb.E(bb.Invalid, "lookup", e.address(), "is the root of the buffer")
	}
	err = e.owner.Read(ctx, "lookup", e.address(names...), func(t *table.Table) (err error) {
		dir, err = e.walk(t, names[:len(names)-1])
		return err
	})
	return dir, names[len(names)-1], err
}

// walk follows names that must all be directories.
func (e *Engine) walk(t *table.Table, names []string) (bb.DirID, error) {
	dir := bb.RootDir
	for i, name := range names {
		var key [entryKeyBytes]byte
		item, ok := t.Get(record.AppendEntryKey(key[:0], dir, name))
		if !ok {
			return 0, bb.E(bb.NotFound, "lookup", e.address(names[:i+1]...), "there is no such directory")
		}
		if dir = record.PeekDir(item.Value); dir == 0 {
			return 0, bb.E(bb.NotDirectory, "lookup", e.address(names[:i+1]...), "is a file")
		}
	}
	return dir, nil
}

// EntryOf returns the entry of a directory below the root, wherever it is. NotFound if it was
// removed.
func (e *Engine) EntryOf(ctx context.Context, dir bb.DirID) (found bb.Entry, err error) {
	err = e.owner.Read(ctx, "lookup", dir.String(), func(t *table.Table) (err error) {
		item, ok := t.EntryOf(dir)
		if !ok {
			return bb.E(bb.NotFound, "lookup", dir.String(), "the directory has been removed")
		}
		found, err = decode(item)
		return err
	})
	return found, bb.Wrap("lookup", dir.String(), err)
}

// PathOf returns the path of a directory, "" for the root. NotFound if it has been removed.
func (e *Engine) PathOf(ctx context.Context, dir bb.DirID) (path string, err error) {
	err = e.owner.Read(ctx, "path", dir.String(), func(t *table.Table) (err error) {
		path, err = t.Path(dir)
		return err
	})
	return path, err
}

// List returns at most limit entries of a directory with names above after, sorted by name, and
// whether there are more. Pages requested one after the other, each after the last name of the one
// before, show every entry that existed throughout, none twice and none that never existed. The
// directory of transactions is left out of the root.
func (e *Engine) List(ctx context.Context, dir bb.DirID, after string, limit int) ([]bb.Entry, bool, error) {
	return e.list(ctx, dir, after, limit, func(name string) bool { return ofTransactions(dir, name) })
}

// ListAll is List that leaves nothing out.
func (e *Engine) ListAll(ctx context.Context, dir bb.DirID, after string, limit int) ([]bb.Entry, bool, error) {
	return e.list(ctx, dir, after, limit, func(string) bool { return false })
}

// ofTransactions reports whether a name is that of the directory of transactions.
func ofTransactions(dir bb.DirID, name string) bool { return dir == bb.RootDir && name == bb.HiddenDir }

func (e *Engine) list(ctx context.Context, dir bb.DirID, after string, limit int, hidden func(name string) bool) (entries []bb.Entry, more bool, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, false, err
	}
	err = e.owner.Read(ctx, "list", dir.String(), func(t *table.Table) (err error) {
		entries, more, err = page(t, dir, after, limit, hidden)
		return err
	})
	if err != nil {
		return nil, false, bb.Wrap("list", dir.String(), err)
	}
	return entries, more, nil
}

func checkLimit(limit int) error {
	if limit < 1 || limit > bb.MaxPageSize {
		return bb.E(bb.Invalid, "list", fmt.Sprint(limit), fmt.Sprintf("a page has 1 to %d entries", bb.MaxPageSize))
	}
	return nil
}

// page returns at most limit entries of a directory with names above after that are not hidden.
func page(t *table.Table, dir bb.DirID, after string, limit int, hidden func(name string) bool) (entries []bb.Entry, more bool, err error) {
	if !t.HasDir(dir) {
		return nil, false, bb.E(bb.NotFound, "list", dir.String(), "there is no such directory")
	}
	entries = make([]bb.Entry, 0, min(limit, t.Len(dir)))
	t.Each(dir, after, func(item pages.Item) bool {
		var found bb.Entry
		if found, err = decode(item); err != nil {
			return false
		}
		if hidden(found.Name) {
			return true
		}
		if more = len(entries) == limit; !more {
			entries = append(entries, found)
		}
		return !more
	})
	return entries, more, err
}

// ListLayers is List of several directories as one, all at one moment, of which the first has
// priority. A name of a later one is left out if hidden reports so, or if an earlier one has it,
// unless both are directories. Then the attributes are the later one's. A directory that is gone is
// empty. If the last one is gone, it is NotFound.
func (e *Engine) ListLayers(ctx context.Context, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, false, err
	}
	err = e.owner.Read(ctx, "list", dirs[len(dirs)-1].String(), func(t *table.Table) (err error) {
		entries, more, err = layers(t, dirs, hidden, after, limit)
		return err
	})
	return entries, more, err
}

// layers is ListLayers on a table.
func layers(t *table.Table, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error) {
	byName := map[string]int{}
	for i, dir := range dirs {
		if i < len(dirs)-1 && !t.HasDir(dir) {
			continue
		}
		// The first names of all layers together are among the first so many of each.
		some, _, err := page(t, dir, after, limit+1, func(name string) bool { return ofTransactions(dir, name) || hidden(i, name) })
		if err != nil {
			return nil, false, err
		}
		for _, found := range some {
			at, known := byName[found.Name]
			switch {
			case !known:
				byName[found.Name] = len(entries)
				entries = append(entries, found)
			case entries[at].IsDir() && found.IsDir():
				entries[at] = found
			}
		}
	}
	slices.SortFunc(entries, func(a, b bb.Entry) int { return strings.Compare(a.Name, b.Name) })
	more = len(entries) > limit
	return entries[:min(limit, len(entries))], more, nil
}

// Sample returns some entries of a directory, or none if it is empty or gone.
func (e *Engine) Sample(ctx context.Context, dir bb.DirID) ([]bb.Entry, error) {
	return e.some(ctx, dir, "", scanPage)
}

// some returns at most n entries of a directory with names above after, or none if it is gone.
func (e *Engine) some(ctx context.Context, dir bb.DirID, after string, n int) (found []bb.Entry, err error) {
	err = e.owner.Read(ctx, "list", dir.String(), func(t *table.Table) (err error) {
		found = found[:0]
		t.Each(dir, after, func(item pages.Item) bool {
			var one bb.Entry
			if one, err = decode(item); err == nil {
				found = append(found, one)
			}
			return err == nil && len(found) < n
		})
		return err
	})
	return found, bb.Wrap("list", dir.String(), err)
}

// Scan calls fn with every entry of a directory that exists throughout. An entry that comes or goes
// meanwhile may come. Fn may use the namespace. Its error ends the scan and is returned.
func (e *Engine) Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error {
	there := false
	err := e.owner.Read(ctx, "list", dir.String(), func(t *table.Table) error {
		there = t.HasDir(dir)
		return nil
	})
	if err != nil {
		return err
	}
	if !there {
		return bb.E(bb.NotFound, "list", dir.String(), "there is no such directory")
	}
	for after := ""; ; {
		page, err := e.some(ctx, dir, after, scanPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if err := fn(page[i]); err != nil {
				return err
			}
		}
		if after = page[len(page)-1].Name; ctx.Err() != nil {
			return bb.Wrap("scan", e.o.Buffer, context.Cause(ctx))
		}
	}
}

// ScanAll is Scan over all files and directories of the buffer but the root. An entry that
// changes meanwhile may come again, with a newer revision.
//
// It goes from page to page. An entry that moves to another page meanwhile has a new revision. It
// comes in one of the later passes, each over the changes since the one before began.
func (e *Engine) ScanAll(ctx context.Context, fn func(bb.Entry) error) error {
	from := uint64(0)
	for range maxScans {
		next, err := e.next(ctx)
		if err != nil || next <= from {
			return err
		}
		if err := e.scanPass(ctx, from, fn); err != nil {
			return err
		}
		from = next
	}
	var all []bb.Entry
	err := e.owner.Read(ctx, "scan", e.o.Buffer, func(t *table.Table) (err error) {
		all = all[:0]
		for number := 0; number < t.Pages() && err == nil; number++ {
			all, err = appendPage(t, all, number, from)
		}
		return err
	})
	return each(all, bb.Wrap("scan", e.o.Buffer, err), fn)
}

// next returns the first revision that was not used yet.
func (e *Engine) next(ctx context.Context) (next uint64, err error) {
	err = e.owner.Read(ctx, "scan", e.o.Buffer, func(t *table.Table) error {
		next = t.Next()
		return nil
	})
	return next, err
}

// scanPass calls fn with all entries that have a revision from one on.
func (e *Engine) scanPass(ctx context.Context, from uint64, fn func(bb.Entry) error) error {
	for number := 0; ; number++ {
		if ctx.Err() != nil {
			return bb.Wrap("scan", e.o.Buffer, context.Cause(ctx))
		}
		found, _, more, err := e.ScanPage(ctx, number, from)
		if err == nil && !more {
			return nil
		}
		if err := each(found, err, fn); err != nil {
			return err
		}
	}
}

// ScanPage is a part of ScanAll. It returns the entries of a page that have a revision from one on,
// the first revision that was not used yet, and whether there is such a page.
func (e *Engine) ScanPage(ctx context.Context, number int, from uint64) (found []bb.Entry, next uint64, there bool, err error) {
	err = e.owner.Read(ctx, "scan", e.o.Buffer, func(t *table.Table) (err error) {
		next = t.Next()
		if there = number < t.Pages(); there {
			found, err = appendPage(t, found[:0], number, from)
		}
		return err
	})
	return found, next, there, bb.Wrap("scan", e.o.Buffer, err)
}

func each(all []bb.Entry, err error, fn func(bb.Entry) error) error {
	for i := range all {
		if err == nil {
			err = fn(all[i])
		}
	}
	return err
}

// appendPage appends the entries of a page that have a revision from one on.
func appendPage(t *table.Table, all []bb.Entry, number int, from uint64) (_ []bb.Entry, err error) {
	t.EachIn(number, from, func(item pages.Item) {
		if record.KindOf(item.Key) != record.Entry || string(item.Key) == string(record.RootKey) || err != nil {
			return
		}
		var one bb.Entry
		if one, err = decode(item); err == nil {
			all = append(all, one)
		}
	})
	return all, err
}

// ScanMarks is ScanAll of a namespace that the log is found to have. Nothing is left of removed
// entries, so gone is not called (see Covers).
func (e *Engine) ScanMarks(ctx context.Context, fn func(bb.Entry) error, _ func(bb.FileID)) error {
	if err := e.Confirm(ctx); err != nil {
		return err
	}
	return e.ScanAll(ctx, fn)
}

// Confirm returns when the log is found to have all that it had acknowledged.
func (e *Engine) Confirm(ctx context.Context) error { return e.owner.Confirm(ctx, e.o.Buffer) }

// Covers reports whether the log has all changes since a revision of an entry (see the package's
// comment).
func (e *Engine) Covers(ctx context.Context, revision uint64) (covers bool, err error) {
	err = e.owner.Read(ctx, "lookup", e.o.Buffer, func(t *table.Table) error {
		covers = t.Covers(revision)
		return nil
	})
	return covers && err == nil, err
}
