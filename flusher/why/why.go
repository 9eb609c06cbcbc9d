// Package why has the reasons for which a file's flush has not begun or ended. It must never depend on the queue of files.
package why

import (
	"fmt"
	"time"

	"forebay/internal/bb"
)

// A file that is not durable has one reason, the first of these that holds:
//
//	its last attempt failed           → that error
//	its attempt stalls                → the store has not answered for so long
//	its attempt runs                  → its flush has not ended
//	it is parked                      → a rename or removal of its name
//	flushing is paused                → that
//	attempts to its store stall       → how many, since when, and the file of the oldest
//	none of these                     → its flush has not begun

// LookAfterStore is the remedy for a store that does not answer.
const LookAfterStore = "check the store; the file is flushed when it answers again"

// Stalled is the common state of stalled attempts to one store.
type Stalled struct {
	Attempts int
	Since    time.Time // when the oldest of them last got on
	Path     string    // its file; "": another buffer's, whose names may be another user's
}

// Waiting is a file whose flush has neither failed nor stalled.
type Waiting struct {
	Path                   string
	Flying, Parked, Paused bool
	Store                  Stalled
	Now                    time.Time
}

// Reason returns the reason why the file waits.
func (w *Waiting) Reason() error {
	s := &w.Store
	switch {
	case w.Flying:
		return bb.E(bb.Busy, "flush", w.Path, "its flush has not ended")
	case w.Parked:
		return bb.E(bb.Busy, "flush", w.Path, "its flush waits for a rename or removal of its name on the store")
	case w.Paused:
		return bb.E(bb.Busy, "flush", w.Path, "its flush has not begun: flushing is paused")
	case s.Attempts > 0:
		of := ""
		if s.Path != "" {
			of = ", that of " + s.Path
		}
		return bb.E(bb.Unavailable, "flush", w.Path, fmt.Sprintf("its flush has not begun: %s no answer of the store, the oldest%s for %v",
			bb.Count(s.Attempts, "flush has had", "flushes have had"), of, w.Now.Sub(s.Since).Round(time.Second))).WithRemedy(LookAfterStore)
	}
	return bb.E(bb.Busy, "flush", w.Path, "its flush has not begun")
}
