package handle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/alloc"
	"forebay/bbd/dedup"
	"forebay/bbd/file"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// mayCommitQuickly reports whether a commit can be carried out at once, of a generation that the
// namespace has, with bytes that lie in leases.
func (h *handle) mayCommitQuickly(m *wire.Commit) bool {
	if h.write == nil || m.Close || m.Extend > 0 || h.closed || !h.write.Published() {
		return false
	}
	for _, e := range m.Extents {
		if e.Lease == 0 {
			return false
		}
	}
	// Nothing on the reading goroutine may wait for the end of a freeze, since another daemon's
	// session may bring it.
	h.entered = h.buf.p.Gate.TryEnter()
	return h.entered
}

// commitRequest commits the written bytes, and closes the handle if the request includes that.
func (h *handle) commitRequest(ctx context.Context, r *rpc.Request, m *wire.Commit) {
	answer, err := h.commit(ctx, r.Data(), m)
	if h.entered { // it was refused before it came to that
		h.leave()
	}
	r.Answer(answer, err)
}

// enter begins a change of the handle's buffer, unless the request has.
func (h *handle) enter(ctx context.Context) error {
	if h.entered {
		return nil
	}
	err := h.buf.p.Gate.Enter(ctx, "commit")
	h.entered = err == nil
	return err
}

func (h *handle) leave() {
	h.entered = false
	h.buf.p.Gate.Leave()
}

func (h *handle) commit(ctx context.Context, data []byte, m *wire.Commit) (proto.Message, error) {
	switch {
	case h.err != nil:
		return nil, h.err
	case h.write == nil && h.forwarded == nil || h.closed:
		return nil, bb.E(bb.Invalid, "commit", h.path, "the handle is not open for writing")
	case m.Abort && (len(m.Extents) > 0 || m.Extend != 0 || !m.Close):
		return nil, bb.E(bb.Invalid, "commit", h.path, "an abort closes and has no extents")
	case h.forwarded != nil:
		return h.commitForwarded(ctx, data, m)
	case m.Abort:
		h.write.Abandon(ctx)
		h.forget()
		return &wire.Committed{Generation: uint64(h.write.Generation()), File: uint64(h.write.ID())}, nil
	}
	answer, err := h.commitHere(ctx, data, m, false)
	for tries := 0; errors.Is(err, file.ErrSuperseded) && tries < owner.MaxMoves; tries++ {
		if err = h.follow(ctx); err != nil {
			break
		}
		if h.forwarded != nil {
			return h.commitForwarded(ctx, data, m)
		}
		answer, err = h.commitHere(ctx, data, m, true)
	}
	if err != nil {
		return nil, bb.Wrap("commit", h.path, err)
	}
	return answer, nil
}

// commitForwarded has the file's owner carry a commit out.
func (h *handle) commitForwarded(ctx context.Context, data []byte, m *wire.Commit) (proto.Message, error) {
	if m.Abort {
		h.forwarded.Abandon(ctx)
		h.forget()
		file, generation := h.forwarded.Generation()
		return &wire.Committed{Generation: uint64(generation), File: uint64(file)}, nil
	}
	answer, err := h.forwarded.Commit(ctx, m, data, func(id bb.LeaseID) bool { return holdsLease(h.s, id, h.buf) })
	if err != nil {
		return nil, bb.Wrap("commit", h.path, err)
	}
	if m.Close {
		h.forget()
	}
	return answer, nil
}

// follow opens the generation that another node has begun meanwhile, to go on with it.
func (h *handle) follow(ctx context.Context) error {
	o := file.OpenOptions{Path: paths.Clean(h.opened.Path), Create: true, Mode: fs.FileMode(h.opened.Mode) & paths.PermissionBits}
	f, err := h.buf.p.Files.Open(ctx, *h.s.Caller(), o)
	there := (*file.NotOwnerError)(nil)
	if errors.As(err, &there) {
		_, err = h.openForwarded(ctx, there, &wire.Open{Path: h.opened.Path, Create: true, Mode: h.opened.Mode})
	}
	if err != nil {
		return err
	}
	h.detach()
	h.follows = true
	if h.write = f; f != nil {
		f.Attach(h.s, h.s.Peer())
	}
	return nil
}

// commitHere commits to a file whose owner is this node. Moved: the extents lay in
// segments for another generation, so their bytes are copied.
func (h *handle) commitHere(ctx context.Context, data []byte, m *wire.Commit, moved bool) (proto.Message, error) {
	in := m.Extents
	if moved {
		var err error
		if in, data, err = h.inlined(in, data); err != nil {
			return nil, err
		}
	}
	extents, written, err := h.buf.NewExtents(ctx, Destination{h.s, h.path, h.tier}, data, in)
	if err != nil {
		return nil, err
	}
	defer written()
	last, filled, err := h.lastByte(ctx, m.Extend)
	if err != nil {
		return nil, err
	}
	defer filled()
	c := file.Commit{ID: dedup.ID{Writer: m.Writer, Number: m.Number}, Last: last, Extents: extents, MTime: time.Now()}
	if m.MtimeNs != 0 {
		c.MTime = time.Unix(0, m.MtimeNs)
	}
	f := h.write
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	var size int64
	if m.Close {
		size, err = f.Close(ctx, c)
	} else {
		size, err = f.Commit(ctx, c)
	}
	h.leave()
	if err == nil && m.Close {
		h.forget()
		err = h.flushedClose(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	alone := m.Close && !h.follows && f.Alone()
	return &wire.Committed{Size: size, Generation: uint64(f.Generation()), File: uint64(f.ID()), Alone: alone}, nil
}

// lastByte makes the zero that ends a file of the size, 0: of any. Written is called after the commit.
func (h *handle) lastByte(ctx context.Context, size int64) (last []store.NewExtent, written func(), err error) {
	if size == 0 {
		return nil, func() {}, nil
	}
	zero := []byte{0}
	return h.buf.NewExtents(ctx, Destination{h.s, h.path, h.tier}, zero,
		[]*wire.NewExtent{{FileOffset: size - 1, Length: 1, Checksum: checksum.Sum(zero)}})
}

// inlined turns extents that lie in leases into extents that came as data.
func (h *handle) inlined(in []*wire.NewExtent, data []byte) (out []*wire.NewExtent, all []byte, err error) {
	for _, e := range in {
		var p []byte
		switch {
		case e.Lease == 0 && e.Length >= 0 && e.Length <= int64(len(data)):
			p, data = data[:e.Length], data[e.Length:]
		case e.Lease == 0 || !holdsLease(h.s, bb.LeaseID(e.Lease), h.buf):
			return nil, nil, bb.E(bb.Invalid, "commit", h.path, "an extent is neither in a lease nor in the data")
		default:
			if p, err = h.of.o.Store.LeasedBytes(bb.LeaseID(e.Lease), e.SegmentOffset, e.Length); err != nil {
				return nil, nil, err
			}
		}
		out = append(out, &wire.NewExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum})
		if all, err = mapped.Gather(all, h.path, p); err != nil {
			return nil, nil, err
		}
	}
	return out, all, nil
}

// Destination is where the extents of a commit go.
type Destination struct {
	Session *rpc.Session // of the client, with its leases
	Path    string       // for messages
	Tier    bb.Tier
}

// NewExtents translates a commit's extents, writing those that came as data into
// segments first. Written is called after the commit.
func (b *Buffer) NewExtents(ctx context.Context, to Destination, data []byte, in []*wire.NewExtent) (out []store.NewExtent, written func(), err error) {
	w := b.p.Segments.Of(to.Session.Caller().UID, to.Tier)
	var inline []alloc.Piece
	written = func() {
		for _, p := range inline {
			w.Done(p)
		}
	}
	invalid := func(why string) ([]store.NewExtent, func(), error) {
		written()
		return nil, nil, bb.E(bb.Invalid, "commit", to.Path, why)
	}
	for _, e := range in {
		if e.FileOffset < 0 || e.Length <= 0 || e.FileOffset > bb.MaxFileSize-e.Length {
			return invalid(fmt.Sprintf("an extent of %d bytes at offset %d is out of bounds", e.Length, e.FileOffset))
		}
		if e.Lease != 0 {
			if !holdsLease(to.Session, bb.LeaseID(e.Lease), b) {
				return invalid(fmt.Sprintf("lease %d is not this session's for this buffer", e.Lease))
			}
			out = append(out, store.NewExtent{
				Lease: bb.LeaseID(e.Lease), SegmentOffset: e.SegmentOffset,
				FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum,
			})
			continue
		}
		if e.Length > int64(len(data)) {
			return invalid("an extent announces more data than came")
		}
		extents, pieces, err := w.Write(ctx, data[:e.Length], e.FileOffset)
		if err != nil {
			written()
			return nil, nil, bb.Wrap("commit", to.Path, err)
		}
		inline = append(inline, pieces...)
		var sum uint64
		for i := range extents {
			sum = checksum.Combine(sum, extents[i].Checksum, extents[i].Length)
		}
		if sum != e.Checksum {
			return nil, nil, checksumMismatch(to.Path, e, written)
		}
		out = append(out, extents...)
		data = data[e.Length:]
	}
	if len(data) > 0 {
		return invalid("more data came than the extents announce")
	}
	return out, written, nil
}

func checksumMismatch(path string, e *wire.NewExtent, release func()) error {
	release()
	return bb.E(bb.Checksum, "commit", path,
		fmt.Sprintf("bytes %d to %d do not have the checksum that came with them", e.FileOffset, e.FileOffset+e.Length))
}
