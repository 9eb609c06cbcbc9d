package alloc

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	"forebay/internal/segment"
	"forebay/internal/wire"
)

// ErrNoRoom is the error for memory that has not become free in time.
var ErrNoRoom error = bb.E(bb.NoSpace, "read", "", "no segment became free in time: all memory is leased, pinned or dirty")

// MaxExtent is the longest run of bytes under one checksum. It is the unit that a damaged byte
// makes unreadable, and that a reader verifies at once.
const MaxExtent = 4 << 20

// Writer fills segments on behalf of clients and requests that cannot map them: inline commits,
// stage-in, and bytes that come back from the store. It is one per buffer and user. Its lease is
// shared by all writers on their behalf.
type Writer struct {
	a    *Allocator
	b    Buffer
	uid  uint32
	tier bb.Tier // where the bytes belong
	// NoWait makes it fail rather than wait for memory. It is set before the first call.
	NoWait bool
	// Patience is how long it waits for memory, before ErrNoRoom. 0 means as long as it takes. It
	// is set likewise.
	Patience  time.Duration
	reserving *semaphore.Weighted // of one: the caller that may request the next lease

	mu lockorder.Mutex[lockrank.SegmentWriter] // never held while waiting
	// now is the segment that is being filled, or nil if there is none.
	now  *filling
	last int64 // bytes of the one before
}

// filling is a leased segment. The fields after the lease are guarded by the writer's mu.
type filling struct {
	lease store.Lease
	segment.Cursor
	users segment.Users // pieces handed out and not yet committed
	lost  atomic.Bool   // its user has cut the region short; it is filled no more
}

// Piece is memory for bytes in a leased segment.
type Piece struct {
	of     *filling
	Lease  bb.LeaseID
	Offset int64 // in the segment
	Mem    []byte
}

// Fill fills the memory from a stream as io.ReadFull does, and sums up the bytes that came.
func (p *Piece) Fill(from io.Reader) (n int64, sum uint64, err error) {
	err = p.guard("read", "", func() error {
		got, err := io.ReadFull(from, p.Mem)
		n, sum = int64(got), checksum.Sum(p.Mem[:got])
		return err
	})
	return n, sum, err
}

// guard runs f, which uses the memory. A fault there is bb.Lost, and the last use of the segment.
func (p *Piece) guard(op, path string, f func() error) error {
	err := store.Guard(op, path, f)
	if errors.Is(err, bb.Lost) {
		p.of.lost.Store(true)
	}
	return err
}

// NewWriter returns a writer for a user of a buffer, and for bytes that belong in a tier.
func NewWriter(a *Allocator, b Buffer, uid uint32, tier bb.Tier) *Writer {
	return &Writer{a: a, b: b, uid: uid, tier: tier, reserving: semaphore.NewWeighted(1)}
}

// Reserve returns memory for n bytes, at most MaxExtent, waiting for it as any writer
// does. The caller fills it, commits it and calls Done.
func (w *Writer) Reserve(ctx context.Context, n int64) (Piece, error) {
	if w.reserving.Acquire(ctx, 1) != nil {
		return Piece{}, context.Cause(ctx)
	}
	defer w.reserving.Release(1)
	for {
		if p, ok := w.take(n); ok {
			return p, nil
		}
		if err := w.renew(ctx, n+wire.RecordCost(1)); err != nil {
			return Piece{}, err
		}
	}
}

// take takes memory from the segment there is. One without enough is filled no more.
func (w *Writer) take(n int64) (Piece, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.now
	if f == nil {
		return Piece{}, false
	}
	at, ok := f.TakeExtent(n, n)
	if !ok || f.lost.Load() {
		w.end()
		return Piece{}, false
	}
	f.users.Enter()
	return Piece{f, f.lease.ID, at.Off, f.lease.Mem[at.Off:at.End:at.End]}, true
}

// end ends the filling of the segment there is. mu is held.
func (w *Writer) end() {
	f := w.now
	w.now, w.last = nil, f.lease.Length
	if f.users.Close() {
		w.release(f)
	}
}

// release returns a segment that is not filled any more.
func (w *Writer) release(f *filling) {
	if f.lost.Load() {
		w.a.Abandon(f.lease.ID)
	} else {
		w.a.Release(w.b, f.lease.ID)
	}
}

// Done releases the result of Reserve, after it was committed or abandoned.
func (w *Writer) Done(p Piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.of.users.Leave() {
		w.release(p.of)
	}
}

// renew gets the next segment. The caller holds w.reserving.
func (w *Writer) renew(ctx context.Context, n int64) error {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	size := min(max(last*2, store.Unit, n+Overhead), store.MaxSegment)
	if w.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.Patience, ErrNoRoom)
		defer cancel()
	}
	lease, err := w.a.Lease(ctx, Request{Buffer: w.b, UID: w.uid, Bytes: size, Min: n + store.DataAlign, NoWait: w.NoWait, Tier: w.tier})
	if err != nil && context.Cause(ctx) == ErrNoRoom {
		return ErrNoRoom
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = &filling{lease: lease, Cursor: segment.NewCursor(lease.DataStart, lease.RecordFloor)}
	return nil
}

// Overhead is the part of a segment that is not data: its header and records.
const Overhead = 16 << 10

// ReleaseIdle returns an idle lease when others wait for memory.
func (w *Writer) ReleaseIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil && w.now.users.Idle() {
		w.end()
	}
}

// maxLost is how often a Write begins again in another segment. Where a user cuts regions short all
// the time, that user's own writes fail.
const maxLost = 4

// Write copies p into segments and returns its extents for a commit at an offset of
// a file. After the commit Done is called for each of the pieces.
func (w *Writer) Write(ctx context.Context, p []byte, offset int64) (extents []store.NewExtent, pieces []Piece, err error) {
	for lost := 0; len(p) > 0; {
		n := min(len(p), MaxExtent)
		room, err := w.Reserve(ctx, int64(n))
		if err != nil {
			for _, piece := range pieces {
				w.Done(piece)
			}
			return nil, nil, err
		}
		pieces = append(pieces, room)
		var sum uint64
		err = room.guard("write", address(w.b), func() error {
			sum = checksum.Copy(room.Mem, p[:n], 0)
			return nil
		})
		if errors.Is(err, bb.Lost) && lost < maxLost {
			lost++
			continue
		}
		if err != nil {
			for _, piece := range pieces {
				w.Done(piece)
			}
			return nil, nil, err
		}
		extents = append(extents, store.NewExtent{
			Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: offset, Length: int64(n), Checksum: sum,
		})
		p, offset = p[n:], offset+int64(n)
	}
	return extents, pieces, nil
}

// Writers has the writers of a buffer. Its methods may be called concurrently.
type Writers struct {
	a  *Allocator
	b  Buffer
	mu struct {
		lockorder.Mutex[lockrank.SegmentWriters]
		by map[writerKey]*Writer
	}
}

// NewWriters returns the writers of a buffer.
func NewWriters(a *Allocator, b Buffer) *Writers {
	w := &Writers{a: a, b: b}
	w.mu.by = make(map[writerKey]*Writer)
	return w
}

// Of returns the segment writer of a user, for bytes that belong in a tier.
func (s *Writers) Of(uid uint32, tier bb.Tier) *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := writerKey{uid, tier}
	w := s.mu.by[key]
	if w == nil {
		w = NewWriter(s.a, s.b, uid, tier)
		s.mu.by[key] = w
	}
	return w
}

// ReleaseIdle returns the segments that the daemon itself fills and does not use now.
func (s *Writers) ReleaseIdle() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.by))
	s.mu.Unlock()
	for _, w := range all {
		w.ReleaseIdle()
	}
}

// Clear removes all writers, and returns the segments that they do not use now.
func (s *Writers) Clear() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.by))
	clear(s.mu.by)
	s.mu.Unlock()
	for _, w := range all {
		w.ReleaseIdle()
	}
}

type writerKey struct {
	uid  uint32
	tier bb.Tier
}
