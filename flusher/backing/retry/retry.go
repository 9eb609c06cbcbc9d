// Package retry wraps a store so that passing failures are tried again. backing.Passing decides
// which may pass, and an observer is called with each failure. The package must never depend on why
// anything fails.
package retry

import (
	"context"
	"io"
	"math/rand/v2"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// Failure describes a failed attempt that will be followed by another.
type Failure struct {
	Op      string
	Name    string
	Err     error
	Attempt int       // 1 for the first
	Since   time.Time // when the first attempt began
	Wait    time.Duration
}

// Options are the options of retries.
type Options struct {
	// Attempts bounds the attempts of one call. 0 means attempts until its context ends. The
	// flusher's own workers queue a failed file again, so that they need few.
	Attempts int
	Min, Max time.Duration // of the wait between two attempts; 0: 100 ms, 30 s
	// Failed is called after each failed attempt that is followed by another. It may be called
	// concurrently and must not block. Nil: no calls.
	Failed func(Failure)
}

// Delay returns how long to wait after the nth failure (n from 1). It doubles from shortest to
// longest, and random in [0, 1) takes away up to half of it.
func Delay(shortest, longest time.Duration, n int, random float64) time.Duration {
	d := longest
	if n < 32 && shortest<<(n-1) > 0 && shortest<<(n-1) < longest {
		d = shortest << (n - 1)
	}
	return d - time.Duration(float64(d/2)*random)
}

// Wrap returns a store that retries. Closing it closes the inner store. List does not repeat objects to its caller. A
// listing that failed after its first object is not retried, and neither are reads from an opened reader.
func Wrap(inner backing.Store, opts Options) backing.Store {
	if opts.Min <= 0 {
		opts.Min = 100 * time.Millisecond
	}
	if opts.Max < opts.Min {
		opts.Max = max(opts.Min, 30*time.Second)
	}
	if opts.Failed == nil {
		opts.Failed = func(Failure) {}
	}
	return &store{inner, opts}
}

type store struct {
	backing.Store
	opts Options
}

// do calls fn until it succeeds, fails for good, or the context ends. Then the last failure is the
// error, not the end of the context, which the caller has.
func (s *store) do(ctx context.Context, op, name string, fn func() error) error {
	since := time.Now()
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || !backing.Passing(err) || ctx.Err() != nil || attempt == s.opts.Attempts {
			return err
		}
		wait := Delay(s.opts.Min, s.opts.Max, attempt, rand.Float64())
		s.opts.Failed(Failure{Op: op, Name: name, Err: err, Attempt: attempt, Since: since, Wait: wait})
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &bb.Error{Kind: bb.KindOf(ctx.Err()), Op: op, Path: name, Err: err}
		}
	}
}

func (s *store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (o backing.Object, err error) {
	err = s.do(ctx, "put", name, func() (err error) {
		o, err = s.Store.Put(ctx, name, src, opts)
		return err
	})
	return o, err
}

func (s *store) Get(ctx context.Context, name string, off, n int64) (r io.ReadCloser, err error) {
	err = s.do(ctx, "get", name, func() (err error) {
		r, err = s.Store.Get(ctx, name, off, n)
		return err
	})
	return r, err
}

func (s *store) Stat(ctx context.Context, name string) (o backing.Object, err error) {
	err = s.do(ctx, "stat", name, func() (err error) {
		o, err = s.Store.Stat(ctx, name)
		return err
	})
	return o, err
}

func (s *store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	return listed(ctx, s, prefix, s.Store.List, fn)
}

func (s *store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	return listed(ctx, s, dir, s.Store.Others, fn)
}

// listed retries a listing until it has called fn.
func listed[T any](ctx context.Context, s *store, prefix string, list func(context.Context, string, func(T) error) error, fn func(T) error) error {
	told := false
	var final error
	err := s.do(ctx, "list", prefix, func() error {
		err := list(ctx, prefix, func(o T) error {
			told = true
			return fn(o)
		})
		if told {
			final = err
			return nil
		}
		return err
	})
	if told {
		return final
	}
	return err
}

// Rename is retried as a whole. If the answer to an attempt that succeeded was lost, the next one
// finds nothing under the old name. Then it checks the new one.
func (s *store) Rename(ctx context.Context, old, newName string) error {
	return s.moved(ctx, old, newName, func() error { return s.Store.Rename(ctx, old, newName) })
}

// RenameIf is retried as Rename is.
func (s *store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	return s.moved(ctx, old, newName, func() error { return s.Store.RenameIf(ctx, old, newName, is, replaces) })
}

func (s *store) moved(ctx context.Context, old, newName string, move func() error) error {
	failed := false
	return s.do(ctx, "rename", old, func() error {
		err := move()
		if failed && bb.KindOf(err) == bb.NotFound {
			return s.renamed(ctx, newName, err)
		}
		failed = failed || err != nil
		return err
	})
}

// renamed returns nil if something is there under the new name, else notFound.
func (s *store) renamed(ctx context.Context, newName string, notFound error) error {
	if _, err := s.Store.Stat(ctx, newName); bb.KindOf(err) != bb.NotFound || err == nil {
		return err
	}
	found := notFound
	err := s.Store.List(ctx, newName+"/", func(backing.Object) error {
		found = nil
		return io.EOF // one is enough
	})
	if found == nil || err == nil {
		return found
	}
	return err
}

func (s *store) Remove(ctx context.Context, name string) error {
	return s.do(ctx, "remove", name, func() error { return s.Store.Remove(ctx, name) })
}

func (s *store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	return s.do(ctx, "remove", name, func() error { return s.Store.RemoveIf(ctx, name, is) })
}

func (s *store) RemoveTree(ctx context.Context, name string) error {
	return s.do(ctx, "remove tree", name, func() error { return s.Store.RemoveTree(ctx, name) })
}

func (s *store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	return s.do(ctx, "make directory", name, func() error { return s.Store.MakeDir(ctx, name, opts) })
}

func (s *store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	return s.do(ctx, "change mode", name, func() error { return s.Store.SetMode(ctx, name, attrs) })
}

func (s *store) RemoveDir(ctx context.Context, name string) error {
	return s.do(ctx, "remove directory", name, func() error { return s.Store.RemoveDir(ctx, name) })
}

func (s *store) Sweep(ctx context.Context) (n int, err error) {
	err = s.do(ctx, "sweep", "", func() error {
		swept, err := s.Store.Sweep(ctx)
		n += swept
		return err
	})
	return n, err
}
