package bbd

import (
	"context"
	"fmt"
	"slices"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// openRead opens the committed content of a file.
func (b *buffer) openRead(ctx context.Context, c access.Caller, path string) (e bb.Entry, snap *store.Snapshot, err error) {
	for range maxMoves {
		e, snap, err = b.openReadOnce(ctx, c, path)
		// The file may have moved, or been replaced or removed, between looking it up and
		// asking its home, or here or the store, for what it held then.
		kind := bb.KindOf(err)
		away := b.d.cluster != nil && !c.Relayed && (kind == bb.Busy || kind == bb.NotFound)
		gone := kind == bb.Lost || kind == bb.Checksum
		if !away && !gone {
			break
		}
		now, lookupErr := b.lookup(ctx, c, "open", path)
		if gone && bb.KindOf(lookupErr) == bb.NotFound {
			return now, nil, lookupErr
		}
		if lookupErr != nil || now.Revision == e.Revision {
			break
		}
	}
	return e, snap, err
}

func (b *buffer) openReadOnce(ctx context.Context, c access.Caller, path string) (bb.Entry, *store.Snapshot, error) {
	const op = "open"
	e, err := b.lookup(ctx, c, op, path)
	switch {
	case err != nil:
		return e, nil, err
	case c.Relayed && b.foreign(&e):
		return e, nil, errMoved(op, b.address(path))
	case e.IsDir():
		return e, nil, bb.E(bb.IsDirectory, op, b.address(path), "a directory cannot be read as a file")
	case !c.Permits(e.UID, e.GID, e.Mode, access.Read):
		return e, nil, access.Denied(op, b.address(path), "read it")
	case e.Lost:
		return e, nil, lost(op, b.address(path), &e)
	}
	snap, err := b.snapshot(ctx, &e, path)
	if err != nil {
		return e, nil, bb.Wrap(op, b.address(path), err)
	}
	b.readers.add(&e, snap, false)
	file, generation := snap.File()
	if fc := b.copies.of(copyKey{file, generation}); fc != nil {
		// The home keeps the generation for as long as it is open there.
		if _, _, err := fc.open(ctx); err != nil && (e.State() != bb.StateClean || ctx.Err() != nil) {
			b.closeRead(file, snap)
			return e, nil, bb.Wrap(op, b.address(path), err)
		}
	}
	return e, snap, nil
}

// openGeneration opens a generation for a daemon that has found it in the file's entry
// and whose reader may be older than what the entry says now.
func (b *buffer) openGeneration(ctx context.Context, c access.Caller, path string, file bb.FileID, n bb.Generation) (bb.Entry, *store.Snapshot, error) {
	if !c.Relayed || !c.System {
		return bb.Entry{}, nil, access.Denied("open", b.address(path), "open files by their number")
	}
	e, err := b.lookup(ctx, c, "open", path)
	if err == nil && e.File == file && e.Generation == n && !e.Open && !b.foreign(&e) {
		return b.openReadOnce(ctx, c, path)
	}
	snap, err := b.d.store.Snapshot(file, n)
	if err != nil {
		return bb.Entry{}, nil, bb.Wrap("open", b.address(path), err)
	}
	e = bb.Entry{Name: path, Type: bb.TypeFile, File: file, Generation: n, Size: snap.Size()}
	b.readers.add(&e, snap, true)
	return e, snap, nil
}

// snapshot opens a view of an entry's generation, bringing it back from the store
// when this node has nothing of it.
func (b *buffer) snapshot(ctx context.Context, e *bb.Entry, path string) (*store.Snapshot, error) {
	if e.Open && b.foreign(e) {
		c, err := b.mirror(ctx, e, path)
		if err != nil {
			return nil, err
		}
		e.File, e.Size, e.Generation = c.entry.File, c.size, c.generation
		return b.d.store.Snapshot(c.entry.File, c.generation)
	}
	for {
		snap, err := b.snapshotNow(e)
		if bb.KindOf(err) != bb.NotFound {
			return snap, err
		}
		if err := b.restore(ctx, e, path); err != nil {
			return nil, err
		}
	}
}

// snapshotNow never shows a generation that is only partly restored, or not yet verified.
func (b *buffer) snapshotNow(e *bb.Entry) (*store.Snapshot, error) {
	var snap *store.Snapshot
	err := b.readers.unlessRestoring(e.File, func() (err error) {
		snap, err = b.copies.snapshot(copyKey{e.File, e.Generation})
		return err
	})
	return snap, err
}

func (b *buffer) closeRead(file bb.FileID, snap *store.Snapshot) {
	b.readers.end(file, snap)
	_, generation := snap.File()
	snap.Close()
	if idle := b.copies.leave(copyKey{file, generation}); idle != nil {
		b.d.wg.Go(idle.rest)
	}
}

func lost(op, path string, e *bb.Entry) error {
	return bb.E(bb.Lost, op, path, e.LostReason())
}

// mayReadQuickly reports whether a range can be answered without waiting.
func (h *handle) mayReadQuickly(m *wire.ExtentsRequest) bool {
	if h.snap == nil || m.Inline || m.Layout || m.Offset < 0 || m.Length <= 0 {
		return false
	}
	for _, e := range h.snap.Extents(m.Offset, min(m.Length, maxWindow), 0) {
		if e.State == store.Evicted {
			return false
		}
	}
	return true
}

// maxWindow bounds what one request may pin.
const maxWindow = 256 << 20

func (h *handle) extentsRequest(ctx context.Context, r *rpc.Request, m *wire.ExtentsRequest) {
	switch {
	case h.err != nil:
		r.Fail(h.err)
		return
	case h.snap == nil || h.closed:
		r.Fail(bb.E(bb.Invalid, "read", h.path, "the handle is not open for reading"))
		return
	case m.Offset < 0 || m.Length < 0 || m.Offset > bb.MaxFileSize || m.Length > bb.MaxFileSize:
		r.Fail(bb.E(bb.Invalid, "read", h.path, fmt.Sprintf("%d bytes at offset %d are out of bounds", m.Length, m.Offset)))
		return
	}
	if m.Layout {
		r.Answer(h.layoutAnswer(ctx, m.Offset))
		return
	}
	answer, data, err := h.extents(ctx, m.Offset, min(m.Length, maxWindow), m.Inline)
	if err != nil {
		r.Fail(err)
		return
	}
	r.ReplyData(answer, data)
}

// extents answers where a range lies, pinned, or with the bytes themselves where the
// client asked for them, cannot reach them, or they are few.
func (h *handle) extents(ctx context.Context, offset, length int64, inline bool) (*wire.Extents, []byte, error) {
	size := h.snap.Size()
	length = max(0, min(length, size-offset))
	answer := &wire.Extents{Size: size}
	if length == 0 {
		return answer, nil, nil
	}
	length = min(length, h.d.shares.maxPinned)
	at, err := h.buf.reachRange(ctx, &h.tap, h.snap, &h.entry, offset, length)
	if err != nil {
		return nil, nil, bb.Wrap("read", h.path, err)
	}
	data := at.data
	if at.pinned != nil {
		at.extents = at.extents[:min(len(at.extents), layoutPage)] // the client asks for the rest
		last := &at.extents[len(at.extents)-1]
		length = last.FileOffset + last.Length - offset
		bytes := at.pinned.Bytes()
		if !inline && length > h.d.cfg.Limits.Inline && h.mayReach(at.extents) && h.s.Take(h.d.shares.pins, bytes) {
			if err := h.describeExtents(answer, at.extents); err != nil {
				(&pin{h, at.pinned, bytes}).Release(false)
				return nil, nil, err
			}
			answer.Pin = h.s.HoldNew(pins, &pin{h, at.pinned, bytes})
			h.d.observe.read(at.extents, length)
			return answer, nil, nil
		}
		defer at.pinned.Release()
		if data, err = h.gather(ctx, offset, min(length, wire.MaxData)); err != nil {
			return nil, nil, bb.Wrap("read", h.path, err)
		}
	}
	data = data[:min(int64(len(data)), length, wire.MaxData)]
	answer.DataLength = uint32(len(data))
	h.d.observe.read(at.extents, int64(len(data)))
	return answer, data, nil
}

// mayReach reports whether the client can reach every region that extents lie in.
func (h *handle) mayReach(extents []store.Extent) bool {
	if !h.s.Local() && clientOf(h.s).admission == nil {
		return false
	}
	if h.s.Caller().System && !clientOf(h.s).admission.MemoryOnly() {
		return true
	}
	for _, e := range extents {
		if e.State != store.Resident {
			continue
		}
		if info, _, err := h.d.store.Region(e.Region); err != nil || !mayReach(h.s, &info) {
			return false
		}
	}
	return true
}

func (h *handle) describeExtents(answer *wire.Extents, extents []store.Extent) error {
	for _, e := range extents {
		m := &wire.Extent{FileOffset: e.FileOffset, Length: e.Length}
		if e.State == store.Resident {
			m.Region, m.Offset, m.Checksum = uint64(e.Region), e.RegionOffset, e.Checksum
			m.CheckOffset, m.CheckLength = e.WholeOffset, e.WholeLength
			if !slices.ContainsFunc(answer.Regions, func(r *wire.Region) bool { return r.Id == m.Region }) {
				region, err := h.d.regionFor(h.s, e.Region)
				if err != nil {
					return bb.Wrap("read", h.path, err)
				}
				answer.Regions = append(answer.Regions, region)
			}
		}
		answer.Extents = append(answer.Extents, m)
	}
	return nil
}

// gather copies a pinned range, verified.
func (h *handle) gather(ctx context.Context, offset, length int64) ([]byte, error) {
	if err := h.snap.Verify(ctx, offset, length); err != nil {
		return nil, err
	}
	slices, err := h.snap.Slices(offset, length, nil)
	if err != nil {
		return nil, err
	}
	return mapped.Gather(make([]byte, 0, length), h.path, slices...)
}

func (d *Daemon) unpin(_ context.Context, r *rpc.Request, m *wire.Unpin) {
	for _, id := range m.Pins {
		r.Session().Release(rpc.Key{Kind: pins, ID: id})
	}
	r.Reply(&wire.Empty{})
}

// unpinAll releases what a handle's client left pinned.
func (h *handle) unpinAll() {
	var left []uint64
	h.s.Each(pins, func(id uint64, p rpc.Resource) {
		if p.(*pin).handle == h {
			left = append(left, id)
		}
	})
	for _, id := range left {
		h.s.Release(rpc.Key{Kind: pins, ID: id})
	}
}
