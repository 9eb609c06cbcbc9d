package bbd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/alloc"
	"forebay/bbd/dedup"
	"forebay/bbd/file"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// openHandle makes the handle that the client chose, and carries the open out on its queue.
func (d *Daemon) openHandle(r *rpc.Request, m *wire.Open) (rpc.Ordered, func(context.Context) (proto.Message, []byte, error), error) {
	s := r.Session()
	h := &handle{d: d, s: s, id: m.Handle}
	if m.Write {
		h.writes = m.Buffer
	}
	err := rpc.ErrInUse
	if m.Handle != 0 {
		err = s.Hold(h.key(), h, d.cfg.Limits.Handles)
	}
	switch {
	case err == rpc.ErrInUse:
		return nil, nil, bb.E(bb.Invalid, "open", m.Path, "the handle is 0 or in use")
	case err != nil:
		return nil, nil, bb.E(bb.Invalid, "open", m.Path, fmt.Sprintf("the session has %s open, no more are allowed", bb.Count(s.Held(handles), "file")))
	case !s.Take(d.shares.files, 1):
		s.Drop(h.key())
		return nil, nil, bb.E(bb.Busy, "open", m.Path, "this user has too many files open, and what is left is for others").
			WithRemedy("close some, in this and other programs, or raise limits.open_files")
	}
	return h, func(ctx context.Context) (proto.Message, []byte, error) {
		answer, data, err := h.open(ctx, m)
		h.err = err
		return answer, data, err
	}, nil
}

func (h *handle) key() rpc.Key { return rpc.Key{Kind: handles, ID: h.id} }

func (h *handle) open(ctx context.Context, m *wire.Open) (*wire.Opened, []byte, error) {
	b, err := h.d.bufferFor(ctx, h.s, "open", m.Buffer)
	if err != nil {
		return nil, nil, err
	}
	h.buf, h.path, h.opened, h.tier = b, b.address(clean(m.Path)), m, b.paths.TierOf(ctx, clean(m.Path))
	if m.Write {
		answer, err := h.openWrite(ctx, m)
		return answer, nil, err
	}
	return h.openRead(ctx, m)
}

func (h *handle) openWrite(ctx context.Context, m *wire.Open) (*wire.Opened, error) {
	o := file.OpenOptions{
		Path: clean(m.Path), Create: m.Create, Exclusive: m.Exclusive, Truncate: m.Truncate,
		Mode: fs.FileMode(m.Mode) & paths.PermissionBits, ResumeFile: bb.FileID(m.ResumeFile),
		ResumeGeneration: bb.Generation(m.ResumeGeneration), ResumeCommitted: m.ResumeCommitted,
		Fence: m.Fence, Writer: h.s.Client(),
	}
	var (
		f      *file.File
		closed *bb.Entry
		err    error
	)
	if o.ResumeFile != 0 {
		f, closed, err = h.buf.open.Resume(ctx, *h.s.Caller(), o)
	} else {
		f, err = h.buf.open.Open(ctx, *h.s.Caller(), o)
	}
	if there := (*file.ElsewhereError)(nil); errors.As(err, &there) {
		answer, failed := h.openRelay(ctx, there, m)
		if !there.Adoptable || bb.KindOf(failed) != bb.Unavailable || ctx.Err() != nil {
			return answer, bb.Wrap("open", h.path, failed)
		}
		o.Adopt = true
		f, err = h.buf.open.Open(ctx, *h.s.Caller(), o)
	}
	switch {
	case err != nil:
		return nil, bb.Wrap("open", h.path, err)
	case closed != nil:
		// A close may be what the client has not heard of.
		if h.buf.Spec().Durability == bb.DurabilityFlushed {
			if err := h.buf.closedFlushed(ctx, closed, o.Path); err != nil {
				return nil, err
			}
		}
		h.err = bb.E(bb.Invalid, "open", h.path, "the generation is closed")
		return &wire.Opened{
			Entry: h.buf.describe(closed), Generation: uint64(closed.Generation), AlreadyClosed: true,
			Committed: h.buf.open.LastCommit(closed.File, closed.Generation, m.ResumeWriter),
		}, nil
	}
	h.write = f
	e := f.Attach(h.s, h.s.Peer())
	return &wire.Opened{Entry: h.buf.describe(&e), Generation: uint64(f.Generation()), Tier: uint32(h.tier)}, nil
}

// openRelay opens a file for writing whose home is another node.
func (h *handle) openRelay(ctx context.Context, there *file.ElsewhereError, m *wire.Open) (*wire.Opened, error) {
	if h.s.Caller().Relayed {
		return nil, owner.Changed("open", h.path)
	}
	relay, opened, err := h.buf.forward.Open(ctx, *h.s.Caller(), there.Node, h.tier, h.d.nextID(), m)
	if err != nil {
		return nil, err
	}
	if opened.AlreadyClosed {
		h.err = bb.E(bb.Invalid, "open", h.path, "the generation is closed")
		return opened, nil
	}
	h.relay, opened.Tier = relay, uint32(h.tier)
	return opened, nil
}

func (h *handle) openRead(ctx context.Context, m *wire.Open) (*wire.Opened, []byte, error) {
	var (
		e    bb.Entry
		view *readcache.View
		err  error
	)
	if m.File != 0 {
		e, view, err = h.buf.openGeneration(ctx, *h.s.Caller(), clean(m.Path), bb.FileID(m.File), bb.Generation(m.Generation))
	} else {
		e, view, err = h.buf.openRead(ctx, *h.s.Caller(), clean(m.Path))
	}
	if err != nil {
		return nil, nil, err
	}
	h.view = view
	h.buf.usedFrom(e.File, h.s.Peer())
	e.Size = view.Snapshot().Size()
	answer := &wire.Opened{Entry: h.buf.describe(&e), Generation: uint64(e.Generation)}
	if m.Want == 0 {
		return answer, nil, nil
	}
	extents, data, err := h.extents(ctx, 0, int64(m.Want), false)
	if err != nil {
		return answer, nil, nil // opening succeeded; reading will say what is wrong
	}
	answer.Extents = extents
	return answer, data, nil
}

func (h *handle) mayCommitQuickly(m *wire.Commit) bool {
	if h.write == nil || m.Close || h.closed || !h.write.Published() {
		return false
	}
	for _, e := range m.Extents {
		if e.Lease == 0 {
			return false
		}
	}
	// Nothing on the reading goroutine may wait for the end of a freeze: another daemon's
	// session may bring it.
	h.entered = h.buf.gate.TryEnter()
	return h.entered
}

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
	err := h.buf.gate.Enter(ctx, "commit")
	h.entered = err == nil
	return err
}

func (h *handle) leave() {
	h.entered = false
	h.buf.gate.Leave()
}

func (h *handle) commit(ctx context.Context, data []byte, m *wire.Commit) (proto.Message, error) {
	switch {
	case h.err != nil:
		return nil, h.err
	case h.write == nil && h.relay == nil || h.closed:
		return nil, bb.E(bb.Invalid, "commit", h.path, "the handle is not open for writing")
	case m.Abort && (len(m.Extents) > 0 || !m.Close):
		return nil, bb.E(bb.Invalid, "commit", h.path, "an abort closes and has no extents")
	case h.relay != nil:
		return h.commitRelay(ctx, data, m)
	case m.Abort:
		h.write.Abandon(ctx)
		h.forget()
		return &wire.Committed{Generation: uint64(h.write.Generation()), File: uint64(h.write.ID())}, nil
	}
	answer, err := h.commitHere(ctx, data, m, false)
	for tries := 0; errors.Is(err, file.ErrSuperseded) && tries < maxMoves; tries++ {
		if err = h.follow(ctx); err != nil {
			break
		}
		if h.relay != nil {
			return h.commitRelay(ctx, data, m)
		}
		answer, err = h.commitHere(ctx, data, m, true)
	}
	if err != nil {
		return nil, bb.Wrap("commit", h.path, err)
	}
	return answer, nil
}

// commitRelay has the file's home carry a commit out.
func (h *handle) commitRelay(ctx context.Context, data []byte, m *wire.Commit) (proto.Message, error) {
	if m.Abort {
		h.relay.Abandon(ctx)
		h.forget()
		file, generation := h.relay.Generation()
		return &wire.Committed{Generation: uint64(generation), File: uint64(file)}, nil
	}
	answer, err := h.relay.Commit(ctx, m, data, func(id bb.LeaseID) bool { return holdsLease(h.s, id, h.buf) })
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
	o := file.OpenOptions{Path: clean(h.opened.Path), Create: true, Mode: fs.FileMode(h.opened.Mode) & paths.PermissionBits}
	f, err := h.buf.open.Open(ctx, *h.s.Caller(), o)
	if there := (*file.ElsewhereError)(nil); errors.As(err, &there) {
		_, err := h.openRelay(ctx, there, &wire.Open{Path: h.opened.Path, Create: true, Mode: h.opened.Mode})
		return err
	}
	if err == nil {
		h.write = f
	}
	return err
}

// commitHere commits to a file whose home is this node. Moved: the extents lay in
// segments for another generation, so their bytes are copied.
func (h *handle) commitHere(ctx context.Context, data []byte, m *wire.Commit, moved bool) (proto.Message, error) {
	in := m.Extents
	if moved {
		var err error
		if in, data, err = h.inlined(in, data); err != nil {
			return nil, err
		}
	}
	extents, written, err := h.newExtents(ctx, data, in)
	if err != nil {
		return nil, err
	}
	defer written()
	mtime := time.Now()
	if m.MtimeNs != 0 {
		mtime = time.Unix(0, m.MtimeNs)
	}
	f := h.write
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	var size int64
	if m.Close {
		size, err = f.Close(ctx, dedup.ID{Writer: m.Writer, Number: m.Number}, extents, mtime)
	} else {
		size, err = f.Commit(ctx, dedup.ID{Writer: m.Writer, Number: m.Number}, extents, mtime)
	}
	h.leave()
	if err == nil && m.Close {
		h.forget()
		err = h.flushedClose(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	return &wire.Committed{Size: size, Generation: uint64(f.Generation()), File: uint64(f.ID())}, nil
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
			if p, err = h.d.store.LeasedBytes(bb.LeaseID(e.Lease), e.SegmentOffset, e.Length); err != nil {
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

// newExtents translates a commit's extents, writing those that came as data into
// segments first. Written is called after the commit.
func (h *handle) newExtents(ctx context.Context, data []byte, in []*wire.NewExtent) (out []store.NewExtent, written func(), err error) {
	w := h.buf.writers.Of(h.s.Caller().UID, h.tier)
	var inline []alloc.Piece
	written = func() {
		for _, p := range inline {
			w.Done(p)
		}
	}
	invalid := func(why string) ([]store.NewExtent, func(), error) {
		written()
		return nil, nil, bb.E(bb.Invalid, "commit", h.path, why)
	}
	for _, e := range in {
		if e.FileOffset < 0 || e.Length <= 0 || e.FileOffset > bb.MaxFileSize-e.Length {
			return invalid(fmt.Sprintf("an extent of %d bytes at offset %d is out of bounds", e.Length, e.FileOffset))
		}
		if e.Lease != 0 {
			if !holdsLease(h.s, bb.LeaseID(e.Lease), h.buf) {
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
			return nil, nil, bb.Wrap("commit", h.path, err)
		}
		inline = append(inline, pieces...)
		var sum uint64
		for i := range extents {
			sum = checksum.Combine(sum, extents[i].Checksum, extents[i].Length)
		}
		if sum != e.Checksum {
			return nil, nil, checksumMismatch(h.path, e, written)
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

// forget takes the handle out of its session's.
func (h *handle) forget() {
	h.closed = true
	if f := h.write; f != nil && h.s.Peer() == "" {
		f.Detach(h.s)
	}
	h.s.Release(h.key())
}

// mayCloseQuickly: closing what was read never waits.
func (h *handle) mayCloseQuickly(*wire.Close) bool { return h.write == nil && h.relay == nil }

func (h *handle) closeRequest(ctx context.Context, r *rpc.Request, _ *wire.Close) {
	h.release(ctx)
	h.forget()
	r.Reply(&wire.Empty{})
}

// release lets go of what the handle has open. A writer that did not commit loses
// what it had not committed.
func (h *handle) release(ctx context.Context) {
	switch {
	case h.closed || h.err != nil:
	case h.relay != nil:
		h.relay.Abandon(ctx)
	case h.write != nil:
		h.write.Abandon(ctx)
	case h.view != nil:
		h.unpinAll()
		h.view.Close()
	}
}

// abandon is release for a session that ended: its context is over, so the daemon's is used.
//
// Another daemon's session may have broken for a moment only: what its clients write
// here waits for them as it does after a restart.
func (h *handle) abandon() {
	if h.s.Peer() != "" && h.write != nil && !h.closed && h.err == nil {
		h.write.Linger()
		return
	}
	h.release(h.d.ctx)
}

func (d *Daemon) lease(ctx context.Context, r *rpc.Request, m *wire.LeaseRequest) (proto.Message, error) {
	s := r.Session()
	b, err := d.bufferFor(ctx, s, "lease", m.Buffer)
	if err != nil {
		return nil, err
	}
	if !s.Local() && clientOf(s).admission == nil {
		return nil, bb.E(bb.Unsupported, "lease", b.address(""), "this client cannot reach regions").
			WithRemedy("send the bytes with the commit")
	}
	if m.Bytes < 0 {
		return nil, bb.E(bb.Invalid, "lease", b.address(""), fmt.Sprintf("%d bytes were asked for", m.Bytes))
	}
	if m.Tier > uint32(bb.TierDisk) {
		return nil, bb.E(bb.Invalid, "lease", b.address(""), fmt.Sprintf("there is no tier %d", m.Tier))
	}
	size := min(max(m.Bytes, d.cfg.Limits.LeaseMin), d.cfg.Limits.LeaseMax, d.alloc.MaxLease())
	files, said := int(min(m.Files, math.MaxInt32)), m.Files > 0
	if !said && m.Fits > 0 {
		files = 1 // of a client that does not say
	}
	l, err := d.alloc.Lease(ctx, alloc.Request{
		Buffer: memoryBuffer{b}, UID: s.Caller().UID, Client: s.ID(), Claimant: claimantOf(s), Bytes: size, Fits: min(max(m.Fits, 0), size),
		Tier: bb.Tier(m.Tier), Files: files, AllFiles: said, Commits: m.Commits,
	})
	if err != nil {
		return nil, bb.Wrap("lease", b.address(""), err)
	}
	key := rpc.Key{Kind: leases, ID: uint64(l.ID)}
	if s.Hold(key, newHeldLease(b, l.ID), d.cfg.Limits.Leases) != nil {
		d.alloc.Release(memoryBuffer{b}, l.ID)
		return nil, bb.E(bb.Busy, "lease", b.address(""), "the session holds too many leases").WithRemedy("return some")
	}
	region, err := d.regionFor(s, l.Region)
	if err != nil {
		return nil, err
	}
	return &wire.Lease{
		Id: uint64(l.ID), Region: region, Offset: l.Offset, Length: l.Length,
		DataStart: l.DataStart, RecordFloor: l.RecordFloor, Tiered: len(b.Spec().Tiers) > 0,
	}, nil
}

func (d *Daemon) returnLease(_ context.Context, r *rpc.Request, m *wire.ReturnLease) {
	if !r.Session().Release(rpc.Key{Kind: leases, ID: m.Id}) {
		r.Fail(bb.E(bb.Invalid, "return", "", fmt.Sprintf("lease %d is not this session's", m.Id)))
		return
	}
	r.Reply(&wire.Empty{})
}
