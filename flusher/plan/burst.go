package plan

import "time"

const (
	// burstFiles are so many small files in an idle time that their flush would take processors from the programs that
	// write them.
	burstFiles = 100
	// burstIdles bounds the wait for the end of a burst, in idle times.
	burstIdles = 10
)

// Arrivals counts the small files that are closed in a buffer. The zero value has none.
type Arrivals struct {
	began     time.Time // of the window of one idle time that is counted now
	now, last int       // files in it, and in the one before
}

// Add counts a file of a size. It reports whether the file is a small one in a burst.
func (a *Arrivals) Add(size int64, lim Limits, now time.Time) (burst bool) {
	if size > lim.Small {
		return false
	}
	a.turn(now, lim.Idle)
	a.now++
	return a.Burst(now, lim.Idle)
}

// Burst reports whether many arrive.
func (a *Arrivals) Burst(now time.Time, idle time.Duration) bool {
	a.turn(now, idle)
	return max(a.now, a.last) >= burstFiles
}

// turn begins a new window if the time of this one is over.
func (a *Arrivals) turn(now time.Time, idle time.Duration) {
	switch passed := now.Sub(a.began); {
	case passed >= 2*idle:
		*a = Arrivals{began: now}
	case passed >= idle:
		*a = Arrivals{began: a.began.Add(idle), last: a.now}
	}
}

// Looks reports whether a decision is near, when the next one is at wake, or on an event if that is zero. A file of a burst
// needs none earlier.
func (l *Limits) Looks(wake, now time.Time) bool {
	return wake.After(now) && !wake.After(now.Add(l.Idle))
}

// rested returns when an item has been left alone long enough, and when to look again if that is not now. A small file
// waits for the end of a burst, too.
func (l *Limits) rested(it *Item, burst bool, now time.Time) (idle, again time.Time) {
	if !burst || it.Size > l.Small {
		idle = it.ClosedAt.Add(l.Idle)
		return idle, idle
	}
	idle = it.ClosedAt.Add(burstIdles * l.Idle)
	return idle, Soonest(idle, now.Add(l.Idle))
}

// Rows is how many rows of an item there are.
const Rows = 3

// Row is the row of a buffer's items that one stands in, by its age. A decision looks at the oldest of each row. So items that
// wait for the end of a burst hide neither large ones nor those that a call waits for. Small is that of Limits.
func (it Item) Row(small int64) int {
	switch {
	case it.Urgent:
		return 1
	case it.Size > small:
		return 2
	}
	return 0
}
