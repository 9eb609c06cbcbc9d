//go:build lockorder

package lockorder_test

import (
	"strings"
	"testing"

	"forebay/internal/lockorder"
)

func wantPanic(t *testing.T, names []string, what func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		for _, name := range names {
			if !strings.Contains(text, name) {
				t.Errorf("no panic that names %q: %q", name, text)
			}
		}
	}()
	what()
}

// TestViolations: a lock against the order panics before it waits, and names both mutexes.
func TestViolations(t *testing.T) {
	var (
		a, other lockorder.Mutex[first]
		b        lockorder.Mutex[second]
	)
	for _, c := range []struct {
		what  string
		names []string
		do    func()
	}{
		{"against the order", []string{"first (1)", "second (2)"}, func() { b.Lock(); defer b.Unlock(); a.Lock() }},
		{"against the order, by TryLock", []string{"first (1)", "second (2)"}, func() { b.Lock(); defer b.Unlock(); a.TryLock() }},
		{"two of one place", []string{"first (1)"}, func() { a.Lock(); defer a.Unlock(); other.Lock() }},
		{"twice", []string{"first (1)"}, func() { a.Lock(); defer a.Unlock(); a.Lock() }},
		{"not locked", []string{"first (1)", "not locked"}, func() { a.Unlock() }},
	} {
		t.Run(c.what, func(t *testing.T) { wantPanic(t, c.names, c.do) })
	}
	t.Run("locked elsewhere", func(t *testing.T) {
		locked, unlock, unlocked := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(unlocked)
			a.Lock()
			close(locked)
			<-unlock
			a.Unlock()
		}()
		<-locked
		wantPanic(t, []string{"first (1)", "not locked"}, func() { a.Unlock() })
		close(unlock)
		<-unlocked
	})
	// After all of it, locks of one goroutine are no other's, since b is free.
	b.Lock()
	b.Unlock()
}
