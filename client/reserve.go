package client

import (
	"bytes"
	"context"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/segment"
)

// reserve hands out n bytes in a row, after giving up those that were reserved before.
func (w *writer) reserve(ctx context.Context, n int64) ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.unreserve()
	if n == 0 {
		return nil, nil
	}
	if m := w.claim.mem; m != nil && m.lease != nil && !w.session.alive() {
		if err := w.live(ctx, func(*session) error { return nil }); err != nil {
			return nil, err
		}
	}
	if w.isLaden() {
		if err := w.commit(ctx, false); err != nil {
			return nil, err
		}
	}
	// A reservation may end at any place of the file: one extent more than fit evenly.
	credits := (n+extentSize-1)/extentSize + 1
	if w.claim.Len() < n {
		w.lengthen(ctx, n-w.claim.Len())
	}
	if w.claim.Len() < n || !w.claim.payAll(credits) {
		w.drop(&w.claim)
		c, err := w.take(ctx, n, n)
		if isFull(err) {
			return nil, bb.E(bb.Invalid, "reserve", w.b.address(w.path), "one message does not carry so many bytes")
		}
		if err != nil {
			return nil, err
		}
		w.drop(&w.claim)
		w.claim = c
	}
	w.reserved = w.claim
	w.reserved.End = w.claim.Off + n
	w.reserved.credits, w.claim.credits = credits, max(0, w.claim.credits-credits)
	w.claim.Off += n
	w.took(w.claim.mem)
	return w.reserved.mem.bytes[w.reserved.Off:w.reserved.End:w.reserved.End], nil
}

// payAll is pay for several extents.
func (c *claim) payAll(credits int64) bool {
	if c.mem == nil || c.mem.lease == nil {
		return c.mem != nil
	}
	c.mem.mu.Lock()
	defer c.mem.mu.Unlock()
	if missing := credits - c.credits; missing > 0 {
		if !c.mem.Owe(missing * segment.RecordItem) {
			return false
		}
		c.credits = credits
	}
	return true
}

// unreserve gives back what is reserved, to the claim if that follows it.
func (w *writer) unreserve() {
	r := &w.reserved
	if r.mem != nil && r.mem == w.claim.mem && r.End == w.claim.Off {
		w.claim.Off = r.Off
		w.claim.credits += r.credits
		r.Off, r.credits = r.End, 0
	}
	w.drop(r)
}

// publish makes the first n reserved bytes the file's from off on.
func (w *writer) publish(ctx context.Context, n, off int64) error {
	if err := w.check(off, n); err != nil {
		return err
	}
	r := &w.reserved
	if n > 0 && w.comesTooEarly(r.mem, off, n) {
		if err := w.commit(ctx, false); err != nil {
			return err
		}
	}
	if n > 0 && (w.hold(r.mem).tight || r.mem.lease != nil && r.mem.lease.session != w.session) {
		// The lease has no room for the record, or is void: the one copy that is left. Its
		// memory is let go first, since it may be what the daemon leases next.
		own := bytes.Clone(r.mem.bytes[r.Off : r.Off+n])
		w.drop(r)
		_, err := w.write(ctx, own, off)
		return err
	}
	for n > 0 {
		k := min(n, extentSize-off%extentSize)
		from := r.Off
		e := w.add(r, off, k)
		e.sum = checksum.Update(e.sum, r.mem.bytes[from:from+k])
		w.grew(off, k)
		n, off = n-k, off+k
		if err := w.push(ctx, e, true); err != nil {
			return err
		}
	}
	w.unreserve()
	return nil
}
