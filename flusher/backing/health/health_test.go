package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/mem"
	"forebay/internal/bb"
)

func TestJudge(t *testing.T) {
	own := errors.New("the caller's own")
	away := bb.E(bb.Unavailable, "put", "f", "connection refused")
	for _, c := range []struct {
		name     string
		err, own error
		quiet    time.Duration
		want     verdict
	}{
		{"success", nil, nil, 0, answered},
		{"success after a callback failed", nil, own, 0, answered},
		{"away", away, nil, 0, broken},
		{"full", bb.E(bb.NoSpace, "put", "f", "no space left"), nil, 0, broken},
		{"refused", bb.E(bb.Permission, "put", "f", "read-only"), nil, 0, broken},
		{"no such object", bb.E(bb.NotFound, "get", "f", "none"), nil, 0, answered},
		{"another's object", &bb.Error{Kind: bb.Exists, Op: "put", Err: backing.ErrForeign}, nil, 0, ignored},
		{"a callback's", fmt.Errorf("list: %w", own), own, 0, ignored},
		{"the source's", &bb.Error{Kind: bb.Checksum, Err: &backing.SourceError{Err: own}}, nil, 0, ignored},
		{"given up at once", context.Canceled, nil, time.Second, ignored},
		{"given up after long", bb.Wrap("stat", "f", context.DeadlineExceeded), nil, Patience, broken},
		{"a wrong name", bb.E(bb.Invalid, "put", "..", "not clean"), nil, 0, ignored},
	} {
		if got := judge(c.err, c.own, c.quiet); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// faulty is a store with answers set by a test.
type faulty struct {
	*mem.Store
	put  error
	back chan struct{} // a Put waits for it
	read bool          // a Put reads its source first, then again
}

func (f *faulty) Put(ctx context.Context, name string, src backing.Source, o backing.PutOptions) (backing.Object, error) {
	if f.read {
		src.Slices(nil, 0, src.Size())
		time.Sleep(Patience - time.Second)
		src.Slices(nil, 0, src.Size()) // as a repeated attempt does
	}
	if f.back != nil {
		select {
		case <-f.back:
		case <-ctx.Done():
			return backing.Object{}, ctx.Err()
		}
	}
	if f.put != nil {
		return backing.Object{}, f.put
	}
	return f.Store.Put(ctx, name, src, o)
}

// Others returns one directory, and fails as a Put does.
func (f *faulty) Others(_ context.Context, dir string, fn func(backing.Other) error) error {
	if f.put != nil {
		return f.put
	}
	return fn(backing.Other{Name: dir, Mode: fs.ModeDir})
}

func put(ctx context.Context, s backing.Store) error {
	_, err := s.Put(ctx, "f", backing.NewBytes([]byte("content")), backing.PutOptions{})
	return err
}

// A full store fails until a Put succeeds, even if other calls succeed, since the first failure.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(nil)
		inner := &faulty{Store: mem.New(backing.NewOwner(1), nil), put: bb.E(bb.NoSpace, "put", "f", "no space left on device")}
		s := Wrap(inner, h)
		if got := h.Status(); got.Condition != Unused {
			t.Errorf("before any call: %+v", got)
		}
		since := time.Now()
		for range 3 {
			if put(t.Context(), s) == nil {
				t.Fatal("the fault is not used")
			}
			time.Sleep(time.Second)
			if _, err := s.Stat(t.Context(), "f"); bb.KindOf(err) != bb.NotFound {
				t.Fatal(err)
			}
			if err := s.Remove(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
		}
		got := h.Status()
		if got.Condition != Failing || !got.Since.Equal(since) || got.Attempts != 3 || got.Op != "put" || !strings.Contains(got.Reason, "no space left") {
			t.Errorf("a full store: %+v", got)
		}
		inner.put = nil
		if err := put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := h.Status(); got.Condition != Answers || !got.Since.IsZero() || got.Reason != "" {
			t.Errorf("after a success: %+v", got)
		}
	})
}

// A store that does not answer is silent since the last progress of its call, also where the caller
// stops and tries again, and where an attempt is repeated below.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(nil)
		inner := &faulty{Store: mem.New(backing.NewOwner(1), nil), back: make(chan struct{}), read: true}
		s := Wrap(inner, h)
		since := time.Now()
		first, cancel := context.WithTimeout(t.Context(), 3*Patience)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- put(first, s) }()
		time.Sleep(Patience - time.Millisecond)
		if got := h.Status(); got.Condition != Unused {
			t.Errorf("early: %+v", got)
		}
		time.Sleep(time.Millisecond)
		got := h.Status()
		if got.Condition != Silent || !got.Since.Equal(since) || got.Waiting != 1 || got.Reason != "no answer to put f" {
			t.Errorf("a call that waits: %+v", got)
		}
		if <-ended == nil {
			t.Fatal("the first put succeeded")
		}
		if got := h.Status(); got.Condition != Failing || !got.Since.Equal(since) {
			t.Errorf("given up: %+v", got)
		}
		inner.read = false
		go func() { ended <- put(t.Context(), s) }()
		time.Sleep(Patience)
		if got := h.Status(); got.Condition != Silent || !got.Since.Equal(since) || got.Attempts != 1 {
			t.Errorf("tried again: %+v", got)
		}
		close(inner.back)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := h.Status(); got.Condition != Answers {
			t.Errorf("it is back: %+v", got)
		}
	})
}

// A store is not silent while it waits for its caller: a rate limit, or a slow consumer.
func TestCallerIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(nil)
		s := Wrap(mem.New(backing.NewOwner(1), nil), h)
		if err := put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		err := s.List(t.Context(), "", func(backing.Object) error {
			time.Sleep(2 * Patience)
			if got := h.Status(); got.Condition != Answers {
				t.Errorf("during a callback: %+v", got)
			}
			return errors.New("enough")
		})
		if err == nil {
			t.Fatal("the listing did not end with its callback's error")
		}
		if got := h.Status(); got.Condition != Answers {
			t.Errorf("after a callback's error: %+v", got)
		}
	})
}

// A listing of other entries than objects is a read like others. It fails, is answered, and waits for its caller.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(nil)
		inner := &faulty{Store: mem.New(backing.NewOwner(1), nil), put: bb.E(bb.Unavailable, "list", "d", "connection refused")}
		s := Wrap(inner, h)
		list := func(fn func(backing.Other) error) error { return s.Others(t.Context(), "d", fn) }
		if err := list(func(backing.Other) error { return nil }); !errors.Is(err, bb.Unavailable) {
			t.Fatal(err)
		}
		if got := h.Status(); got.Condition != Failing || got.Op != "list" || got.Name != "d" {
			t.Errorf("a listing that fails: %+v", got)
		}
		inner.put = nil
		own := errors.New("enough")
		if err := list(func(backing.Other) error {
			time.Sleep(2 * Patience)
			if got := h.Status(); got.Condition != Failing || got.Waiting != 0 {
				t.Errorf("during a callback: %+v", got)
			}
			return own
		}); !errors.Is(err, own) {
			t.Fatal(err)
		}
		if got := h.Status(); got.Condition != Failing {
			t.Errorf("a callback's error counted as an answer: %+v", got)
		}
		if err := list(func(backing.Other) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := h.Status(); got.Condition != Answers {
			t.Errorf("after a listing: %+v", got)
		}
	})
}
