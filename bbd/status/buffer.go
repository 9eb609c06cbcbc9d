package status

import (
	"time"

	"forebay/bbd/fate"
	"forebay/bbd/flushrule"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/flusher/backing/health"
	"forebay/internal/bb"
)

// Buffer is the state of one buffer, with its store.
type Buffer struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Backing     string `json:"backing,omitempty"`
	Capacity    int64  `json:"capacity,omitempty"`
	Resident    int64  `json:"resident"`
	Dirty       int64  `json:"dirty"`
	OpenFiles   int    `json:"open_files"`
	Queued      int    `json:"queued"`       // files that wait for their flush
	QueuedBytes int64  `json:"queued_bytes"` //
	Flushing    int    `json:"flushing"`     // files on their way
	Stalls
	Ruled
	Held        int          `json:"held"`                  // files held back by a keep pattern
	Conflicts   int          `json:"conflicts,omitempty"`   // files whose name has another file on the store
	InConflict  []InConflict `json:"in_conflict,omitempty"` // the first of them
	Rate        float64      `json:"rate"`                  // bytes a second to the store
	ETA         float64      `json:"eta,omitempty"`
	OldestDirty float64      `json:"oldest_dirty_age,omitempty"`
	StoreOps    int          `json:"store_ops_pending"`          // renames and removals that have not reached the store
	Lacking     int          `json:"under_replicated,omitempty"` // files that lack their second copy
	LastError   *FlushError  `json:"last_error,omitempty"`
	Store       *StoreHealth `json:"store,omitempty"`       // how the backing store answers; nil: there is none, or it was not used
	Unexplained []NoEntry    `json:"unexplained,omitempty"` // dirty bytes that no entry explains
}

// Stalls are flushes in progress that do not advance.
type Stalls struct {
	Stalled      int     `json:"stalled,omitempty"`           // files that the store has not answered for long
	StalledFor   float64 `json:"stalled_for,omitempty"`       // seconds since it answered one of them
	OldestFlight float64 `json:"oldest_flight_age,omitempty"` // seconds since the oldest flush on its way began
}

// Ruled are the files of this node that a flush rule keeps from the store.
type Ruled struct {
	HeldByRule      int   `json:"held_by_rule,omitempty"`     // files that are held back
	Superseded      int   `json:"superseded,omitempty"`       // of them, those that will not be flushed
	SupersededBytes int64 `json:"superseded_bytes,omitempty"` // of the latter
	Dropped         int64 `json:"dropped,omitempty"`          // superseded files that were dropped, since the start
	DroppedBytes    int64 `json:"dropped_bytes,omitempty"`    // of them
}

// InConflict is a file whose name has a file on the store that the buffer did not write.
type InConflict struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}

// MaxConflicts bounds Buffer.InConflict, since a status is read often.
const MaxConflicts = 100

// NoEntry is a file with bytes here and without an entry in the namespace.
type NoEntry struct {
	File       string `json:"file"`
	Generation uint64 `json:"generation"`
	Path       string `json:"path,omitempty"` // its place, if that is known
	Bytes      int64  `json:"bytes"`
	Reason     string `json:"reason"`
}

// StoreHealth is the state of a backing store, by its answers to a buffer's
// flushes, renames, removals and reads.
type StoreHealth struct {
	State    string    `json:"state"` // answers, failing (calls fail), silent (calls have no answer)
	Since    time.Time `json:"since,omitzero"`
	For      float64   `json:"for,omitempty"` // seconds since then
	Op       string    `json:"op,omitempty"`  // that failed or waits
	Path     string    `json:"path,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Attempts int       `json:"attempts,omitempty"` // that failed since
	Waiting  int       `json:"waiting,omitempty"`  // calls without an answer
	Tried    time.Time `json:"tried,omitzero"`     // when a call failed last
	Targets  []string  `json:"targets,omitempty"`  // of Lustre, those that do not answer this node, while the store is silent
}

// FlushError is the newest failure of a buffer's store that has not been overcome.
type FlushError struct {
	Kind     string    `json:"kind"`
	Reason   string    `json:"reason"`
	Path     string    `json:"path,omitempty"`
	At       time.Time `json:"at"`
	Attempts int       `json:"attempts"`
}

// Facts are the data for the status of a buffer.
type Facts struct {
	Spec        bb.Buffer
	Stored      store.BufferStats
	Open        int // files
	Flushes     flusher.BufferStats
	Conflicts   []flusher.Conflict // at most MaxConflicts
	Lacking     int                // files that lack their second copy
	Ruled       flushrule.Stats
	Unexplained []fate.Unexplained
	Health      health.Status // of the backing store
	Silent      []string      // of Lustre, targets that do not answer this node
}

// OfBuffer describes a buffer at a time.
func OfBuffer(f *Facts, now time.Time) Buffer {
	q := &f.Flushes
	s := Buffer{
		Name: f.Spec.Name, State: string(f.Spec.State), Backing: f.Spec.Backing, Capacity: f.Spec.Capacity,
		Resident: f.Stored.Resident, Dirty: f.Stored.Dirty, OpenFiles: f.Open,
		Queued: q.Queued, QueuedBytes: q.QueuedBytes, Flushing: q.InFlight, Held: q.Excluded, Conflicts: q.Conflicts,
		Rate: q.Rate, StoreOps: q.StoreOps, Lacking: f.Lacking,
		Ruled:  Ruled{q.Ruled, f.Ruled.Superseded, f.Ruled.SupersededBytes, f.Ruled.Dropped, f.Ruled.DroppedBytes},
		Stalls: Stalls{Stalled: q.Stalled, OldestFlight: age(q.OldestAttempt, now)}, OldestDirty: age(q.OldestDirty, now),
	}
	for _, c := range f.Conflicts {
		s.InConflict = append(s.InConflict, InConflict{c.Path, c.Bytes, c.Err.Error()})
	}
	if q.Stalled > 0 {
		s.StalledFor = now.Sub(q.StalledAt).Seconds()
	}
	if q.Rate > 0 {
		s.ETA = float64(q.QueuedBytes) / q.Rate
	}
	for _, u := range f.Unexplained {
		s.Unexplained = append(s.Unexplained, NoEntry{u.File.String(), uint64(u.Generation), u.Path, u.Bytes, u.Reason})
	}
	if f.Spec.Backing != "" {
		s.Store = ofStore(f.Health, f.Silent, now)
	}
	if q.LastError != nil {
		s.LastError = &FlushError{
			Kind: bb.KindOf(q.LastError).String(), Reason: q.LastError.Error(),
			Path: q.LastErrorPath, At: q.LastErrorAt, Attempts: q.LastErrorAttempts,
		}
	}
	return s
}

// age returns the seconds since a time, or 0 if there was none.
func age(since, now time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return now.Sub(since).Seconds()
}

// ofStore describes a backing store. It returns nil if it was not used.
func ofStore(h health.Status, silent []string, now time.Time) *StoreHealth {
	if h.Condition == health.Unused {
		return nil
	}
	s := &StoreHealth{
		State: string(h.Condition), Since: h.Since, For: age(h.Since, now), Op: h.Op, Path: h.Name, Reason: h.Reason,
		Attempts: h.Attempts, Waiting: h.Waiting, Tried: h.Tried,
	}
	if h.Condition == health.Silent {
		s.Targets = silent
	}
	return s
}
