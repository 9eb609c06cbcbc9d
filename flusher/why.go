package flusher

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

const lookAfterStore = "check the store; the file is flushed when it answers again"

// stalledStore is the common state of stalled attempts to one store.
type stalledStore struct {
	attempts int
	since    time.Time // when the oldest of them last got on
	path     string    // its file; "": another buffer's, whose names may be another user's
}

// stalledStore returns the attempts that stall of all buffers that share the queue's store. mu is held.
func (q *queue) stalledStore(now time.Time) (s stalledStore) {
	store := q.f.opts.Policy(q.buffer).Store
	for fl := range q.f.mu.running {
		if fl.q != q && (store == "" || fl.store != store) {
			continue
		}
		at, stalled := fl.stalled(now)
		if !stalled {
			continue
		}
		s.attempts++
		if s.since.IsZero() || at.Before(s.since) {
			s.since, s.path = at, ""
			if fl.q == q {
				s.path = fl.path
			}
		}
	}
	return s
}

// unsavedOf returns a function that describes entries of the queue. mu is held, now and in each call.
func (q *queue) unsavedOf() func(*entry) Unsaved {
	now := q.f.opts.Now()
	stalled := q.stalledStore(now)
	paused := q.paused || q.f.mu.paused
	return func(e *entry) Unsaved {
		u := Unsaved{Key: e.item.Key, Path: e.path, Bytes: e.item.Size, Attempts: e.attempts, Err: e.reason(), Since: e.item.DirtySince}
		if u.Err == nil {
			u.Err = e.delay(now, stalled, paused)
		}
		return u
	}
}

// delay returns the reason why an entry waits that has neither failed nor stalls itself.
func (e *entry) delay(now time.Time, s stalledStore, paused bool) error {
	switch {
	case e.state == stateFlying:
		return bb.E(bb.Busy, "flush", e.path, "its flush has not ended")
	case e.state == stateParked:
		return bb.E(bb.Busy, "flush", e.path, "its flush waits for a rename or removal of its name on the store")
	case paused:
		return bb.E(bb.Busy, "flush", e.path, "its flush has not begun: flushing is paused")
	case s.attempts > 0:
		of := ""
		if s.path != "" {
			of = ", that of " + s.path
		}
		return bb.E(bb.Unavailable, "flush", e.path, fmt.Sprintf("its flush has not begun: %s no answer of the store, the oldest%s for %v",
			bb.Count(s.attempts, "flush has had", "flushes have had"), of, now.Sub(s.since).Round(time.Second))).WithRemedy(lookAfterStore)
	}
	return bb.E(bb.Busy, "flush", e.path, "its flush has not begun")
}
