package namelock

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// TestLock: the lock of a name excludes that name alone, and a wait for it ends with its context.
func TestLock(t *testing.T) {
	t.Parallel()
	var l Locks
	unlock, err := l.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Lock(t.Context(), "b")
	if err != nil {
		t.Fatalf("another name is locked: %v", err)
	}
	other()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Lock(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("locked twice: %v", err)
	}
	unlock()
	n := 0
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				unlock, err := l.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				n++
				unlock()
			}
		})
	}
	group.Wait()
	if n != 800 {
		t.Errorf("%d of 800 increments: the lock does not exclude", n)
	}
}
