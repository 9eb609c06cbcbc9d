package asuser

import (
	"context"
	"syscall"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix"
)

// endWorkers ends the workers, and waits for their processes. No call of theirs is in a file system then.
func endWorkers(w *Workers) {
	w.mu.Lock()
	for _, p := range w.pools {
		p.mu.Lock()
		if one := p.current; one != nil {
			p.drainLocked(one)
			one.conn.Close()
		}
		p.mu.Unlock()
	}
	w.mu.Unlock()
	for len(w.Status()) > 0 {
		time.Sleep(100 * time.Microsecond)
	}
}

func faultHarness(t *testing.T) backingtest.FaultHarness {
	w := workers(t, Options{})
	return backingtest.FaultHarness{
		Dir: func(t *testing.T) string { return home(t, 0) },
		Open: func(ctx context.Context, dir string, owner backing.Owner) (backing.Store, error) {
			return Open(ctx, w, User{alice, alice}, dir, posix.Options{Owner: owner})
		},
		UID: alice, Attrs: &backing.Attrs{Mode: 0o640, UID: alice, GID: alice, MTime: time.Unix(1_700_000_000, 0)},
		Large: large, Brief: true, Min: 500,
		Settle: func() { endWorkers(w) },
		Kill: func(t *testing.T, s backing.Store) {
			if err := syscall.Kill(s.(*Store).pid(t), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
	}
}

func TestErrnos(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of calls through FUSE, of a process each")
	}
	backingtest.Errnos(t, faultHarness(t))
}

// TestFaults is that of package posix with a process between. It is killed in each call once, too.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of calls through FUSE, of a process each")
	}
	backingtest.Faults(t, faultHarness(t))
}
