// Package namelock has locks by name that are held across I/O. It must never depend on the named
// things.
package namelock

import (
	"context"

	"forebay/bbd/lockrank"
	"forebay/internal/lockorder"
)

// Locks are locks that are held across changes of the namespace, one for each name that is being
// changed. Those of other names are changed meanwhile. The zero value is ready. Lock may be called
// concurrently.
type Locks struct {
	mu   lockorder.Mutex[lockrank.Leaf]
	held map[string]chan struct{} // closed when it is released
}

// Lock waits for the lock of a name. The error is that of ctx.
func (l *Locks) Lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		other := l.held[name]
		if other == nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer l.mu.Unlock()
	own := make(chan struct{})
	if l.held == nil {
		l.held = make(map[string]chan struct{})
	}
	l.held[name] = own
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
		close(own)
	}, nil
}
