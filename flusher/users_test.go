package flusher

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// slow is a store with Puts that take a while, and make progress.
type slow struct {
	backing.Store
	takes time.Duration
	busy  atomic.Int32
}

func (s *slow) Put(ctx context.Context, name string, src backing.Source, o backing.PutOptions) (backing.Object, error) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	time.Sleep(s.takes)
	return s.Store.Put(ctx, name, src, o)
}

// userOf assigns buffers with names that begin with "many" to one user, others to another.
func userOf(buffer string) Policy {
	if strings.HasPrefix(buffer, "many") {
		return Policy{User: 1}
	}
	return Policy{User: 2}
}

// TestUsersShareWorkers: a user with 50 buffers of which each has more than enough to flush, all of it
// overdue, has half of the workers as soon as another user has something to flush, and the other half is the other's.
func TestUsersShareWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, one := &slow{Store: memStore(), takes: time.Second}, &slow{Store: memStore(), takes: time.Second}
		f := New(Options{
			Catalog: plainCatalog{}, Idle: -1, DirtyAge: time.Nanosecond,
			Stores: func(_ context.Context, b string) (backing.Store, error) {
				if b == "one" {
					return one, nil
				}
				return many, nil
			},
			Policy: func(b string) Policy {
				p := userOf(b)
				if p.User == 2 {
					p.DirtyAge = time.Hour
				}
				return p
			},
		})
		for i := range 50 {
			enqueue(f, fmt.Sprint("many", i), 40)
		}
		synctest.Wait()
		if n := many.busy.Load(); n != 7 {
			t.Errorf("alone, the user holds %d workers of 8, want all but one", n)
		}
		enqueue(f, "one", 40)
		synctest.Wait()
		if n := one.busy.Load(); n != 1 {
			t.Errorf("the other user has %d workers at once, want the one that is left for that", n)
		}
		for range 9 {
			time.Sleep(time.Second)
			synctest.Wait()
			if m, n := many.busy.Load(), one.busy.Load(); m != 4 || n != 4 {
				t.Fatalf("%d workers and %d for the other user, want 4 and 4", m, n)
			}
		}
		if _, err := f.Drain(t.Context(), "one", nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := many.busy.Load(); n < 7 {
			t.Errorf("alone again, the user holds %d workers", n)
		}
		for i := range 50 {
			f.ForgetBuffer(fmt.Sprint("many", i))
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHungStoresOfOneUser: stores of one user that do not answer never hold all workers. The file of
// another user is flushed without any wait.
func TestHungStoresOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := map[string]backing.Store{"one": memStore()}
		var away []*hung
		for i := range 5 {
			h := newHung(memStore())
			away = append(away, h)
			stores[fmt.Sprint("many", i)] = h
		}
		f := New(Options{
			Catalog: plainCatalog{}, Idle: -1, Policy: func(b string) Policy { p := userOf(b); p.Store = b; return p },
			Stores: func(_ context.Context, b string) (backing.Store, error) { return stores[b], nil },
		})
		for b := range stores {
			if b != "one" {
				enqueue(f, b, 20)
			}
		}
		synctest.Wait()
		began := time.Now()
		for id := range 30 {
			key := Key{Buffer: "one", File: bb.FileID(id + 1), Generation: 1}
			f.Enqueue(Item{Key: key, Size: 1})
			if _, err := f.Drain(t.Context(), "one", nil); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("a user whose store works waited for %v", took)
		}
		for _, h := range away {
			h.release()
		}
		for b := range stores {
			if _, err := f.Drain(t.Context(), b, nil); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}
