package provider

import (
	"context"
	"errors"
	"sync"
)

// ErrDone is the error of Take when its channel was closed.
var ErrDone = errors.New("done")

// Credits bounds the operations in flight, a counter whose callers wait while it is zero. It may be
// used concurrently.
type Credits struct {
	mu struct {
		sync.Mutex
		free int
	}
	wake chan struct{} // holds a token when credits may be free
}

// NewCredits returns n credits.
func NewCredits(n int) *Credits {
	c := &Credits{wake: make(chan struct{}, 1)}
	c.mu.free = n
	return c
}

// Take waits until there is at least one credit and takes up to limit, which is at least 1. It
// returns the context's error when the context ends, and ErrDone once done is closed.
func (c *Credits) Take(ctx context.Context, done <-chan struct{}, limit int) (int, error) {
	for {
		if n := c.tryTake(limit); n > 0 {
			return n, nil
		}
		select {
		case <-c.wake:
		case <-done:
			return 0, ErrDone
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (c *Credits) tryTake(limit int) int {
	c.mu.Lock()
	n := min(c.mu.free, limit)
	c.mu.free -= n
	left := c.mu.free
	c.mu.Unlock()
	if left > 0 {
		Wake(c.wake) // the token that this taker consumed may have been meant for several
	}
	return n
}

// Give returns n credits.
func (c *Credits) Give(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	c.mu.free += n
	c.mu.Unlock()
	Wake(c.wake)
}

// Wake leaves a token in a channel of capacity one, if none is there.
func Wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
