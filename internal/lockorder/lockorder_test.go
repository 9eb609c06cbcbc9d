package lockorder_test

import (
	"sync"
	"testing"

	"forebay/internal/lockorder"
)

type first struct{}

func (first) Rank() (int, string) { return 1, "first" }

type second struct{}

func (second) Rank() (int, string) { return 2, "second" }

// TestInOrder: mutexes of rising places are taken together, released in any order, and exclude.
func TestInOrder(t *testing.T) {
	var (
		a     lockorder.Mutex[first]
		b     lockorder.Mutex[second]
		n     int
		group sync.WaitGroup
	)
	for i := range 8 {
		group.Go(func() {
			for range 100 {
				a.Lock()
				b.Lock()
				n++
				if i%2 == 0 {
					a.Unlock()
					b.Unlock()
				} else {
					b.Unlock()
					a.Unlock()
				}
			}
		})
	}
	group.Wait()
	if n != 800 {
		t.Errorf("%d of 800 increments: the mutexes do not exclude", n)
	}
}

type several struct{}

func (several) Rank() (int, string) { return 1, "several" }
func (several) Several()            {}

// TestSeveral: of some places several are held together.
func TestSeveral(t *testing.T) {
	var a, b lockorder.Mutex[several]
	a.Lock()
	if !b.TryLock() {
		t.Error("the second one is not free")
	}
	b.Unlock()
	a.Unlock()
}
