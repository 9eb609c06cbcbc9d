package app

import (
	"context"
	"fmt"
	"sync"

	"forebay/client"
)

// Several collects the results of several things that one command does. A failure of one does not
// keep the others from being done. It may be used concurrently.
type Several struct {
	What string

	mu     sync.Mutex
	done   int
	Count  int
	failed []error // at most maxListed
	ended  error   // the reason why the others were not tried
}

// maxListed bounds the failures that are listed.
const maxListed = 10_000

// Note counts one thing. err is nil if it was done.
func (s *Several) Note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.done++
		return
	}
	if s.Count++; len(s.failed) < maxListed {
		s.failed = append(s.failed, err)
	}
}

// End ends the attempts, with the reason.
func (s *Several) End(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = why
	}
}

// Over reports whether nothing further is to be tried.
func (s *Several) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil
}

// Finish lists the failures, and returns the error of all of them.
func (s *Several) Finish(a *App) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := outcome(s.What, s.done, s.Count, s.failed, s.ended)
	if len(s.failed) > 0 && err != s.failed[0] && err != s.ended {
		for _, f := range s.failed {
			a.printError(f)
		}
	}
	return err
}

// outcome is the error of several attempts of which some succeeded and some failed. A single
// failure, or failures of one kind of all attempts, keep their kind. A script can distinguish a
// daemon that is away from a name that is mistyped.
func outcome(what string, done, count int, failed []error, ended error) error {
	switch {
	case ended != nil:
		return ended
	case count == 0:
		return nil
	case count == 1 && done == 0:
		return failed[0]
	}
	kind, same := client.KindOf(failed[0]), done == 0
	for _, f := range failed[1:] {
		same = same && client.KindOf(f) == kind
	}
	err := &client.Error{Kind: kind, Op: what, Err: fmt.Errorf("%d of %d were not done", count, done+count)}
	if same {
		return err
	}
	return Partly(err)
}

// EachArg carries out one thing for each argument.
func (a *App) EachArg(ctx context.Context, what string, args []string, do func(arg string) error) error {
	s := &Several{What: what}
	for _, arg := range args {
		err := do(arg)
		if ctx.Err() != nil {
			return err
		}
		if s.Note(err); client.KindOf(err) == client.ErrUnavailable && a.client == nil {
			break // there is no daemon
		}
	}
	return s.Finish(a)
}
