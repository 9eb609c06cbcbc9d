// Package detach wraps a store whose calls may hang in the kernel, as those of a network file
// system whose server is away. Each call returns when its context ends, and continues by itself. It
// bounds the calls that are left behind. It must never depend on why a call hangs.
package detach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// MaxLeft is how many calls of one store may be left behind. Further ones are refused.
const MaxLeft = 32

// Calls runs calls and leaves those behind that do not end with their context. The zero value is
// ready for use. Its methods may be called concurrently.
type Calls struct {
	mu   sync.Mutex
	left int
}

// Left returns how many calls were left behind and have not ended yet.
func (c *Calls) Left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// call is one call, on its way or left behind.
type call[T any] struct {
	value T
	err   error
	ended bool
	left  bool
}

// Do returns the results of fn, or an error when ctx ends before. Then fn continues alone, and its
// result goes to drop in the end if it is no error.
func Do[T any](ctx context.Context, c *Calls, op, name string, fn func(context.Context) (T, error), drop func(T)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, bb.Wrap(op, name, err)
	}
	if n := c.Left(); n >= MaxLeft {
		return none, bb.E(bb.Unavailable, op, name, fmt.Sprintf("the store does not answer: %s not ended", bb.Count(n, "call has", "calls have"))).
			WithRemedy("check the file system or the store; work continues when it answers")
	}
	one, done := &call[T]{}, make(chan struct{})
	go func() {
		defer close(done)
		value, err := fn(ctx)
		c.mu.Lock()
		one.value, one.err, one.ended = value, err, true
		left := one.left
		if left {
			c.left--
		}
		c.mu.Unlock()
		if left && err == nil {
			drop(value)
		}
	}()
	select {
	case <-done:
		return one.value, one.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.ended {
		return one.value, one.err
	}
	one.left = true
	c.left++
	return none, bb.Wrap(op, name, ctx.Err())
}

func do(ctx context.Context, c *Calls, op, name string, fn func(context.Context) error) error {
	_, err := Do(ctx, c, op, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) }, func(struct{}) {})
	return err
}

// Wrap returns a store whose calls end with their context, but for two. A Put returns when its
// source is not needed any more, and so does the reader that Get returned.
func Wrap(inner backing.Store, calls *Calls) backing.Store { return &store{inner, calls} }

type store struct {
	backing.Store
	calls *Calls
}

func (s *store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	return Do(ctx, s.calls, "get", name, func(ctx context.Context) (io.ReadCloser, error) {
		return s.Store.Get(ctx, name, off, n)
	}, func(r io.ReadCloser) { r.Close() })
}

func (s *store) Stat(ctx context.Context, name string) (backing.Object, error) {
	return Do(ctx, s.calls, "stat", name, func(ctx context.Context) (backing.Object, error) {
		return s.Store.Stat(ctx, name)
	}, func(backing.Object) {})
}

var errLeft = errors.New("the listing was left")

func (s *store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	return listed(ctx, s.calls, prefix, s.Store.List, fn)
}

func (s *store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	return listed(ctx, s.calls, dir, s.Store.Others, fn)
}

// listed does not call fn any more once it has returned.
func listed[T any](ctx context.Context, calls *Calls, prefix string, list func(context.Context, string, func(T) error) error, fn func(T) error) error {
	var mu sync.Mutex
	returned := false
	err := do(ctx, calls, "list", prefix, func(ctx context.Context) error {
		return list(ctx, prefix, func(o T) error {
			mu.Lock()
			defer mu.Unlock()
			if returned {
				return errLeft
			}
			return fn(o)
		})
	})
	mu.Lock()
	defer mu.Unlock()
	returned = true
	return err
}

func (s *store) Rename(ctx context.Context, old, newName string) error {
	return do(ctx, s.calls, "rename", old, func(ctx context.Context) error { return s.Store.Rename(ctx, old, newName) })
}

func (s *store) Remove(ctx context.Context, name string) error {
	return do(ctx, s.calls, "remove", name, func(ctx context.Context) error { return s.Store.Remove(ctx, name) })
}

func (s *store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	return do(ctx, s.calls, "remove", name, func(ctx context.Context) error { return s.Store.RemoveIf(ctx, name, is) })
}

func (s *store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	return do(ctx, s.calls, "rename", old, func(ctx context.Context) error { return s.Store.RenameIf(ctx, old, newName, is, replaces) })
}

func (s *store) RemoveTree(ctx context.Context, name string) error {
	return do(ctx, s.calls, "remove tree", name, func(ctx context.Context) error { return s.Store.RemoveTree(ctx, name) })
}

func (s *store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	return do(ctx, s.calls, "make directory", name, func(ctx context.Context) error { return s.Store.MakeDir(ctx, name, opts) })
}

func (s *store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	return do(ctx, s.calls, "change mode", name, func(ctx context.Context) error { return s.Store.SetMode(ctx, name, attrs) })
}

func (s *store) RemoveDir(ctx context.Context, name string) error {
	return do(ctx, s.calls, "remove directory", name, func(ctx context.Context) error { return s.Store.RemoveDir(ctx, name) })
}

func (s *store) Check(ctx context.Context) error {
	return do(ctx, s.calls, "check", "", s.Store.Check)
}

func (s *store) Sweep(ctx context.Context) (int, error) {
	return Do(ctx, s.calls, "sweep", "", s.Store.Sweep, func(int) {})
}

func (s *store) Leftovers(ctx context.Context, in backing.Within) ([]backing.Leftover, error) {
	return Do(ctx, s.calls, "sweep", in.Dir, func(ctx context.Context) ([]backing.Leftover, error) {
		return s.Store.Leftovers(ctx, in)
	}, func([]backing.Leftover) {})
}
