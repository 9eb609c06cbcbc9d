// Package reader reads one generation of a file, verified, at any place of its bytes: in mapped
// memory, in messages, or in a daemon's memory, with one-sided reads. It must never handle bytes
// that are not committed.
package reader

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// How far one question for extents reaches, and how many answers are kept.
const (
	mappedWindow  = 32 << 20 // they are pinned meanwhile
	inlinedWindow = 1 << 20  // the bytes travel, and are kept
	maxWindows    = 8
	SeqWindows    = 2 // while reading from front to back
)

// Reader reads one generation of a file. It may be used concurrently. After a
// connection broke it opens the file again and makes sure that it is still the same.
type Reader struct {
	Source
	path string

	Entry *wire.Entry // as it was opened
	Size  int64

	last     atomic.Int64        // end of the last read; a read that begins there is sequential
	opening  *semaphore.Weighted // of one: the caller that may open the file again
	mu       sync.Mutex          // guards the next fields
	closed   bool
	session  *session.Session
	handle   uint64
	windows  []*window // oldest first
	used     int       // windows with users, dropped ones too; the handle holds their pins, so it outlives them
	requests []*request
	short    bool // the last answer was shorter than requested

	cached      []*place // extents that are kept of memory that is remote, oldest first
	cachedBytes int64

	ahead  *semaphore.Weighted // of one: the user of coming
	coming readahead
}

// request is the request of a window. Several may wait for it.
type request struct {
	span
	session *session.Session

	asked  sync.Once
	call   *session.Call
	reply  wire.Extents
	unsent error // why it could not be requested

	taken  sync.Once
	failed error // why the answer is of no use
}

// Open opens a file's committed content.
func Open(ctx context.Context, from Source, path string) (*Reader, error) {
	r := &Reader{Source: from, path: path, opening: semaphore.NewWeighted(1), ahead: semaphore.NewWeighted(1)}
	err := r.Conn.Retry(ctx, func(s *session.Session) error { return r.bind(ctx, s) })
	if err != nil {
		return nil, bb.Wrap("open", r.Address(path), err)
	}
	return r, nil
}

// bind makes sure that the file is open in a session.
func (r *Reader) bind(ctx context.Context, s *session.Session) error {
	if r.opening.Acquire(ctx, 1) != nil {
		return session.Cancelled(ctx)
	}
	defer r.opening.Release(1)
	r.mu.Lock()
	bound := r.session == s
	first := r.session == nil
	r.mu.Unlock()
	if bound {
		return nil
	}
	handle := s.NewHandle()
	m := &wire.Open{Handle: handle, Buffer: r.Buffer, Path: r.path, Want: uint32(windowSize(s)), Linear: r.Linear}
	var opened wire.Opened
	data, err := s.Ask(ctx, wire.Type_TYPE_OPEN, m, nil, &opened, func(c *session.Call) {
		if c.Err == nil {
			s.CloseHandle(handle)
		}
	})
	if err != nil {
		if !session.IsBroken(err) && ctx.Err() == nil {
			s.CloseHandle(handle) // of an open that failed, too
		}
		return err
	}
	return r.adopt(s, handle, &opened, data, first)
}

// adopt takes the answer to Open over, unless it is about another content than before.
func (r *Reader) adopt(s *session.Session, handle uint64, m *wire.Opened, data []byte, first bool) error {
	if m.Entry == nil {
		s.CloseHandle(handle)
		return bb.E(bb.Internal, "open", "", "the daemon answered without an entry")
	}
	e := m.Entry
	e.Generation = m.Generation
	if !first && (e.File != r.Entry.File || e.Generation != r.Entry.Generation || e.Size < r.Size) {
		s.CloseHandle(handle)
		return bb.E(bb.Unavailable, "read", r.Address(r.path), "the connection broke, and the file has other content since").
			WithRemedy("open it again")
	}
	if first {
		r.Entry, r.Size = e, e.Size
	}
	var w *window
	if m.Extents != nil && r.Size > 0 {
		// If the answer to the open is of no use, the read sends a request and returns the reason.
		w, _ = newWindow(r.Regions, s, 0, m.Extents, data)
	}
	r.mu.Lock()
	release, closed := r.forgetAll(), r.closed
	if !closed {
		r.session, r.handle = s, handle
		if w != nil && w.len() > 0 {
			r.windows = append(r.windows, w)
			w = nil
		}
	}
	r.mu.Unlock()
	release()
	if w != nil {
		w.release()
	}
	if closed {
		s.CloseHandle(handle)
		return errClosedFile("read", r.Address(r.path))
	}
	return nil
}

func windowSize(s *session.Session) int64 {
	if s.Leases() {
		return mappedWindow
	}
	return inlinedWindow
}

// ReadAt reads bytes, as io.ReaderAt does.
func (r *Reader) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, bb.E(bb.Invalid, "read", r.Address(r.path), "the offset is negative")
	}
	eof := false
	if left := max(0, r.Size-off); int64(len(p)) > left {
		p, eof = p[:left], true
	}
	goesOn := r.last.Swap(off+int64(len(p))) == off
	check := goesOn || r.VerifyAll
	for len(p) > 0 {
		w, err := r.window(ctx, off)
		if err != nil {
			return n, err
		}
		var k int
		switch {
		case !w.remote:
			k, err = w.copyTo(p, off, check)
		case goesOn && off > 0 && len(p) < maxAhead && r.tryReadahead():
			k, err = r.readAhead(ctx, w, p, off)
			r.doneReadahead()
		default:
			k, err = r.fetchRemote(ctx, w, p, off)
		}
		lost := w.pin != 0 && !w.session.Alive() || r.elsewhere(w, err)
		if !lost && err == nil && check && off+int64(k) > w.off+w.len()/2 && w.end < r.Size {
			r.requestWindow(ctx, w.end)
		}
		r.done(w)
		if lost {
			continue // the pin was void, so the copied bytes may be anything
		}
		if err != nil {
			return n, bb.Wrap("read", r.Address(r.path), err)
		}
		n, off, p = n+k, off+int64(k), p[k:]
	}
	if eof {
		return n, io.EOF
	}
	return n, nil
}

// window returns the window that holds off, which lies in the file. Call done after use.
func (r *Reader) window(ctx context.Context, off int64) (*window, error) {
	if w := r.find(off); w != nil {
		return w, nil
	}
	var found *window
	err := r.Conn.Retry(ctx, func(s *session.Session) (err error) {
		if err = r.bind(ctx, s); err == nil {
			found, err = r.fetch(ctx, s, off)
		}
		return err
	})
	if err != nil {
		return nil, bb.Wrap("read", r.Address(r.path), err)
	}
	return found, nil
}

// find searches the windows that are here.
func (r *Reader) find(off int64) *window {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.session.Broken() {
		return nil
	}
	for i := len(r.windows) - 1; i >= 0; i-- {
		if w := r.windows[i]; w.off <= off && off < w.end {
			r.use(w)
			return w
		}
	}
	return nil
}

// use begins the use of a window. The reader is locked.
func (r *Reader) use(w *window) {
	if w.users++; w.users == 1 {
		r.used++
	}
}

// done ends the use of a window. With the last one in use ends the handle of a closed reader.
func (r *Reader) done(w *window) {
	r.mu.Lock()
	w.users--
	if w.users == 0 {
		r.used--
	}
	last := w.dropped && w.users == 0
	end := r.closed && w.users == 0 && r.used == 0
	r.mu.Unlock()
	if last {
		w.release()
	}
	if end {
		r.closeHandle()
	}
}

// fetch requests the window that holds off, or waits for it if it was requested.
func (r *Reader) fetch(ctx context.Context, s *session.Session, off int64) (*window, error) {
	for {
		if w := r.find(off); w != nil {
			return w, nil
		}
		f, err := r.requestFor(s, off)
		if err != nil {
			return nil, err
		}
		r.ask(ctx, f)
		if err = f.unsent; err == nil {
			if err = s.Await(ctx, f.call); err != nil && !f.call.Finished() {
				return nil, err // this reader's context ended. Others may go on waiting
			}
		}
		f.taken.Do(func() { r.received(f, err) })
		if err == nil {
			err = f.failed
		}
		if err != nil && (bb.KindOf(err) != bb.Cancelled || ctx.Err() != nil) {
			return nil, err
		}
	}
}

// requestFor finds or makes the request of the window that holds off.
func (r *Reader) requestFor(s *session.Session, off int64) (*request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, errClosedFile("read", r.Address(r.path))
	case r.session != s:
		return nil, &session.BrokenError{Reason: errors.New("another session took over")}
	}
	for _, f := range r.requests {
		if f.off <= off && off < f.end {
			return f, nil
		}
	}
	size := windowSize(s)
	start := off &^ (size - 1)
	f := &request{span: span{start, start + size}, session: s}
	for _, w := range r.windows {
		if w.off == start || w.end == off {
			f.off = off // the answer for all of it was short
		}
	}
	if r.short {
		f.off = off // and this one may be, too
	}
	r.requests = append(r.requests, f)
	return f, nil
}

// ask sends the request, once.
func (r *Reader) ask(ctx context.Context, f *request) {
	f.asked.Do(func() {
		r.mu.Lock()
		handle := r.handle
		r.mu.Unlock()
		m := &wire.ExtentsRequest{Handle: handle, Offset: f.off, Length: f.len(), Inline: !f.session.Leases()}
		f.call, f.unsent = f.session.Start(ctx, wire.Type_TYPE_EXTENTS, m, nil, &f.reply)
	})
}

// received makes a window of a request's answer.
func (r *Reader) received(f *request, err error) {
	var w *window
	if err == nil {
		w, f.failed = newWindow(r.Regions, f.session, f.off, &f.reply, f.call.Data)
	}
	if w != nil && w.len() == 0 {
		f.failed = bb.E(bb.Internal, "read", "", "the daemon answered a question for bytes with none")
	}
	var unused []*window
	r.mu.Lock()
	r.requests = slices.DeleteFunc(r.requests, func(other *request) bool { return other == f })
	switch {
	case w == nil:
	case f.failed != nil || r.closed || r.session != f.session:
		unused = append(unused, w)
	default:
		r.windows = append(r.windows, w)
		r.short = w.end < min(f.end, r.Size)
		unused = r.prune(w)
	}
	r.mu.Unlock()
	for _, w := range unused {
		w.release()
	}
}

// prune drops the oldest windows beyond the number worth keeping, and returns the unused
// ones of them. The reader is locked.
func (r *Reader) prune(newest *window) (unused []*window) {
	keep := maxWindows
	if n := len(r.windows); n > 1 && r.windows[n-2].end == newest.off {
		keep = SeqWindows
	}
	for n := len(r.windows) - keep; n > 0; n-- {
		unused = drop(r.windows[0], unused)
		r.windows = slices.Delete(r.windows, 0, 1)
	}
	return unused
}

func drop(w *window, unused []*window) []*window {
	if w.dropped = true; w.users == 0 {
		unused = append(unused, w)
	}
	return unused
}

// forgetAll empties the reader, and returns a function that frees its windows. The reader is locked,
// and the function is called when it is not.
func (r *Reader) forgetAll() (release func()) {
	var unused []*window
	for _, w := range r.windows {
		unused = drop(w, unused)
	}
	requests := r.requests
	r.windows, r.requests = nil, nil
	return func() {
		for _, w := range unused {
			w.release()
		}
		for _, f := range requests {
			f.abandon()
		}
	}
}

// abandon marks a request whose answer is not needed any more.
func (f *request) abandon() {
	f.asked.Do(func() { f.unsent = bb.Cancelled })
	if f.call == nil {
		return
	}
	f.taken.Do(func() {
		f.failed = bb.Cancelled
		f.session.Abandon(f.call, func(c *session.Call) {
			if c.Err == nil && f.reply.Pin != 0 {
				f.session.Post(wire.Type_TYPE_UNPIN, &wire.Unpin{Pins: []uint64{f.reply.Pin}}, nil)
			}
		})
	})
}

// requestWindow requests the window that holds off before it is needed.
func (r *Reader) requestWindow(ctx context.Context, off int64) {
	r.mu.Lock()
	s, known := r.session, r.closed || len(r.requests) > 0
	for _, w := range r.windows {
		known = known || w.off <= off && off < w.end
	}
	r.mu.Unlock()
	if known || s.Broken() {
		return
	}
	if f, err := r.requestFor(s, off); err == nil {
		r.ask(ctx, f)
	}
}

// Close ends the use of the file. Reads in progress finish.
func (r *Reader) Close() {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.releaseOldest(len(r.cached))
	release := r.forgetAll()
	end := r.used == 0
	r.mu.Unlock()
	if closed {
		return
	}
	r.dropReadahead()
	release()
	if end {
		r.closeHandle()
	}
}

// closeHandle closes the handle of a closed reader of which nothing is in use. With a handle, the
// daemon ends all its pins.
func (r *Reader) closeHandle() {
	if !r.session.Broken() {
		r.session.CloseHandle(r.handle)
	}
}
