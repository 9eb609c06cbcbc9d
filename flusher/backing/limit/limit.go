// Package limit wraps a store so that the bytes that are read from it and written
// to it keep to a rate. Limiters may be shared: one for all buffers, one for
// each. It must never depend on the reason of a rate.
package limit

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// Burst is the bucket size of limiters made by New, the most that one step takes at once.
const Burst = 1 << 20

// New returns a limiter of bytes a second. 0 or less means no limit.
func New(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return rate.NewLimiter(rate.Inf, Burst)
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), Burst)
}

// Wrap returns a store whose Puts and Gets wait for all limiters. A Put pays for a part when it
// reads it from the source, so that the rate holds on average and a part (some MiB) goes out at
// once.
func Wrap(inner backing.Store, limiters ...*rate.Limiter) backing.Store {
	return &store{inner, limiters}
}

type store struct {
	backing.Store
	limiters []*rate.Limiter
}

func (s *store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.Store.Put(ctx, name, &source{src, ctx, s.limiters}, opts)
}

func (s *store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, name, off, n)
	if err != nil {
		return nil, err
	}
	return &reader{r, ctx, name, s.limiters}, nil
}

type source struct {
	backing.Source
	ctx      context.Context // of the Put, which ends before the source does
	limiters []*rate.Limiter
}

func (s *source) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	if err := wait(s.ctx, s.limiters, n); err != nil {
		return nil, err
	}
	return s.Source.Slices(dst, off, n)
}

type reader struct {
	io.ReadCloser
	ctx      context.Context
	name     string
	limiters []*rate.Limiter
}

// Object is for backing.Described.
func (r *reader) Object() (backing.Object, bool) { return backing.Described(r.ReadCloser) }

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), Burst)])
	if waitErr := wait(r.ctx, r.limiters, int64(n)); waitErr != nil {
		return n, bb.Wrap("get", r.name, waitErr)
	}
	return n, err
}

// wait pays n bytes in steps no larger than each limiter's bucket. It ends with the caller's
// context, and does not judge whether waiting is worth while.
func wait(ctx context.Context, limiters []*rate.Limiter, n int64) error {
	for _, l := range limiters {
		if l.Limit() == rate.Inf {
			continue
		}
		step := int64(max(1, l.Burst()))
		for left := n; left > 0; left -= step {
			if err := l.WaitN(ctx, int(min(left, step))); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return bb.E(bb.Unavailable, "limit", "", err.Error())
			}
		}
	}
	return nil
}
