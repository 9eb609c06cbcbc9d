package handle

import (
	"context"
	"fmt"
	"slices"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// OpenRead opens the committed content of a file.
func (b *Buffer) OpenRead(ctx context.Context, c access.Caller, path string) (e bb.Entry, v *readcache.View, err error) {
	for range owner.MaxMoves {
		e, v, err = b.openReadOnce(ctx, c, path)
		// The file may have moved, or been replaced or removed, between its lookup and the request
		// to its owner (or to this node or the store) for its content of that time.
		kind := bb.KindOf(err)
		away := !b.p.Owners.Alone && !c.Relayed && (kind == bb.Busy || kind == bb.NotFound)
		gone := kind == bb.Lost || kind == bb.Checksum
		if !away && !gone {
			break
		}
		now, lookupErr := b.p.Lookup(ctx, c, "open", path)
		if gone && bb.KindOf(lookupErr) == bb.NotFound {
			return now, nil, lookupErr
		}
		if lookupErr != nil || now.Revision == e.Revision {
			break
		}
	}
	return e, v, err
}

func (b *Buffer) openReadOnce(ctx context.Context, c access.Caller, path string) (bb.Entry, *readcache.View, error) {
	const op = "open"
	e, err := b.p.Lookup(ctx, c, op, path)
	switch {
	case err != nil:
		return e, nil, err
	case c.Relayed && b.p.Owners.OwnedElsewhere(&e):
		return e, nil, owner.Changed(op, b.address(path))
	case e.IsDir() || e.Type.Special():
		return e, nil, bb.NotFile(op, b.address(path), e.Type, e.Target)
	case !c.Permits(e.UID, e.GID, e.Mode, access.Read):
		return e, nil, access.Denied(op, b.address(path), "read it")
	case e.Lost:
		return e, nil, bb.E(bb.Lost, op, b.address(path), e.LostReason())
	}
	v, err := b.p.Cache.Open(ctx, &e, path)
	if err != nil {
		return e, nil, bb.Wrap(op, b.address(path), err)
	}
	return e, v, nil
}

// linearise moves the bytes of a file to a region of their own, if that can be, and opens the file as it is then. A file
// that cannot be linear is read where it lies.
func (h *handle) linearise(ctx context.Context, e bb.Entry, v *readcache.View) (bb.Entry, *readcache.View, error) {
	file, n := v.Snapshot().File()
	if h.of.o.Store.Linearise(ctx, file, n) != nil {
		return e, v, nil
	}
	v.Close()
	return h.buf.OpenRead(ctx, *h.s.Caller(), paths.Clean(h.opened.Path))
}

// openGeneration opens a generation for a daemon that has found it in the file's entry
// and whose reader may be older than the present entry.
func (b *Buffer) openGeneration(ctx context.Context, c access.Caller, path string, file bb.FileID, n bb.Generation) (bb.Entry, *readcache.View, error) {
	if !c.Relayed || !c.System {
		return bb.Entry{}, nil, access.Denied("open", b.address(path), "open files by their number")
	}
	e, err := b.p.Lookup(ctx, c, "open", path)
	if err == nil && e.File == file && e.Generation == n && !e.Open && !b.p.Owners.OwnedElsewhere(&e) {
		return b.openReadOnce(ctx, c, path)
	}
	v, err := b.p.Cache.OpenGeneration(path, file, n)
	if err != nil {
		return bb.Entry{}, nil, bb.Wrap("open", b.address(path), err)
	}
	return *v.Entry(), v, nil
}

// mayReadQuickly reports whether a range can be answered without waiting.
func (h *handle) mayReadQuickly(m *wire.ExtentsRequest) bool {
	if h.view == nil || m.Inline || m.Layout || m.Offset < 0 || m.Length <= 0 {
		return false
	}
	return !slices.ContainsFunc(h.view.Snapshot().Extents(m.Offset, min(m.Length, maxWindow), 0), readcache.IsEvicted)
}

// maxWindow bounds the bytes that one request may pin.
const maxWindow = 256 << 20

// extentsRequest answers where a range of a file lies, or with its bytes.
func (h *handle) extentsRequest(ctx context.Context, r *rpc.Request, m *wire.ExtentsRequest) {
	switch {
	case h.err != nil:
		r.Fail(h.err)
		return
	case h.view == nil || h.closed:
		r.Fail(bb.E(bb.Invalid, "read", h.path, "the handle is not open for reading"))
		return
	case m.Offset < 0 || m.Length < 0 || m.Offset > bb.MaxFileSize || m.Length > bb.MaxFileSize:
		r.Fail(bb.E(bb.Invalid, "read", h.path, fmt.Sprintf("%d bytes at offset %d are out of bounds", m.Length, m.Offset)))
		return
	}
	if m.Layout {
		answer, err := h.view.Layout(ctx, m.Offset)
		r.Answer(answer, bb.Wrap("read", h.path, err))
		return
	}
	answer, data, err := h.extents(ctx, m.Offset, min(m.Length, maxWindow), m.Inline)
	if err != nil {
		r.Fail(err)
		return
	}
	r.ReplyData(answer, data)
}

// extents answers where a range lies, pinned. It answers with the bytes themselves if the client
// requested them or cannot reach them, or if they are few.
func (h *handle) extents(ctx context.Context, offset, length int64, inline bool) (*wire.Extents, []byte, error) {
	size := h.view.Snapshot().Size()
	length = max(0, min(length, size-offset))
	answer := &wire.Extents{Size: size}
	if length == 0 {
		return answer, nil, nil
	}
	length = min(length, h.of.o.Shares.MaxPinned)
	at, err := h.view.Reach(ctx, offset, length)
	if err != nil {
		return nil, nil, bb.Wrap("read", h.path, err)
	}
	data := at.Data
	if at.Pinned != nil {
		at.Extents = at.Extents[:min(len(at.Extents), readcache.LayoutPage)] // the client requests the rest
		last := &at.Extents[len(at.Extents)-1]
		length = last.FileOffset + last.Length - offset
		bytes := at.Pinned.Bytes()
		if !inline && length > h.of.o.Limits.Inline && h.mayReach(at.Extents) && h.s.Take(h.of.o.Shares.Pins, bytes) {
			if err := h.describeExtents(answer, at.Extents); err != nil {
				(&pin{h, at.Pinned, bytes}).Release(false)
				return nil, nil, err
			}
			answer.Pin = h.s.HoldNew(Pins, &pin{h, at.Pinned, bytes})
			h.of.o.Read(at.Extents, length)
			return answer, nil, nil
		}
		defer at.Pinned.Release()
		if data, err = h.gather(ctx, offset, min(length, wire.MaxData)); err != nil {
			return nil, nil, bb.Wrap("read", h.path, err)
		}
	}
	data = data[:min(int64(len(data)), length, wire.MaxData)]
	answer.DataLength = uint32(len(data))
	h.of.o.Read(at.Extents, int64(len(data)))
	return answer, data, nil
}

// mayReach reports whether the client can reach every region that extents lie in.
func (h *handle) mayReach(extents []store.Extent) bool {
	if !h.s.Local() && h.of.o.Admission(h.s) == nil {
		return false
	}
	if h.s.Caller().System && !h.of.o.Admission(h.s).MemoryOnly() {
		return true
	}
	for _, e := range extents {
		if e.State != store.Resident {
			continue
		}
		if info, _, err := h.of.o.Store.Region(e.Region); err != nil || !h.of.mayReach(h.s, &info) {
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
				region, err := h.of.region(h.s, e.Region)
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
	if err := h.view.Snapshot().Verify(ctx, offset, length); err != nil {
		return nil, err
	}
	slices, err := h.view.Snapshot().Slices(offset, length, nil)
	if err != nil {
		return nil, err
	}
	return mapped.Gather(make([]byte, 0, length), h.path, slices...)
}

// Unpin releases ranges that a client reads in place.
func Unpin(_ context.Context, r *rpc.Request, m *wire.Unpin) {
	for _, id := range m.Pins {
		r.Session().Release(rpc.Key{Kind: Pins, ID: id})
	}
	r.Reply(&wire.Empty{})
}

// unpinAll releases the remaining pins of a handle's client.
func (h *handle) unpinAll() {
	var left []uint64
	h.s.Each(Pins, func(id uint64, p rpc.Resource) {
		if p.(*pin).handle == h {
			left = append(left, id)
		}
	})
	for _, id := range left {
		h.s.Release(rpc.Key{Kind: Pins, ID: id})
	}
}

// pin is a range of an open file that the client reads in place.
type pin struct {
	handle *handle
	held   *store.Pinned
	bytes  int64 // of the segments that it keeps
}

// Release makes the range evictable.
func (p *pin) Release(bool) {
	p.held.Release()
	p.handle.s.Give(p.handle.of.o.Shares.Pins, p.bytes)
}

// region describes a region to a client, with the key to its memory, if the client may reach it.
func (v *Service) region(s *rpc.Session, id bb.RegionID) (*wire.Region, error) {
	info, _, err := v.o.Store.Region(id)
	if err != nil {
		return nil, err
	}
	m := &wire.Region{Id: uint64(info.ID), Length: info.Bytes}
	switch {
	case !v.mayReach(s, &info):
	case s.Local():
		m.Path = info.Path
	default:
		m.Key, err = v.o.Admission(s).Key(id)
	}
	return m, err
}

// mayReach reports whether the client may touch all of a region's memory, and can.
func (v *Service) mayReach(s *rpc.Session, info *store.RegionInfo) bool {
	way := v.o.Admission(s)
	return (s.Local() || way != nil && (info.Tier == bb.TierMemory || !way.MemoryOnly())) &&
		(s.Caller().System || info.Owned && info.UID == s.Caller().UID)
}
