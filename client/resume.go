package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// resume opens the file again in a new session, where it was, and writes again what
// was not acknowledged.
func (w *writer) resume(ctx context.Context, s *session) error {
	if w.opensOnce() {
		return w.unknown()
	}
	if err := w.open(ctx, s); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	if w.opened.AlreadyClosed {
		if err := w.reopen(ctx, s); err != nil || w.landed {
			return err
		}
	}
	if !w.isStale() {
		return nil // what is pending travels with the commit
	}
	return w.move(ctx)
}

// opensOnce reports whether the open that was not answered must not be sent again: an
// exclusive create makes the name, and a fence ends the writing of others, whoever they
// are by then.
func (w *writer) opensOnce() bool { return w.id == 0 && (w.o.Exclusive || w.o.fence) }

// unknown is the end of an open that nobody can repeat.
func (w *writer) unknown() error {
	op, remedy := "create", "look whether the file is there"
	if w.o.fence {
		op, remedy = "recover", "do it again: it does no harm where nobody writes"
	}
	err := bb.E(bb.Unavailable, op, w.b.address(w.path), "outcome unknown: the connection broke before the daemon answered").WithRemedy(remedy)
	err.Unknown = true
	return w.fail(err)
}

func (w *writer) fail(err error) error {
	w.err = err
	return err
}

// isStale reports whether something pending lies in a lease of another session.
func (w *writer) isStale() bool {
	for i := range w.holds {
		if l := w.holds[i].mem.lease; l != nil && l.session != w.session {
			return true
		}
	}
	return false
}

// reopen goes on after the daemon closed the generation when it missed its writer, or
// because our closing commit has landed, whose answer was lost.
func (w *writer) reopen(ctx context.Context, s *session) error {
	s.closeHandle(w.handle)
	w.handle = 0
	if w.doubt {
		landed, err := w.hasLanded(ctx)
		if err != nil {
			return err
		}
		if landed {
			w.doubt = false
			w.backlog.committed()
			w.access.committed(w)
		}
		if landed && w.closing {
			w.landed = true
			return w.awaitFlush(ctx)
		}
	}
	// A new generation, on top of the one that was closed: what is pending goes to the same places.
	w.id, w.generation, w.committed = 0, 0, false
	w.o.Create, w.o.Exclusive, w.o.Truncate = false, false, false
	if err := w.open(ctx, s); err != nil {
		return err
	}
	return w.settle(ctx)
}

// hasLanded reports whether the last commit was carried out: the daemon remembers it, or
// everything pending is in the file as it is now.
func (w *writer) hasLanded(ctx context.Context) (bool, error) {
	if w.number != 0 && w.sent == w.written && w.opened.Committed >= w.number {
		return true, nil
	}
	r, err := openReader(ctx, w.b, w.path)
	if err != nil {
		return false, err
	}
	defer r.close()
	if r.entry.File != w.id || r.entry.Generation != w.generation {
		return false, nil
	}
	p := make([]byte, extentSize)
	for i := range w.pending {
		e := &w.pending[i]
		n, err := r.readAt(ctx, p[:e.length], e.off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if int64(n) < e.length || checksum.Sum(p[:n]) != e.sum {
			return false, nil
		}
	}
	return true, nil
}

const flushPoll = 50 * time.Millisecond

// awaitFlush waits, where the buffer's durability asks for it, until the file is on the
// store: the answer that would have said so was lost.
func (w *writer) awaitFlush(ctx context.Context) error {
	info, err := w.b.c.BufferInfo(ctx, w.b.name)
	if err != nil || info.Durability != bb.DurabilityFlushed {
		return err
	}
	for {
		e, err := w.b.Stat(ctx, w.path)
		switch {
		case err != nil:
			return err
		case e.File != w.id || e.Generation != w.generation:
			return w.fail(bb.E(bb.Unavailable, "close", w.b.address(w.path), fmt.Sprintf(
				"generation %d was committed, but replaced before it was known to be on the store", w.generation)))
		case e.Flushed.Generation == w.generation:
			return nil
		}
		select {
		case <-time.After(flushPoll):
		case <-ctx.Done():
			return cancelled(ctx)
		}
	}
}
