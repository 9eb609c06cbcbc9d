package writer

import (
	"bytes"
	"context"

	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/segment"
)

// Reserve returns n bytes in a row, after dropping those that were reserved before.
func (w *Writer) Reserve(ctx context.Context, n int64) ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.unreserve()
	if n == 0 {
		return nil, nil
	}
	if m := w.span.Mem; m != nil && m.Leased() && !w.session.Alive() {
		if err := w.withSession(ctx, func(*session.Session) error { return nil }); err != nil {
			return nil, err
		}
	}
	if w.isLaden() {
		if err := w.commit(ctx, false); err != nil {
			return nil, err
		}
	}
	// A reservation may end at any place of the file, so it may need one extent more than fit
	// evenly.
	recordSlots := (n+segment.ExtentSize-1)/segment.ExtentSize + 1
	if w.span.Len() < n {
		w.span.Lengthen(ctx, n-w.span.Len())
	}
	if w.span.Len() < n || !w.span.Pay(recordSlots) {
		w.drop(&w.span)
		c, err := w.take(ctx, n, n)
		if isFull(err) {
			return nil, bb.E(bb.Invalid, "reserve", w.Address(w.path), "one message does not carry so many bytes")
		}
		if err != nil {
			return nil, err
		}
		w.drop(&w.span)
		w.span = c
	}
	w.reserved = w.span.Split(n, recordSlots)
	w.took(w.span.Mem)
	return w.reserved.Bytes(), nil
}

// unreserve returns the reservation, to the span if that follows it.
func (w *Writer) unreserve() {
	w.span.Join(&w.reserved)
	w.drop(&w.reserved)
}

// ReservedLen is how many bytes are reserved.
func (w *Writer) ReservedLen() int64 { return w.reserved.Len() }

// Publish makes the first n reserved bytes the file's from off on.
func (w *Writer) Publish(ctx context.Context, n, off int64) error {
	if err := w.check(off, n); err != nil {
		return err
	}
	r := &w.reserved
	if n > 0 && w.comesTooEarly(r.Mem, off, n) {
		if err := w.commit(ctx, false); err != nil {
			return err
		}
	}
	if n > 0 && (w.hold(r.Mem).tight || !r.Mem.Of(w.session)) {
		// The lease has no room for the record, or is void, so this is the only copy. Its memory is
		// released first, since the daemon may lease it next.
		own := bytes.Clone(r.Bytes()[:n])
		w.drop(r)
		_, err := w.Write(ctx, own, off)
		return err
	}
	for n > 0 {
		k := min(n, segment.ExtentSize-off%segment.ExtentSize)
		p := r.Bytes()[:k]
		e := w.add(r, off, k)
		e.sum = checksum.Update(e.sum, p)
		w.grew(off, k)
		n, off = n-k, off+k
		if err := w.store(ctx, e, true); err != nil {
			return err
		}
	}
	w.unreserve()
	return nil
}
