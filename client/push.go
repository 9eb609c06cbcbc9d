package client

import (
	"context"

	"forebay/rdma"
)

// isLaden reports whether so much lies in this process's memory that it has to be
// committed, and let go, before more comes.
func (w *writer) isLaden() bool { return w.session.far != nil && w.staged >= maxStaged }

// push sends what an extent holds to its segment, if that is far: when nothing can be
// added to it any more, or all of it. A connection that breaks is no error here: what was written
// is written again elsewhere when the file is resumed.
func (w *writer) push(ctx context.Context, e *extent, all bool) error {
	l := e.mem.lease
	if l == nil || l.region != nil {
		return nil
	}
	for n := e.length - e.sent; n > 0 && (all || (e.off+e.length)%extentSize == 0); n = e.length - e.sent {
		if l.session.isBroken() {
			return nil
		}
		if w.moving == nil {
			w.moving = newTransfers()
		}
		n, from := min(n, transferSize), e.seg+e.sent
		err := w.moving.post(ctx, l.session.far, rdma.OpWrite, l.bytes[from:from+n], l.key, l.at+from)
		if isBroken(err) {
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
func (w *writer) transferred(ctx context.Context) error {
	if w.session.far == nil {
		return nil
	}
	for i := range w.pending {
		if err := w.push(ctx, &w.pending[i], true); err != nil {
			return err
		}
	}
	if w.moving == nil || !w.moving.flying() && w.moving.err == nil {
		return nil
	}
	if w.moving.far != w.session.far {
		return nil // of a session that broke
	}
	return w.moving.await(ctx, w.moving.next-1)
}
