// Package health watches the calls of a store, and reports whether the store answers, fails, or
// leaves a call without an answer: since when, and why. It changes nothing about the calls.
// It must never depend on the purpose of a call.
package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// Patience is how long a call may go without progress before its store counts as silent.
const Patience = 5 * time.Second

// Condition is the state of a store.
type Condition string

// The conditions of a store.
const (
	Unused  Condition = ""        // no call has ended yet
	Answers Condition = "answers" // the last calls were answered
	Failing Condition = "failing" // the last calls of one kind failed
	Silent  Condition = "silent"  // a call has been without an answer for Patience
)

// Status is how a store stands at one moment.
type Status struct {
	Condition Condition
	Since     time.Time // of Failing and Silent: when the first of these calls failed, or last made progress
	Op        string    // that failed or waits: "put", "stat"
	Name      string    // of its object
	Reason    string
	Attempts  int       // that have failed since
	Waiting   int       // calls without an answer
	Tried     time.Time // when the last call failed
}

// class is a kind of calls: success in one kind proves little about another. A full file system
// answers every stat, and carries removals out.
type class uint8

const (
	reads class = iota
	changes
	puts
	classes
)

// failure is a row of failed calls of one class.
type failure struct {
	since, at time.Time
	op, name  string
	err       error
	attempts  int
}

// Health is the observed state of one store. It outlives the Store values that are opened of it.
// Its methods may be called concurrently.
type Health struct {
	now func() time.Time

	mu      sync.Mutex
	used    bool
	running map[*call]struct{}
	failed  [classes]*failure
}

// New returns the Health of a store that was not used yet. Nil for now is time.Now.
func New(now func() time.Time) *Health {
	if now == nil {
		now = time.Now
	}
	return &Health{now: now, running: make(map[*call]struct{})}
}

// call is one call on its way.
type call struct {
	h        *Health
	class    class
	op, name string

	// Guarded by h.mu.
	moved  time.Time // when it began, or last got on
	ours   int       // of its callbacks that run; the store waits for the caller meanwhile
	offset int64     // up to which its source was read, so that a repeated attempt is no progress
	own    error     // of a callback
}

func (h *Health) begin(c class, op, name string) *call {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := &call{h: h, class: c, op: op, name: name, moved: h.now()}
	h.running[one] = struct{}{}
	return one
}

// callback runs fn, which is the caller's. The store cannot make progress meanwhile. End is how far
// a source was read, or 0 if the callback reads none.
func (c *call) callback(end int64, fn func() error) error {
	c.h.mu.Lock()
	c.ours++
	if end == 0 || end > c.offset {
		c.moved, c.offset = c.h.now(), max(c.offset, end)
	}
	c.h.mu.Unlock()
	began := c.h.now()
	err := fn()
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.ours--
	c.moved = c.moved.Add(c.h.now().Sub(began))
	if err != nil {
		c.own = err
	}
	return err
}

// end records the outcome of the call, and returns err.
func (c *call) end(err error) error {
	h := c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, c)
	now := h.now()
	quiet := now.Sub(c.moved)
	v := judge(err, c.own, quiet)
	if v == ignored {
		return err
	}
	h.used = true
	if v == answered {
		h.failed[c.class] = nil
		if c.class == puts && err == nil {
			h.failed = [classes]*failure{}
		}
		return err
	}
	f := h.failed[c.class]
	if f == nil {
		f = &failure{since: now}
		if quiet >= Patience {
			f.since = c.moved
		}
		h.failed[c.class] = f
	}
	f.op, f.name, f.err, f.at = c.op, c.name, err, now
	f.attempts++
	return err
}

// verdict is the meaning of the end of a call for its store.
type verdict uint8

const (
	ignored  verdict = iota // nothing
	answered                // it works
	broken                  // it fails
)

// judge decides the meaning of an error for a store. Own is the error of a callback. Quiet is the time
// for which the call had made no progress.
func judge(err, own error, quiet time.Duration) verdict {
	var (
		source *backing.SourceError
		known  *bb.Error
	)
	switch {
	case err == nil, err == io.EOF:
		return answered
	case own != nil && errors.Is(err, own), errors.As(err, &source), errors.Is(err, backing.ErrForeign):
		return ignored
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), bb.KindOf(err) == bb.Cancelled:
		if quiet >= Patience {
			return broken // the caller had no answer either
		}
		return ignored
	case !errors.As(err, &known):
		return ignored
	}
	switch known.Kind {
	case bb.Unavailable, bb.NoSpace, bb.Permission, bb.Checksum, bb.Busy, bb.Internal, bb.Unsupported:
		return broken
	case bb.NotFound, bb.Exists:
		return answered
	}
	return ignored
}

// Status returns the present state of the store.
func (h *Health) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	s := h.waiting(now)
	for _, f := range h.failed {
		switch {
		case f == nil:
		case s.Condition == Silent:
			if f.since.Before(s.Since) { // it did not get better in between
				s.Since, s.Attempts, s.Tried = f.since, f.attempts, f.at
			}
		case s.Condition == Unused || f.since.Before(s.Since):
			s.Condition, s.Since, s.Op, s.Name = Failing, f.since, f.op, f.name
			s.Reason, s.Attempts, s.Tried = f.err.Error(), f.attempts, f.at
		}
	}
	if s.Condition == Unused && h.used {
		s.Condition = Answers
	}
	return s
}

// waiting describes the calls without an answer. mu is held.
func (h *Health) waiting(now time.Time) (s Status) {
	for c := range h.running {
		if c.ours > 0 || now.Sub(c.moved) < Patience {
			continue
		}
		s.Waiting++
		if s.Condition == Unused || c.moved.Before(s.Since) {
			s.Condition, s.Since, s.Op, s.Name = Silent, c.moved, c.op, c.name
			s.Reason = fmt.Sprintf("no answer to %s", c.op)
			if c.name != "" {
				s.Reason += " " + c.name
			}
		}
	}
	return s
}

// Do watches a call that is not one of a Store, such as the opening of one.
func (h *Health) Do(op, name string, fn func() error) error {
	return h.begin(reads, op, name).end(fn())
}
