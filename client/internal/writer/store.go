package writer

import (
	"context"

	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/internal/segment"
)

// isLaden reports whether this process's memory holds so many bytes that they have to be
// committed, and freed, before more come.
func (w *Writer) isLaden() bool { return w.session.Remote != nil && w.staged >= MaxStaged }

// store sends an extent's bytes to its segment, if that is remote. It sends them when nothing can be
// added to the extent any more, or all of it. A connection that breaks is no error here. The bytes
// are written again elsewhere when the file is resumed.
func (w *Writer) store(ctx context.Context, e *extent, all bool) error {
	if !e.mem.Remote() {
		return nil
	}
	for n := e.length - e.sent; n > 0 && (all || (e.off+e.length)%segment.ExtentSize == 0); n = e.length - e.sent {
		if e.mem.Void() {
			return nil
		}
		if w.moving == nil {
			w.moving = remote.NewTransfers()
		}
		n := min(n, remote.MaxTransfer)
		err := e.mem.Store(ctx, w.moving, e.seg+e.sent, n)
		if session.IsBroken(err) {
			return nil
		}
		if err != nil {
			return err
		}
		e.sent += n
	}
	return nil
}

// transferred waits until all that is pending is where the daemon commits it from.
func (w *Writer) transferred(ctx context.Context) error {
	if w.session.Remote == nil {
		return nil
	}
	for i := range w.pending {
		if err := w.store(ctx, &w.pending[i], true); err != nil {
			return err
		}
	}
	if w.moving == nil || !w.moving.Flying() && w.moving.Err == nil {
		return nil
	}
	if w.moving.Of != w.session.Remote {
		return nil // of a session that broke
	}
	return w.moving.Await(ctx, w.moving.Next-1)
}
