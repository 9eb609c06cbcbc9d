package nslog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metatest"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/stream"
)

// failing is a log with next appends that fail, before they are stored or after that.
type failing struct {
	owner.Log
	mu     sync.Mutex
	skip   int // appends that do not fail before
	left   int
	stored bool
	err    error
}

func (f *failing) fail(appends int, stored bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skip, f.left, f.stored, f.err = 0, appends, stored, err
}

func (f *failing) failAfter(skip, appends int, err error) {
	f.fail(appends, false, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skip = skip
}

// next returns the error of the next append, and whether that is stored.
func (f *failing) next() (stored bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || f.skip > 0 {
		f.skip--
		return true, nil
	}
	err = f.err
	if f.left--; f.left == 0 {
		f.err = nil
	}
	return f.stored, err
}

func (f *failing) Append(ctx context.Context, subject string, data []byte, fence stream.Fence) (uint64, error) {
	stored, err := f.next()
	if !stored {
		return 0, err
	}
	seq, aerr := f.Log.Append(ctx, subject, data, fence)
	if err != nil {
		return 0, err
	}
	return seq, aerr
}

func openFailing(t *testing.T) (*nslog.Engine, *failing) {
	t.Helper()
	log := &failing{Log: &process{simulated: &simulated{}, rnd: rand.New(rand.NewPCG(1, 2))}}
	e := openOn(t, log, nslog.Options{Node: "me", Reopen: true})
	time.Sleep(time.Millisecond) // no two claims in one microsecond
	namespacetest.Create(t, e, bb.RootDir, "before")
	return e, log
}

func wantName(t *testing.T, e *nslog.Engine, name string, want bool) {
	t.Helper()
	_, err := e.Lookup(metatest.Context(t), bb.RootDir, name)
	if err != nil && !errors.Is(err, bb.NotFound) || (err == nil) != want {
		t.Errorf("%s: %v, want it there: %v", name, err, want)
	}
}

// An owner that an append without an answer has ended is followed by another one, at the next call.
// The change is of unknown outcome, and its fate is read from the log.
func TestReopenAfterUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e, log := openFailing(t)
			log.fail(1, stored, kv.ErrMaybeDone)
			_, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "doubt"))
			if bb.KindOf(err) != bb.Unavailable || !errors.Is(err, bb.ErrUnknownOutcome) {
				t.Errorf("a change without an answer: %v", err)
			}
			<-e.Ended()
			wantName(t, e, "doubt", stored)
			wantName(t, e, "before", true)
			namespacetest.Create(t, e, bb.RootDir, "after")
			ops, err := e.StoreOps(metatest.Context(t))
			if err != nil || len(ops) != 0 {
				t.Errorf("%+v, %v", ops, err)
			}
			e.Close()
		})
	}
}

// A change that its owner has not carried out, since another owner has claimed the log, is carried
// out by the next owner, once.
func TestReopenAfterFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, log := openFailing(t)
		other := openOn(t, log, nslog.Options{Node: "other"})
		namespacetest.Create(t, other, bb.RootDir, "other")
		time.Sleep(time.Millisecond)
		namespacetest.Create(t, e, bb.RootDir, "after")
		for _, name := range []string{"before", "other", "after"} {
			wantName(t, e, name, true)
		}
		_, err := other.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "late"))
		if !errors.Is(err, owner.ErrReplaced) {
			t.Errorf("a change by the other owner, which does not come back: %v", err)
		}
		other.Close()
		e.Close()
	})
}

// Tries to open a log again that fail come at longer and longer intervals, and their calls fail.
func TestReopenBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, log := openFailing(t)
		const fails = 6
		log.fail(1+fails, false, kv.ErrMaybeDone)
		began := time.Now()
		for i := range 1 + fails {
			_, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, fmt.Sprint("f", i)))
			if bb.KindOf(err) != bb.Unavailable {
				t.Errorf("try %d: %v", i, err)
			}
		}
		if took := time.Since(began); took < 3*time.Second || took > 10*time.Second {
			t.Errorf("%d tries in %v", fails, took)
		}
		namespacetest.Create(t, e, bb.RootDir, "after")
		wantName(t, e, "f0", false)
		wantName(t, e, "before", true)
		e.Close()
	})
}

// A namespace that was closed or destroyed is not opened again.
func TestNotReopened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _ := openFailing(t)
		e.Close()
		if _, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "f")); bb.KindOf(err) != bb.Unavailable {
			t.Errorf("after Close: %v", err)
		}
		e, _ = openFailing(t)
		e.MarkDestroyed()
		if _, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "f")); bb.KindOf(err) != bb.NotFound {
			t.Errorf("after MarkDestroyed: %v", err)
		}
		e.Close()
	})
}

// Records that a server has lost are stored again from the owner's memory, although some tries
// fail.
func TestRestoreIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{}
		log := &failing{Log: &process{simulated: s, rnd: rand.New(rand.NewPCG(1, 2))}}
		e := openOn(t, log, nslog.Options{Node: "me", Reopen: true})
		for i := range 20 {
			namespacetest.Create(t, e, bb.RootDir, fmt.Sprint("f", i))
		}
		s.setBack(s.last - 10)
		log.failAfter(1, 4, bb.E(bb.NoSpace, "append", "log", "the disk is full"))
		namespacetest.Create(t, e, bb.RootDir, "after")
		if err := e.Err(); err != nil {
			t.Errorf("the owner has ended: %v", err)
		}
		for i := range 20 {
			wantName(t, e, fmt.Sprint("f", i), true)
		}
		e.Close()
	})
}

// slow is a log of which reads wait for a gate.
type slow struct {
	owner.Log
	gate chan struct{}
}

func (s *slow) Read(ctx context.Context, subject string, from, to uint64, fn func(stream.Message) error) error {
	select {
	case <-s.gate:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.Log.Read(ctx, subject, from, to, fn)
}

// A log that takes longer to read than any caller waits is opened again all the same. A caller that
// stops waiting ends no other's wait.
func TestReopenOutlivesItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		close(gate)
		log := &slow{Log: &process{simulated: &simulated{}, rnd: rand.New(rand.NewPCG(1, 2))}, gate: gate}
		failing := &failing{Log: log}
		e := openOn(t, failing, nslog.Options{Node: "me", Reopen: true})
		time.Sleep(time.Millisecond) // no two claims in one microsecond
		log.gate = make(chan struct{})
		failing.fail(1, false, kv.ErrMaybeDone)
		_, _ = e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "doubt"))
		<-e.Ended()
		patient := make(chan error, 1)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := e.Lookup(short, bb.RootDir, "f")
		if bb.KindOf(err) != bb.Unavailable {
			t.Errorf("a caller that gives up: %v", err)
		}
		go func() {
			_, err := e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "f"))
			patient <- err
		}()
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = e.Lookup(short, bb.RootDir, "f"); bb.KindOf(err) != bb.Unavailable {
			t.Errorf("another one: %v", err)
		}
		close(log.gate)
		if err := <-patient; err != nil {
			t.Errorf("a caller that waits: %v", err)
		}
		e.Close()
	})
}

// A log that is opened again and is damaged by then is no case for another try.
func TestReopenDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{}
		log := &failing{Log: &process{simulated: s, rnd: rand.New(rand.NewPCG(1, 2))}}
		e := openOn(t, log, nslog.Options{Node: "me", Reopen: true})
		time.Sleep(time.Millisecond)
		namespacetest.Create(t, e, bb.RootDir, "f")
		s.mu.Lock()
		s.messages[1].Data[12] ^= 1
		s.mu.Unlock()
		log.fail(1, false, kv.ErrMaybeDone)
		_, _ = e.Create(metatest.Context(t), namespacetest.File(bb.RootDir, "doubt"))
		<-e.Ended()
		if _, err := e.Lookup(metatest.Context(t), bb.RootDir, "f"); bb.KindOf(err) != bb.Checksum {
			t.Errorf("a look-up: %v", err)
		}
		e.Close()
	})
}
