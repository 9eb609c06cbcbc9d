package asuser

import (
	"context"
	"fmt"
	"io"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// ahead is how many pieces of an object a reader asks for before they are read.
const ahead = 4

// reader reads an object piece by piece. It asks for the next ones while one is read, as long as
// slots are free; without a slot it asks for few bytes at a time, which come in messages: whoever
// does not read on must not keep others from reading.
type reader struct {
	ctx  context.Context
	w    *worker
	name string

	handle  uint64 // in the worker; 0: all was read
	next    int64  // offset of the next piece to ask for
	left    int64  // bytes that must still come; -1: up to the object's end
	asked   []*piece
	now     *piece // whose bytes are read
	unread  []byte
	ended   bool // the object ends behind now
	missing bool // and bytes are missing
	closed  bool
}

// piece is a part of an object that was asked for, or has come.
type piece struct {
	m    *message
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

// open asks for the first piece. The reader uses the worker until it is closed.
func (r *reader) open(store uint64) error {
	m := r.request()
	m.op, m.name, m.store = opGet, r.name, store
	reply, err := r.w.ask(r.ctx, m, r.name, func(late *message) {
		r.give(m.slot)
		r.w.drop(late)
	})
	if reply == nil {
		return err
	}
	if err != nil {
		r.give(m.slot)
		return err
	}
	r.handle = reply.handle
	if r.handle == 0 && r.left != 0 && !reply.has(flagEOF) {
		r.give(m.slot)
		return bb.E(bb.Internal, "get", r.name, "the store worker returned no handle")
	}
	if err := r.take(&piece{m: m}, reply); err != nil {
		r.w.close(r.handle)
		return err
	}
	r.w.use()
	return nil
}

// request returns the request for the next piece.
func (r *reader) request() *message {
	m := &message{op: opRead, handle: r.handle, off: r.next, slot: r.w.reads.tryTake()}
	if m.n = slotSize; m.slot == noSlot {
		m.n = maxInline
	}
	if r.left >= 0 {
		m.n = min(m.n, r.left)
		r.left -= m.n
	}
	r.next += m.n
	return m
}

func (r *reader) give(slot int64) {
	if slot != noSlot {
		r.w.reads.give(slot)
	}
}

// take makes a piece that has come the one that is read.
func (r *reader) take(p *piece, reply *message) error {
	b := reply.data
	if p.m.slot != noSlot {
		b = inSlot(r.w.mem, p.m.slot, min(reply.n, p.m.n))
	}
	if reply.n < 0 || reply.n > p.m.n || int64(len(b)) != reply.n || reply.n < p.m.n && !reply.has(flagEOF) {
		r.give(p.m.slot)
		return bb.E(bb.Internal, "get", r.name, fmt.Sprintf("the store worker returned %d bytes of %d", reply.n, p.m.n))
	}
	r.now, r.unread = p, b
	if reply.n < p.m.n {
		r.ended = true
		r.missing = r.left >= 0 // what was asked for ends where all of it would
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
		r.give(r.now.m.slot)
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
	reply, err := r.w.await(r.ctx, p.call, p.m, func(*message) { r.give(p.m.slot) })
	if reply == nil {
		return bb.Wrap("get", r.name, err)
	}
	if err := reply.result(); err != nil {
		r.give(p.m.slot)
		return err
	}
	return r.take(p, reply)
}

// ask sends the request for a piece.
func (r *reader) ask(m *message) error {
	c, err := r.w.begin(r.ctx, m)
	if err != nil {
		r.give(m.slot)
		return bb.Wrap("get", r.name, err)
	}
	r.asked = append(r.asked, &piece{m, c})
	return nil
}

// askAhead asks for the pieces after the one that is read, while there are slots.
func (r *reader) askAhead() {
	for len(r.asked) < ahead && r.handle != 0 && !r.ended && r.left != 0 {
		next, left := r.next, r.left
		m := r.request()
		if m.slot == noSlot {
			r.next, r.left = next, left
			return
		}
		if r.ask(m) != nil {
			r.ended = false
			return
		}
	}
}

// Close gives back what the reader holds. What was asked for comes to nobody.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed, r.unread = true, nil
	if r.now != nil {
		r.give(r.now.m.slot)
		r.now = nil
	}
	for _, p := range r.asked {
		slot := p.m.slot
		r.w.abandon(p.m, p.call, func(*message) { r.give(slot) })
	}
	r.w.close(r.handle)
	r.w.release()
	return nil
}
