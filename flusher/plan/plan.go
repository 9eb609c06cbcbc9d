// Package plan decides about the next flushes. It is pure. The same input gives the same output,
// and time comes in as a value. It handles sizes and times. It must never depend on bytes, stores or
// goroutines.
package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Item is a dirty file.
type Item struct {
	ID         uint64 // the caller's; smaller ones go first among equally old ones
	Buffer     string
	Size       int64
	DirtySince time.Time // when its oldest dirty byte was committed
	ClosedAt   time.Time // when it was last closed
	NotBefore  time.Time // after a failure: when to try again; zero: now
	Held       bool      // its name is temporary, so it is not to be flushed
	Urgent     bool      // a call waits for it
}

// Buffer is the part of a buffer that matters here.
type Buffer struct {
	Draining bool
	Paused   bool
	DirtyAge time.Duration // 0: that of Limits
	InFlight int           // files being flushed, as Limits.Units counts them
	Store    string        // where its files go; buffers that name the same store share its bound; "": a store of its own
	User     uint32        // the user of the file
	Small    int           // units of a small file, where that is not one; 0: 1
	Burst    bool          // small files are closed in it one after the other (Arrivals)

	// Due is the time by which it should be clean, since its job ends then. Zero means any time.
	Due   time.Time
	Dirty int64   // bytes to be flushed
	Pace  float64 // bytes a second that it is flushed at; 0: unknown
}

// Limits bound the picks.
type Limits struct {
	Free      int // units of workers that have nothing to do
	Total     int // units of all workers, which are shared among users; 0: they are not
	PerBuffer int // units of files that one buffer may have in flight; 0: any number
	PerStore  int // units of files that all buffers of one store may have in flight; 0: any number
	PerUser   int // units of workers that all buffers of one user may hold; 0: any number
	// Small files are those of at most so many bytes. Most of their flush is a wait for the store, so that PerWorker of
	// them share one worker. 0 and 1: each has a worker.
	Small     int64
	PerWorker int
	DirtyAge  time.Duration // oldest that a dirty byte may get before its flush begins
	// Idle is how long a closed file is left alone without pressure, since it may be renamed,
	// removed or written again, together with files around it. Small ones wait longer in a burst.
	Idle time.Duration
}

// Units returns how much of its bounds a file takes. A worker has PerWorker units, of which a small file takes small (0: one), and any
// other file all. A bound holds back later starts while it is reached. The file that reaches it may take units beyond it, so that
// small files cannot keep a large one waiting. Of large files alone, there are never more than the bound.
func (l *Limits) Units(size int64, small int) int {
	switch {
	case l.PerWorker <= 1:
		return 1
	case size > l.Small:
		return l.PerWorker
	}
	return min(max(1, small), l.PerWorker)
}

// Fair counts the bytes that each buffer and each user has had, counted from where those stood that
// were active when it became active. An idle time earns nothing.
type Fair struct {
	Buffers map[string]int64
	Users   map[uint32]int64
}

// Class is the reason why an item may be flushed now. Lower ones go first.
type Class int

// The classes.
const (
	Overdue  Class = iota // older than the dirty age, or its job ends too soon; overrides idleness, batching and pressure
	Drain                 // its buffer is drained, or a call waits
	Pressure              // memory is short
	Idle                  // nothing presses, but it has been left alone long enough
	NotYet                // wait
)

// classOf returns an item's class, and for NotYet when to look again (zero: only
// after something has changed).
//
// A dirty age overrides every reason to wait except two: a temporary name, and the wait after a
// failure, without which a store that is down would get requests without end.
func classOf(it *Item, b Buffer, lim Limits, pressure bool, now time.Time) (Class, time.Time) {
	age := b.DirtyAge
	if age <= 0 {
		age = lim.DirtyAge
	}
	overdue := it.DirtySince.Add(age)
	idle, again := lim.rested(it, b.Burst, now)
	switch {
	case it.Held || b.Paused:
		return NotYet, time.Time{}
	case it.NotBefore.After(now):
		return NotYet, it.NotBefore
	case age > 0 && !overdue.After(now), b.urge(now) > 1:
		return Overdue, time.Time{}
	case it.Urgent || b.Draining:
		return Drain, time.Time{}
	case pressure:
		return Pressure, time.Time{}
	case !idle.After(now):
		return Idle, time.Time{}
	case age > 0 && overdue.Before(again):
		return NotYet, overdue
	default:
		return NotYet, again
	}
}

// Input is all that a decision depends on.
type Input struct {
	// Items are the dirty files, or the oldest of each buffer. With n free workers, n of each are
	// enough. Their order does not matter.
	Items   []Item
	Buffers map[string]Buffer // those without an entry have nothing special
	Limits  Limits
	// Stuck are the units in flight by store that belong to none of the buffers any more.
	Stuck map[string]int
	// Holds are the units of workers that users hold. Stalled attempts have returned theirs.
	Holds    map[uint32]int
	Pressure bool // memory is short
	Fair     Fair
	Now      time.Time
}

// Next returns the items to flush now, in order, the memory for the next call, and
// when to call again if nothing changes until then (zero: never).
//
// Each user with something to flush has an equal share of the workers. Users below their share go
// first, in any class. A user's haste is at that user's cost. Workers that they leave are lent, and
// taken back as attempts end. Then all of a class go before any of the next. Within a class, each
// pick goes to the user that has had the fewest bytes, of that user to the buffer that has, and in
// it to the oldest item. Of a buffer that would not be clean in time, only a part counts as had. It
// gets a larger share.
func Next(in Input) (picks []Item, fair Fair, wake time.Time) {
	queues, wake := classify(in)
	fair = in.Fair.admit(in)
	turns := turns{in: &in, queues: queues, fair: fair, flying: in.load()}
	turns.share = turns.flying.share(queues)
	for used := 0; used < in.Limits.Free; {
		turn, ok := turns.next()
		if !ok {
			break
		}
		queue := queues[turn.class]
		it := queue[turn.buffer][0]
		queue[turn.buffer] = queue[turn.buffer][1:]
		picks = append(picks, it)
		// An empty file costs its store a request too.
		b := in.Buffers[turn.buffer]
		cost := max(it.Size, requestCost) / b.urge(in.Now)
		fair.Buffers[turn.buffer] += cost
		fair.Users[b.User] += cost
		units := in.Limits.Units(it.Size, b.Small)
		turns.flying.add(turn.buffer, units)
		turns.flying.byUser[b.User] += units
		used += units
	}
	return picks, fair, wake
}

// turns finds the user and the buffer whose turn it is.
type turns struct {
	in     *Input
	queues [NotYet]map[string][]Item
	fair   Fair
	flying *load
	share  int // of each user, in units; 0: no bound
}

// turn is a buffer's claim to be next. Of two, the smaller one is.
type turn struct {
	borrows bool // its user has its share already
	class   Class
	user    int64 // bytes that its user has had
	uid     uint32
	had     int64 // and the buffer
	buffer  string
}

func (a *turn) compare(b *turn) int {
	if a.borrows != b.borrows {
		if b.borrows {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(a.class, b.class), cmp.Compare(a.user, b.user), cmp.Compare(a.uid, b.uid),
		cmp.Compare(a.had, b.had), cmp.Compare(a.buffer, b.buffer),
	)
}

// next returns the first of the buffers with items and room.
func (t *turns) next() (best turn, found bool) {
	for class := range NotYet {
		for name, items := range t.queues[class] {
			if len(items) == 0 || !t.flying.hasRoom(name) {
				continue
			}
			user := t.in.Buffers[name].User
			one := turn{
				borrows: t.share > 0 && t.flying.byUser[user] >= t.share, class: class,
				user: t.fair.Users[user], uid: user, had: t.fair.Buffers[name], buffer: name,
			}
			if !found || one.compare(&best) < 0 {
				best, found = one, true
			}
		}
	}
	return best, found
}

// load counts attempts, by buffer and by store, and the workers that users hold.
type load struct {
	in                *Input
	byBuffer, byStore map[string]int
	byUser            map[uint32]int
}

func (in *Input) load() *load {
	l := &load{in: in, byBuffer: map[string]int{}, byStore: map[string]int{}, byUser: map[uint32]int{}}
	maps.Copy(l.byUser, in.Holds)
	for store, n := range in.Stuck {
		l.byStore[store] += n
	}
	for name, b := range in.Buffers {
		l.add(name, b.InFlight)
	}
	return l
}

func (l *load) add(buffer string, n int) {
	l.byBuffer[buffer] += n
	if store := l.in.Buffers[buffer].Store; store != "" {
		l.byStore[store] += n
	}
}

// hasRoom reports whether one more file of a buffer may be in flight. A store that does
// not answer so never holds more than its bound, however many buffers flush to it, nor does a user,
// however many stores there are.
func (l *load) hasRoom(buffer string) bool {
	lim, b, inStore := &l.in.Limits, l.in.Buffers[buffer], l.byBuffer[buffer]
	if b.Store != "" {
		inStore = l.byStore[b.Store]
	}
	return (lim.PerBuffer <= 0 || l.byBuffer[buffer] < lim.PerBuffer) && (lim.PerStore <= 0 || inStore < lim.PerStore) &&
		(lim.PerUser <= 0 || l.byUser[b.User] < lim.PerUser)
}

// share returns the units of each user that holds a worker or has something to flush now.
func (l *load) share(queues [NotYet]map[string][]Item) int {
	active := map[uint32]bool{}
	for user, n := range l.byUser {
		if n > 0 {
			active[user] = true
		}
	}
	for _, byBuffer := range queues {
		for name := range byBuffer {
			active[l.in.Buffers[name].User] = true
		}
	}
	if l.in.Limits.Total <= 0 || len(active) == 0 {
		return 0
	}
	return max(1, l.in.Limits.Total/len(active))
}

// requestCost is the number of bytes that a request counts for at least, so that a
// buffer of a million empty files cannot starve one of large ones.
const requestCost = 64 << 10

// classify sorts items by class and buffer, the oldest first.
func classify(in Input) (queues [NotYet]map[string][]Item, wake time.Time) {
	for class := range queues {
		queues[class] = map[string][]Item{}
	}
	for i := range in.Items {
		it := &in.Items[i]
		class, again := classOf(it, in.Buffers[it.Buffer], in.Limits, in.Pressure, in.Now)
		if class < NotYet {
			queues[class][it.Buffer] = append(queues[class][it.Buffer], *it)
		} else if !again.IsZero() && (wake.IsZero() || again.Before(wake)) {
			wake = again
		}
	}
	for _, byBuffer := range queues {
		for _, items := range byBuffer {
			slices.SortFunc(items, Older)
		}
	}
	return queues, wake
}

// Older orders items of one buffer: the longest dirty first.
func Older(a, b Item) int {
	return cmp.Or(a.DirtySince.Compare(b.DirtySince), cmp.Compare(a.ID, b.ID))
}

// admit returns a copy for the buffers and users that are active now: those that have items
// or files in flight.
func (f Fair) admit(in Input) Fair {
	buffers, users := map[string]bool{}, map[uint32]bool{}
	for i := range in.Items {
		buffers[in.Items[i].Buffer] = true
	}
	for name, b := range in.Buffers {
		if b.InFlight > 0 {
			buffers[name] = true
		}
	}
	for name := range buffers {
		users[in.Buffers[name].User] = true
	}
	return Fair{Buffers: level(f.Buffers, buffers), Users: level(f.Users, users)}
}

// level copies the counts of the active. A buffer or user that becomes active starts level with the
// poorest of those that were. Figures stay small by counting from the poorest.
func level[K comparable](have map[K]int64, active map[K]bool) map[K]int64 {
	least, any := int64(0), false
	for k := range active {
		if had, known := have[k]; known && (!any || had < least) {
			least, any = had, true
		}
	}
	next := make(map[K]int64, len(active))
	for k := range active {
		if had, known := have[k]; known {
			next[k] = had - least
		} else {
			next[k] = 0
		}
	}
	return next
}

// Soonest returns the earlier of two times, of which zero ones do not count.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
