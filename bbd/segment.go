package bbd

import (
	"context"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// maxExtent is the longest run of bytes under one checksum: what a damaged byte
// makes unreadable, and what a reader verifies at once.
const maxExtent = 4 << 20

// segmentWriter fills segments on behalf of those who cannot map them: inline
// commits, stage-in, and bytes that come back from the store. It is one per buffer
// and user; its lease is shared by all who write for them.
type segmentWriter struct {
	b    *buffer
	uid  uint32
	turn chan struct{} // holds one token: who has it may use what follows

	lease store.Lease
	pos   int64 // next free byte of the segment
	floor int64 // end of what may be filled
	users int   // pieces handed out and not yet committed
	stale []bb.LeaseID
}

// piece is room for bytes in a leased segment.
type piece struct {
	lease  bb.LeaseID
	offset int64 // in the segment
	mem    []byte
}

func newSegmentWriter(b *buffer, uid uint32) *segmentWriter {
	w := &segmentWriter{b: b, uid: uid, turn: make(chan struct{}, 1)}
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
	cost := wire.RecordCost(1)
	if w.lease.ID == 0 || w.pos+n+cost > w.floor {
		if err := w.renew(ctx, n+cost); err != nil {
			return piece{}, err
		}
	}
	p := piece{w.lease.ID, w.pos, w.lease.Mem[w.pos : w.pos+n : w.pos+n]}
	w.pos = align(w.pos + n)
	w.floor -= cost
	w.users++
	return p, nil
}

// done gives back what reserve handed out, after it was committed or given up.
func (w *segmentWriter) done() {
	<-w.turn
	defer func() { w.turn <- struct{}{} }()
	if w.users--; w.users == 0 {
		w.retire()
	}
}

func (w *segmentWriter) renew(ctx context.Context, n int64) error {
	last := w.lease.Length
	if w.lease.ID != 0 {
		w.stale = append(w.stale, w.lease.ID)
		w.lease = store.Lease{}
	}
	size := min(max(last*2, store.Unit, n+segmentOverhead), store.MaxSegment)
	lease, err := w.b.d.room.lease(ctx, leaseRequest{buffer: w.b, uid: w.uid, bytes: size, min: n + store.DataAlign})
	if err != nil {
		return err
	}
	w.lease, w.pos, w.floor = lease, align(lease.DataStart), lease.RecordFloor
	return nil
}

// segmentOverhead is what a segment needs besides data: its header and records.
const segmentOverhead = 16 << 10

// relinquish gives an idle lease back when others wait for room.
func (w *segmentWriter) relinquish() {
	select {
	case <-w.turn:
	default:
		return // in use
	}
	defer func() { w.turn <- struct{}{} }()
	if w.users == 0 && w.lease.ID != 0 {
		w.stale = append(w.stale, w.lease.ID)
		w.lease = store.Lease{}
		w.retire()
	}
}

// retire releases full segments once nothing uncommitted is in them.
func (w *segmentWriter) retire() {
	for _, id := range w.stale {
		w.b.d.store.Release(id)
	}
	w.stale = nil
}

func align(n int64) int64 { return (n + store.DataAlign - 1) &^ (store.DataAlign - 1) }

// write copies p into segments and returns its extents for a commit at an offset of
// a file. After the commit done is called once for each of them.
func (w *segmentWriter) write(ctx context.Context, p []byte, offset int64) ([]store.NewExtent, error) {
	var extents []store.NewExtent
	for len(p) > 0 {
		n := min(len(p), maxExtent)
		room, err := w.reserve(ctx, int64(n))
		if err != nil {
			for range extents {
				w.done()
			}
			return nil, err
		}
		sum := checksum.Copy(room.mem, p[:n], 0)
		extents = append(extents, store.NewExtent{
			Lease: room.lease, SegmentOffset: room.offset, FileOffset: offset, Length: int64(n), Checksum: sum,
		})
		p, offset = p[n:], offset+int64(n)
	}
	return extents, nil
}

// writer returns the segment writer of a user of the buffer.
func (b *buffer) writer(uid uint32) *segmentWriter {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.mu.writers[uid]
	if w == nil {
		w = newSegmentWriter(b, uid)
		b.mu.writers[uid] = w
	}
	return w
}

// relinquish gives back the segments that the daemon itself fills and does not use now.
func (b *buffer) relinquish() {
	b.mu.Lock()
	writers := make([]*segmentWriter, 0, len(b.mu.writers))
	for _, w := range b.mu.writers {
		writers = append(writers, w)
	}
	b.mu.Unlock()
	for _, w := range writers {
		w.relinquish()
	}
}
