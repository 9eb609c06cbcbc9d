package flusher

import (
	"time"

	"forebay/flusher/why"
)

// stalledStore returns the attempts that stall of all buffers that share the queue's store. mu is held.
func (q *queue) stalledStore(now time.Time) (s why.Stalled) {
	store := q.f.opts.Policy(q.buffer).Store
	for fl := range q.f.mu.running {
		if fl.q != q && (store == "" || fl.store != store) {
			continue
		}
		at, stalled := fl.stalled(now)
		if !stalled {
			continue
		}
		s.Attempts++
		if s.Since.IsZero() || at.Before(s.Since) {
			s.Since, s.Path = at, ""
			if fl.q == q {
				s.Path = fl.path
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
			w := why.Waiting{Path: e.path, Flying: e.state == stateFlying, Parked: e.state == stateParked, Paused: paused, Store: stalled, Now: now}
			u.Err = w.Reason()
		}
		return u
	}
}
