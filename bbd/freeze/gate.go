// Package freeze keeps the changes of a buffer apart from the decision to destroy it, on all daemons, and
// holds the flushes of other daemons in a buffer while one changes its names. It must never depend
// on the kind of a change, nor on the reason for a buffer's destruction.
package freeze

import (
	"context"
	"sync"
	"time"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// A buffer that may only be destroyed while everything in it is on the store is frozen
// first, on every daemon:
//
//	destroyer                              every other daemon
//	 freeze: changes under way end,
//	 later ones wait
//	 Hold{freeze} ───────────────────────▶ the same
//	 check
//	   refused ───── the request ends ───▶ thaws: waiting changes go on
//	   passed: delete the buffer
//	 thaw ────────── the request ends ───▶ thaws: waiting changes find no buffer
//
// The changes are those that a client may rely on when they are acknowledged: commits,
// closes, exclusive creates, and renames. The freeze of another daemon lasts as long as the
// destroyer's request, so one that dies leaves none behind.

// Gate keeps the changes of a buffer apart from the decision to destroy it. Its methods may be called
// concurrently.
type Gate struct {
	address string // of the buffer

	mu      lockorder.Mutex[lockrank.Leaf]
	freezes int           // in effect
	inside  int           // changes under way
	waiting int           // changes that wait for the end of the freezes
	changed chan struct{} // closed, and made anew, when the last freeze or change ends
	gone    bool          // the buffer was destroyed
}

// New returns the gate of a buffer with an address.
func New(address string) *Gate { return &Gate{address: address, changed: make(chan struct{})} }

// Enter begins a change, which Leave ends. It waits while the buffer is frozen, so nothing
// that another change needs may be held. bb.NotFound if the buffer is destroyed meanwhile.
func (z *Gate) Enter(ctx context.Context, op string) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	for z.freezes > 0 && !z.gone {
		changed := z.changed
		z.waiting++
		z.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		z.mu.Lock()
		z.waiting--
		if err := ctx.Err(); err != nil {
			return bb.Wrap(op, z.address, err)
		}
	}
	if z.gone {
		return bb.E(bb.NotFound, op, z.address, "the buffer was destroyed")
	}
	z.inside++
	return nil
}

// TryEnter is Enter for callers that may not wait.
func (z *Gate) TryEnter() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.freezes > 0 || z.gone {
		return false
	}
	z.inside++
	return true
}

// Leave ends a change.
func (z *Gate) Leave() {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.inside--; z.inside == 0 {
		z.broadcast()
	}
}

func (z *Gate) broadcast() {
	close(z.changed)
	z.changed = make(chan struct{})
}

// Destroyed ends all that waits. The buffer is gone.
func (z *Gate) Destroyed() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.gone = true
	z.broadcast()
}

// patience is how long a freeze waits for the changes under way. A commit may have to
// wait for another node, and later ones wait for this.
const patience = 10 * time.Second

// Freeze makes later changes wait until thaw is called, and waits for those under way. It returns
// bb.Busy if they do not end in time. Then nothing is frozen.
func (z *Gate) Freeze(ctx context.Context) (thaw func(), err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.freezes++
	thaw = sync.OnceFunc(func() {
		z.mu.Lock()
		defer z.mu.Unlock()
		if z.freezes--; z.freezes == 0 {
			z.broadcast()
		}
	})
	over := time.NewTimer(patience)
	defer over.Stop()
	for z.inside > 0 {
		changed := z.changed
		z.mu.Unlock()
		select {
		case <-changed:
		case <-over.C:
			err = bb.E(bb.Busy, "freeze", z.address, "commits or renames under way do not end").WithRemedy("try again")
		case <-ctx.Done():
			err = bb.Wrap("freeze", z.address, ctx.Err())
		}
		if err != nil {
			thaw()
		}
		z.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	return thaw, nil
}

// Waiting returns how many changes wait for the end of a freeze.
func (z *Gate) Waiting() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.waiting
}
