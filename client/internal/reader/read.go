package reader

import (
	"context"
	"io"

	"forebay/internal/bb"
	"forebay/internal/segment"
)

// WriteTo writes the bytes from off on to dst, verified, from where they lie.
func (r *Reader) WriteTo(ctx context.Context, dst io.Writer, off int64) (total int64, err error) {
	for off < r.Size {
		w, err := r.window(ctx, off)
		if err != nil {
			return total, err
		}
		if w.end < r.Size {
			r.requestWindow(ctx, w.end)
		}
		var n int64
		if w.remote {
			n, err = r.fetchTo(ctx, w, dst, off)
		} else {
			n, err = w.writeTo(dst, off)
		}
		elsewhere := r.elsewhere(w, err)
		r.done(w)
		off, total = off+n, total+n
		if err != nil && !elsewhere {
			return total, bb.Wrap("read", r.Address(r.path), err)
		}
	}
	return total, nil
}

// writeTo writes the window's bytes from off on. The consumer must not keep its slices.
func (w *window) writeTo(dst io.Writer, off int64) (total int64, err error) {
	for off < w.end {
		p := w.at(off)
		from := min(p.end-off, segment.ExtentSize)
		chunk := zeros[:from]
		if p.mem != nil {
			if err := p.verify(); err != nil {
				return total, err
			}
			chunk = p.mem[off-p.off:][:from]
		}
		if w.pin != 0 && !w.session.Alive() {
			return total, nil // the pin is void, so the caller finds the bytes elsewhere
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

// zeros has the bytes of holes where they are not copied. It is never written.
var zeros = make([]byte, segment.ExtentSize)
