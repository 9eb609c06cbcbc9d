package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// resume opens the file again in a new session, where it was, and writes again what
// was not acknowledged.
func (w *writer) resume(ctx context.Context, s *session) error {
	if w.opensOnce() {
		return w.unknown()
	}
	if w.landed {
		err := w.awaitFlush(ctx)
		if err == nil {
			w.session = s
		}
		return err
	}
	before, was, known, size := w.entry, w.generation, w.id != 0, w.size
	if err := w.open(ctx, s); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		if kind := bb.KindOf(err); w.doubt && (kind == bb.NotFound || kind == bb.Lost) {
			return w.unknownCommit() // the generation is gone, with the commit or without it
		}
		return err
	}
	switch {
	case w.opened.AlreadyClosed:
		if err := w.reopen(ctx, s); err != nil || w.landed {
			return err
		}
	case w.doubt && !goesOn(known, before, w.entry, was == w.generation):
		if err := w.resolve(ctx, size); err != nil || w.landed {
			return err
		}
	case was != w.generation:
		w.doubt = false // what it was sent to is gone, and it was not carried out
	}
	if !w.isStale() {
		return nil // what is pending travels with the commit
	}
	return w.move(ctx)
}

// goesOn reports whether a commit that was not answered may be sent again to what was
// opened in a new session. It may if that is the generation that it was sent to, whose
// owner carries it out once; or if nobody has committed anything since the file was first
// opened, as far as that is known: then the commit was not carried out. (If the answer to
// the first open was lost too, and there is no file, the commit is sent again: a file that
// was committed, and removed by somebody else at once, comes back.)
func goesOn(known bool, before, now Entry, sameGeneration bool) bool {
	switch {
	case known && before.File == now.File && sameGeneration:
		return true
	case now.Generation == 0: // there is no file
		return !known || before.Generation == 0
	}
	return known && before.File == now.File && before.Generation == now.Generation
}

// resolve finds out what became of a commit that was not answered, after the file got
// another content: it is that content, or nobody can tell. Size is what the file had with it.
func (w *writer) resolve(ctx context.Context, size int64) error {
	r, err := openReader(ctx, w.b, w.path)
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	landed := false
	if err == nil {
		defer r.close()
		if landed, err = w.isContent(ctx, r); err != nil {
			return err
		}
	}
	if !landed || r.entry.Size != size {
		return w.unknownCommit()
	}
	if !w.closing {
		// No commit was ever acknowledged, so all that was written is pending still. It goes
		// into what was opened again, which may have begun without it, and which another
		// writer may have joined.
		w.doubt, w.sent = false, -1
		return nil
	}
	w.abortHandle()
	w.id, w.generation = r.entry.File, r.entry.Generation
	w.settleDoubt()
	w.landed = true
	return w.awaitFlush(ctx)
}

// unknownCommit is the end of a writer whose commit may have been carried out, and replaced
// by others since. Repeating it could undo what they made.
func (w *writer) unknownCommit() error {
	err := bb.E(bb.Unavailable, commitOp(w.closing), w.b.address(w.path),
		"outcome unknown: the connection broke before the daemon answered, and the file has other content since").
		WithRemedy("look what the file holds, and write it again if need be")
	err.Unknown = true
	return w.fail(err)
}

// abortHandle leaves what was opened again.
func (w *writer) abortHandle() {
	w.session.post(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: w.handle, Close: true, Abort: true}, nil)
	w.handle = 0
}

// settleDoubt notes that everything uncommitted has landed.
func (w *writer) settleDoubt() {
	w.doubt = false
	w.sent = -1
	w.staged = 0
	w.backlog.committedAll()
	w.access.committed(w)
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
		w.doubt = false
		if landed {
			w.settleDoubt()
		}
		if landed && w.closing {
			w.landed = true
			return w.awaitFlush(ctx)
		}
	}
	return w.anew(ctx, s)
}

// anew begins a new generation, on top of the one that was closed: what is pending goes to
// the same places.
func (w *writer) anew(ctx context.Context, s *session) error {
	w.goesOn = w.id
	w.id, w.generation, w.committed = 0, 0, false
	w.o.Create, w.o.Exclusive, w.o.Truncate = false, false, false
	if err := w.open(ctx, s); err != nil {
		return err
	}
	return w.settle(ctx)
}

// hasLanded reports whether everything uncommitted has landed: the daemon remembers the
// last commit, or all of it is in the file as it is now. It fails if nobody can tell. While
// something is aside, the last commit may have been of a part: then the content decides.
func (w *writer) hasLanded(ctx context.Context) (bool, error) {
	if len(w.asides) == 0 && w.number != 0 && w.sent == w.written && w.opened.Committed >= w.number {
		return true, nil
	}
	r, err := openReader(ctx, w.b, w.path)
	if bb.KindOf(err) == bb.NotFound {
		return false, w.unknownCommit()
	}
	if err != nil {
		return false, err
	}
	defer r.close()
	if r.entry.File != w.id || r.entry.Generation != w.generation {
		return false, w.unknownCommit()
	}
	return w.isContent(ctx, r)
}

// isContent reports whether everything uncommitted is in a file.
func (w *writer) isContent(ctx context.Context, r *reader) (bool, error) {
	p := make([]byte, extentSize)
	for e := range w.uncommitted() {
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
