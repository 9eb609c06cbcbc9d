package main

import (
	"context"
	"fmt"
	"sync"

	"forebay/client"
)

// several collects how each of several things went that one command was asked for. One
// that fails does not keep the others from being done. It may be used concurrently.
type several struct {
	what string

	mu     sync.Mutex
	done   int
	count  int
	failed []error // at most maxListed
	ended  error   // why the others were not tried
}

// maxListed bounds the failures that are listed.
const maxListed = 10_000

// note counts one thing: err is nil if it was done.
func (s *several) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.done++
		return
	}
	if s.count++; len(s.failed) < maxListed {
		s.failed = append(s.failed, err)
	}
}

// end says that nothing further is tried, and why.
func (s *several) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = why
	}
}

// over reports whether nothing further is to be tried.
func (s *several) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil
}

// finish lists what was not done, and returns the error of it all.
func (s *several) finish(a *app) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := outcome(s.what, s.done, s.count, s.failed, s.ended)
	if len(s.failed) > 0 && err != s.failed[0] && err != s.ended {
		for _, f := range s.failed {
			a.printError(f)
		}
	}
	return err
}

// outcome is the error of several things of which some were done and some failed. A single
// failure, or failures of one kind of all that was asked for, keep their kind: a script can
// tell a daemon that is away from a name that is mistyped.
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
	return partly{err}
}

// eachArg carries out one thing for each argument.
func (a *app) eachArg(ctx context.Context, what string, args []string, do func(arg string) error) error {
	s := &several{what: what}
	for _, arg := range args {
		err := do(arg)
		if ctx.Err() != nil {
			return err
		}
		if s.note(err); client.KindOf(err) == client.ErrUnavailable && a.client == nil {
			break // there is no daemon
		}
	}
	return s.finish(a)
}
