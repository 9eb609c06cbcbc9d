package client

import (
	"context"
	"errors"
	"sync"

	"forebay/internal/bb"
	"forebay/internal/segment"
)

// access is a writer's way to memory from which the daemon takes its bytes when they
// are committed. It is used by one writer at a time, between whose commits it hands out
// what never overlaps.
type access interface {
	// take returns between least and want bytes for w to fill, with room for the records
	// of so many extents set aside. It may wait for room until ctx ends. ErrFull means
	// that there is none before the next commit.
	take(ctx context.Context, w *writer, want, least, credits int64) (claim, error)
	// committed says that nothing of what was handed out waits for a commit any more,
	// but for w's claim and reservation.
	committed(w *writer)
}

var errFull = bb.E(bb.Busy, "write", "", "what waits for a commit fills its bound")

// leased is access to leased segments, which the daemon has in its memory already: where
// they are mapped at once, else when they have been transferred.
type leased struct{}

func (leased) take(ctx context.Context, w *writer, want, least, credits int64) (claim, error) {
	if err := w.session.reach(ctx); err != nil {
		return claim{}, err
	}
	if err := w.placed(ctx); err != nil {
		return claim{}, err
	}
	c, err := w.sp.take(ctx, w.session, w, want, least, credits)
	if err != nil || w.tierKnown || !w.sp.tiered.Load() {
		return c, err
	}
	// The lease that came first says that it may be the wrong one.
	w.took(c.mem)
	w.drop(&c)
	if err := w.placed(ctx); err != nil {
		return claim{}, err
	}
	return w.sp.take(ctx, w.session, w, want, least, credits)
}

// placed has the file take its memory where its bytes belong. The daemon's answer to Open says
// where that is, and is waited for only in buffers in which it matters.
func (w *writer) placed(ctx context.Context) error {
	if w.tierKnown || !w.sp.tiered.Load() {
		return nil
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	sp, err := w.b.c.space(spaceKey{w.b.name, bb.Tier(w.opened.Tier)})
	if err != nil {
		return err
	}
	w.tierKnown = true
	if sp != w.sp {
		sp.enter()
		w.sp.leave()
		w.sp = sp
	}
	return nil
}

func (leased) committed(*writer) {}

// inlined is access through messages: bytes wait in this process's own memory and
// travel with the commit. It serves what is too small for a lease to be worth it, and
// clients that cannot reach regions.
type inlined struct {
	limit  int64 // bytes that may wait for one commit
	chunks []*memory
	total  int64 // bytes of all chunks
}

const smallChunk = 64 << 10

var chunkPool = sync.Pool{New: func() any { return newChunk(smallChunk) }}

func newChunk(n int64) *memory {
	return &memory{bytes: make([]byte, n), mu: new(sync.Mutex), Cursor: segment.NewCursor(0, n)}
}

func (a *inlined) take(_ context.Context, _ *writer, want, least, _ int64) (claim, error) {
	if n := len(a.chunks); n > 0 {
		if at, ok := a.chunks[n-1].Take(want, least, 0); ok {
			return claim{mem: a.chunks[n-1], Span: at}, nil
		}
	}
	if a.limit-a.total < least {
		return claim{}, errFull
	}
	m := a.grow(want)
	at, ok := m.Take(want, least, 0)
	if !ok {
		return claim{}, errFull
	}
	return claim{mem: m, Span: at}, nil
}

// grow adds a chunk, larger with each.
func (a *inlined) grow(want int64) *memory {
	size := min(max(2*a.total, want, smallChunk), a.limit-a.total)
	var m *memory
	if size <= smallChunk {
		m = chunkPool.Get().(*memory)
		m.Cursor = segment.NewCursor(0, size)
	} else {
		m = newChunk(size)
	}
	a.chunks = append(a.chunks, m)
	a.total += size
	return m
}

// committed frees the chunks, unless something is being filled in them still.
func (a *inlined) committed(w *writer) {
	for _, c := range []*claim{&w.claim, &w.reserved} {
		if c.mem != nil && c.mem.lease == nil {
			return
		}
	}
	a.free()
}

// free forgets all chunks, and keeps the small ones for others.
func (a *inlined) free() {
	for _, m := range a.chunks {
		if len(m.bytes) == smallChunk {
			chunkPool.Put(m)
		}
	}
	a.chunks, a.total = nil, 0
}

func isFull(err error) bool { return errors.Is(err, error(errFull)) }
