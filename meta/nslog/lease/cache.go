package lease

import (
	"sync"
	"time"

	"forebay/internal/bb"
)

// mostEntries bounds a Cache, at about 600 bytes each.
const mostEntries = 32 << 10

// Cache is the entries and listings that a reader has under leases, and the names that it knows to be absent. Nobody
// changes an entry, or what it points to. The zero Cache is empty. It is safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex
	owner   [16]byte // that has granted the leases
	session uint64
	began   Moment
	term    time.Duration // from began on
	dirs    map[bb.DirID]*known
	entries int    // absent names among them
	revoked uint64 // revocations so far
}

// Ticket is a moment before a look-up was sent.
type Ticket struct {
	sent    Moment
	revoked uint64
}

// Find returns the entry of a name in a directory, or nil if there is none, if it is known, and there is a lease on that
// directory.
func (c *Cache) Find(dir bb.DirID, name string) (e *bb.Entry, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, known = c.dirs[dir].find(dir, name)
	return e, known && c.holds()
}

// holds reports whether the leases last. The caller has read the entries before, since the process may have been stopped
// at any moment.
func (c *Cache) holds() bool { return Now().Since(c.began) < c.term }

// Resolve follows names from the root, which are all there at one moment. It returns nil if any of them is not known.
func (c *Cache) Resolve(names []string) (e *bb.Entry) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	dir := bb.RootDir
	for _, name := range names {
		if e, _ = c.dirs[dir].find(dir, name); e == nil {
			return nil
		}
		dir = e.Dir // 0 of a file: no name is below it
	}
	if !c.holds() {
		return nil
	}
	return e
}

// Begin returns the ticket of a look-up that is about to be sent.
func (c *Cache) Begin() Ticket {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Ticket{Now(), c.revoked}
}

// Keep takes the lease that came with the answer to a look-up, and keeps that: the entry of a place, or nil if there is
// none. It keeps nothing if something was revoked since the look-up was sent.
func (c *Cache) Keep(t Ticket, owner [16]byte, g Grant, at bb.Place, e *bb.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.take(t, owner, g) {
		c.put(at, e)
	}
}

// take takes the lease that came with an answer, and reports whether that may be kept.
func (c *Cache) take(t Ticket, owner [16]byte, g Grant) bool {
	switch {
	case g.Term <= 0:
		return false
	case owner == c.owner && g.Session < c.session:
		return false // the owner has ended that session
	case owner != c.owner || g.Session > c.session:
		c.clear()
		c.owner, c.session, c.began, c.term = owner, g.Session, t.sent, g.Term
	case t.sent.Since(c.began)+g.Term > c.term:
		c.began, c.term = t.sent, g.Term
	}
	return t.revoked == c.revoked
}

func (c *Cache) put(at bb.Place, e *bb.Entry) {
	d := c.room(at.Dir, 1)
	if _, has := d.names[at.Name]; !has {
		c.entries++
	}
	if d.names == nil {
		d.names = map[string]*bb.Entry{}
	}
	d.names[at.Name] = e
}

// room returns a directory, after it has made room for so many entries.
func (c *Cache) room(dir bb.DirID, more int) *known {
	if c.entries+more > mostEntries {
		c.evict(more)
	}
	if c.dirs == nil {
		c.dirs = map[bb.DirID]*known{}
	}
	d := c.dirs[dir]
	if d == nil {
		d = &known{}
		c.dirs[dir] = d
	}
	return d
}

// evict drops entries, an eighth of all or more, so that there is room for so many.
func (c *Cache) evict(more int) {
	most := mostEntries - max(more, mostEntries/8)
	for dir, d := range c.dirs {
		c.entries -= len(d.listed)
		d.listed, d.all = nil, false
		for name := range d.names {
			if c.entries <= most {
				return
			}
			delete(d.names, name)
			c.entries--
		}
		if delete(c.dirs, dir); c.entries <= most {
			return
		}
	}
}

// Revoke drops leases. Entries of look-ups that are under way are not kept.
func (c *Cache) Revoke(of Of) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked++
	if of.All {
		c.clear()
		return
	}
	if d := c.dirs[of.Dir]; d != nil {
		c.entries -= len(d.names) + len(d.listed)
		delete(c.dirs, of.Dir)
	}
}

// clear drops all entries.
func (c *Cache) clear() {
	clear(c.dirs)
	c.entries = 0
}
