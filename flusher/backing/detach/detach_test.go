package detach

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"forebay/flusher/backing"
	"forebay/flusher/backing/mem"
	"forebay/internal/bb"
)

// hung is a store whose calls continue after their context has ended, until it is released.
type hung struct {
	*mem.Store
	back   chan struct{}
	opened *reader
	told   error // the result of a listing's fn after the release
	other  error // that of Others
}

type reader struct {
	io.Reader
	closed bool
}

func (r *reader) Close() error { r.closed = true; return nil }

func (h *hung) Stat(context.Context, string) (backing.Object, error) {
	<-h.back
	return backing.Object{}, nil
}

func (h *hung) Get(context.Context, string, int64, int64) (io.ReadCloser, error) {
	<-h.back
	h.opened = &reader{Reader: strings.NewReader("late")}
	return h.opened, nil
}

func (h *hung) List(_ context.Context, _ string, fn func(backing.Object) error) error {
	if err := fn(backing.Object{Name: "first"}); err != nil {
		return err
	}
	<-h.back
	h.told = fn(backing.Object{Name: "second"})
	return h.told
}

func (h *hung) Others(_ context.Context, _ string, fn func(backing.Other) error) error {
	if err := fn(backing.Other{Name: "first"}); err != nil {
		return err
	}
	<-h.back
	h.other = fn(backing.Other{Name: "second"})
	return h.other
}

func (h *hung) Rename(context.Context, string, string) error { <-h.back; return nil }
func (h *hung) Remove(context.Context, string) error         { <-h.back; return nil }
func (h *hung) RemoveTree(context.Context, string) error     { <-h.back; return nil }
func (h *hung) MakeDir(context.Context, string, backing.DirOptions) error {
	<-h.back
	return nil
}
func (h *hung) SetMode(context.Context, string, backing.Attrs) error { <-h.back; return nil }
func (h *hung) RemoveDir(context.Context, string) error              { <-h.back; return nil }
func (h *hung) Check(context.Context) error                          { <-h.back; return nil }
func (h *hung) Sweep(context.Context) (int, error)                   { <-h.back; return 0, nil }

// TestCallsEndWithTheirContext has every call of a store hang.
func TestCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hung{Store: mem.New(backing.NewOwner(1), nil), back: make(chan struct{})}
		calls := &Calls{}
		s := Wrap(h, calls)
		listed := 0
		all := map[string]func(context.Context) error{
			"stat": func(ctx context.Context) error { _, err := s.Stat(ctx, "a"); return err },
			"get":  func(ctx context.Context) error { _, err := s.Get(ctx, "a", 0, -1); return err },
			"list": func(ctx context.Context) error {
				return s.List(ctx, "", func(backing.Object) error { listed++; return nil })
			},
			"others": func(ctx context.Context) error {
				return s.Others(ctx, "", func(backing.Other) error { listed++; return nil })
			},
			"rename":      func(ctx context.Context) error { return s.Rename(ctx, "a", "b") },
			"remove":      func(ctx context.Context) error { return s.Remove(ctx, "a") },
			"remove tree": func(ctx context.Context) error { return s.RemoveTree(ctx, "a") },
			"make dir":    func(ctx context.Context) error { return s.MakeDir(ctx, "a", backing.DirOptions{}) },
			"set mode":    func(ctx context.Context) error { return s.SetMode(ctx, "a", backing.Attrs{}) },
			"remove dir":  func(ctx context.Context) error { return s.RemoveDir(ctx, "a") },
			"check":       s.Check,
			"sweep":       func(ctx context.Context) error { _, err := s.Sweep(ctx); return err },
		}
		for name, call := range all {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- call(ctx) }()
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, bb.Cancelled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := calls.Left(); n != len(all) {
			t.Errorf("%d calls were left, want %d", n, len(all))
		}
		close(h.back)
		synctest.Wait()
		if n := calls.Left(); n != 0 || listed != 2 || h.told == nil || h.other == nil || !h.opened.closed {
			t.Errorf("in the end: %d left, %d listed, told %v and %v, closed %v", n, listed, h.told, h.other, h.opened.closed)
		}
	})
}

// TestCallsLeftAreBounded calls a store that hangs again and again.
func TestCallsLeftAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hung{Store: mem.New(backing.NewOwner(1), nil), back: make(chan struct{})}
		calls := &Calls{}
		s := Wrap(h, calls)
		for i := range MaxLeft + 3 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Remove(ctx, "a") }()
			synctest.Wait()
			cancel()
			want := bb.Cancelled
			if i >= MaxLeft {
				want = bb.Unavailable
			}
			if err := <-done; !errors.Is(err, want) {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		if n := calls.Left(); n != MaxLeft {
			t.Errorf("%d calls were left", n)
		}
		close(h.back)
		synctest.Wait()
		if err := s.Remove(t.Context(), "a"); err != nil {
			t.Errorf("when the store answers again: %v", err)
		}
	})
}
