package retry_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/limit"
	"forebay/flusher/backing/mem"
	"forebay/flusher/backing/retry"
	"forebay/internal/bb"
)

var owner = backing.Owner{Instance: 1, Life: 1}

// stack is mem behind all wrappers, with access to it.
type stack struct {
	backing.Store
	mem *mem.Store
}

func newStack(inner *mem.Store, plan *fault.Plan, opts retry.Options) stack {
	return stack{retry.Wrap(limit.Wrap(fault.Wrap(inner, plan), limit.New(1<<40), limit.New(0)), opts), inner}
}

const large = 3<<20 + 17

// TestSuiteThroughWrappers fails every call once, in different ways.
func TestSuiteThroughWrappers(t *testing.T) {
	for _, kind := range []fault.Kind{"", fault.Refused, fault.Reset, fault.Slow, fault.Full, fault.Busy} {
		t.Run(string(kind), func(t *testing.T) {
			backingtest.Suite(t, backingtest.Harness{
				Open: func(t *testing.T) backing.Store {
					var rules []fault.Rule
					for _, op := range []string{"put", "get", "stat", "list", "rename", "remove", "sweep"} {
						// A reported listing cannot be repeated, and a closed store is not retried.
						if kind != "" && (op != "list" || kind != fault.Reset) {
							rules = append(rules, fault.Rule{Op: op, Kind: kind, Count: 1, Delay: time.Millisecond})
						}
					}
					return newStack(mem.New(owner, nil), fault.NewPlan(rules...), retry.Options{Min: time.Millisecond})
				},
				Large: large,
				Damage: func(t *testing.T, s backing.Store, name string) {
					if err := s.(stack).mem.Damage(name); err != nil {
						t.Fatal(err)
					}
				},
				Crash: func(t *testing.T, name string) backing.Store {
					died := bb.E(bb.Invalid, "put", name, "died")
					dead := mem.New(owner, func(context.Context, string, mem.Step) error { return died })
					s := newStack(dead, fault.NewPlan(), retry.Options{Attempts: 1})
					if _, err := s.Put(t.Context(), name, backing.NewBytes([]byte("x")), backing.PutOptions{}); !errors.Is(err, died) {
						t.Fatal(err)
					}
					return newStack(dead.Reopen(backing.Owner{Instance: 1, Life: 2}), fault.NewPlan(), retry.Options{})
				},
			})
		})
	}
}

// TestDamageOnTheWay: the store finds damage on the way, and another attempt repairs it.
func TestDamageOnTheWay(t *testing.T) {
	for _, kind := range []fault.Kind{fault.WrongChecksum, fault.Truncated} {
		var seen []retry.Failure
		plan := fault.NewPlan(fault.Rule{Op: "put", Kind: kind, Count: 2})
		s := newStack(mem.New(owner, nil), plan, retry.Options{Min: time.Millisecond, Failed: func(f retry.Failure) { seen = append(seen, f) }})
		content := backingtest.Data(large, 1)
		if _, err := s.Put(t.Context(), "f", backing.NewBytes(content), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 2 || seen[1].Attempt != 2 || seen[0].Err == nil || seen[0].Op != "put" || seen[0].Name != "f" {
			t.Fatalf("%s: observer saw %+v", kind, seen)
		}
		if string(s.mem.Contents()["f"]) != string(content) || s.mem.Puts("f") != 1 {
			t.Fatalf("%s: wrong bytes, or stored %d times", kind, s.mem.Puts("f"))
		}
	}
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	inner := mem.New(owner, nil)
	s := retry.Wrap(inner, retry.Options{Failed: func(f retry.Failure) { t.Errorf("retried: %+v", f) }})
	if _, err := s.Stat(t.Context(), "none"); !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
}

// dirs is a store that holds a directory and a pipe. Its listings break off as often as a test has
// them, after so many reported items.
type dirs struct {
	*mem.Store
	breaks, after int
}

func (d *dirs) Others(_ context.Context, dir string, fn func(backing.Other) error) error {
	for i, o := range []backing.Other{{Name: dir, Mode: fs.ModeDir | 0o750}, {Name: dir + "/pipe", Mode: fs.ModeNamedPipe}} {
		if d.breaks > 0 && i == d.after {
			d.breaks--
			return bb.E(bb.Unavailable, "list", dir, "it broke off")
		}
		if err := fn(o); err != nil {
			return err
		}
	}
	return nil
}

// TestOthersThroughWrappers lists entries that are no objects. None is reported twice.
func TestOthersThroughWrappers(t *testing.T) {
	own := errors.New("the caller's own")
	for _, c := range []struct {
		name          string
		breaks, after int
		rules         []fault.Rule
		stop          error // of fn
		calls         int   // of fn
		want          error
	}{
		{name: "works", calls: 2},
		{name: "refused twice", rules: []fault.Rule{{Op: "list", Name: "d", Kind: fault.Refused, Count: 2}}, calls: 2},
		{name: "of another directory", rules: []fault.Rule{{Op: "list", Name: "e", Kind: fault.Full}}, calls: 2},
		{name: "breaks off before the first", breaks: 2, calls: 2},
		{name: "breaks off after the first", breaks: 1, after: 1, calls: 1, want: bb.Unavailable},
		{name: "the caller stops", stop: own, calls: 1, want: own},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := fault.NewPlan(c.rules...)
			inner := &dirs{mem.New(owner, nil), c.breaks, c.after}
			s := retry.Wrap(limit.Wrap(fault.Wrap(inner, plan), limit.New(0)), retry.Options{Min: time.Millisecond, Attempts: 5})
			var got []string
			err := s.Others(t.Context(), "d", func(o backing.Other) error {
				got = append(got, o.Name)
				return c.stop
			})
			if !errors.Is(err, c.want) || len(got) != c.calls || !slices.Equal(got, []string{"d", "d/pipe"}[:c.calls]) {
				t.Errorf("told %q (%v), want %d and %v", got, err, c.calls, c.want)
			}
			if want := len(c.rules) > 0 && c.rules[0].Name == "d"; want != (plan.Hits() > 0) {
				t.Errorf("%d calls were made to fail", plan.Hits())
			}
		})
	}
}

// TestForEver keeps trying for hours, and stops at cancellation, with the reason.
func TestForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		s := newStack(mem.New(owner, nil), fault.NewPlan(fault.Rule{Kind: fault.Refused}),
			retry.Options{Failed: func(f retry.Failure) { attempts = f.Attempt }})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		_, err := s.Put(ctx, "f", backing.NewBytes([]byte("x")), backing.PutOptions{})
		if !errors.Is(err, syscall.ECONNREFUSED) || attempts < 300 || attempts > 1000 {
			t.Fatalf("after %d attempts: %v", attempts, err)
		}
	})
}

func TestRecoversAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := fault.NewPlan(fault.Rule{Kind: fault.Full})
		s := newStack(mem.New(owner, nil), plan, retry.Options{})
		time.AfterFunc(time.Hour, func() { plan.Set() })
		begin := time.Now()
		if _, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited < time.Hour || waited > time.Hour+time.Minute {
			t.Fatalf("stored after %v", waited)
		}
	})
}

func TestDelay(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 6: 32, 7: 50, 40: 50, 1000: 50} {
		if got := retry.Delay(1, 50, n, 0); got != want {
			t.Errorf("failure %d: %d, want %d", n, got, want)
		}
		if got := retry.Delay(1, 50, n, 0.999); got > want || got < want/2 {
			t.Errorf("failure %d with jitter: %d", n, got)
		}
	}
}

// TestLimit lets bytes through at the rate, with any number of sharers.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := limit.New(1 << 20)
		s := limit.Wrap(mem.New(owner, nil), shared)
		other := limit.Wrap(mem.New(owner, nil), shared)
		begin := time.Now()
		content := backingtest.Data(5<<20, 1)
		for _, s := range []backing.Store{s, other} {
			if _, err := s.Put(t.Context(), "f", backing.NewBytes(content), backing.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin).Round(time.Millisecond); took != 9*time.Second { // the first MiB is the burst
			t.Fatalf("10 MiB at 1 MiB/s took %v", took)
		}
		r, err := s.Get(t.Context(), "f", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Put(ctx, "g", backing.NewBytes(content), backing.PutOptions{}); !errors.Is(err, bb.Cancelled) {
			t.Fatal(err)
		}
		r.Close()
	})
}
