// Package attrcache decides how long the kernel may keep names and attributes. While a stream of events announces the
// changes of others, that is long, since each change ends it. It also keeps entries itself, for requests of attributes
// that the kernel drops after each change of its own. It must never depend on the tree of the kernel's names.
package attrcache

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// Times that the kernel keeps an answer.
const (
	Short = time.Second      // while changes are not announced
	Long  = 30 * time.Second // it bounds the age of an answer whose change an event did not announce, since it was lost
)

const (
	recentChanges = 256     // that are remembered for the requests that they met
	maxEntries    = 1 << 14 // kept here
	again         = time.Second
)

// Tree are the kernel's names. A path "" is the root.
type Tree interface {
	Changed(path string)                    // drops attributes
	Moved(ctx context.Context, path string) // drops attributes, and the name if it leads elsewhere
	Left(ctx context.Context, path string)  // is Moved of a name that something was moved away from
	Below(path string)                      // drops all attributes below, and names of files
}

// Watch yields changes from the call of ready on.
type Watch func(ctx context.Context, ready func()) iter.Seq2[admin.Event, error]

// Kinds are the kinds of events that end the validity of an answer.
func Kinds() []admin.EventKind {
	return []admin.EventKind{
		admin.EventCommitted, admin.EventChanged, admin.EventRenamed, admin.EventRemoved, admin.EventLost, admin.EventFound,
		admin.EventTxnDecided, admin.EventDestroyed,
	}
}

// Cache keeps entries of one buffer by path. Its methods may be called concurrently.
type Cache struct {
	mu struct {
		sync.Mutex
		announced bool // the stream of changes holds
		changes   Mark // so far
		floor     Mark // the last change of more than one path
		recent    [recentChanges]change
		entries   map[string]kept
	}
}

// Mark is a point in the order of changes. An answer is as old as the mark before its request.
type Mark uint64

// Seen is an entry's path, and the mark before the request that it answers.
type Seen struct {
	Path string
	Mark Mark
}

type change struct {
	path   string
	commit content // of which it was; zero: another change
}

// content is what a commit makes of a file.
type content struct {
	generation uint64
	size       int64
}

type kept struct {
	entry client.Entry
	until time.Time
}

func contentOf(e *client.Entry) content { return content{uint64(e.Generation), e.Size} }

// New returns an empty cache. It keeps nothing long before Run.
func New() *Cache {
	c := &Cache{}
	c.mu.entries = map[string]kept{}
	return c
}

// At returns the mark now, of a request that will be about a path.
func (c *Cache) At(path string) Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Seen{path, c.mu.changes}
}

// Name returns how long the kernel may keep the name of an answer. To drop a directory's could unmount what is mounted
// below it, so that is not long.
func (c *Cache) Name(e *client.Entry, at Seen) time.Duration { return c.long(at, !e.IsDir()) }

// Attributes returns how long the kernel may keep the attributes of an answer. The size of a file that is being written
// changes without events.
func (c *Cache) Attributes(e *client.Entry, at Seen) time.Duration {
	d := c.long(at, e.State != client.StateOpen)
	if _, left, ok := c.Get(at.Path); ok && d > left {
		return left // it may be the kept entry
	}
	return d
}

func (c *Cache) long(at Seen, may bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if may && c.holds(at) {
		return Long
	}
	return Short
}

// holds reports whether no change is known since an answer's mark, and the next one will be. c.mu is locked.
func (c *Cache) holds(at Seen) bool {
	_, changed := c.since(at)
	return c.mu.announced && !changed
}

// since returns the only change of a path since a mark. It reports changed without one if there may be others.
func (c *Cache) since(at Seen) (only content, changed bool) {
	if at.Mark < c.mu.floor || c.mu.changes-at.Mark > recentChanges {
		return content{}, true
	}
	for i := at.Mark; i < c.mu.changes; i++ {
		if r := &c.mu.recent[i%recentChanges]; r.path == at.Path {
			if changed && only != r.commit {
				return content{}, true
			}
			only, changed = r.commit, true
		}
	}
	return only, changed
}

// Keep keeps an entry. An entry that is kept already is not kept for longer, since the new one may be the same answer.
func (c *Cache) Keep(e *client.Entry, at Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds(at) {
		left := time.Until(c.mu.entries[at.Path].until)
		if left <= 0 {
			left = Long
		}
		c.put(at.Path, e, left)
	}
}

// Committed keeps the entry of a file that this mount has closed. It is kept long from the event that announces the
// commit on, since other writers may have the file open until then.
func (c *Cache) Committed(e *client.Entry, at Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	only, changed := c.since(at)
	switch {
	case !c.mu.announced:
	case !changed:
		c.put(at.Path, e, Short)
	case only == contentOf(e):
		c.put(at.Path, e, Long)
	}
}

func (c *Cache) put(path string, e *client.Entry, d time.Duration) {
	if len(c.mu.entries) >= maxEntries {
		clear(c.mu.entries)
	}
	c.mu.entries[path] = kept{*e, time.Now().Add(d)}
}

// Get returns the kept entry of a path, and how long it holds.
func (c *Cache) Get(path string) (e client.Entry, left time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.mu.entries[path]
	if left = time.Until(k.until); !ok || left <= 0 {
		return client.Entry{}, 0, false
	}
	return k.entry, left, true
}

// Agree forgets the kept entry of a path if the daemon's answer for the file has another content, whose event comes late.
func (c *Cache) Agree(e *client.Entry, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.mu.entries[path]; ok && contentOf(&k.entry) != contentOf(e) {
		delete(c.mu.entries, path)
	}
}

// Drop forgets the entry of a path that this mount changes.
func (c *Cache) Drop(path string) { c.changed(change{path: path}) }

// Clear forgets all entries, since this mount changes the paths of many.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

func (c *Cache) clear() {
	c.mu.changes++
	c.mu.floor = c.mu.changes
	clear(c.mu.entries)
}

// changed records a change of one path. It reports whether an entry is kept that is right.
func (c *Cache) changed(r change) (right bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.recent[c.mu.changes%recentChanges] = r
	c.mu.changes++
	k, ok := c.mu.entries[r.path]
	if ok && r.commit != (content{}) && r.commit == contentOf(&k.entry) {
		c.put(r.path, &k.entry, Long)
		return true
	}
	delete(c.mu.entries, r.path)
	return false
}

// Run passes changes of others on to the tree until ctx ends.
func (c *Cache) Run(ctx context.Context, watch Watch, t Tree) {
	for ctx.Err() == nil {
		for e, err := range watch(ctx, func() { c.announce(true) }) {
			if err != nil {
				break
			}
			c.event(ctx, &e, t)
		}
		c.announce(false)
		t.Below("")
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

func (c *Cache) announce(holds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.announced = holds
	c.clear() // answers before are of changes that were not announced
}

// event is one change of anybody.
func (c *Cache) event(ctx context.Context, e *admin.Event, t Tree) {
	path := clean(e.Path)
	switch e.Kind {
	case admin.EventCommitted:
		if !c.changed(change{path, content{uint64(e.Generation), e.Bytes}}) {
			t.Changed(path)
		}
	case admin.EventChanged, admin.EventLost:
		c.Drop(path)
		t.Changed(path)
	case admin.EventRemoved, admin.EventFound:
		c.Drop(path)
		t.Moved(ctx, path)
	case admin.EventRenamed:
		c.Clear() // of a directory it may be
		t.Left(ctx, clean(strings.TrimPrefix(e.Reason, "from ")))
		t.Moved(ctx, path)
	case admin.EventTxnDecided:
		c.Clear()
		t.Below(path)
	case admin.EventMissed, admin.EventDestroyed:
		c.Clear()
		t.Below("")
	}
}

func clean(path string) string { return strings.Trim(path, "/") }

// Made is the entry of a file that a mount has made, while it is open for the first time. Its methods may be called
// concurrently.
type Made struct{ entry atomic.Pointer[client.Entry] }

// Set sets the entry, nil if it is not certain any more.
func (m *Made) Set(e *client.Entry) { m.entry.Store(e) }

// Take returns the entry, once.
func (m *Made) Take() (client.Entry, bool) {
	if e := m.entry.Swap(nil); e != nil {
		return *e, true
	}
	return client.Entry{}, false
}
