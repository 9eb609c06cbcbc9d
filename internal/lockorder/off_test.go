//go:build !lockorder

package lockorder_test

import (
	"reflect"
	"sync"
	"testing"

	"forebay/internal/lockorder"
)

// TestFree: without the tag nothing is stored beside the mutex, and its methods are its own.
func TestFree(t *testing.T) {
	if got, want := reflect.TypeFor[lockorder.Mutex[first]]().Size(), reflect.TypeFor[sync.Mutex]().Size(); got != want {
		t.Errorf("a Mutex of %d bytes, a sync.Mutex of %d", got, want)
	}
	var (
		m      lockorder.Mutex[first]
		locker sync.Locker = &m.Mutex
	)
	locker.Lock()
	if m.TryLock() {
		t.Error("the Mutex is not the sync.Mutex in it")
	}
}
