package health

import (
	"context"
	"io"

	"forebay/flusher/backing"
)

// Wrap returns a store whose calls h watches.
func Wrap(inner backing.Store, h *Health) backing.Store { return &store{inner, h} }

type store struct {
	backing.Store
	h *Health
}

func (s *store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	c := s.h.begin(puts, "put", name)
	if last := opts.Last; last != nil {
		opts.Last = func(ctx context.Context) error {
			return c.callback(0, func() error { return last(ctx) })
		}
	}
	o, err := s.Store.Put(ctx, name, &source{src, c}, opts)
	return o, c.end(err)
}

// source is a source whose reading is progress of a Put.
type source struct {
	backing.Source
	c *call
}

func (s *source) Slices(dst [][]byte, off, n int64) (slices [][]byte, err error) {
	err = s.c.callback(off+n, func() error {
		slices, err = s.Source.Slices(dst, off, n)
		return err
	})
	return slices, err
}

func (s *store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	c := s.h.begin(reads, "get", name)
	r, err := s.Store.Get(ctx, name, off, n)
	if c.end(err) != nil {
		return nil, err
	}
	return &reader{r, s.h, name}, nil
}

// reader watches each Read. Between them the store waits for the caller.
type reader struct {
	io.ReadCloser
	h    *Health
	name string
}

// Object is for backing.Described.
func (r *reader) Object() (backing.Object, bool) { return backing.Described(r.ReadCloser) }

func (r *reader) Read(p []byte) (int, error) {
	c := r.h.begin(reads, "get", r.name)
	n, err := r.ReadCloser.Read(p)
	return n, c.end(err)
}

func (s *store) Stat(ctx context.Context, name string) (backing.Object, error) {
	c := s.h.begin(reads, "stat", name)
	o, err := s.Store.Stat(ctx, name)
	return o, c.end(err)
}

func (s *store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	c := s.h.begin(reads, "list", prefix)
	return c.end(s.Store.List(ctx, prefix, func(o backing.Object) error {
		return c.callback(0, func() error { return fn(o) })
	}))
}

func (s *store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	c := s.h.begin(reads, "list", dir)
	return c.end(s.Store.Others(ctx, dir, func(o backing.Other) error {
		return c.callback(0, func() error { return fn(o) })
	}))
}

func (s *store) Rename(ctx context.Context, old, newName string) error {
	return s.h.begin(changes, "rename", old).end(s.Store.Rename(ctx, old, newName))
}

func (s *store) Remove(ctx context.Context, name string) error {
	return s.h.begin(changes, "remove", name).end(s.Store.Remove(ctx, name))
}

func (s *store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	return s.h.begin(changes, "remove", name).end(s.Store.RemoveIf(ctx, name, is))
}

func (s *store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	return s.h.begin(changes, "rename", old).end(s.Store.RenameIf(ctx, old, newName, is, replaces))
}

func (s *store) RemoveTree(ctx context.Context, name string) error {
	return s.h.begin(changes, "remove tree", name).end(s.Store.RemoveTree(ctx, name))
}

func (s *store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	return s.h.begin(changes, "make directory", name).end(s.Store.MakeDir(ctx, name, opts))
}

func (s *store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	return s.h.begin(changes, "change mode", name).end(s.Store.SetMode(ctx, name, attrs))
}

func (s *store) RemoveDir(ctx context.Context, name string) error {
	return s.h.begin(changes, "remove directory", name).end(s.Store.RemoveDir(ctx, name))
}

func (s *store) Check(ctx context.Context) error {
	return s.h.begin(puts, "check", "").end(s.Store.Check(ctx))
}
