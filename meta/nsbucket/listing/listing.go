// Package listing is the entries of a directory in the order of their names, which the server does
// not have, and keeps those of large ones for the pages that follow. It must never send a request.
package listing

import (
	"bytes"
	"slices"
	"sort"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nsbucket/record"
)

const (
	listingAge   = time.Minute
	listingBytes = 256 << 20 // of the listings kept for one namespace
	chunkSize    = 1 << 20
)

// Listing is a directory's entries, sorted by name, as they were when it was made. Every entry that
// existed throughout is in it once, in a state that it had. It holds about 60 bytes more an entry
// than its name and record take. It never changes, and may be used concurrently.
type Listing struct {
	unreadable func(key string, err error)
	dir        bb.DirID
	begun      time.Time
	names      []listed
	bytes      int
}

// listed is one entry: its name and record, in one piece of memory with others.
type listed struct {
	name, record []byte
	seq          uint64
	dir          bb.DirID
}

// Read makes the listing of the records of a directory's entries, which scan passes to its function. Malformed ones go to
// unreadable. The directory of transactions is left out of the root.
func Read(dir bb.DirID, unreadable func(key string, err error), scan func(func(*kv.Record) error) error) (*Listing, error) {
	l := &Listing{unreadable: unreadable, dir: dir, begun: time.Now()}
	var chunk []byte
	err := scan(func(r *kv.Record) error {
		_, name, ok := record.ParseEntryKey(r.Key)
		if !ok {
			unreadable(r.Key, bb.E(bb.Checksum, "decode", r.Key, "is not an entry's key"))
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
		return nil, err
	}
	l.sort()
	l.bytes += cap(l.names) * 64
	return l, nil
}

// Len returns how many entries there are.
func (l *Listing) Len() int { return len(l.names) }

// Union is the listing of several directories as one, of which the first has priority. A name of a
// later one is left out if hidden reports so, or if an earlier one has it, unless both are
// directories. Then the attributes are the later one's. A nil listing is empty.
func Union(dir bb.DirID, lists []*Listing, hidden func(list int, name string) bool) *Listing {
	all := &Listing{dir: dir}
	byName := map[string]int{}
	for i, one := range lists {
		if one == nil {
			continue
		}
		all.unreadable = one.unreadable
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
	e, err := record.OpenEntry(record.EntryKey(n.dir, string(n.name)), n.record, n.seq)
	return err == nil && e.IsDir()
}

// sort orders by name, keeps the newest record of each, and drops deleted ones.
func (l *Listing) sort() {
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

// Page returns at most limit entries with names above after, sorted by name, and whether there are
// more. Records that cannot be decoded are counted, logged and left out.
func (l *Listing) Page(after string, limit int) (entries []bb.Entry, more bool) {
	from := sort.Search(len(l.names), func(i int) bool { return string(l.names[i].name) > after })
	to := min(from+max(limit, 0), len(l.names))
	entries = make([]bb.Entry, 0, to-from)
	for _, n := range l.names[from:to] {
		key := record.EntryKey(n.dir, string(n.name))
		e, err := record.OpenEntry(key, n.record, n.seq)
		if err != nil {
			l.unreadable(key, err)
			continue
		}
		entries = append(entries, e)
	}
	return entries, to < len(l.names)
}

// Kept keeps, for a while, the listings of large directories while their pages are requested one by
// one.
type Kept struct {
	sync.Mutex
	byDir map[bb.DirID]*Listing
	timer *time.Timer
}

// Bytes returns how much memory the listings take.
func (ls *Kept) Bytes() int {
	ls.Lock()
	defer ls.Unlock()
	return ls.total()
}

// Get returns the listing of a directory that is kept, or nil if none is.
func (ls *Kept) Get(dir bb.DirID) *Listing {
	ls.Lock()
	defer ls.Unlock()
	ls.prune()
	return ls.byDir[dir]
}

// Put keeps a listing if it is the newest of its directory and there is room, for
// which older ones of others are dropped.
func (ls *Kept) Put(l *Listing) {
	ls.Lock()
	defer ls.Unlock()
	ls.prune()
	if old := ls.byDir[l.dir]; l.bytes > listingBytes || old != nil && old.begun.After(l.begun) {
		return
	}
	if ls.byDir == nil {
		ls.byDir = map[bb.DirID]*Listing{}
	}
	ls.byDir[l.dir] = l
	for ls.total() > listingBytes {
		oldest := l
		for _, other := range ls.byDir {
			if other.begun.Before(oldest.begun) {
				oldest = other
			}
		}
		delete(ls.byDir, oldest.dir)
	}
	if ls.timer == nil {
		ls.timer = time.AfterFunc(listingAge, func() { ls.Get(0) })
	} else {
		ls.timer.Reset(listingAge)
	}
}

func (ls *Kept) total() (n int) {
	for _, l := range ls.byDir {
		n += l.bytes
	}
	return n
}

func (ls *Kept) prune() {
	for dir, l := range ls.byDir {
		if time.Since(l.begun) > listingAge {
			delete(ls.byDir, dir)
		}
	}
}
