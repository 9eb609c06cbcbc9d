package writer

import (
	"context"
	"errors"
	"sync"

	"forebay/client/internal/lease"
	"forebay/internal/bb"
)

// access is a writer's way to memory from which the daemon takes its bytes when they are committed.
// It is used by one writer at a time, and hands out ranges that do not overlap between two commits.
type access interface {
	// take returns between least and want bytes for w to fill, with room for the records
	// of so many extents set aside. It may wait for room until ctx ends. ErrFull means
	// that there is none before the next commit.
	take(ctx context.Context, w *Writer, want, least, records int64) (lease.Span, error)
	// committed: nothing of the returned memory waits for a commit any more,
	// but for w's span and reservation.
	committed(w *Writer)
}

var errFull = bb.E(bb.Busy, "write", "", "the bytes that wait for a commit have reached their limit")

// leased is access to leased segments. If they are mapped, the daemon has their bytes at once, else
// once these have been transferred.
type leased struct{}

func (leased) take(ctx context.Context, w *Writer, want, least, records int64) (lease.Span, error) {
	if err := w.session.DialRemote(ctx); err != nil {
		return lease.Span{}, err
	}
	if err := w.placed(ctx); err != nil {
		return lease.Span{}, err
	}
	c, err := w.sp.Take(ctx, w.session, w, want, least, records)
	if err != nil || w.tierKnown || !w.sp.Tiered() {
		return c, err
	}
	// The lease that came first may be the wrong one.
	w.took(c.Mem)
	w.drop(&c)
	if err := w.placed(ctx); err != nil {
		return lease.Span{}, err
	}
	return w.sp.Take(ctx, w.session, w, want, least, records)
}

// placed leases the file's memory where its bytes belong. The daemon's answer to Open has
// that place, and is waited for only in buffers in which it matters.
func (w *Writer) placed(ctx context.Context) error {
	if w.tierKnown || !w.sp.Tiered() {
		return nil
	}
	if err := w.awaitOpen(ctx); err != nil {
		return err
	}
	sp, err := w.Pools.Pool(w.Buffer, bb.Tier(w.opening.reply.Tier))
	if err != nil {
		return err
	}
	w.tierKnown = true
	if sp != w.sp {
		sp.Enter()
		w.sp.Leave()
		w.sp = sp
	}
	return nil
}

func (leased) committed(*Writer) {}

// inlined is access through messages. Bytes wait in this process's own memory and travel with the
// commit. It serves files that are too small for a lease, and clients that cannot reach regions.
type inlined struct {
	limit  int64 // bytes that may wait for one commit
	chunks []*lease.Memory
	total  int64 // bytes of all chunks
}

const smallChunk = 64 << 10

var chunkPool = sync.Pool{New: func() any { return lease.NewChunk(smallChunk) }}

func (a *inlined) take(_ context.Context, _ *Writer, want, least, _ int64) (lease.Span, error) {
	if n := len(a.chunks); n > 0 {
		if c, ok := a.chunks[n-1].Allocate(want, least); ok {
			return c, nil
		}
	}
	if a.limit-a.total < least {
		return lease.Span{}, errFull
	}
	m := a.grow(want)
	c, ok := m.Allocate(want, least)
	if !ok {
		return lease.Span{}, errFull
	}
	return c, nil
}

// grow adds a chunk, larger with each.
func (a *inlined) grow(want int64) *lease.Memory {
	size := min(max(2*a.total, want, smallChunk), a.limit-a.total)
	var m *lease.Memory
	if size <= smallChunk {
		m = chunkPool.Get().(*lease.Memory)
		m.Reset(size)
	} else {
		m = lease.NewChunk(size)
	}
	a.chunks = append(a.chunks, m)
	a.total += size
	return m
}

// committed frees the chunks, unless something is being filled in them still.
func (a *inlined) committed(w *Writer) {
	for _, c := range []*lease.Span{&w.span, &w.reserved} {
		if c.Mem != nil && !c.Mem.Leased() {
			return
		}
	}
	a.free()
}

// free drops all chunks, and keeps the small ones for others.
func (a *inlined) free() {
	for _, m := range a.chunks {
		if len(m.Bytes) == smallChunk {
			chunkPool.Put(m)
		}
	}
	a.chunks, a.total = nil, 0
}

func isFull(err error) bool { return errors.Is(err, error(errFull)) }
