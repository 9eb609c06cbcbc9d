package nslog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/table"
)

const lease = time.Second

// leased opens the namespace of a simulated log as one of several processes.
func leased(t *testing.T, log *simulated, lease time.Duration) *nslog.Engine {
	t.Helper()
	time.Sleep(time.Millisecond) // no two claims in one microsecond
	return openOn(t, &process{simulated: log}, nslog.Options{Node: "me", Lease: lease})
}

// An owner answers reads while no other can have acknowledged anything, and the next owner
// acknowledges nothing before that. Refusals count as reads.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := metatest.Context(t)
		log := &simulated{}
		a := leased(t, log, lease)
		namespacetest.Create(t, a, bb.RootDir, "f")
		removed := make(chan struct{})
		go func() {
			defer close(removed)
			b := leased(t, log, lease)
			if _, err := b.Remove(ctx, bb.RootDir, "f", namespace.RemoveOptions{}); err != nil {
				t.Error(err)
			}
		}()
		answered := 0
		for next := false; !next; {
			if _, err := a.Lookup(ctx, bb.RootDir, "f"); err == nil {
				answered++
			} else if !errors.Is(err, owner.ErrReplaced) {
				t.Fatalf("a look-up by an owner that is being replaced: %v", err)
			}
			time.Sleep(lease / 100)
			synctest.Wait()
			select {
			case <-removed:
				next = true
			default:
			}
		}
		// It finds out when it renews the lease early, or has to.
		if answered < 40 || answered > 100 {
			t.Errorf("%d look-ups were answered in %v", answered, lease)
		}
		if _, err := a.Lookup(ctx, bb.RootDir, "f"); !errors.Is(err, owner.ErrReplaced) {
			t.Errorf("a look-up by an owner that was replaced: %v", err)
		}
	})
}

// An owner that was replaced without notice refuses nothing because of its table.
func TestRefusalsAreReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := metatest.Context(t)
		log := &simulated{}
		a := leased(t, log, lease)
		f := namespacetest.Create(t, a, bb.RootDir, "f")
		b := leased(t, log, lease)
		if _, err := b.Remove(ctx, bb.RootDir, "f", namespace.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Create(ctx, f); !errors.Is(err, owner.ErrReplaced) {
			t.Errorf("the creation of a file that another owner has removed: %v", err)
		}
	})
}

// A read that was stopped for longer than the lease answers from the table that is the namespace
// then.
func TestStoppedRead(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := metatest.Context(t)
			log := &simulated{}
			w, err := owner.Open(ctx, &process{simulated: log}, owner.Options{Buffer: "buf", Lease: lease, Applied: func([]byte) {}})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			calls := 0
			err = w.Read(ctx, "read", "it", func(*table.Table) error {
				if calls++; calls == 1 {
					if replaced {
						leased(t, log, lease)
					} else {
						time.Sleep(2 * lease)
					}
				}
				return nil
			})
			if replaced && (!errors.Is(err, owner.ErrReplaced) || calls != 1) {
				t.Errorf("a read during which the owner was replaced, after %d calls: %v", calls, err)
			}
			if !replaced && (err != nil || calls != 2) {
				t.Errorf("a read that was stopped for long, after %d calls: %v", calls, err)
			}
		})
	}
}

// An owner without calls appends nothing. One with constant calls renews its lease about twice in
// its time, and no call waits.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &simulated{}
		a := leased(t, log, lease)
		before := log.last
		time.Sleep(10 * lease)
		if log.last != before {
			t.Errorf("an owner that nobody asks has appended %d messages", log.last-before)
		}
		for range 1000 {
			if _, err := a.Root(metatest.Context(t)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lease / 100)
		}
		if n := log.last - before; n < 15 || n > 25 {
			t.Errorf("%d messages were appended in 10 leases", n)
		}
	})
}

// An owner that releases the log is followed at once, and answers nothing.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := metatest.Context(t)
		log := &simulated{}
		a := leased(t, log, lease)
		f := namespacetest.Create(t, a, bb.RootDir, "f")
		if err := a.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Lookup(ctx, bb.RootDir, "f"); !errors.Is(err, owner.ErrReplaced) {
			t.Errorf("a look-up by an owner that has given the log up: %v", err)
		}
		if _, err := a.Create(ctx, f); !errors.Is(err, owner.ErrReplaced) || errors.Is(err, bb.ErrUnknownOutcome) {
			t.Errorf("a change by it: %v", err)
		}
		began := time.Now()
		b := leased(t, log, lease)
		if waited := time.Since(began); waited >= lease {
			t.Errorf("the next owner waited for %v", waited)
		}
		if _, err := b.Lookup(ctx, bb.RootDir, "f"); err != nil {
			t.Error(err)
		}
		if err := a.Release(ctx); err != nil {
			t.Errorf("a second release: %v", err)
		}
	})
}

// Each later owner outlasts a lease, also after a claim of a daemon that died before it had waited
// long enough.
func TestLeaseOfTheOneBeforeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &simulated{}
		leased(t, log, 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Millisecond)
		if e, err := nslog.Open(ctx, &process{simulated: log}, newIDs(), nslog.Options{Buffer: "buf", Lease: time.Second}); err == nil {
			e.Close()
			t.Fatal("an owner did not wait")
		}
		claimed := time.Now()
		leased(t, log, time.Second)
		if waited := time.Since(claimed); waited < 10*time.Second {
			t.Errorf("an owner waited for %v only", waited)
		}
	})
}

// A new owner that has found no append for a while waits that much less. It waits from then on only
// if nothing was appended since.
func TestEndSeenBefore(t *testing.T) {
	for _, appended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := metatest.Context(t)
			log := &simulated{}
			a := leased(t, log, lease)
			namespacetest.Create(t, a, bb.RootDir, "f")
			seen, err := owner.Newest(ctx, &process{simulated: log})
			if err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			time.Sleep(3 * lease / 4)
			if appended {
				namespacetest.Create(t, a, bb.RootDir, "g")
			}
			began := time.Now()
			openOn(t, &process{simulated: log}, nslog.Options{Node: "b", Lease: lease, Ended: func(h owner.Holder) time.Time {
				if h.Seq == seen.Seq && h.Owner == seen.Owner {
					return since
				}
				return time.Time{}
			}})
			if waited := time.Since(began); appended != (waited >= lease) || time.Since(since) < lease {
				t.Errorf("appended since: %v; the next owner waited for %v", appended, waited)
			}
		})
	}
}
