package share

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
)

// take takes one by one until the pool refuses.
func take(p *Pool, user uint32) (n int64) {
	for p.Take(user, 1) {
		n++
	}
	return n
}

// TestSomethingIsLeft leaves something for the next user, however much those before take.
func TestSomethingIsLeft(t *testing.T) {
	p := NewPool(1024)
	for user, want := range []int64{512, 256, 128, 64, 32, 16, 8, 4, 2, 1} {
		if got := take(p, uint32(user)); got != want {
			t.Errorf("user %d: %d, want %d", user, got, want)
		}
	}
	p = NewPool(900)
	for range 900 { // all at the same time
		for user := range uint32(2) {
			p.Take(user, 1)
		}
	}
	if a, _ := p.Of(0); a != 300 {
		t.Errorf("one of two has %d of 900", a)
	}
	if n := take(p, 2); n != 150 {
		t.Errorf("a third may have %d", n)
	}
}

func TestWait(t *testing.T) {
	p := NewPool(100)
	if !p.Take(1, 50) || p.Take(1, 1) || !p.Take(2, 25) {
		t.Fatal("the shares are not as they should be")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.Wait(t.Context(), 1, 20); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		if err := p.Wait(ctx, 1, 101); err == nil {
			t.Error("more than there is was given")
		}
	})
	p.Give(1, 50)
	cancel()
	all.Wait()
	if has, more := p.Of(1); has != 20 || more != 35 {
		t.Errorf("has %d, and %d more", has, more)
	}
}

// TestCounts gives and takes at random, and counts again at the end.
func TestCounts(t *testing.T) {
	p := NewPool(1000)
	var all sync.WaitGroup
	for user := range uint32(5) {
		for worker := range uint64(3) {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(user), worker))
				for range 1000 {
					n := rnd.Int64N(30)
					if p.Wait(t.Context(), user, n) != nil {
						return
					}
					if has, _ := p.Of(user); has < n {
						t.Errorf("has %d after %d", has, n)
					}
					p.Give(user, n)
				}
			})
		}
	}
	all.Wait()
	if p.used != 0 || len(p.by) != 0 {
		t.Errorf("%d are used by %v", p.used, p.by)
	}
}
