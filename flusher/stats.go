package flusher

import (
	"time"

	"forebay/flusher/flow"
	"forebay/flusher/receipt"
	"forebay/flusher/storeop"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventBegun       EventKind = "begun"
	EventFlushed     EventKind = "flushed"  // before any waiter for it wakes
	EventFailed      EventKind = "failed"   // it will be tried again
	EventDropped     EventKind = "dropped"  // there was nothing to flush any more
	EventDeferred    EventKind = "deferred" // its name is passing, or held, or a flush rule holds it back
	EventApplied     EventKind = "applied"
	EventApplyFailed EventKind = "apply-failed"
)

// Event is a change of a file or an operation.
type Event struct {
	Kind     EventKind
	Key      Key
	Path     string
	Bytes    int64 // of the file
	Err      error
	Attempt  int
	Took     time.Duration    // the flush
	DirtyFor time.Duration    // since its oldest byte became dirty
	Receipt  *receipt.Receipt // of EventFlushed
	Op       *storeop.Op      // of EventApplied and EventApplyFailed
}

// BufferStats is how a buffer stands.
type BufferStats struct {
	Queued        int   // files to be flushed, those in flight among them
	QueuedBytes   int64 // their sizes
	InFlight      int
	Stalled       int       // files in flight without an answer of their store for long; they hold no worker
	StalledAt     time.Time // when the store last answered one of them
	OldestAttempt time.Time // when the oldest attempt of them all began; zero: none runs
	Excluded      int       // files kept back by a pattern
	Ruled         int       // files held back by a flush rule
	Failing       int       // files whose last attempt failed
	Conflicts     int       // of them, those under whose name the store has an object that the buffer did not write
	StoreOps      int       // renames and removals still to be carried out
	OldestDirty   time.Time // of the queued files; zero: there are none
	Paused        bool
	Draining      bool

	Flushed      int64 // files, since the start
	FlushedBytes int64
	Failures     int64   // failed attempts, since the start
	Rate         float64 // bytes a second, lately
	// Pace is the rate of flushes in bytes a second while there is something to flush. It returns
	// false if that has not lasted long enough to be measured.
	Pace      float64
	PaceKnown bool

	// The last failure, as long as something fails.
	LastError         error
	LastErrorPath     string
	LastErrorAt       time.Time
	LastErrorAttempts int
}

// BufferStats returns how a buffer stands. A buffer for which nothing was queued has zeros.
func (f *Flusher) BufferStats(buffer string) BufferStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.mu.queues[buffer]; q != nil {
		return q.describe()
	}
	return BufferStats{}
}

// Stats returns how each buffer stands.
func (f *Flusher) Stats() map[string]BufferStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]BufferStats, len(f.mu.queues))
	for name, q := range f.mu.queues {
		all[name] = q.describe()
	}
	return all
}

func (q *queue) describe() BufferStats {
	s := BufferStats{
		Queued: len(q.entries) - q.held.Len(), QueuedBytes: q.stats.bytes, InFlight: len(q.running),
		Excluded: q.held.Len() - q.stats.ruled, Ruled: q.stats.ruled, Failing: q.stats.failing, Conflicts: q.stats.conflicts, StoreOps: q.ops.Len(),
		Paused: q.paused || q.f.mu.paused, Draining: q.draining > 0,
		Flushed: q.stats.flushed, FlushedBytes: q.stats.flushedBytes, Failures: q.stats.failures,
		Rate:      q.stats.rate.At(q.f.opts.Now()),
		LastError: q.stats.last.err, LastErrorPath: q.stats.last.path, LastErrorAt: q.stats.last.at, LastErrorAttempts: q.stats.last.attempts,
	}
	s.Pace, s.PaceKnown = q.stats.pace.At(q.f.opts.Now(), q.stats.failing)
	if oldest, ok := q.byAge.Min(); ok {
		s.OldestDirty = oldest.item.DirtySince
	}
	now := q.f.opts.Now()
	for fl := range q.running {
		if s.OldestAttempt.IsZero() || fl.begun.Before(s.OldestAttempt) {
			s.OldestAttempt = fl.begun
		}
		if at, stalled := fl.stalled(now); stalled {
			s.Stalled++
			if at.After(s.StalledAt) {
				s.StalledAt = at
			}
		}
	}
	return s
}

// counters are a queue's figures.
type counters struct {
	bytes                  int64
	flushed, flushedBytes  int64
	failures               int64
	failing, gaveUp, ruled int // ruled: of the held ones, those that a flush rule holds back
	conflicts              int // of the failing ones
	last                   lastError
	rate                   flow.Rate
	pace                   flow.Pace
}

type lastError struct {
	err      error
	path     string
	at       time.Time
	attempts int
}
