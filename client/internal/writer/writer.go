// Package writer writes one file. It places the bytes, keeps uncommitted ones, and carries them
// over to a new connection when one breaks. It must never depend on other open files.
package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"time"

	"forebay/client/internal/lease"
	"forebay/client/internal/reader"
	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/segment"
	"forebay/internal/wire"
	"forebay/internal/wire/mux"
)

// Bounds of the uncommitted bytes of one file, and of the excess of a span over its request.
const (
	MaxPending = 8000    // extents; a commit of them fits into a message
	maxSlack   = 1 << 20 // bytes
	// MaxStaged is the number of bytes that a file with remote segments keeps in this process's memory
	// until they are committed, besides one lease more.
	MaxStaged = 32 << 20
)

// Target is the place of a writer's files. It is one buffer of one client, with the shared state of
// its writers.
type Target struct {
	reader.Source
	Pools *lease.Pools
}

// Options are the options of opening a file for writing.
type Options struct {
	Create    bool        // make the file if it is missing
	Exclusive bool        // with Create; it must not be there
	Truncate  bool        // begin from nothing
	Fence     bool        // end the writing of others
	Mode      fs.FileMode // permission bits of a new file
	ModTime   time.Time   // of the written content; zero: the time of the write
}

// Writer is the writing side of a file: one handle, with its uncommitted bytes. Its caller holds
// the file's turn.
//
//	opening ──answer, or not waited for──▶ open ──commit (sync)──▶ open
//	                                        │ commit (close)
//	  connection broke: resume ──▶ open     ▼
//	                                      closed ◀── abort
//
// Resuming opens the generation again and writes unacknowledged bytes a second time, into new
// leases, from the old ones, which stay mapped.
type Writer struct {
	Target
	path string
	o    Options
	sp   *lease.Pool
	// tierKnown reports that sp is of the tier where the file belongs. Otherwise it is of memory.
	tierKnown bool
	backlog
	access access
	small  *inlined // the first value of access

	session *session.Session
	handle  uint64
	opening openRequest
	file    fileState
	commits commitState
	moving  *remote.Transfers // to segments that are remote; nil: none so far
	staged  int64             // bytes written and not committed

	committed bool  // something of this generation was acknowledged
	Size      int64 // of the file, with uncommitted writes
	written   int64
	err       error // the error that ends all use of the file

	base *reader.Reader // the committed content, for reading, opened when it is needed
}

// openRequest is the Open of a writer's handle.
type openRequest struct {
	call  *session.Call // nil: it was waited for
	reply *wire.Opened
}

// fileState is the file's state in the answer to Open.
type fileState struct {
	id         bb.FileID // 0: not known yet
	generation bb.Generation
	entry      *wire.Entry // nil: not known yet
	continues  bb.FileID   // that a generation was closed of which the next one continues; 0: any
}

// commitState identifies a writer's commits, which it repeats when their answers are lost.
type commitState struct {
	uncertain      bool   // one whose answer was lost may have been carried out
	writer         uint64 // by which the file's owner identifies the commits; 0: none yet
	number         uint64 // of the last one that was sent
	sent           int64  // bytes written before it; -1: the next one is another
	closing        bool   // the next one is the closing one
	closeCommitted bool   // that was carried out; nothing is left to be written
	resumed        bool   // the file was opened again
	alone          bool   // the daemon says that the closed generation has no commits but these
	extend         int64  // the least size of the file that the next one brings; 0: none

	msg   wire.Commit // used again
	items []*wire.NewExtent
}

// Open opens a file for writing. Without wait, it does not wait for the answer.
func Open(ctx context.Context, to Target, path string, o Options) (*Writer, error) {
	sp, err := to.Pools.Pool(to.Buffer, bb.TierMemory)
	if err != nil {
		return nil, err
	}
	w := &Writer{Target: to, path: path, o: o, sp: sp}
	err = w.Conn.Retry(ctx, func(s *session.Session) error { return w.open(ctx, s) })
	if err == nil && (o.Exclusive || !o.Create) {
		err = w.Settled(ctx)
	}
	if err != nil {
		return nil, bb.Wrap("open", w.Address(path), err)
	}
	sp.Enter()
	return w, nil
}

// open sends Open in a session.
func (w *Writer) open(ctx context.Context, s *session.Session) error {
	if w.opensOnce() && !s.Alive() { // the daemon ended while no request was in flight
		return &session.BrokenError{Reason: net.ErrClosed}
	}
	handle := s.NewHandle()
	m := &wire.Open{
		Handle: handle, Buffer: w.Buffer, Path: w.path, Write: true, Create: w.o.Create, Exclusive: w.o.Exclusive,
		Truncate: w.o.Truncate, Mode: uint32(w.o.Mode), ResumeFile: uint64(w.file.id),
		ResumeGeneration: uint64(w.file.generation), ResumeCommitted: w.committed, ResumeWriter: w.commits.writer,
		Fence: w.o.Fence && w.file.id == 0,
	}
	opened := new(wire.Opened)
	// Sending at once shows whether anything has left.
	c, err := s.Begin(ctx, mux.Frame{Type: wire.Type_TYPE_OPEN, Message: m, Queue: !w.opensOnce()}, opened)
	if session.WasSent(err) && w.opensOnce() {
		return w.unknown()
	}
	if err != nil {
		return err
	}
	w.session, w.handle, w.opening = s, handle, openRequest{c, opened}
	if w.access == nil {
		w.small = &inlined{limit: int64(s.Welcome.InlineThreshold)}
		w.access = w.small
	}
	if !s.Leases() {
		w.inline()
	}
	return nil
}

// inline has all bytes travel in messages from now on.
func (w *Writer) inline() {
	w.access, w.small.limit = w.small, int64(w.session.Welcome.MaxData)
}

// Settled waits for the answer to Open, if that has not been done, again on another
// session if need be.
func (w *Writer) Settled(ctx context.Context) error {
	return w.withSession(ctx, func(*session.Session) error { return w.awaitOpen(ctx) })
}

func (w *Writer) awaitOpen(ctx context.Context) error {
	if w.err != nil || w.opening.call == nil {
		return w.err
	}
	c := w.opening.call
	if err := w.session.Await(ctx, c); err != nil {
		if c.Finished() && !session.IsBroken(err) {
			w.session.CloseHandle(w.handle)
			w.handle = 0
			w.err = bb.Wrap("open", w.Address(w.path), err)
		}
		return err
	}
	w.opening.call = nil
	m := w.opening.reply
	if m.Entry == nil {
		w.err = bb.E(bb.Internal, "open", w.Address(w.path), "the daemon answered without an entry")
		return w.err
	}
	if m.AlreadyClosed {
		return nil
	}
	w.file.entry = m.Entry
	if w.file.continues != 0 && w.file.continues != bb.FileID(w.file.entry.File) {
		return w.fail(bb.E(bb.Unavailable, "open", w.Address(w.path), "the connection broke, and another file has this name since").
			WithRemedy("write the file again"))
	}
	w.file.id, w.file.generation = bb.FileID(w.file.entry.File), bb.Generation(m.Generation)
	w.Size = max(w.Size, w.file.entry.Size)
	w.committed = w.committed || w.o.Exclusive // its name is visible
	return nil
}

// withSession runs op while the file is open in a live session, resuming it if need be.
func (w *Writer) withSession(ctx context.Context, op func(*session.Session) error) error {
	return w.Conn.Retry(ctx, func(s *session.Session) error {
		if w.err != nil {
			return w.err
		}
		if w.session != s {
			if err := w.resume(ctx, s); err != nil {
				return err
			}
		}
		return op(s)
	})
}

// Write writes p at an offset.
func (w *Writer) Write(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := w.check(off, int64(len(p))); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		e, dst, err := w.next(ctx, int64(len(p)), off)
		if err != nil {
			return n, err
		}
		k := len(dst)
		e.sum = checksum.Copy(dst, p[:k], e.sum)
		n, off, p = n+k, off+int64(k), p[k:]
		if err := w.store(ctx, e, false); err != nil {
			return n, err
		}
	}
	return n, nil
}

// stringStep is how much of a string is copied before its checksum is taken, since it is in the
// cache still.
const stringStep = 64 << 10

// WriteString is write of a string.
func (w *Writer) WriteString(ctx context.Context, p string, off int64) (n int, err error) {
	if err := w.check(off, int64(len(p))); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		e, dst, err := w.next(ctx, min(int64(len(p)), stringStep), off)
		if err != nil {
			return n, err
		}
		k := copy(dst, p)
		e.sum = checksum.Update(e.sum, dst)
		n, off, p = n+k, off+int64(k), p[k:]
		if err := w.store(ctx, e, false); err != nil {
			return n, err
		}
	}
	return n, nil
}

// ReadFrom reads once from r, up to step bytes.
func (w *Writer) ReadFrom(ctx context.Context, r io.Reader, off, step int64) (int64, error) {
	if err := w.check(off, step); err != nil {
		return 0, err
	}
	if err := w.ready(ctx, step, off); err != nil {
		return 0, err
	}
	room := w.span.Bytes()[:w.fits(step, off)]
	n, err := r.Read(room)
	if n < 0 || n > len(room) {
		return 0, bb.E(bb.Invalid, "write", w.Address(w.path), fmt.Sprintf("the reader returned a count of %d for %d bytes", n, len(room)))
	}
	if n > 0 {
		e := w.add(&w.span, off, int64(n))
		e.sum = checksum.Update(e.sum, room[:n])
		w.grew(off, int64(n))
		if perr := w.store(ctx, e, false); perr != nil {
			return int64(n), perr
		}
	}
	return int64(n), err
}

// next makes some of n bytes at off part of an extent, and returns where they go.
func (w *Writer) next(ctx context.Context, n, off int64) (*extent, []byte, error) {
	if err := w.ready(ctx, n, off); err != nil {
		return nil, nil, err
	}
	e, dst := w.part(n, off)
	return e, dst, nil
}

// part is next when the span is ready.
func (w *Writer) part(n, off int64) (*extent, []byte) {
	k := w.fits(n, off)
	dst := w.span.Bytes()[:k]
	e := w.add(&w.span, off, k)
	w.grew(off, k)
	return e, dst
}

// Extend grows the file to a size at least. Bytes of others below it stay.
func (w *Writer) Extend(size int64) error {
	if err := w.check(size, 0); err != nil {
		return err
	}
	if size > w.Size {
		w.Size, w.commits.extend = size, size
		w.commits.sent = -1 // the next commit is another one
	}
	return nil
}

func (w *Writer) check(off, n int64) error {
	switch {
	case w.err != nil:
		return w.err
	case off < 0 || off > bb.MaxFileSize-n:
		return bb.E(bb.Invalid, "write", w.Address(w.path), fmt.Sprintf("%d bytes at offset %d are out of bounds", n, off))
	}
	return nil
}

// fits is how many of n bytes at off the span and one extent take.
func (w *Writer) fits(n, off int64) int64 {
	return min(n, w.span.Len(), segment.ExtentSize-off%segment.ExtentSize)
}

func (w *Writer) grew(off, n int64) {
	w.Size = max(w.Size, off+n)
	w.written += n
	w.staged += n
}

// ready makes sure that the span has room for some of n bytes at off.
func (w *Writer) ready(ctx context.Context, n, off int64) error {
	err := w.ensureSpan(ctx, n, off)
	if err == nil && w.comesTooEarly(w.span.Mem, off, n) {
		if err = w.commit(ctx, false); err == nil {
			err = w.ensureSpan(ctx, n, off)
		}
	}
	return err
}

func (w *Writer) ensureSpan(ctx context.Context, n, off int64) error {
	if m := w.span.Mem; m != nil && m.Leased() && !w.session.Alive() {
		if err := w.withSession(ctx, func(*session.Session) error { return nil }); err != nil {
			return err
		}
	}
	if len(w.pending) >= MaxPending && !w.isNext(&w.span, off) || w.isLaden() {
		if err := w.commit(ctx, false); err != nil {
			return err
		}
	}
	want := n + w.slack(n)
	if w.span.Len() == 0 {
		w.span.Lengthen(ctx, want)
	}
	if w.span.Len() == 0 || !w.isNext(&w.span, off) && !w.span.Pay(1) {
		w.drop(&w.span)
		c, err := w.take(ctx, want, min(n, lease.WorthKeeping))
		if err != nil {
			return err
		}
		w.drop(&w.span) // of bytes that were written again meanwhile
		w.span = c
	}
	return nil
}

// slack is how much more than n bytes is worth taking. A stream of small writes gets runs of its
// own among other files', a small file takes no more than it needs.
func (w *Writer) slack(n int64) int64 {
	return max(0, min(w.written/4, maxSlack)-n)
}

// take allocates memory. If there is no room, it goes over from the file's own small buffer to leases,
// or commits early.
func (w *Writer) take(ctx context.Context, want, least int64) (lease.Span, error) {
	for committed := false; ; {
		var c lease.Span
		err := w.withSession(ctx, func(*session.Session) (err error) {
			c, err = w.access.take(ctx, w, want, least, (want+segment.ExtentSize-1)/segment.ExtentSize+1)
			return err
		})
		switch {
		case err == nil:
			w.took(c.Mem)
			return c, nil
		case session.IsNoFabric(err):
			w.inline()
			continue
		case committed || !isFull(err) && !w.mayCommit(err):
			return lease.Span{}, err
		case w.access == access(w.small) && w.session.Leases():
			err = w.outgrow(ctx)
		default:
			committed = true
			if err = w.commit(ctx, false); err == nil {
				w.sp.CloseFull()
			}
		}
		if err != nil {
			return lease.Span{}, err
		}
	}
}

// mayCommit reports whether a commit of uncommitted bytes could make room in the full daemon,
// given an error of a lease.
func (w *Writer) mayCommit(err error) bool {
	return w.access == access(leased{}) && bb.KindOf(err) == bb.Busy && w.HasPending()
}

// outgrow switches to leases with the bytes in the file's own buffer.
func (w *Writer) outgrow(ctx context.Context) error {
	w.access = leased{}
	err := w.move(ctx)
	w.small.committed(w)
	return err
}

// move writes everything pending again, to other memory, after verifying its
// content. If the connection breaks meanwhile, nothing is lost.
func (w *Writer) move(ctx context.Context) error {
	a, release := w.putAside()
	defer release()
	w.staged = 0
	written := w.written
	defer func() { w.written = written }()
	for i := range a.extents {
		if e := a.copyOut(i); e != nil {
			w.err = bb.E(bb.Lost, "write", w.Address(w.path), fmt.Sprintf(
				"bytes %d to %d, which were written but not committed, went with the connection to the daemon", e.off, e.off+e.length)).
				WithRemedy("write the file again")
			return w.err
		}
		if err := w.again(ctx, a, a.copies[i], a.extents[i].off); err != nil {
			return w.fail(err) // aside is not all back
		}
		if a.committed {
			return nil
		}
		a.copies[i] = nil
	}
	return nil
}

// again writes p, a part of aside, unless that turns out to be committed
// when the connection breaks meanwhile.
func (w *Writer) again(ctx context.Context, a *aside, p []byte, off int64) error {
	if err := w.check(off, int64(len(p))); err != nil {
		return err
	}
	for len(p) > 0 {
		err := w.ready(ctx, int64(len(p)), off)
		if a.committed {
			return w.err // the step for err is not needed any more
		}
		if err != nil {
			return err
		}
		e, dst := w.part(int64(len(p)), off)
		k := len(dst)
		e.sum = checksum.Copy(dst, p[:k], e.sum)
		off, p = off+int64(k), p[k:]
		if err := w.store(ctx, e, false); err != nil {
			return err
		}
	}
	return nil
}

// commit makes everything pending part of the file. Closing closes the handle too.
func (w *Writer) commit(ctx context.Context, closing bool) error {
	err := w.withSession(ctx, func(s *session.Session) error {
		if w.commits.closeCommitted {
			return nil
		}
		return w.commitOn(ctx, s, closing)
	})
	if err != nil {
		return bb.Wrap(commitOp(closing), w.Address(w.path), err)
	}
	return nil
}

func commitOp(closing bool) string {
	if closing {
		return "close"
	}
	return "sync"
}

// commitOn sends one Commit and waits for its answer.
func (w *Writer) commitOn(ctx context.Context, s *session.Session, closing bool) error {
	if err := w.transferred(ctx); err != nil {
		return err
	}
	m, data := w.message(closing)
	var reply wire.Committed
	c, err := s.Start(ctx, wire.Type_TYPE_COMMIT, m, data, &reply)
	if err == nil {
		err = s.Await(ctx, c)
	}
	if err == nil {
		w.acknowledged(&reply)
		return w.awaitOpen(ctx)
	}
	switch {
	case session.IsBroken(err):
		w.commits.uncertain = w.commits.uncertain || session.WasSent(err)
		return err
	case c != nil && !c.Finished():
		s.Abandon(c, nil)
		w.mayBeWritten()
		return err
	}
	if openErr := w.awaitOpen(ctx); openErr != nil {
		return openErr // the reason of the commit's failure
	}
	if !w.mayBeWritten() {
		if moved := w.move(ctx); moved != nil {
			return errors.Join(err, moved)
		}
	}
	return err
}

// Entry is the file's, as it was when it was opened.
func (w *Writer) Entry() *wire.Entry {
	if w.file.entry == nil {
		return new(wire.Entry)
	}
	return w.file.entry
}

// Generation returns the generation that is being written, or 0 if it is not known yet.
func (w *Writer) Generation() bb.Generation { return w.file.generation }

// Alone reports, after Close, whether the generation has the content that was there when the file was opened and this
// writer's commits, and nothing else. It is false, too, if that is not known.
func (w *Writer) Alone() bool { return w.commits.alone && !w.commits.resumed }

// Staged is how many bytes were written and not committed.
func (w *Writer) Staged() int64 { return w.staged }

// Held is how many bytes of memory the writer uses.
func (w *Writer) Held() (n int64) {
	for _, h := range w.holds {
		n += int64(len(h.mem.Bytes))
	}
	return n
}

// SetModTime sets the modification time that later commits record. The zero time stands for that of
// the commit.
func (w *Writer) SetModTime(t time.Time) { w.o.ModTime = t }

// message makes the Commit of everything pending, in memory that is used again.
func (w *Writer) message(closing bool) (*wire.Commit, []byte) {
	m := &w.commits.msg
	when := w.o.ModTime
	if when.IsZero() {
		when = time.Now()
	}
	m.Handle, m.Close, m.MtimeNs, m.Extend = w.handle, closing, when.UnixNano(), w.commits.extend
	m.Writer, m.Number = w.commits.next(w.written)
	m.Extents = m.Extents[:0]
	if missing := len(w.pending) - len(w.commits.items); missing > 0 {
		fresh := make([]wire.NewExtent, missing)
		for i := range fresh {
			w.commits.items = append(w.commits.items, &fresh[i])
		}
	}
	var data []byte
	for i := range w.pending {
		e, item := &w.pending[i], w.commits.items[i]
		item.FileOffset, item.Length, item.Checksum = e.off, e.length, e.sum
		item.Lease, item.SegmentOffset = e.mem.Place(e.seg)
		switch {
		case e.mem.Leased():
		case data == nil:
			data = e.bytes()
		default:
			data = append(data, e.bytes()...) // a slice without spare room; this copies it first
		}
		m.Extents = append(m.Extents, item)
	}
	return m, data
}

// next returns the number of a commit of all that is pending. If the one before was not
// acknowledged and is repeated, it is that one's number, so that it is carried out once. Written is
// the number of bytes written so far.
func (c *commitState) next(written int64) (writer, number uint64) {
	if c.writer == 0 {
		c.writer = rand.Uint64() | 1
	}
	if c.number == 0 || c.sent < 0 || c.sent != written {
		c.number++
	}
	c.sent = written
	return c.writer, c.number
}

// acknowledged takes the daemon's answer to a commit over.
func (w *Writer) acknowledged(m *wire.Committed) {
	w.file.id, w.file.generation = bb.FileID(m.File), bb.Generation(m.Generation)
	w.committed, w.commits.uncertain, w.commits.alone = true, false, m.Alone
	w.commits.sent = -1 // the next commit is another one
	w.Size = max(w.Size, m.Size)
	if w.moving != nil && w.session.Remote != nil {
		w.session.Remote.Worked()
	}
	w.staged, w.commits.extend = 0, 0
	w.backlog.committed()
	w.access.committed(w)
	if w.access == access(w.small) && w.session.Leases() {
		w.access = leased{} // a file that is synced now and then is written to its lease directly
	}
	w.closeBase()
}

// Sync commits, if there is anything that was not.
func (w *Writer) Sync(ctx context.Context) error {
	if w.err == nil && len(w.pending) == 0 && w.commits.extend == 0 && w.committed {
		return nil
	}
	return w.commit(ctx, false)
}

// Close commits and closes. If that fails, uncommitted bytes are dropped.
func (w *Writer) Close(ctx context.Context) error {
	w.commits.closing = true
	err := w.commit(ctx, true)
	w.end(err != nil)
	return err
}

// Abort closes the file and drops uncommitted bytes.
func (w *Writer) Abort() { w.end(true) }

// end releases everything. Leases go back to the daemon after an abort is through,
// since a commit without a waiter may be ahead of it.
func (w *Writer) end(abort bool) {
	w.closeBase()
	if w.moving != nil {
		_ = w.moving.Drain() // its failure was returned already
		w.moving.Free()
		w.moving = nil
	}
	release := func(*session.Call) {
		w.forget()
		w.sp.Leave()
		if w.small != nil {
			w.small.free()
		}
	}
	if !abort || w.handle == 0 || w.session.Broken() {
		release(nil)
		return
	}
	c := w.session.Post(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: w.handle, Close: true, Abort: true}, release)
	if w.opening.call != nil {
		w.session.CloseHandle(w.handle) // an open that failed leaves a handle, too
	}
	w.session.Heed(c)
}

// closeBase closes the committed content.
func (w *Writer) closeBase() {
	if w.base != nil {
		w.base.Close()
		w.base = nil
	}
}
