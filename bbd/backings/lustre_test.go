package backings

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The targets that lfs names stay named while it is asked again, also if that takes longer than until the next lookup.
// One lfs runs at a time, the imports are read meanwhile, and nothing is kept of a silence that has ended.
func TestSlowLFS(t *testing.T) {
	var log bytes.Buffer
	var imports atomic.Pointer[[]string]
	imports.Store(new([]string))
	begun, answers := make(chan struct{}, 10), make(chan string)
	var lookups sync.WaitGroup
	pool := New(t.Context(), Options{
		Go: lookups.Go, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Lustre: Lustre{
			Is:      func(string) bool { return true },
			Imports: func() []string { return *imports.Load() },
			Check: func(context.Context) ([]byte, error) {
				begun <- struct{}{}
				return []byte(<-answers), nil
			},
		},
	})
	const first = "fs-OST0001-osc-ff inactive.\n"
	now := time.Now()
	for range 3 { // the first lfs runs for two more lookups
		pool.stepTargets(true, now)
		now = now.Add(targetsEvery)
	}
	<-begun
	answers <- first
	lookups.Wait()
	is := func(when string, want ...string) {
		t.Helper()
		if got := pool.SilentTargets("x"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	is("lfs has answered", "fs-OST0001")

	pool.stepTargets(true, now)
	<-begun
	is("lfs runs again", "fs-OST0001")
	imports.Store(&[]string{"fs-OST0002 (DISCONN)"})
	pool.stepTargets(true, now.Add(targetsEvery))
	for len(pool.SilentTargets("x")) < 2 {
		time.Sleep(time.Millisecond)
	}
	is("an import has no connection", "fs-OST0001", "fs-OST0002 (DISCONN)")
	pool.stepTargets(false, now)
	is("the stores answer")
	answers <- first
	lookups.Wait()
	is("lfs answers late")
	if len(begun) > 0 {
		t.Errorf("lfs was started %d times more", len(begun))
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines are logged, want 2:\n%s", n, log.String())
	}
}
