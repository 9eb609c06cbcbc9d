package readcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/alloc"
	"forebay/bbd/origin"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// View is one reader's view of a file: one generation, as it was opened.
type View struct {
	c     *Cache
	snap  *store.Snapshot
	entry bb.Entry
	reads bool // it counts as a reader, and the snapshot is its own

	object origin.Object
	wait   time.Duration             // for room; 0: patience
	scarce atomic.Pointer[time.Time] // when there was no room; nil: never
}

// Snapshot returns the snapshot that is shown.
func (v *View) Snapshot() *store.Snapshot { return v.snap }

// Entry returns the file's entry as it was opened.
func (v *View) Entry() *bb.Entry { return &v.entry }

// Close ends the view's opens. Idempotent for a view of a caller's snapshot, which may be used
// again.
func (v *View) Close() {
	v.object.Close()
	if !v.reads {
		return
	}
	v.c.readers.end(v)
	file, generation := v.snap.File()
	v.snap.Close()
	if idle := v.c.copies.leave(copyKey{file, generation}); idle != nil {
		v.c.o.Go(func() { // unless the file has a reader again
			idle.owner.CloseUnless(func() bool { return v.c.copies.used(idle) })
		})
	}
}

// copied returns the copy that is shown, or nil for the store's own content.
func (v *View) copied() *copied {
	file, generation := v.snap.File()
	return v.c.copies.of(copyKey{file, generation})
}

// origin returns where bytes come from that go into segments.
func (v *View) origin() origin.Origin {
	f := v.copied()
	switch {
	case f == nil:
		return &v.object
	case f.private: // the store does not have the bytes that are being written
		return f.owner
	}
	return &origin.Fallback{Owner: f.owner, Entry: f.owner.Entry(), Object: &v.object}
}

// past returns the source of bytes that go past memory, and their bound.
func (v *View) past() (origin.Origin, *semaphore.Weighted) {
	f, bound := v.copied(), &v.c.o.Bypass
	switch {
	case f == nil:
		return &v.object, bound.stored
	case f.private:
		return f.owner.Inline(), bound.copies
	}
	return &origin.Fallback{Owner: f.owner.Inline(), Entry: f.owner.Entry(), Object: &v.object}, bound.copies
}

// fetch brings evicted extents back into memory. Each is checked against the checksum that its writer
// computed. After alloc.ErrNoRoom some may be there, and the others have to go past memory.
func (v *View) fetch(ctx context.Context, evicted []store.Extent) error {
	return v.origin().Read(ctx, wholesOf(evicted), v.fill)
}

// wholesOf returns the extents to read to check evicted ones, in order. If an extent was partly
// overwritten, the whole is read, once for all of its pieces.
func wholesOf(evicted []store.Extent) []origin.Run {
	var runs []origin.Run
	for _, x := range evicted {
		from := x.FileOffset - x.Cut
		if n := len(runs); n == 0 || runs[n-1].From != from {
			runs = append(runs, origin.Run{From: from, To: from + x.WholeLength})
		}
	}
	return runs
}

// fill brings one extent in. It is an origin.Place.
func (v *View) fill(ctx context.Context, r origin.Run, from io.Reader) error {
	w := v.c.o.Writers.Of(v.c.o.Buffer.Spec().UID, bb.TierMemory)
	room, err := v.reserve(ctx, w, r.Size())
	if err != nil {
		return err
	}
	defer w.Done(room)
	err = store.Guard("read", v.c.address(v.entry.Name), func() error {
		_, err := io.ReadFull(from, room.Mem)
		return err
	})
	if err != nil {
		return err
	}
	err = v.snap.Fill(store.FillExtent{
		Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: r.From, Length: r.Size(),
	})
	switch bb.KindOf(err) {
	case bb.Busy:
		return nil // another reader was faster, or more was evicted, so the caller checks again
	case bb.Invalid:
		return errJoined
	}
	return err
}

// errJoined reports that eviction has joined an extent with others since the range was looked up. A
// reader then reads past memory, as it does without room.
var errJoined = fmt.Errorf("eviction has joined an extent with others: %w", alloc.ErrNoRoom)

// reserve waits for room as long as the reader's patience lasts. Then it returns alloc.ErrNoRoom.
func (v *View) reserve(ctx context.Context, w *alloc.Writer, n int64) (alloc.Piece, error) {
	most := v.wait
	if most == 0 {
		most = patience
		if at := v.scarce.Load(); at != nil {
			most = wait(time.Since(*at))
		}
	}
	waiting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	p, err := w.Reserve(waiting, n)
	if err == nil || ctx.Err() != nil {
		return p, err
	}
	if kind := bb.KindOf(err); waiting.Err() == nil && kind != bb.NoSpace && kind != bb.Busy {
		return p, err
	}
	now := time.Now()
	v.scarce.Store(&now)
	return p, alloc.ErrNoRoom
}

// Bypass reads the visible part of an evicted extent past memory, verified.
func (v *View) Bypass(ctx context.Context, x *store.Extent) ([]byte, error) {
	whole, err := v.BypassWhole(ctx, x)
	if err == nil {
		return whole[x.Cut : x.Cut+x.Length], nil
	}
	pinned := v.saved(ctx, x.FileOffset, x.Length)
	if pinned == nil {
		return nil, err
	}
	defer pinned.Release()
	pieces, err := v.snap.Slices(x.FileOffset, x.Length, nil)
	return slices.Concat(pieces...), err
}

// saved pins a range that could not be read from the store, if it is in memory by now. Nil: it is not. While it was
// read, the store's object may have been replaced or removed. Before that, SaveReaders brings the bytes of readers
// into memory.
func (v *View) saved(ctx context.Context, offset, length int64) *store.Pinned {
	if ctx.Err() != nil {
		return nil
	}
	pinned, extents, err := v.snap.PinExtents(offset, length)
	if err != nil {
		return nil
	}
	if len(EvictedOf(extents)) > 0 {
		pinned.Release()
		return nil
	}
	return pinned
}

// isSaved reports whether extents that could not be read are in memory by now.
func (v *View) isSaved(ctx context.Context, evicted []store.Extent) bool {
	last := evicted[len(evicted)-1]
	pinned := v.saved(ctx, evicted[0].FileOffset, last.FileOffset+last.Length-evicted[0].FileOffset)
	if pinned == nil {
		return false
	}
	pinned.Release()
	return true
}

// BypassWhole is Bypass of all that the extent's checksum covers.
func (v *View) BypassWhole(ctx context.Context, x *store.Extent) (whole []byte, err error) {
	from, bound := v.past()
	bytes := min(x.WholeLength, maxBypass)
	if err := bound.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	defer bound.Release(bytes)
	start := x.FileOffset - x.Cut
	whole = make([]byte, x.WholeLength)
	err = from.Read(ctx, []origin.Run{{From: start, To: start + x.WholeLength}}, func(_ context.Context, r origin.Run, from io.Reader) error {
		if _, err := io.ReadFull(from, whole); err != nil {
			return err
		}
		if got := checksum.Sum(whole); got != x.Checksum {
			return bb.E(bb.Checksum, "read", v.c.address(v.entry.Name), fmt.Sprintf(
				"bytes %d to %d came with checksum %016x, not %016x", r.From, r.To, got, x.Checksum))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return whole, nil
}

// Range is a part of a file that can be read now. It is pinned where it lies, or, where Extents is
// empty, as Data.
type Range struct {
	Pinned  *store.Pinned
	Extents []store.Extent
	Data    []byte
}

// Reach makes a range readable, from its beginning on and as far as that goes without waiting for
// other readers or writers. It makes at least one byte readable, unless the range is empty.
func (v *View) Reach(ctx context.Context, offset, length int64) (Range, error) {
	refused := false
	for try := 1; ; try++ {
		pinned, extents, err := v.snap.PinExtents(offset, length)
		if err != nil {
			return Range{}, err
		}
		evicted := EvictedOf(extents)
		switch next(offset, evicted, try, refused) {
		case answer:
			return Range{Pinned: pinned, Extents: extents}, nil
		case answerPart:
			some, extents, err := v.snap.PinExtents(offset, evicted[0].FileOffset-offset) // while all of it is pinned
			pinned.Release()
			return Range{Pinned: some, Extents: extents}, err
		case bypassFirst:
			pinned.Release()
			data, err := v.Bypass(ctx, &extents[0])
			return Range{Data: data}, err
		case fetchFirst:
			evicted = evicted[:1]
		case fetchAll:
		}
		err = v.fetch(ctx, evicted)
		pinned.Release()
		if refused = errors.Is(err, alloc.ErrNoRoom); err != nil && !refused && !v.isSaved(ctx, evicted) {
			return Range{}, err
		}
	}
}

// Pin keeps a whole range in memory, bringing back evicted bytes. bb.NoSpace where there is no room
// for all of it. Nothing is held then.
func (v *View) Pin(ctx context.Context, offset, length int64) (*store.Pinned, []store.Extent, error) {
	// Its reader may read on meanwhile.
	own := v.c.View(&v.entry, v.snap)
	own.wait = pinPatience
	defer own.Close()
	for try := 1; ; try++ {
		pinned, extents, err := v.snap.PinExtents(offset, length)
		if err != nil {
			return nil, nil, err
		}
		evicted := EvictedOf(extents)
		if len(evicted) == 0 {
			return pinned, extents, nil
		}
		if err = alloc.ErrNoRoom; worthFetching(evicted, try, v.c.o.Store.Stats().Memory.Capacity) {
			if err = own.fetch(ctx, evicted); errors.Is(err, errJoined) {
				err = nil // the next check finds it as it is now
			}
		}
		pinned.Release()
		if err != nil && !v.isSaved(ctx, evicted) {
			return nil, nil, err
		}
	}
}

// IsEvicted reports whether an extent is not in memory.
func IsEvicted(x store.Extent) bool { return x.State == store.Evicted }

// EvictedOf returns those extents that are not in memory.
func EvictedOf(extents []store.Extent) (evicted []store.Extent) {
	for _, x := range extents {
		if IsEvicted(x) {
			evicted = append(evicted, x)
		}
	}
	return evicted
}
