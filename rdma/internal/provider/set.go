package provider

import (
	"errors"
	"io"
	"sync"

	"forebay/rdma"
)

// Set holds the open children of an object, which it must close. It may be used concurrently. The
// zero value is empty.
type Set[C interface {
	comparable
	io.Closer
}] struct {
	mu struct {
		sync.Mutex
		members map[C]struct{}
		closed  bool
	}
}

// Add takes in a child. After Close it returns ErrClosed, and the child stays the caller's.
func (s *Set[C]) Add(c C) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return rdma.ErrClosed
	}
	if s.mu.members == nil {
		s.mu.members = make(map[C]struct{})
	}
	s.mu.members[c] = struct{}{}
	return nil
}

// Remove takes out a child that was closed.
func (s *Set[C]) Remove(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.members, c)
}

// All returns the children at this moment.
func (s *Set[C]) All() []C {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]C, 0, len(s.mu.members))
	for c := range s.mu.members {
		all = append(all, c)
	}
	return all
}

// Close refuses further children, then closes all, one after another. It is idempotent.
func (s *Set[C]) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	var errs []error
	for _, c := range s.All() {
		errs = append(errs, c.Close())
		s.Remove(c)
	}
	return errors.Join(errs...)
}
