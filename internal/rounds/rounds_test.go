package rounds

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Calls that come during a run share the next one, which begins after they came.
func TestDoShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int64]
		var runs atomic.Int64
		run := func(context.Context) (int64, error) {
			n := runs.Add(1)
			time.Sleep(time.Second)
			return n, nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if n, err := g.Do(t.Context(), run); n != 1 || err != nil {
				t.Errorf("the first call: %d, %v", n, err)
			}
		})
		synctest.Wait()
		for range 50 {
			wg.Go(func() {
				if n, err := g.Do(t.Context(), run); n != 2 || err != nil {
					t.Errorf("a call during the first run: run %d, %v", n, err)
				}
			})
		}
		wg.Wait()
		if n, err := g.Do(t.Context(), run); n != 3 || err != nil {
			t.Errorf("a call after both: run %d, %v", n, err)
		}
	})
}

// A call whose context ends takes nothing from the others: neither one that waits, nor one that
// leads the next run, nor one whose run is under way.
func TestDoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		slow := func(ctx context.Context) (string, error) {
			select {
			case <-time.After(time.Minute):
				return "done", nil
			case <-ctx.Done():
				return "", errors.New("cut off")
			}
		}
		var wg sync.WaitGroup
		call := func(wait time.Duration, want string) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				got, err := g.Do(ctx, slow)
				if got != want || (err == nil) != (want != "") {
					t.Errorf("a call of %v: %q, %v", wait, got, err)
				}
			})
			synctest.Wait()
		}
		call(time.Hour, "done")  // runs
		call(time.Second, "")    // leads the next run, and ends before it begins
		call(2*time.Second, "")  // waits, and ends early
		call(90*time.Second, "") // leads the one after it, and ends half way
		call(time.Hour, "done")  // shares both of these, and leads a third
		call(time.Hour, "done")  // shares the third
		wg.Wait()
	})
}

// An error of a run is that of all calls that share it.
func TestDoFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		failure := errors.New("refused")
		var runs atomic.Int64
		run := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			runs.Add(1)
			return 0, failure
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := g.Do(t.Context(), run); !errors.Is(err, failure) {
					t.Errorf("Do: %v", err)
				}
			})
		}
		wg.Wait()
		if n := runs.Load(); n > 2 {
			t.Errorf("%d runs for ten calls at one time", n)
		}
	})
}
