// Package handle answers requests that open, commit, read and close files, and those for segments to fill. A
// handle is a file of a session's client, with its pins and leases. It must never depend on the
// order of commits, the source of bytes that are not in memory, nor on their way to another node.
package handle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/file"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// handle is one open file of a session. Requests on it are carried out one after
// the other, in the order in which they were read.
type handle struct {
	of    *Service
	s     *rpc.Session
	id    uint64
	order rpc.Queue

	writes string // the buffer that it is opened for writing in; "": it is for reading

	// Set by the open request, before any other runs. write and forwarded change with a commit that
	// finds the generation superseded.
	err       error // why the open failed
	opened    *wire.Open
	buf       *Buffer
	path      string          // as it was opened, for messages
	tier      bb.Tier         // where the bytes of the file belong
	write     *file.File      // for writing
	forwarded Forwarded       // for writing a file whose owner is another node
	view      *readcache.View // for reading

	closed  bool // by the queue's requests alone
	entered bool // a change of the buffer is under way, likewise; see Gate
	follows bool // write is not the generation that was opened, likewise
}

// Order has the requests on the handle.
func (h *handle) Order() *rpc.Queue { return &h.order }

// Release ends a handle that was closed, or that its session leaves open (see abandon).
func (h *handle) Release(lost bool) {
	if lost {
		h.abandon()
	}
	h.s.Give(h.of.o.Shares.Files, 1)
}

// Open makes the handle that the client chose, and carries the open out on its queue.
func (v *Service) Open(r *rpc.Request, m *wire.Open) (rpc.Ordered, func(context.Context) (proto.Message, []byte, error), error) {
	s := r.Session()
	h := &handle{of: v, s: s, id: m.Handle}
	if m.Write {
		h.writes = m.Buffer
	}
	err := rpc.ErrInUse
	if m.Handle != 0 {
		err = s.Hold(h.key(), h, v.o.Limits.Handles)
	}
	switch {
	case err == rpc.ErrInUse:
		return nil, nil, bb.E(bb.Invalid, "open", m.Path, "the handle is 0 or in use")
	case err != nil:
		return nil, nil, bb.E(bb.Invalid, "open", m.Path, fmt.Sprintf("the session has %s open, no more are allowed", bb.Count(s.Held(Handles), "file")))
	case !s.Take(v.o.Shares.Files, 1):
		s.Drop(h.key())
		return nil, nil, bb.E(bb.Busy, "open", m.Path, "this user has too many files open, and the rest is reserved for others").
			WithRemedy("close some, in this and other programs, or raise limits.open_files")
	}
	return h, func(ctx context.Context) (proto.Message, []byte, error) {
		answer, data, err := h.open(ctx, m)
		h.err = err
		return answer, data, err
	}, nil
}

func (h *handle) key() rpc.Key { return rpc.Key{Kind: Handles, ID: h.id} }

func (h *handle) open(ctx context.Context, m *wire.Open) (*wire.Opened, []byte, error) {
	b, err := h.of.o.Enter(ctx, h.s, "open", m.Buffer)
	if err != nil {
		return nil, nil, err
	}
	h.buf, h.path, h.opened, h.tier = b, b.address(paths.Clean(m.Path)), m, b.p.Tier(ctx, paths.Clean(m.Path))
	if m.Write {
		answer, err := h.openWrite(ctx, m)
		return answer, nil, err
	}
	return h.openRead(ctx, m)
}

func (h *handle) openWrite(ctx context.Context, m *wire.Open) (*wire.Opened, error) {
	o := file.OpenOptions{
		Path: paths.Clean(m.Path), Create: m.Create, Exclusive: m.Exclusive, Truncate: m.Truncate,
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
		f, closed, err = h.buf.p.Files.Resume(ctx, *h.s.Caller(), o)
	} else {
		f, err = h.buf.p.Files.Open(ctx, *h.s.Caller(), o)
	}
	if there := (*file.NotOwnerError)(nil); errors.As(err, &there) {
		answer, failed := h.openForwarded(ctx, there, m)
		if !there.Adoptable || bb.KindOf(failed) != bb.Unavailable || ctx.Err() != nil {
			return answer, bb.Wrap("open", h.path, failed)
		}
		o.Adopt = true
		f, err = h.buf.p.Files.Open(ctx, *h.s.Caller(), o)
	}
	switch {
	case err != nil:
		return nil, bb.Wrap("open", h.path, err)
	case closed != nil:
		// The client may have missed the answer to a close.
		if h.buf.p.Spec().Durability == bb.DurabilityFlushed {
			if err := h.buf.closedFlushed(ctx, closed, o.Path); err != nil {
				return nil, err
			}
		}
		h.err = bb.E(bb.Invalid, "open", h.path, "the generation is closed")
		return &wire.Opened{
			Entry: h.buf.p.Describe(closed), Generation: uint64(closed.Generation), AlreadyClosed: true,
			Committed: h.buf.p.Files.LastCommit(closed.File, closed.Generation, m.ResumeWriter),
		}, nil
	}
	h.write = f
	e := f.Attach(h.s, h.s.Peer())
	return &wire.Opened{Entry: h.buf.p.Describe(&e), Generation: uint64(f.Generation()), Tier: uint32(h.tier)}, nil
}

// openForwarded opens a file for writing whose owner is another node.
func (h *handle) openForwarded(ctx context.Context, there *file.NotOwnerError, m *wire.Open) (*wire.Opened, error) {
	if h.s.Caller().Relayed {
		return nil, owner.Changed("open", h.path)
	}
	forwarded, opened, err := h.buf.p.Forward(ctx, *h.s.Caller(), there.Node, h.tier, h.of.o.NextID(), m)
	if err != nil {
		return nil, err
	}
	if opened.AlreadyClosed {
		h.err = bb.E(bb.Invalid, "open", h.path, "the generation is closed")
		return opened, nil
	}
	h.forwarded, opened.Tier = forwarded, uint32(h.tier)
	return opened, nil
}

func (h *handle) openRead(ctx context.Context, m *wire.Open) (*wire.Opened, []byte, error) {
	var (
		e    bb.Entry
		view *readcache.View
		err  error
	)
	if m.File != 0 {
		e, view, err = h.buf.openGeneration(ctx, *h.s.Caller(), paths.Clean(m.Path), bb.FileID(m.File), bb.Generation(m.Generation))
	} else {
		e, view, err = h.buf.OpenRead(ctx, *h.s.Caller(), paths.Clean(m.Path))
	}
	if err == nil && m.Linear && h.s.Local() {
		e, view, err = h.linearise(ctx, e, view)
	}
	if err != nil {
		return nil, nil, err
	}
	h.view = view
	h.buf.p.UsedFrom(e.File, h.s.Peer())
	e.Size = view.Snapshot().Size()
	answer := &wire.Opened{Entry: h.buf.p.Describe(&e), Generation: uint64(e.Generation)}
	if m.Want == 0 {
		return answer, nil, nil
	}
	extents, data, err := h.extents(ctx, 0, int64(m.Want), false)
	if err != nil {
		return answer, nil, nil // opening succeeded. Reading will return the error
	}
	answer.Extents = extents
	return answer, data, nil
}

// forget takes the handle out of its session's.
func (h *handle) forget() {
	h.closed = true
	h.detach()
	h.s.Release(h.key())
}

// detach notes that the client does not have the file open by this handle any more.
func (h *handle) detach() {
	if f := h.write; f != nil && h.s.Peer() == "" {
		f.Detach(h.s)
	}
}

// mayCloseQuickly reports whether a close never waits, as of a file that was read.
func (h *handle) mayCloseQuickly(*wire.Close) bool { return h.write == nil && h.forwarded == nil }

// closeRequest closes a handle.
func (h *handle) closeRequest(ctx context.Context, r *rpc.Request, _ *wire.Close) {
	h.release(ctx)
	h.forget()
	r.Reply(&wire.Empty{})
}

// release closes the handle's open files. A writer that did not commit loses
// its uncommitted writes.
func (h *handle) release(ctx context.Context) {
	switch {
	case h.closed || h.err != nil:
	case h.forwarded != nil:
		h.forwarded.Abandon(ctx)
	case h.write != nil:
		h.write.Abandon(ctx)
	case h.view != nil:
		h.unpinAll()
		h.view.Close()
	}
}

// abandon is release for a session that ended, since its context is over, so the daemon's is used.
//
// Another daemon's session may have broken for a moment only. Its clients' files here wait for them
// as they do after a restart.
func (h *handle) abandon() {
	if h.s.Peer() != "" && h.write != nil && !h.closed && h.err == nil {
		h.write.AwaitReconnect()
		return
	}
	h.release(h.of.ctx)
}
