// Package session numbers the changes that a daemon sends to the owner of a namespace. It must never depend on
// the subject of a change.
package session

import (
	"crypto/rand"
	"sync"

	"forebay/meta/nslog/once"
	"forebay/meta/nslog/record"
)

// New returns the numbers of a new session.
func New() *Numbers {
	n := &Numbers{}
	_, _ = rand.Read(n.session[:])
	return n
}

// Numbers counts the changes of a session that have not been answered. It is safe for concurrent use.
type Numbers struct {
	session record.Session
	mu      sync.Mutex
	last    uint64
	lowest  uint64 // all below were answered
	open    map[uint64]struct{}
}

// Begin returns the ID of a new change.
func (n *Numbers) Begin() once.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open, n.lowest = map[uint64]struct{}{}, 1
	}
	n.last++
	n.open[n.last] = struct{}{}
	return once.ID{Session: n.session, Number: n.last, Answered: n.lowest}
}

// End records that a change is not sent any more.
func (n *Numbers) End(id once.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, id.Number)
	for n.lowest <= n.last {
		if _, open := n.open[n.lowest]; open {
			return
		}
		n.lowest++
	}
}
