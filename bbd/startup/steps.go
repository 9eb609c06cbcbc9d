// Package startup names in the log the step of a start that takes long. It must never depend on the
// content of the steps.
package startup

import (
	"log/slog"
	"sync"
	"time"
)

// Times at which a start names its present step in the log: after the first while, and after each
// further one.
const (
	stepSaidAfter = 2 * time.Second
	stepSaidEvery = 10 * time.Second
)

// Steps names in the log the step of a start that takes long: the subject and the length of its
// wait. Every wait of a start lies in a step, so no wait is without a log line. Its methods may be
// called concurrently, and on nil, which names nothing.
//
//	New ──At──▶ step ──2 s──▶ said ──10 s──▶ said …
//	                  ▲──────At──────┘            End: nothing more is said
type Steps struct {
	log   *slog.Logger
	end   sync.Once
	ended chan struct{}
	wg    sync.WaitGroup
	begun chan struct{} // a step has begun; holds one

	mu struct {
		sync.Mutex
		what   string
		since  time.Time
		detail func() string
	}
}

// New begins with a step. End ends it.
func New(log *slog.Logger, what string) *Steps {
	s := &Steps{log: log, ended: make(chan struct{}), begun: make(chan struct{}, 1)}
	s.At(what, nil)
	s.wg.Go(s.run)
	return s
}

// At begins a step, which ends the one before. Detail, if not nil, is called by another goroutine
// when the step is named, and returns more about it at that time. The step of the same name goes on.
func (s *Steps) At(what string, detail func() string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	goesOn := s.mu.what == what
	s.mu.detail = detail
	if !goesOn {
		s.mu.what, s.mu.since = what, time.Now()
	}
	s.mu.Unlock()
	if !goesOn {
		select {
		case s.begun <- struct{}{}:
		default:
		}
	}
}

// End ends the start. It waits for a line that is being written, and may be called again.
func (s *Steps) End() {
	if s == nil {
		return
	}
	s.end.Do(func() { close(s.ended) })
	s.wg.Wait()
}

func (s *Steps) run() {
	timer := time.NewTimer(stepSaidAfter)
	defer timer.Stop()
	for {
		select {
		case <-s.begun:
			s.mu.Lock()
			since := s.mu.since
			s.mu.Unlock()
			timer.Reset(stepSaidAfter - time.Since(since))
		case <-timer.C:
			s.say()
			timer.Reset(stepSaidEvery)
		case <-s.ended:
			return
		}
	}
}

func (s *Steps) say() {
	s.mu.Lock()
	what, since, detail := s.mu.what, s.mu.since, s.mu.detail
	s.mu.Unlock()
	more := []any{"for", what, "since", time.Since(since).Round(100 * time.Millisecond)}
	if detail != nil {
		if text := detail(); text != "" {
			more = append(more, "detail", text)
		}
	}
	s.log.Warn("the start waits, and nobody is served", more...)
}
