package bbd

import (
	"context"

	"forebay/bbd/lockrank"
	"forebay/internal/lockorder"
)

// nameLocks are locks that are held across changes of the namespace, one for each name that
// somebody changes: the buffers of other names are made and deleted meanwhile.
type nameLocks struct {
	mu   lockorder.Mutex[lockrank.Leaf]
	held map[string]chan struct{} // closed when it is released
}

// lock waits for the lock of a name. The error is that of ctx.
func (l *nameLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
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
