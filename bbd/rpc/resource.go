package rpc

import "errors"

// Resource is a resource that a session has for its client, as an open file. Release is called once: with
// lost false when the client returns it (Session.Release), and with lost true when the session
// ends and it does not. By then the session's requests have ended. Release may wait, within bounds,
// and is called without locks of this package.
type Resource interface{ Release(lost bool) }

// Kind is a kind of resources. A session that ends releases those of lower kinds first.
type Kind uint8

// Key names a resource in its session.
type Key struct {
	Kind Kind
	ID   uint64
}

// It returns ErrInUse if the session has a resource of the same key, and ErrTooMany if it has as
// many as it may.
var (
	ErrInUse   = errors.New("the key is in use")
	ErrTooMany = errors.New("the session has as many as it may")
)

// Hold makes a resource the session's, unless the key is in use or the session has most of the kind.
func (s *Session) Hold(k Key, r Resource, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.resources[k] != nil:
		return ErrInUse
	case s.mu.held[k.Kind] >= most:
		return ErrTooMany
	}
	s.hold(k, r)
	return nil
}

// HoldNew is Hold with a key that the session has not had before, and without a bound.
func (s *Session) HoldNew(kind Kind, r Resource) (id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last++
	s.hold(Key{kind, s.mu.last}, r)
	return s.mu.last
}

// hold adds a resource. mu is held.
func (s *Session) hold(k Key, r Resource) {
	s.mu.resources[k] = r
	s.mu.held[k.Kind]++
}

// Resource returns the session's resource under a key, or nil if there is none.
func (s *Session) Resource(k Key) Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.resources[k]
}

// Held returns how many resources of a kind the session has.
func (s *Session) Held(kind Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.held[kind]
}

// Release releases the session's resource under a key, and reports whether there was one.
func (s *Session) Release(k Key) bool {
	s.mu.Lock()
	r := s.drop(k)
	s.mu.Unlock()
	if r == nil {
		return false
	}
	r.Release(false)
	return true
}

// Drop takes a resource from the session without releasing it, since it was never the client's.
func (s *Session) Drop(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(k)
}

// drop removes a resource. mu is held.
func (s *Session) drop(k Key) Resource {
	r := s.mu.resources[k]
	if r != nil {
		delete(s.mu.resources, k)
		s.mu.held[k.Kind]--
	}
	return r
}

// Each calls visit with each resource of a kind, in no order. Visit is called under the session's
// lock. It calls nothing of the session, and does not wait.
func (s *Session) Each(kind Kind, visit func(id uint64, r Resource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.mu.resources {
		if k.Kind == kind {
			visit(k.ID, r)
		}
	}
}

// releaseAll releases the session's remaining resources, at its end.
func (s *Session) releaseAll() {
	s.mu.Lock()
	left := s.mu.resources
	s.mu.resources, s.mu.held = nil, nil
	s.mu.Unlock()
	if s.state != nil {
		s.state.Release(true)
	}
	s.giveMessages()
	var last Kind
	for k := range left {
		last = max(last, k.Kind)
	}
	for kind := Kind(0); len(left) > 0 && kind <= last; kind++ {
		for k, r := range left {
			if k.Kind == kind {
				r.Release(true)
			}
		}
	}
}
