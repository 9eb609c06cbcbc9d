package bbd

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
	"forebay/internal/segment"
	"forebay/internal/wire"
)

// maxExtent is the longest run of bytes under one checksum: what a damaged byte
// makes unreadable, and what a reader verifies at once.
const maxExtent = 4 << 20

// segmentWriter fills segments on behalf of those who cannot map them: inline
// commits, stage-in, and bytes that come back from the store. It is one per buffer
// and user; its lease is shared by all who write for them.
type segmentWriter struct {
	b      *buffer
	uid    uint32
	tier   bb.Tier // where the bytes belong
	noWait bool    // fail rather than wait for room
	// patience is how long it waits for room, before errNoRoom; 0: as long as it takes.
	patience time.Duration
	turn     chan struct{} // holds one token: who has it may ask for the next lease

	mu lockorder.Mutex[lockrank.SegmentWriter] // never held while waiting
	// now is the segment that is being filled; nil: none.
	now  *filling
	last int64 // bytes of the one before
}

// filling is a leased segment. What follows the lease is guarded by the writer's mu.
type filling struct {
	lease store.Lease
	segment.Cursor
	users segment.Users // pieces handed out and not yet committed
}

// piece is room for bytes in a leased segment.
type piece struct {
	of     *filling
	lease  bb.LeaseID
	offset int64 // in the segment
	mem    []byte
}

// readFrom fills the room from a stream as io.ReadFull does, and sums up what came.
func (p *piece) readFrom(from io.Reader) (n int64, sum uint64, err error) {
	err = store.Guard("read", "", func() error {
		got, err := io.ReadFull(from, p.mem)
		n, sum = int64(got), checksum.Sum(p.mem[:got])
		return err
	})
	return n, sum, err
}

func newSegmentWriter(b *buffer, uid uint32, tier bb.Tier) *segmentWriter {
	w := &segmentWriter{b: b, uid: uid, tier: tier, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// reserve returns room for n bytes, at most maxExtent, waiting for it as any writer
// does. The caller fills it, commits it and calls done.
func (w *segmentWriter) reserve(ctx context.Context, n int64) (piece, error) {
	select {
	case <-w.turn:
		defer func() { w.turn <- struct{}{} }()
	case <-ctx.Done():
		return piece{}, context.Cause(ctx)
	}
	for {
		if p, ok := w.take(n); ok {
			return p, nil
		}
		if err := w.renew(ctx, n+wire.RecordCost(1)); err != nil {
			return piece{}, err
		}
	}
}

// take takes room from the segment there is. One without enough is let go.
func (w *segmentWriter) take(n int64) (piece, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.now
	if f == nil {
		return piece{}, false
	}
	at, ok := f.TakeExtent(n, n)
	if !ok {
		w.letGo()
		return piece{}, false
	}
	f.users.Enter()
	return piece{f, f.lease.ID, at.Off, f.lease.Mem[at.Off:at.End:at.End]}, true
}

// letGo ends the filling of the segment there is. mu is held.
func (w *segmentWriter) letGo() {
	f := w.now
	w.now, w.last = nil, f.lease.Length
	if f.users.Retire() {
		w.b.d.releaseLease(w.b, f.lease.ID)
	}
}

// done gives back what reserve handed out, after it was committed or given up.
func (w *segmentWriter) done(p piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.of.users.Leave() {
		w.b.d.releaseLease(w.b, p.of.lease.ID)
	}
}

// renew gets the next segment. Its caller has the turn.
func (w *segmentWriter) renew(ctx context.Context, n int64) error {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	size := min(max(last*2, store.Unit, n+segmentOverhead), store.MaxSegment)
	if w.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.patience, errNoRoom)
		defer cancel()
	}
	lease, err := w.b.d.room.lease(ctx, leaseRequest{buffer: w.b, uid: w.uid, bytes: size, min: n + store.DataAlign, noWait: w.noWait, tier: w.tier})
	if err != nil && context.Cause(ctx) == errNoRoom {
		return errNoRoom
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = &filling{lease: lease, Cursor: segment.NewCursor(lease.DataStart, lease.RecordFloor)}
	return nil
}

// segmentOverhead is what a segment needs besides data: its header and records.
const segmentOverhead = 16 << 10

// relinquish gives an idle lease back when others wait for room.
func (w *segmentWriter) relinquish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil && w.now.users.Idle() {
		w.letGo()
	}
}

// write copies p into segments and returns its extents for a commit at an offset of
// a file. After the commit done is called for each of the pieces.
func (w *segmentWriter) write(ctx context.Context, p []byte, offset int64) (extents []store.NewExtent, pieces []piece, err error) {
	for len(p) > 0 {
		n := min(len(p), maxExtent)
		room, err := w.reserve(ctx, int64(n))
		if err != nil {
			for _, piece := range pieces {
				w.done(piece)
			}
			return nil, nil, err
		}
		pieces = append(pieces, room)
		var sum uint64
		err = store.Guard("write", w.b.address(""), func() error {
			sum = checksum.Copy(room.mem, p[:n], 0)
			return nil
		})
		if err != nil {
			for _, piece := range pieces {
				w.done(piece)
			}
			return nil, nil, err
		}
		extents = append(extents, store.NewExtent{
			Lease: room.lease, SegmentOffset: room.offset, FileOffset: offset, Length: int64(n), Checksum: sum,
		})
		p, offset = p[n:], offset+int64(n)
	}
	return extents, pieces, nil
}

// segmentWriters has the segment writers of a buffer.
type segmentWriters struct {
	b  *buffer
	mu struct {
		lockorder.Mutex[lockrank.SegmentWriters]
		by map[writerKey]*segmentWriter
	}
}

func newSegmentWriters(b *buffer) *segmentWriters {
	w := &segmentWriters{b: b}
	w.mu.by = make(map[writerKey]*segmentWriter)
	return w
}

// of returns the segment writer of a user, for bytes that belong in a tier.
func (s *segmentWriters) of(uid uint32, tier bb.Tier) *segmentWriter {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := writerKey{uid, tier}
	w := s.mu.by[key]
	if w == nil {
		w = newSegmentWriter(s.b, uid, tier)
		s.mu.by[key] = w
	}
	return w
}

// relinquish gives back the segments that the daemon itself fills and does not use now.
func (s *segmentWriters) relinquish() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.by))
	s.mu.Unlock()
	for _, w := range all {
		w.relinquish()
	}
}

// clear takes all writers out, and gives back what they do not use now.
func (s *segmentWriters) clear() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.by))
	clear(s.mu.by)
	s.mu.Unlock()
	for _, w := range all {
		w.relinquish()
	}
}

type writerKey struct {
	uid  uint32
	tier bb.Tier
}

// tierOf returns where the bytes of a file belong; of one that an attempt writes, where they
// do when its transaction is committed.
func (b *buffer) tierOf(ctx context.Context, path string) bb.Tier {
	rules := b.spec().Tiers
	if names := hiddenNames(path); len(rules) > 0 && ofAttempt(names) {
		if id, err := bb.ParseTxnID(names[1]); err == nil {
			if t, err := b.ns.Txn(ctx, id); err == nil {
				path = join(append([]string{t.Destination}, names[depthAttempt:]...))
			}
		}
	}
	return bb.TierOf(rules, path)
}
