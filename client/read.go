package client

import (
	"context"
	"errors"
	"io"

	"forebay/internal/bb"
)

// readAt reads what was committed with what was written over it.
func (w *writer) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if !w.o.Truncate || w.committed || !w.session.alive() {
		// The size, what is below, or the memory that what is pending lies in may have to
		// be found first.
		if err := w.settled(ctx); err != nil {
			return 0, err
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	if left := max(0, w.size-off); int64(len(p)) > left {
		p, err = p[:left], io.EOF
	}
	if berr := w.readBase(ctx, p, off); berr != nil {
		return 0, berr
	}
	for i := range w.pending {
		e := &w.pending[i]
		if from, to := max(off, e.off), min(off+int64(len(p)), e.off+e.length); from < to {
			copy(p[from-off:to-off], e.bytes()[from-e.off:to-e.off])
		}
	}
	return len(p), err
}

// readBase reads what was committed; zeros, where there is nothing.
func (w *writer) readBase(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	if !w.committed && (w.o.Truncate || w.entry.Size == 0) {
		clear(p)
		return nil
	}
	if w.base == nil {
		r, err := openReader(ctx, w.b, w.path)
		if err != nil {
			return err
		}
		if r.entry.File != w.id {
			r.close()
			return bb.E(bb.NotFound, "read", w.b.address(w.path), "the file was removed or renamed while it was open for writing")
		}
		w.base = r
	}
	n, err := w.base.readAt(ctx, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(p[n:])
	return nil
}

// writeTo writes the bytes from off on to dst, verified, from where they lie.
func (r *reader) writeTo(ctx context.Context, dst io.Writer, off int64) (total int64, err error) {
	for off < r.size {
		w, err := r.window(ctx, off)
		if err != nil {
			return total, err
		}
		if w.end < r.size {
			r.ahead(ctx, w.end)
		}
		var n int64
		if w.far {
			n, err = r.pullOut(ctx, w, dst, off)
		} else {
			n, err = w.writeTo(dst, off)
		}
		elsewhere := r.elsewhere(w, err)
		r.done(w)
		off, total = off+n, total+n
		if err != nil && !elsewhere {
			return total, bb.Wrap("read", r.b.address(r.path), err)
		}
	}
	return total, nil
}

// writeTo writes what the window has from off on. The consumer must not keep what it gets.
func (w *window) writeTo(dst io.Writer, off int64) (total int64, err error) {
	for off < w.end {
		p := w.at(off)
		from := min(p.end-off, extentSize)
		chunk := zeros[:from]
		if p.mem != nil {
			if err := p.verify(); err != nil {
				return total, err
			}
			chunk = p.mem[off-p.off:][:from]
		}
		if w.pin != 0 && !w.session.alive() {
			return total, nil // the pin is void: the caller finds the bytes elsewhere
		}
		n, err := dst.Write(chunk)
		off, total = off+int64(n), total+int64(n)
		if err == nil && n < len(chunk) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// zeros is what holes are made of where they are not copied. It is never written.
var zeros = make([]byte, extentSize)
