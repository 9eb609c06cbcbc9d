package writer

import (
	"context"
	"errors"
	"io"

	"forebay/client/internal/reader"
	"forebay/internal/bb"
)

// ReadAt reads the committed content with uncommitted writes over it.
func (w *Writer) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if !w.o.Truncate || w.committed || !w.session.Alive() {
		// The size, the content below, or the memory of pending bytes may have to
		// be found first.
		if err := w.Settled(ctx); err != nil {
			return 0, err
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	if left := max(0, w.Size-off); int64(len(p)) > left {
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

// readBase reads the committed content, and zeros where there is none.
func (w *Writer) readBase(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	if !w.committed && (w.o.Truncate || w.file.entry.GetSize() == 0) {
		clear(p)
		return nil
	}
	if w.base == nil {
		r, err := reader.Open(ctx, w.Source, w.path)
		if err != nil {
			return err
		}
		if bb.FileID(r.Entry.File) != w.file.id {
			r.Close()
			return bb.E(bb.NotFound, "read", w.Address(w.path), "the file was removed or renamed while it was open for writing")
		}
		w.base = r
	}
	n, err := w.base.ReadAt(ctx, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(p[n:])
	return nil
}
