package lease

import (
	"sort"

	"forebay/internal/bb"
)

// mostListed is up to how many names a listing is kept.
const mostListed = mostEntries / 2

// known is the part of a directory that a reader has.
type known struct {
	names  map[string]*bb.Entry // that were looked up; nil: there is no such name
	listed []*bb.Entry          // the directory's first entries, in the order of their names
	all    bool                 // these are all
}

// find returns the entry of a name, or nil if there is none, if that is known.
func (d *known) find(dir bb.DirID, name string) (e *bb.Entry, is bool) {
	if d == nil {
		return nil, false
	}
	if e, is = d.names[name]; is {
		return e, true
	}
	switch i := d.after(name); {
	case i > 0 && d.listed[i-1].Name == name:
		return d.listed[i-1], true
	case dir == bb.RootDir && name == bb.HiddenDir:
		return nil, false // listings leave it out
	default:
		return nil, d.all || i < len(d.listed)
	}
}

// after returns how many of the entries that were listed have names up to one.
func (d *known) after(name string) int {
	return sort.Search(len(d.listed), func(i int) bool { return d.listed[i].Name > name })
}

// List returns at most limit entries of a directory with names above after, sorted by name, and whether there are more,
// if that is known, and there is a lease on that directory. If there are more, they may be fewer than limit, and are not
// none.
func (c *Cache) List(dir bb.DirID, after string, limit int) (entries []bb.Entry, more, is bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.dirs[dir]
	if d == nil {
		return nil, false, false
	}
	rest := d.listed[d.after(after):]
	if len(rest) == 0 && !d.all {
		return nil, false, false
	}
	entries = make([]bb.Entry, min(limit, len(rest)))
	for i := range entries {
		entries[i] = *rest[i]
	}
	return entries, !d.all || len(rest) > limit, c.holds()
}

// Part is a part of a listing: entries of a directory whose names are above one.
type Part struct {
	Dir     bb.DirID
	After   string
	Entries []bb.Entry
	More    bool // there are more entries
}

// KeepList is Keep of a part of a listing. It is kept if it is the first one, or follows what is there.
func (c *Cache) KeepList(t Ticket, owner [16]byte, g Grant, p Part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.take(t, owner, g) || !g.Listing {
		return
	}
	d := c.room(p.Dir, len(p.Entries))
	end := ""
	if n := len(d.listed); n > 0 {
		end = d.listed[n-1].Name
	}
	if d.all || p.After != end || len(d.listed)+len(p.Entries) > mostListed {
		return
	}
	for i := range p.Entries {
		e := p.Entries[i] // a copy, since the caller has the others
		d.listed = append(d.listed, &e)
	}
	c.entries += len(p.Entries)
	d.all = !p.More
}
