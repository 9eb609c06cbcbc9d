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
	maxScans = 8 // passes over what changed during a scan, before one that keeps changes out

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

// Root returns the root directory's entry: it has neither parent nor name.
func (e *Engine) Root(context.Context) (bb.Entry, error) {
	if err := e.reading("stat", e.address()); err != nil {
		return bb.Entry{}, err
	}
	defer e.owner.RUnlock()
	root, ok, err := find(e.t, 0, "")
	if err == nil && !ok {
		err = kv.ErrNoBucket
	}
	return root, kv.Wrap("stat", e.address(), err)
}

// Lookup returns the entry of a name in a directory; NotFound if there is none.
func (e *Engine) Lookup(_ context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	if err := checkPlace(dir, name); err != nil {
		return bb.Entry{}, err
	}
	if err := e.reading("lookup", name); err != nil {
		return bb.Entry{}, err
	}
	defer e.owner.RUnlock()
	found, ok, err := find(e.t, dir, name)
	if err == nil && !ok {
		err = notFound("lookup", name)
	}
	return found, bb.Wrap("lookup", name, err)
}

// Find is Lookup that reports whether there is an entry, and not with an error.
func (e *Engine) Find(_ context.Context, dir bb.DirID, name string) (found bb.Entry, ok bool, err error) {
	if err := checkPlace(dir, name); err != nil {
		return bb.Entry{}, false, err
	}
	if err := e.reading("lookup", name); err != nil {
		return bb.Entry{}, false, err
	}
	defer e.owner.RUnlock()
	found, ok, err = find(e.t, dir, name)
	return found, ok, bb.Wrap("lookup", name, err)
}

// Refresh does nothing: no answer is cached.
func (e *Engine) Refresh(bb.DirID, string) {}

// SoleWriter is true: nobody but the owner changes the namespace.
func (e *Engine) SoleWriter() bool { return true }

// DirGone reports whether a directory has been removed.
func (e *Engine) DirGone(_ context.Context, dir bb.DirID) (bool, error) {
	if err := e.reading("lookup", dir.String()); err != nil {
		return false, err
	}
	defer e.owner.RUnlock()
	return !e.t.HasDir(dir), nil
}

// LookupAgain is Lookup: no answer is cached.
func (e *Engine) LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	return e.Lookup(ctx, dir, name)
}

// Removed reports whether a name, under which a file was in a revision, is free since a change
// that the namespace has: it was removed or renamed. It is false where the name is in use, and
// where the log has lost the revision.
func (e *Engine) Removed(_ context.Context, dir bb.DirID, name string, _ bb.FileID, revision uint64) (bool, error) {
	if err := checkPlace(dir, name); err != nil {
		return false, err
	}
	if err := e.reading("lookup", name); err != nil {
		return false, err
	}
	defer e.owner.RUnlock()
	_, ok, err := find(e.t, dir, name)
	return !ok && err == nil && e.t.Covers(revision), err
}

// Resolve follows a path from the root and returns the entry at its end, all at one moment.
// NotFound and NotDirectory name the component that is missing, or is a file.
func (e *Engine) Resolve(ctx context.Context, path string) (bb.Entry, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, err
	}
	if len(names) == 0 {
		return e.Root(ctx)
	}
	if err := e.reading("lookup", e.address(names...)); err != nil {
		return bb.Entry{}, err
	}
	defer e.owner.RUnlock()
	dir, err := e.walk(names[:len(names)-1])
	if err != nil {
		return bb.Entry{}, err
	}
	found, ok, err := find(e.t, dir, names[len(names)-1])
	if err == nil && !ok {
		err = notFound("lookup", e.address(names...))
	}
	return found, bb.Wrap("lookup", e.address(names...), err)
}

// ResolveParent follows a path to the directory of its last name, which need not exist.
// Invalid for the root, which is in no directory.
func (e *Engine) ResolveParent(_ context.Context, path string) (bb.DirID, string, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return 0, "", err
	}
	if len(names) == 0 {
		return 0, "", bb.E(bb.Invalid, "lookup", e.address(), "is the root of the buffer")
	}
	if err := e.reading("lookup", e.address(names...)); err != nil {
		return 0, "", err
	}
	defer e.owner.RUnlock()
	dir, err := e.walk(names[:len(names)-1])
	return dir, names[len(names)-1], err
}

// walk follows names that must all be directories.
func (e *Engine) walk(names []string) (bb.DirID, error) {
	dir := bb.RootDir
	for i, name := range names {
		var key [entryKeyBytes]byte
		item, ok := e.t.Get(record.AppendEntryKey(key[:0], dir, name))
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
func (e *Engine) EntryOf(_ context.Context, dir bb.DirID) (bb.Entry, error) {
	if err := e.reading("lookup", dir.String()); err != nil {
		return bb.Entry{}, err
	}
	defer e.owner.RUnlock()
	item, ok := e.t.EntryOf(dir)
	if !ok {
		return bb.Entry{}, bb.E(bb.NotFound, "lookup", dir.String(), "the directory has been removed")
	}
	found, err := decode(item)
	return found, bb.Wrap("lookup", dir.String(), err)
}

// PathOf returns the path of a directory, "" for the root. NotFound if it has been removed.
func (e *Engine) PathOf(_ context.Context, dir bb.DirID) (string, error) {
	if err := e.reading("path", dir.String()); err != nil {
		return "", err
	}
	defer e.owner.RUnlock()
	return e.t.Path(dir)
}

// List returns at most limit entries of a directory with names above after, sorted by name, and
// whether there are more. Pages asked for one after the other, each after the last name of the
// one before, show every entry that existed throughout, none twice and none that never existed.
// The directory of transactions is left out of the root.
func (e *Engine) List(_ context.Context, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, false, err
	}
	if err := e.reading("list", dir.String()); err != nil {
		return nil, false, err
	}
	defer e.owner.RUnlock()
	return e.page(dir, after, limit, func(string) bool { return false })
}

func checkLimit(limit int) error {
	if limit < 1 || limit > bb.MaxPageSize {
		return bb.E(bb.Invalid, "list", fmt.Sprint(limit), fmt.Sprintf("a page has 1 to %d entries", bb.MaxPageSize))
	}
	return nil
}

// page returns at most limit entries of a directory with names above after that are not hidden.
func (e *Engine) page(dir bb.DirID, after string, limit int, hidden func(name string) bool) (entries []bb.Entry, more bool, err error) {
	if !e.t.HasDir(dir) {
		return nil, false, bb.E(bb.NotFound, "list", dir.String(), "there is no such directory")
	}
	entries = make([]bb.Entry, 0, min(limit, e.t.Len(dir)))
	e.t.Each(dir, after, func(item pages.Item) bool {
		var found bb.Entry
		if found, err = decode(item); err != nil {
			return false
		}
		if dir == bb.RootDir && found.Name == bb.HiddenDir || hidden(found.Name) {
			return true
		}
		if more = len(entries) == limit; !more {
			entries = append(entries, found)
		}
		return !more
	})
	return entries, more, bb.Wrap("list", dir.String(), err)
}

// ListLayers is List of several directories as one, all at one moment, of which the first has the
// say: a name of a later one is left out if hidden reports so, or if an earlier one has it, unless
// both are directories: then the attributes are the later one's. A directory that is gone is
// empty, but for the last: then NotFound.
func (e *Engine) ListLayers(_ context.Context, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, false, err
	}
	if err := e.reading("list", dirs[len(dirs)-1].String()); err != nil {
		return nil, false, err
	}
	defer e.owner.RUnlock()
	byName := map[string]int{}
	for i, dir := range dirs {
		if i < len(dirs)-1 && !e.t.HasDir(dir) {
			continue
		}
		// The first names of all layers together are among the first so many of each.
		page, _, err := e.page(dir, after, limit+1, func(name string) bool { return hidden(i, name) })
		if err != nil {
			return nil, false, err
		}
		for _, found := range page {
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

// Sample returns some entries of a directory; none if it is empty or gone.
func (e *Engine) Sample(_ context.Context, dir bb.DirID) ([]bb.Entry, error) {
	return e.some(dir, "", scanPage)
}

// some returns at most n entries of a directory with names above after; none if it is gone.
func (e *Engine) some(dir bb.DirID, after string, n int) (found []bb.Entry, err error) {
	if err := e.reading("list", dir.String()); err != nil {
		return nil, err
	}
	defer e.owner.RUnlock()
	e.t.Each(dir, after, func(item pages.Item) bool {
		var one bb.Entry
		if one, err = decode(item); err == nil {
			found = append(found, one)
		}
		return err == nil && len(found) < n
	})
	return found, bb.Wrap("list", dir.String(), err)
}

// Scan calls fn with every entry of a directory that exists throughout. One that comes or goes
// meanwhile may come. Fn may use the namespace; its error ends the scan and is returned.
func (e *Engine) Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error {
	if err := e.reading("list", dir.String()); err != nil {
		return err
	}
	there := e.t.HasDir(dir)
	e.owner.RUnlock()
	if !there {
		return bb.E(bb.NotFound, "list", dir.String(), "there is no such directory")
	}
	for after := ""; ; {
		page, err := e.some(dir, after, scanPage)
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
// It goes from page to page. What moves to another page meanwhile has a new revision: it comes
// in one of the passes that follow, over what has changed since the one before began.
func (e *Engine) ScanAll(ctx context.Context, fn func(bb.Entry) error) error {
	from := uint64(0)
	for range maxScans {
		if err := e.reading("scan", e.o.Buffer); err != nil {
			return err
		}
		next := e.t.Next()
		e.owner.RUnlock()
		if next <= from {
			return nil
		}
		if err := e.scanPass(ctx, from, fn); err != nil {
			return err
		}
		from = next
	}
	if err := e.reading("scan", e.o.Buffer); err != nil {
		return err
	}
	var all []bb.Entry
	var err error
	for number := range e.t.Pages() {
		all, err = e.appendPage(all, number, from)
		if err != nil {
			break
		}
	}
	e.owner.RUnlock()
	return each(all, err, fn)
}

// scanPass calls fn with all entries that have a revision from one on.
func (e *Engine) scanPass(ctx context.Context, from uint64, fn func(bb.Entry) error) error {
	for number := 0; ; number++ {
		if ctx.Err() != nil {
			return bb.Wrap("scan", e.o.Buffer, context.Cause(ctx))
		}
		if err := e.reading("scan", e.o.Buffer); err != nil {
			return err
		}
		if number >= e.t.Pages() {
			e.owner.RUnlock()
			return nil
		}
		found, err := e.appendPage(nil, number, from)
		e.owner.RUnlock()
		if err := each(found, err, fn); err != nil {
			return err
		}
	}
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
func (e *Engine) appendPage(all []bb.Entry, number int, from uint64) (_ []bb.Entry, err error) {
	e.t.EachIn(number, from, func(item pages.Item) {
		if record.KindOf(item.Key) != record.Entry || string(item.Key) == string(record.RootKey) || err != nil {
			return
		}
		var one bb.Entry
		if one, err = decode(item); err == nil {
			all = append(all, one)
		}
	})
	return all, bb.Wrap("scan", e.o.Buffer, err)
}

// ScanMarks is ScanAll: nothing is left of what was removed, so gone is not called. Removed
// tells what was removed from what was lost.
func (e *Engine) ScanMarks(ctx context.Context, fn func(bb.Entry) error, _ func(bb.FileID)) error {
	return e.ScanAll(ctx, fn)
}
