package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"forebay/client/internal/reader"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/segment"
	"forebay/internal/wire"
)

// resume opens the file again in a new session, where it was, and writes unacknowledged bytes
// again.
func (w *Writer) resume(ctx context.Context, s *session.Session) error {
	if w.opensOnce() {
		return w.unknown()
	}
	w.commits.resumed = true
	if w.commits.closeCommitted {
		err := w.awaitFlush(ctx)
		if err == nil {
			w.session = s
		}
		return err
	}
	before, was, known, size := w.file.entry, w.file.generation, w.file.id != 0, w.Size
	if err := w.open(ctx, s); err != nil {
		return err
	}
	if err := w.awaitOpen(ctx); err != nil {
		if kind := bb.KindOf(err); w.commits.uncertain && (kind == bb.NotFound || kind == bb.Lost) {
			return w.unknownCommit() // the generation is gone, with the commit or without it
		}
		return err
	}
	switch {
	case w.opening.reply.AlreadyClosed:
		if err := w.reopen(ctx, s); err != nil || w.commits.closeCommitted {
			return err
		}
	case w.commits.uncertain && !goesOn(known, before, w.file.entry, was == w.file.generation):
		if err := w.resolve(ctx, size); err != nil || w.commits.closeCommitted {
			return err
		}
	case was != w.file.generation:
		w.commits.uncertain = false // its generation is gone, and it was not carried out
	}
	if !w.isStale() {
		return nil // pending bytes travel with the commit
	}
	return w.move(ctx)
}

// goesOn reports whether a commit that was not answered may be sent again to the generation that
// was opened in a new session. If that is the generation that it was sent to, it may, since the
// owner carries the commit out once. If no commit by others is known since the file was first
// opened, it may too. The commit was not carried out then. (If the answer to the first open was
// lost too, and there is no file, the commit is sent again. So a file that was committed, and
// removed by another client at once, comes back.)
func goesOn(known bool, before, now *wire.Entry, sameGeneration bool) bool {
	switch {
	case known && before.GetFile() == now.GetFile() && sameGeneration:
		return true
	case now.GetGeneration() == 0: // there is no file
		return !known || before.GetGeneration() == 0
	}
	return known && before.GetFile() == now.GetFile() && before.GetGeneration() == now.GetGeneration()
}

// resolve determines the outcome of a commit that was not answered, after the file got another
// content. It is that content, or unknown. Size is the file's size with the commit.
func (w *Writer) resolve(ctx context.Context, size int64) error {
	r, err := reader.Open(ctx, w.Source, w.path)
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	committed := false
	if err == nil {
		defer r.Close()
		if committed, err = w.isContent(ctx, r); err != nil {
			return err
		}
	}
	if !committed || r.Entry.Size != size {
		return w.unknownCommit()
	}
	if !w.commits.closing {
		// No commit was ever acknowledged, so all bytes are pending still. They go
		// into the generation that was opened again, which may have begun without them, and which another
		// writer may have joined.
		w.commits.uncertain, w.commits.sent = false, -1
		return nil
	}
	w.abortHandle()
	w.file.id, w.file.generation = bb.FileID(r.Entry.File), bb.Generation(r.Entry.Generation)
	w.resolveCommitted()
	w.commits.closeCommitted = true
	return w.awaitFlush(ctx)
}

// unknownCommit is the error of a writer whose commit may have been carried out, and replaced
// by others since. Repeating it could undo theirs.
func (w *Writer) unknownCommit() error {
	err := bb.E(bb.Unavailable, commitOp(w.commits.closing), w.Address(w.path),
		"outcome unknown: the connection broke before the daemon answered, and the file has other content since").
		WithRemedy("check the file's content, and write it again if needed")
	err.Unknown = true
	return w.fail(err)
}

// abortHandle closes the handle that was opened again.
func (w *Writer) abortHandle() {
	w.session.Post(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: w.handle, Close: true, Abort: true}, nil)
	w.handle = 0
}

// resolveCommitted notes that everything uncommitted was committed.
func (w *Writer) resolveCommitted() {
	w.commits.uncertain = false
	w.commits.sent = -1
	w.staged, w.commits.extend = 0, 0
	w.backlog.committedAll()
	w.access.committed(w)
}

// opensOnce reports whether the open that was not answered must not be sent again. An exclusive
// create makes the name, and a fence ends the writing of all other writers of that time.
func (w *Writer) opensOnce() bool { return w.file.id == 0 && (w.o.Exclusive || w.o.Fence) }

// unknown is the error of an open that cannot be repeated.
func (w *Writer) unknown() error {
	op, remedy := "create", "check whether the file exists"
	if w.o.Fence {
		op, remedy = "recover", "do it again: it does no harm where nobody writes"
	}
	err := bb.E(bb.Unavailable, op, w.Address(w.path), "outcome unknown: the connection broke before the daemon answered").WithRemedy(remedy)
	err.Unknown = true
	return w.fail(err)
}

func (w *Writer) fail(err error) error {
	w.err = err
	return err
}

// isStale reports whether something pending lies in a lease of another session.
func (w *Writer) isStale() bool {
	for i := range w.holds {
		if !w.holds[i].mem.Of(w.session) {
			return true
		}
	}
	return false
}

// reopen goes on after the daemon closed the generation when it missed its writer, or
// because our closing commit was carried out and its answer was lost.
func (w *Writer) reopen(ctx context.Context, s *session.Session) error {
	s.CloseHandle(w.handle)
	w.handle = 0
	if w.commits.uncertain {
		committed, err := w.isCommitted(ctx)
		if err != nil {
			return err
		}
		w.commits.uncertain = false
		if committed {
			w.resolveCommitted()
		}
		if committed && w.commits.closing {
			w.commits.closeCommitted = true
			return w.awaitFlush(ctx)
		}
	}
	return w.anew(ctx, s)
}

// anew begins a new generation, on top of the one that was closed. Pending bytes go to the same
// offsets.
func (w *Writer) anew(ctx context.Context, s *session.Session) error {
	w.file.continues = w.file.id
	w.file.id, w.file.generation, w.committed = 0, 0, false
	w.o.Create, w.o.Exclusive, w.o.Truncate = false, false, false
	if err := w.open(ctx, s); err != nil {
		return err
	}
	return w.awaitOpen(ctx)
}

// isCommitted reports whether everything uncommitted was committed. It was if the daemon has recorded
// the last commit, or the present file has all of it. If that is unknown, it fails. While something
// is aside, the last commit may have been of a part, so that the content decides.
func (w *Writer) isCommitted(ctx context.Context) (bool, error) {
	if len(w.asides) == 0 && w.commits.number != 0 && w.commits.sent == w.written && w.opening.reply.Committed >= w.commits.number {
		return true, nil
	}
	r, err := reader.Open(ctx, w.Source, w.path)
	if bb.KindOf(err) == bb.NotFound {
		return false, w.unknownCommit()
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	if bb.FileID(r.Entry.File) != w.file.id || bb.Generation(r.Entry.Generation) != w.file.generation {
		return false, w.unknownCommit()
	}
	return w.isContent(ctx, r)
}

// isContent reports whether everything uncommitted is in a file.
func (w *Writer) isContent(ctx context.Context, r *reader.Reader) (bool, error) {
	if r.Entry.Size < w.commits.extend {
		return false, nil
	}
	p := make([]byte, segment.ExtentSize)
	for e := range w.uncommitted() {
		n, err := r.ReadAt(ctx, p[:e.length], e.off)
		if errors.Is(err, bb.Checksum) || errors.Is(err, bb.Lost) {
			return false, nil // whose ever they were, the bytes are gone
		}
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

// awaitFlush waits, in a buffer whose durability is flushed, until the file is on the
// store, because the answer that reports it was lost.
func (w *Writer) awaitFlush(ctx context.Context) error {
	var info wire.Buffer
	if err := w.Conn.Ask(ctx, wire.Type_TYPE_BUFFER_GET, &wire.BufferName{Name: w.Buffer}, &info); err != nil {
		return bb.Wrap("buffer", w.Buffer, err)
	}
	if info.Durability != string(bb.DurabilityFlushed) {
		return nil
	}
	for {
		var e wire.Entry
		err := w.Conn.Ask(ctx, wire.Type_TYPE_STAT, &wire.PathRequest{Buffer: w.Buffer, Path: w.path}, &e)
		switch {
		case err != nil:
			return bb.Wrap("stat", w.Address(w.path), err)
		case bb.FileID(e.File) != w.file.id || bb.Generation(e.Generation) != w.file.generation:
			return w.fail(bb.E(bb.Unavailable, "close", w.Address(w.path), fmt.Sprintf(
				"generation %d was committed, but replaced before it was known to be on the store", w.file.generation)))
		case bb.Generation(e.Flushed.GetGeneration()) == w.file.generation:
			return nil
		}
		select {
		case <-time.After(flushPoll):
		case <-ctx.Done():
			return session.Cancelled(ctx)
		}
	}
}
