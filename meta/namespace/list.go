package namespace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

const (
	listingAge   = time.Minute
	listingBytes = 256 << 20 // of the listings kept for one namespace
	chunkSize    = 1 << 20
)

// lister is a directory's entries, sorted by name, as they were found when it was made: every entry
// that existed throughout is in it once, in a state that it had. It holds about 60 bytes more an
// entry than its name and record take. It never changes, and may be used concurrently.
type lister struct {
	b     *kv.Bucket
	dir   bb.DirID
	begun time.Time
	names []listed
	bytes int
}

// listed is one entry: its name and record, in one piece of memory with others.
type listed struct {
	name, record []byte
	seq          uint64
	dir          bb.DirID
}

// newLister reads a directory. NotFound if it does not exist. The directory of
// transactions is left out of the root.
func (ns *Namespace) newLister(ctx context.Context, dir bb.DirID) (*lister, error) {
	if err := ns.checkDir(ctx, dir); err != nil {
		return nil, err
	}
	l := &lister{b: ns.b, dir: dir, begun: time.Now()}
	var chunk []byte
	err := ns.b.Scan(ctx, entriesOf(dir), func(r *kv.Record) error {
		_, name, ok := parseEntryKey(r.Key)
		if !ok {
			ns.b.Unreadable(r.Key, bb.E(bb.Checksum, "decode", r.Key, "is not an entry's key"))
			return nil
		}
		if dir == bb.RootDir && name == bb.HiddenDir {
			return nil
		}
		n := len(name) + len(r.Data)
		if cap(chunk)-len(chunk) < n {
			chunk = make([]byte, 0, max(chunkSize, n))
			l.bytes += cap(chunk)
		}
		at := len(chunk)
		chunk = append(append(chunk, name...), r.Data...)
		l.names = append(l.names, listed{chunk[at : at+len(name)], chunk[at+len(name) : at+n], r.Seq, dir})
		return nil
	})
	if err != nil {
		return nil, kv.Wrap("list", dir.String(), err)
	}
	l.sort()
	l.bytes += cap(l.names) * 64
	return l, nil
}

// union is the listing of several directories as one, of which the first has the say: a name
// of a later one is left out if hidden reports so, or if an earlier one has it, unless both are
// directories: then the attributes are the later one's. A nil listing is empty.
func union(dir bb.DirID, lists []*lister, hidden func(list int, name string) bool) *lister {
	all := &lister{dir: dir}
	byName := map[string]int{}
	for i, one := range lists {
		if one == nil {
			continue
		}
		all.b = one.b
		if i == 0 {
			all.begun = one.begun
		}
		all.bytes += one.bytes
		for _, n := range one.names {
			if hidden(i, string(n.name)) {
				continue
			}
			at, known := byName[string(n.name)]
			switch {
			case !known:
				byName[string(n.name)] = len(all.names)
				all.names = append(all.names, n)
			case isDirRecord(&all.names[at]) && isDirRecord(&n):
				all.names[at] = n // the lower one's attributes will stay
			}
		}
	}
	slices.SortFunc(all.names, func(a, b listed) int { return bytes.Compare(a.name, b.name) })
	return all
}

func isDirRecord(n *listed) bool {
	e, err := openEntry(entryKey(n.dir, string(n.name)), n.record, n.seq)
	return err == nil && e.IsDir()
}

// sort orders by name, keeps the newest record of each, and drops what was deleted.
func (l *lister) sort() {
	slices.SortFunc(l.names, func(a, b listed) int {
		if c := bytes.Compare(a.name, b.name); c != 0 {
			return c
		}
		if a.seq > b.seq {
			return -1
		}
		return 1
	})
	l.names = slices.CompactFunc(l.names, func(a, b listed) bool { return bytes.Equal(a.name, b.name) })
	l.names = slices.DeleteFunc(l.names, func(a listed) bool { return len(a.record) == 0 })
}

func (ns *Namespace) checkDir(ctx context.Context, dir bb.DirID) error {
	c, err := ns.loadDir(ctx, dir)
	if err != nil {
		return kv.Wrap("list", dir.String(), err)
	}
	if !c.Live {
		return bb.E(bb.NotFound, "list", dir.String(), "there is no such directory")
	}
	return nil
}

// page returns at most limit entries with names above after, sorted by name, and whether there are
// more. Records that cannot be decoded are counted, logged and left out.
func (l *lister) page(after string, limit int) (entries []bb.Entry, more bool) {
	from := sort.Search(len(l.names), func(i int) bool { return string(l.names[i].name) > after })
	to := min(from+max(limit, 0), len(l.names))
	entries = make([]bb.Entry, 0, to-from)
	for _, n := range l.names[from:to] {
		key := entryKey(n.dir, string(n.name))
		e, err := openEntry(key, n.record, n.seq)
		if err != nil {
			l.b.Unreadable(key, err)
			continue
		}
		entries = append(entries, e)
	}
	return entries, to < len(l.names)
}

// listings keeps, for a while, the listers of large directories whose pages are
// being asked for one by one.
type listings struct {
	sync.Mutex
	byDir map[bb.DirID]*lister
	timer *time.Timer
}

func (ls *listings) get(dir bb.DirID) *lister {
	ls.Lock()
	defer ls.Unlock()
	ls.prune()
	return ls.byDir[dir]
}

// put keeps a lister if it is the newest of its directory and there is room, for
// which older ones of others are dropped.
func (ls *listings) put(l *lister) {
	ls.Lock()
	defer ls.Unlock()
	ls.prune()
	if old := ls.byDir[l.dir]; l.bytes > listingBytes || old != nil && old.begun.After(l.begun) {
		return
	}
	if ls.byDir == nil {
		ls.byDir = map[bb.DirID]*lister{}
	}
	ls.byDir[l.dir] = l
	for ls.bytes() > listingBytes {
		oldest := l
		for _, other := range ls.byDir {
			if other.begun.Before(oldest.begun) {
				oldest = other
			}
		}
		delete(ls.byDir, oldest.dir)
	}
	if ls.timer == nil {
		ls.timer = time.AfterFunc(listingAge, func() { ls.get(0) })
	} else {
		ls.timer.Reset(listingAge)
	}
}

func (ls *listings) bytes() int {
	n := 0
	for _, l := range ls.byDir {
		n += l.bytes
	}
	return n
}

func (ls *listings) prune() {
	for dir, l := range ls.byDir {
		if time.Since(l.begun) > listingAge {
			delete(ls.byDir, dir)
		}
	}
}

// List returns at most limit entries of a directory with names above after, sorted by name, and
// whether there are more. Pages asked for one after the other, each after the last name of the one
// before, show every entry that existed throughout, none twice and none that never existed. A first
// page (after "") is always of now; it costs reading the directory, since the server knows no order
// of names. A large directory's reading is kept for a minute for the pages that follow.
func (ns *Namespace) List(ctx context.Context, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error) {
	return ns.page(dir, after, limit, func() error { return ns.checkDir(ctx, dir) }, func() (*lister, error) { return ns.newLister(ctx, dir) })
}

// ListLayers is List of several directories as one, which are read one after the other: see union.
// A directory that is gone is empty, but for the last: then NotFound.
func (ns *Namespace) ListLayers(ctx context.Context, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error) {
	last := len(dirs) - 1
	return ns.page(dirs[last], after, limit, func() error { return nil }, func() (*lister, error) {
		lists := make([]*lister, len(dirs))
		for i, dir := range dirs {
			var err error
			if lists[i], err = ns.newLister(ctx, dir); err != nil && (i == last || !errors.Is(err, bb.NotFound)) {
				return nil, err
			}
		}
		return union(dirs[last], lists, hidden), nil
	})
}

// page returns a page of what read reads, or of what was read for the page before if check
// finds nothing wrong.
func (ns *Namespace) page(dir bb.DirID, after string, limit int, check func() error, read func() (*lister, error)) (entries []bb.Entry, more bool, err error) {
	if limit < 1 || limit > bb.MaxPageSize {
		return nil, false, bb.E(bb.Invalid, "list", fmt.Sprint(limit), fmt.Sprintf("a page has 1 to %d entries", bb.MaxPageSize))
	}
	if after != "" {
		if err := check(); err != nil {
			return nil, false, err
		}
		if l := ns.listings.get(dir); l != nil {
			entries, more = l.page(after, limit)
			return entries, more, nil
		}
	}
	l, err := read()
	if err != nil {
		return nil, false, err
	}
	if len(l.names) > kv.SmallScan {
		ns.listings.put(l)
	}
	entries, more = l.page(after, limit)
	return entries, more, nil
}

// Scan calls fn with every entry of a directory, in no order and without holding
// them. An entry that changes meanwhile may come again, with a newer revision, or
// come although it is gone by the end; one that exists throughout comes. fn may
// use the namespace; its error ends the scan and is returned.
func (ns *Namespace) Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error {
	if err := ns.checkDir(ctx, dir); err != nil {
		return err
	}
	return ns.scanEntries(ctx, entriesOf(dir), fn)
}

// ScanAll is Scan over all files and directories of the buffer but the root.
func (ns *Namespace) ScanAll(ctx context.Context, fn func(bb.Entry) error) error {
	return ns.scanEntries(ctx, entryPrefix+">", fn)
}

// ScanMarks is ScanAll that also calls gone with the id of each file whose removal the
// namespace still has a mark of. There is one of each file that was removed, or replaced by
// a rename, until the name that it is kept under is used again: the name of what was
// removed, and that of which was renamed.
func (ns *Namespace) ScanMarks(ctx context.Context, fn func(bb.Entry) error, gone func(bb.FileID)) error {
	return ns.scanRecords(ctx, entryPrefix+">", fn, gone)
}

func (ns *Namespace) scanEntries(ctx context.Context, filter string, fn func(bb.Entry) error) error {
	return ns.scanRecords(ctx, filter, fn, func(bb.FileID) {})
}

func (ns *Namespace) scanRecords(ctx context.Context, filter string, fn func(bb.Entry) error, gone func(bb.FileID)) error {
	var failed error
	err := ns.b.Scan(ctx, filter, func(r *kv.Record) error {
		if !r.Live() && r.Gone != 0 {
			gone(r.Gone)
		}
		if !r.Live() || r.Key == rootKey {
			return nil
		}
		e, err := openEntry(r.Key, r.Data, r.Seq)
		if err != nil {
			ns.b.Unreadable(r.Key, err)
			return nil
		}
		if failed = fn(e); failed != nil {
			return kv.ErrStop
		}
		return nil
	})
	if failed != nil {
		return failed
	}
	return kv.Wrap("scan", ns.buffer, err)
}
