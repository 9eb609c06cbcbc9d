package posix

import (
	"context"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/detach"
)

// faultAttrs are the attributes of the puts. The user is not the tests' own.
var faultAttrs = &backing.Attrs{Mode: 0o640, UID: 12, GID: 34, MTime: time.Unix(1_700_000_000, 0)}

func faultOptions(owner backing.Owner) Options {
	return Options{Owner: owner, PartSize: 1 << 20, Parallel: 1}
}

func faultHarness() backingtest.FaultHarness {
	var calls detach.Calls
	return backingtest.FaultHarness{
		Open: func(_ context.Context, dir string, owner backing.Owner) (backing.Store, error) {
			s, err := Open(dir, faultOptions(owner))
			if err != nil {
				return nil, err
			}
			return detach.Wrap(s, &calls), nil
		},
		Attrs: faultAttrs, Large: directMin + 100, Waits: true, Min: 800,
		Settle: func() {
			for calls.Left() > 0 {
				time.Sleep(100 * time.Microsecond)
			}
		},
		More: []backingtest.FaultRead{
			{Name: "identify", Do: func(ctx context.Context, _ backing.Store, dir string) error {
				_, err := detach.Do(ctx, &detach.Calls{}, "open backing", "", func(context.Context) (string, error) {
					return Identify(dir)
				}, func(string) {})
				return err
			}},
			{Name: "open", Do: func(ctx context.Context, _ backing.Store, dir string) error {
				_, err := detach.Do(ctx, &detach.Calls{}, "open backing", "", func(context.Context) (*Store, error) {
					return Open(dir, faultOptions(backing.Owner{Instance: 7, Life: 1}))
				}, func(*Store) {})
				return err
			}},
		},
	}
}

func TestErrnos(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of calls through FUSE, of one goroutine")
	}
	backingtest.Errnos(t, faultHarness())
}

func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of calls through FUSE, of one goroutine")
	}
	backingtest.Faults(t, faultHarness())
}
