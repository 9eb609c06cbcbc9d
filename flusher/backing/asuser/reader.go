package asuser

import (
	"context"
	"fmt"
	"io"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/internal/bb"
)

// ahead is the number of pieces of an object that a reader requests before they are read.
const ahead = 4

// reader reads an object piece by piece. It requests the next ones while one is read, as long as
// slots are free. Without a slot it requests few bytes at a time, which come in messages. A reader
// that stops must not keep others from reading.
type reader struct {
	ctx  context.Context
	w    *worker
	name string

	handle  uint64 // in the worker; 0: all was read
	next    int64  // offset of the next piece to request
	left    int64  // bytes that must still come; -1: up to the object's end
	asked   []*piece
	now     *piece // the piece that is read
	unread  []byte
	ended   bool // the object ends behind now
	missing bool // and bytes are missing
	closed  bool

	object *backing.Object // nil: the worker has not described it
}

// piece is a requested or received part of an object.
type piece struct {
	m    *protocol.Message
	call *call
}

// Get opens a file at an offset.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := backing.CheckName("get", name); err != nil {
		return nil, err
	}
	if err := backing.CheckRange("get", name, off); err != nil {
		return nil, err
	}
	var r *reader
	err := s.each(ctx, func(w *worker, store uint64) error {
		r = &reader{ctx: ctx, w: w, name: name, next: off, left: n}
		if n < 0 {
			r.left = -1
		}
		return r.open(store)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// open requests the first piece. The reader uses the worker until it is closed.
func (r *reader) open(store uint64) error {
	m := r.request()
	m.Op, m.Name, m.Store = protocol.OpGet, r.name, store
	reply, err := r.w.ask(r.ctx, m, r.name, func(late *protocol.Message) {
		r.give(m.Slot)
		r.w.drop(late)
	})
	if reply == nil {
		return err
	}
	if err != nil {
		r.give(m.Slot)
		return err
	}
	r.handle = reply.Handle
	if r.handle == 0 && r.left != 0 && !reply.Has(protocol.FlagEOF) {
		r.give(m.Slot)
		return bb.E(bb.Internal, "get", r.name, "the store worker returned no handle")
	}
	if err := r.describe(reply); err != nil {
		r.give(m.Slot)
		r.w.close(r.handle)
		return err
	}
	if err := r.take(&piece{m: m}, reply); err != nil {
		r.w.close(r.handle)
		return err
	}
	r.w.use()
	return nil
}

// describe reads the description of the object, if the reply has one. Workers are not trusted.
func (r *reader) describe(reply *protocol.Message) error {
	if len(reply.Items) == 0 {
		return nil
	}
	item, err := reply.One()
	if err != nil {
		return bb.Wrap("get", r.name, err)
	}
	o := item.Object()
	if o.Name != r.name || o.Xattrs.Check() != nil {
		return bb.E(bb.Internal, "get", r.name, "the store worker described another object")
	}
	r.object = &o
	return nil
}

// Object is for backing.Described.
func (r *reader) Object() (backing.Object, bool) {
	if r.object == nil {
		return backing.Object{}, false
	}
	return *r.object, true
}

// request returns the request for the next piece.
func (r *reader) request() *protocol.Message {
	m := &protocol.Message{Op: protocol.OpRead, Handle: r.handle, Off: r.next, Slot: r.w.reads.tryTake()}
	if m.N = protocol.SlotSize; m.Slot == protocol.NoSlot {
		m.N = protocol.MaxInline
	}
	if r.left >= 0 {
		m.N = min(m.N, r.left)
		r.left -= m.N
	}
	r.next += m.N
	return m
}

func (r *reader) give(slot int64) {
	if slot != protocol.NoSlot {
		r.w.reads.give(slot)
	}
}

// take makes a received piece the one that is read.
func (r *reader) take(p *piece, reply *protocol.Message) error {
	b := reply.Data
	if p.m.Slot != protocol.NoSlot {
		b = protocol.InSlot(r.w.mem, p.m.Slot, min(reply.N, p.m.N))
	}
	if reply.N < 0 || reply.N > p.m.N || int64(len(b)) != reply.N || reply.N < p.m.N && !reply.Has(protocol.FlagEOF) {
		r.give(p.m.Slot)
		return bb.E(bb.Internal, "get", r.name, fmt.Sprintf("the store worker returned %d bytes of %d", reply.N, p.m.N))
	}
	r.now, r.unread = p, b
	if reply.N < p.m.N {
		r.ended = true
		r.missing = r.left >= 0 // the requested range ends where the object does
	}
	return nil
}

// Read returns the next bytes.
func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, bb.Wrap("get", r.name, err)
	}
	if len(b) == 0 {
		return 0, nil
	}
	for len(r.unread) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	r.askAhead()
	n := copy(b, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

// fill waits for the next piece.
func (r *reader) fill() error {
	if r.now != nil {
		r.give(r.now.m.Slot)
		r.now = nil
	}
	switch {
	case r.closed:
		return bb.E(bb.Invalid, "get", r.name, "the reader is closed")
	case r.missing:
		return io.ErrUnexpectedEOF
	case r.ended:
		return io.EOF
	}
	if len(r.asked) == 0 {
		if r.left == 0 || r.handle == 0 {
			return io.EOF
		}
		if err := r.ask(r.request()); err != nil {
			return err
		}
	}
	p := r.asked[0]
	r.asked = r.asked[1:]
	reply, err := r.w.await(r.ctx, p.call, p.m, func(*protocol.Message) { r.give(p.m.Slot) })
	if reply == nil {
		return bb.Wrap("get", r.name, err)
	}
	if err := result(reply); err != nil {
		r.give(p.m.Slot)
		return err
	}
	return r.take(p, reply)
}

// ask sends the request for a piece.
func (r *reader) ask(m *protocol.Message) error {
	c, err := r.w.begin(r.ctx, m)
	if err != nil {
		r.give(m.Slot)
		return bb.Wrap("get", r.name, err)
	}
	r.asked = append(r.asked, &piece{m, c})
	return nil
}

// askAhead requests the pieces after the one that is read, while there are slots.
func (r *reader) askAhead() {
	for len(r.asked) < ahead && r.handle != 0 && !r.ended && r.left != 0 {
		next, left := r.next, r.left
		m := r.request()
		if m.Slot == protocol.NoSlot {
			r.next, r.left = next, left
			return
		}
		if r.ask(m) != nil {
			r.ended = false
			return
		}
	}
}

// Close releases the reader's slots. Requested pieces are dropped.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed, r.unread = true, nil
	if r.now != nil {
		r.give(r.now.m.Slot)
		r.now = nil
	}
	for _, p := range r.asked {
		slot := p.m.Slot
		r.w.abandon(p.m, p.call, func(*protocol.Message) { r.give(slot) })
	}
	r.w.close(r.handle)
	r.w.release()
	return nil
}
