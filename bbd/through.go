package bbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/alloc"
	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
)

// What is read of a file and is not in memory goes one of two ways.
//
//	the store, or the home ──▶ segments, for all readers ──▶ pinned for this one
//	                       └─▶ bytes of its own, verified ──▶ with the answer
//
// The first needs room, which others may hold for as long as they like: readers pin,
// writers fill. So nobody waits for it longer than their patience, least of all while
// they hold some themselves. The second needs none. What it needs is bounded, and held
// only while the store or the home is waited for, never while anybody else is.

// passing bounds the bytes on their way past memory. Copies have bounds of their own:
// they wait for their homes, which may need some to answer.
type passing struct{ stored, copies *semaphore.Weighted }

// maxPassing is as much as the largest extent.
const maxPassing = store.MaxSegment

func newPassing() passing {
	return passing{semaphore.NewWeighted(maxPassing), semaphore.NewWeighted(maxPassing)}
}

// How long a reader waits for room: for the first time, and while there was none lately.
const (
	patience      = 200 * time.Millisecond
	shortPatience = 5 * time.Millisecond
	pinPatience   = 2 * time.Second // of who needs all of a file in memory
	lately        = time.Second
)

// tap is how one reader of a file gets what is not in memory. It goes on in the
// store's object where the last read ended, since to begin in the middle of one may
// cost as much as to read up to there. The zero value is ready; close it after use.
//
// A flush may replace the object that is open. What that flushed may then have been evicted, and
// joined with what lay around it, and is not in the old object; or the object is of a file that
// this one is about to replace on the store. So bytes that have the wrong checksum are read once
// more, from an object opened anew.
type tap struct {
	mu     lockorder.Mutex[lockrank.Tap]
	from   io.ReadCloser // nil: nothing is open
	cancel context.CancelFunc
	at     int64
	named  naming        // what is opened next
	scarce time.Time     // when there was no room
	wait   time.Duration // how long to wait for room; 0: patience
}

// reserve waits for room as long as the reader's patience lasts; alloc.ErrNoRoom.
func (t *tap) reserve(ctx context.Context, w *alloc.Writer, n int64) (alloc.Piece, error) {
	t.mu.Lock()
	wait := t.wait
	switch {
	case wait > 0:
	case time.Since(t.scarce) < lately:
		wait = shortPatience
	default:
		wait = patience
	}
	t.mu.Unlock()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p, err := w.Reserve(waiting, n)
	if err == nil || ctx.Err() != nil {
		return p, err
	}
	if kind := bb.KindOf(err); waiting.Err() == nil && kind != bb.NoSpace && kind != bb.Busy {
		return p, err
	}
	t.mu.Lock()
	t.scarce = time.Now()
	t.mu.Unlock()
	return p, alloc.ErrNoRoom
}

// read fills p with bytes of a file's object in the store, from an offset on.
func (t *tap) read(ctx context.Context, b *buffer, e *bb.Entry, p []byte, offset int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	goesOn := t.from != nil && offset >= t.at && (offset-t.at <= alloc.MaxExtent || e.Flushed.Codec != codec.None)
	err := t.readOn(ctx, b, e, p, offset, goesOn)
	if err != nil && goesOn && ctx.Err() == nil { // it may have been open for long
		err = t.readOn(ctx, b, e, p, offset, false)
	}
	if bb.KindOf(err) == bb.Checksum && t.named == trust { // it is too short
		t.named = distrust
		err = t.readOn(ctx, b, e, p, offset, false)
	}
	return err
}

// readOn reads on, or anew from the offset. t.mu is held.
func (t *tap) readOn(ctx context.Context, b *buffer, e *bb.Entry, p []byte, offset int64, goesOn bool) (err error) {
	if !goesOn {
		t.shut()
		// It outlives this request, which can stop it nevertheless.
		open, cancel := context.WithCancel(b.d.ctx)
		stop := context.AfterFunc(ctx, cancel)
		from, err := b.object(open, e, offset, t.named)
		stop()
		if err != nil {
			cancel()
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}
		t.from, t.at, t.cancel = from, offset, cancel
	}
	stop := context.AfterFunc(ctx, t.cancel)
	_, err = io.CopyN(io.Discard, t.from, offset-t.at)
	if err == nil {
		err = store.Guard("read", b.address(e.Name), func() error { // p may be a region's
			_, err := io.ReadFull(t.from, p)
			return err
		})
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		t.shut()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return truncated(err)
	}
	t.at = offset + int64(len(p))
	return nil
}

// shut ends the stream. t.mu is held.
func (t *tap) shut() {
	if t.from != nil {
		t.from.Close()
		t.cancel()
		t.from = nil
	}
}

// doubt ends a stream whose bytes are not the file's. The next one has them, if the store does.
func (t *tap) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut()
	t.named = distrust
}

// close ends the stream. The tap may be used again.
func (t *tap) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut()
}

// through reads an evicted extent past memory: what is visible of it, verified.
func (b *buffer) through(ctx context.Context, t *tap, snap *store.Snapshot, e *bb.Entry, x *store.Extent) ([]byte, error) {
	whole, err := b.throughWhole(ctx, t, snap, e, x)
	if err != nil {
		return nil, err
	}
	return whole[x.Cut : x.Cut+x.Length], nil
}

// throughWhole is through of all that the extent's checksum covers.
func (b *buffer) throughWhole(ctx context.Context, t *tap, snap *store.Snapshot, e *bb.Entry, x *store.Extent) (whole []byte, err error) {
	file, generation := snap.File()
	from := x.FileOffset - x.Cut
	if c := b.copies.of(copyKey{file, generation}); c != nil {
		there, err := b.orStored(ctx, c, func() (err error) {
			whole, err = c.through(ctx, run{from, from + x.WholeLength})
			return err
		})
		if there == nil && err != nil {
			return nil, err
		}
		if there != nil {
			e, whole = there, nil
		}
	}
	stored := whole == nil
	if stored {
		bound := b.d.passing.stored
		if err := bound.Acquire(ctx, min(x.WholeLength, maxPassing)); err != nil {
			return nil, err
		}
		defer bound.Release(min(x.WholeLength, maxPassing))
		whole = make([]byte, x.WholeLength)
		if err := t.read(ctx, b, e, whole, from); err != nil {
			return nil, err
		}
	}
	got := checksum.Sum(whole)
	if got != x.Checksum && stored {
		t.doubt()
		if err := t.read(ctx, b, e, whole, from); err != nil {
			return nil, err
		}
		got = checksum.Sum(whole)
	}
	if got != x.Checksum {
		t.close()
		return nil, bb.E(bb.Checksum, "read", b.address(e.Name), fmt.Sprintf(
			"bytes %d to %d came with checksum %016x, not %016x", from, from+x.WholeLength, got, x.Checksum))
	}
	return whole, nil
}

// through asks the home of a copy for bytes.
func (c *fileCopy) through(ctx context.Context, x run) ([]byte, error) {
	bound := c.b.d.passing.copies
	if err := bound.Acquire(ctx, min(x.to-x.from, maxPassing)); err != nil {
		return nil, err
	}
	defer bound.Release(min(x.to-x.from, maxPassing))
	s, handle, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	whole := make([]byte, 0, x.to-x.from)
	for at := x.from; at < x.to; at = x.from + int64(len(whole)) {
		var m wire.Extents
		data, err := s.Ask(ctx, wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: handle, Offset: at, Length: x.to - at, Inline: true}, nil, &m)
		if err != nil {
			return nil, err
		}
		if len(data) == 0 || int64(len(data)) > x.to-at {
			return nil, bb.E(bb.Unavailable, "read", c.b.address(c.entry.Name), fmt.Sprintf("its home says nothing of byte %d", at))
		}
		whole = append(whole, data...)
	}
	return whole, nil
}

// reached is a part of a file as somebody can read it now: pinned where it lies, or,
// where extents is empty, as data.
type reached struct {
	pinned  *store.Pinned
	extents []store.Extent
	data    []byte
}

// maxTries is how often evicted bytes are brought in before they go past memory:
// where there is little of it, they may be evicted again before they are pinned.
const maxTries = 3

// reachRange makes a range readable, from its beginning on and as far as that goes
// without waiting for anybody else; at least one byte of it, unless it is empty.
func (b *buffer) reachRange(ctx context.Context, t *tap, snap *store.Snapshot, e *bb.Entry, offset, length int64) (reached, error) {
	refused := false
	for try := 1; ; try++ {
		pinned, extents, err := snap.PinExtents(offset, length)
		if err != nil {
			return reached{}, err
		}
		evicted := evictedOf(extents)
		if len(evicted) == 0 {
			return reached{pinned: pinned, extents: extents}, nil
		}
		if first := evicted[0].FileOffset; try > 1 && first > offset {
			some, extents, err := snap.PinExtents(offset, first-offset) // while all of it is pinned
			pinned.Release()
			return reached{pinned: some, extents: extents}, err
		}
		if refused || try == maxTries {
			pinned.Release()
			data, err := b.through(ctx, t, snap, e, &extents[0])
			return reached{data: data}, err
		}
		if try > 1 {
			evicted = evicted[:1]
		}
		err = b.fetch(ctx, t, snap, e, evicted)
		pinned.Release()
		if refused = errors.Is(err, alloc.ErrNoRoom); err != nil && !refused {
			return reached{}, err
		}
	}
}

// pin keeps a whole range in memory, bringing back what was evicted. bb.NoSpace where
// there is no room for all of it: nothing is held then.
func (b *buffer) pin(ctx context.Context, snap *store.Snapshot, e *bb.Entry, offset, length int64) (*store.Pinned, []store.Extent, error) {
	t := tap{wait: pinPatience}
	defer t.close()
	for try := 1; ; try++ {
		pinned, extents, err := snap.PinExtents(offset, length)
		if err != nil {
			return nil, nil, err
		}
		evicted := evictedOf(extents)
		if len(evicted) == 0 {
			return pinned, extents, nil
		}
		var missing int64
		for i := range evicted {
			missing += evicted[i].Length
		}
		if err = alloc.ErrNoRoom; try <= maxTries && missing <= b.d.store.Stats().Memory.Capacity {
			err = b.fetch(ctx, &t, snap, e, evicted)
		}
		pinned.Release()
		if err != nil {
			return nil, nil, err
		}
	}
}

func isEvicted(x store.Extent) bool { return x.State == store.Evicted }

// evictedOf returns those extents that are not in memory.
func evictedOf(extents []store.Extent) (evicted []store.Extent) {
	for _, x := range extents {
		if isEvicted(x) {
			evicted = append(evicted, x)
		}
	}
	return evicted
}
