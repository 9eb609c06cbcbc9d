package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
	"forebay/internal/wire/mux"
)

// Bounds of what one file keeps uncommitted, and of how much more than asked for a
// claim takes.
const (
	maxPending = 8000    // extents: a commit of them fits into a message
	maxSlack   = 1 << 20 // bytes
	// maxStaged is how many bytes a file whose segments are far keeps in this process's
	// memory: so many, and a lease more, until they are committed.
	maxStaged = 32 << 20
)

// writer is the writing side of a file: one handle, and what was written to it and not
// committed. Its caller holds the file's turn.
//
//	opening ──answer, or not waited for──▶ open ──commit (sync)──▶ open
//	                                        │ commit (close)
//	  connection broke: resume ──▶ open     ▼
//	                                      closed ◀── abort
//
// Resuming opens the generation again and writes what was not acknowledged a second
// time, into new leases, from the old ones, which stay mapped.
type writer struct {
	b    *Buffer
	path string
	o    OpenOptions
	sp   *space
	// tierKnown: sp is of the tier where the file belongs; else of memory.
	tierKnown bool
	backlog
	access access
	small  *inlined // what access is at first

	session *session
	handle  uint64
	moving  *transfers // of what goes to segments that are far; nil: nothing so far
	staged  int64      // bytes written and not committed
	opening *call      // not waited for yet
	opened  *wire.Opened

	id         FileID // known once there was an answer
	generation Generation
	entry      Entry
	goesOn     FileID // that a generation was closed of which the next one continues; 0: any
	committed  bool   // something of this generation was acknowledged
	doubt      bool   // a commit may have landed whose answer was lost
	name       uint64 // by which the home knows the writer's commits; 0: none yet
	number     uint64 // of the last commit that was sent
	sent       int64  // what was written when it was
	closing    bool   // the next commit is the closing one
	landed     bool   // it has landed: nothing is left to be written

	size    int64 // of the file, with what was written
	written int64
	err     error // what ends all use of the file

	base  *reader // what is committed, for reading; opened when it is needed
	msg   wire.Commit
	items []*wire.NewExtent
}

// openWriter opens a file for writing. Without wait, it does not wait for the answer.
func openWriter(ctx context.Context, b *Buffer, path string, o OpenOptions) (*writer, error) {
	sp, err := b.c.space(spaceKey{b.name, bb.TierMemory})
	if err != nil {
		return nil, err
	}
	w := &writer{b: b, path: path, o: o, sp: sp}
	err = b.c.retry(ctx, func(s *session) error { return w.open(ctx, s) })
	if err == nil && (o.Exclusive || !o.Create) {
		err = w.settled(ctx)
	}
	if err != nil {
		return nil, bb.Wrap("open", b.address(path), err)
	}
	sp.enter()
	return w, nil
}

// open sends Open in a session.
func (w *writer) open(ctx context.Context, s *session) error {
	if w.opensOnce() && !s.alive() { // the daemon went while nobody asked for anything
		return &brokenError{Reason: net.ErrClosed}
	}
	handle := s.handle.Add(1)
	m := &wire.Open{
		Handle: handle, Buffer: w.b.name, Path: w.path, Write: true, Create: w.o.Create, Exclusive: w.o.Exclusive,
		Truncate: w.o.Truncate, Mode: uint32(w.o.Mode), ResumeFile: uint64(w.id),
		ResumeGeneration: uint64(w.generation), ResumeCommitted: w.committed, ResumeWriter: w.name,
		Fence: w.o.fence && w.id == 0,
	}
	opened := new(wire.Opened)
	// Sending at once tells whether anything has left.
	c, err := s.begin(ctx, mux.Frame{Type: wire.Type_TYPE_OPEN, Message: m, Queue: !w.opensOnce()}, opened)
	if wasSent(err) && w.opensOnce() {
		return w.unknown()
	}
	if err != nil {
		return err
	}
	w.session, w.handle, w.opening, w.opened = s, handle, c, opened
	if w.access == nil {
		w.small = &inlined{limit: int64(s.welcome.InlineThreshold)}
		w.access = w.small
	}
	if !s.leases() {
		w.inline()
	}
	return nil
}

// inline has all bytes travel in messages from now on.
func (w *writer) inline() {
	w.access, w.small.limit = w.small, int64(w.session.welcome.MaxData)
}

// settled waits for the answer to Open, if that has not been done, again on another
// session if need be.
func (w *writer) settled(ctx context.Context) error {
	return w.live(ctx, func(*session) error { return w.settle(ctx) })
}

func (w *writer) settle(ctx context.Context) error {
	if w.err != nil || w.opening == nil {
		return w.err
	}
	c := w.opening
	if err := w.session.await(ctx, c); err != nil {
		if c.finished() && !isBroken(err) {
			w.session.closeHandle(w.handle)
			w.handle = 0
			w.err = bb.Wrap("open", w.b.address(w.path), err)
		}
		return err
	}
	w.opening = nil
	m := w.opened
	if m.Entry == nil {
		w.err = bb.E(bb.Internal, "open", w.b.address(w.path), "the daemon answered without an entry")
		return w.err
	}
	if m.AlreadyClosed {
		return nil
	}
	w.entry = asEntry(w.path, m.Entry)
	if w.goesOn != 0 && w.goesOn != w.entry.File {
		return w.fail(bb.E(bb.Unavailable, "open", w.b.address(w.path), "the connection broke, and another file has this name since").
			WithRemedy("write the file again"))
	}
	w.id, w.generation = w.entry.File, Generation(m.Generation)
	w.size = max(w.size, w.entry.Size)
	w.committed = w.committed || w.o.Exclusive // its name is visible
	return nil
}

// live runs op while the file is open in a live session, resuming it if need be.
func (w *writer) live(ctx context.Context, op func(*session) error) error {
	return w.b.c.retry(ctx, func(s *session) error {
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

// write writes p at an offset.
func (w *writer) write(ctx context.Context, p []byte, off int64) (n int, err error) {
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
		if err := w.push(ctx, e, false); err != nil {
			return n, err
		}
	}
	return n, nil
}

// stringStep is how much of a string is copied before its checksum is taken: it is in
// the cache still.
const stringStep = 64 << 10

// writeString is write of a string.
func (w *writer) writeString(ctx context.Context, p string, off int64) (n int, err error) {
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
		if err := w.push(ctx, e, false); err != nil {
			return n, err
		}
	}
	return n, nil
}

// next makes some of n bytes at off part of an extent, and returns where they go.
func (w *writer) next(ctx context.Context, n, off int64) (*extent, []byte, error) {
	if err := w.ready(ctx, n, off); err != nil {
		return nil, nil, err
	}
	e, dst := w.part(n, off)
	return e, dst, nil
}

// part is next when the claim is ready.
func (w *writer) part(n, off int64) (*extent, []byte) {
	k := w.fits(n, off)
	dst := w.claim.bytes()[:k]
	e := w.add(&w.claim, off, k)
	w.grew(off, k)
	return e, dst
}

func (w *writer) check(off, n int64) error {
	switch {
	case w.err != nil:
		return w.err
	case off < 0 || off > bb.MaxFileSize-n:
		return bb.E(bb.Invalid, "write", w.b.address(w.path), fmt.Sprintf("%d bytes at offset %d are out of bounds", n, off))
	}
	return nil
}

// fits is how many of n bytes at off the claim and one extent take.
func (w *writer) fits(n, off int64) int64 {
	return min(n, w.claim.Len(), extentSize-off%extentSize)
}

func (w *writer) grew(off, n int64) {
	w.size = max(w.size, off+n)
	w.written += n
	w.staged += n
}

// ready makes sure that the claim has room for some of n bytes at off.
func (w *writer) ready(ctx context.Context, n, off int64) error {
	err := w.claimRoom(ctx, n, off)
	if err == nil && w.comesTooEarly(w.claim.mem, off, n) {
		if err = w.commit(ctx, false); err == nil {
			err = w.claimRoom(ctx, n, off)
		}
	}
	return err
}

func (w *writer) claimRoom(ctx context.Context, n, off int64) error {
	if m := w.claim.mem; m != nil && m.lease != nil && !w.session.alive() {
		if err := w.live(ctx, func(*session) error { return nil }); err != nil {
			return err
		}
	}
	if len(w.pending) >= maxPending && !w.isNext(&w.claim, off) || w.isLaden() {
		if err := w.commit(ctx, false); err != nil {
			return err
		}
	}
	want := n + w.slack(n)
	if w.claim.Len() == 0 {
		w.lengthen(ctx, want)
	}
	if w.claim.Len() == 0 || !w.isNext(&w.claim, off) && !w.claim.pay() {
		w.drop(&w.claim)
		c, err := w.take(ctx, want, min(n, worthKeeping))
		if err != nil {
			return err
		}
		w.drop(&w.claim) // of what was written again on the way
		w.claim = c
	}
	return nil
}

// lengthen makes the claim longer where it is, if it can, and asks for the next lease
// in time.
func (w *writer) lengthen(ctx context.Context, want int64) {
	if next := w.claim.lengthen(want); next != nil {
		next.ask(ctx, w.sp)
	}
}

// slack is how much more than n bytes is worth claiming: a stream of small writes gets
// runs of its own among other files', a small file takes no more than it needs.
func (w *writer) slack(n int64) int64 {
	return max(0, min(w.written/4, maxSlack)-n)
}

// take claims memory, going over from the file's own small buffer to leases, or
// committing early where there are none, when it is full.
func (w *writer) take(ctx context.Context, want, least int64) (claim, error) {
	for committed := false; ; {
		var c claim
		err := w.live(ctx, func(*session) (err error) {
			c, err = w.access.take(ctx, w, want, least, (want+extentSize-1)/extentSize+1)
			return err
		})
		switch {
		case err == nil:
			w.took(c.mem)
			return c, nil
		case isNoFabric(err):
			w.inline()
			continue
		case committed || !isFull(err) && !w.mayCommit(err):
			return claim{}, err
		case w.access == access(w.small) && w.session.leases():
			err = w.outgrow(ctx)
		default:
			committed = true
			if err = w.commit(ctx, false); err == nil {
				w.sp.retireFull()
			}
		}
		if err != nil {
			return claim{}, err
		}
	}
}

// mayCommit reports whether the daemon, which has no room, could make some of what is not committed
// yet, with an error of a lease.
func (w *writer) mayCommit(err error) bool {
	return w.access == access(leased{}) && bb.KindOf(err) == bb.Busy && w.hasPending()
}

// outgrow goes over to leases with what is in the file's own buffer.
func (w *writer) outgrow(ctx context.Context) error {
	w.access = leased{}
	err := w.move(ctx)
	w.small.committed(w)
	return err
}

// move writes everything pending again, to other memory, after checking that it is still
// what was written. If the connection breaks meanwhile, nothing is forgotten.
func (w *writer) move(ctx context.Context) error {
	a, release := w.putAside()
	defer release()
	w.staged = 0
	written := w.written
	defer func() { w.written = written }()
	for i := range a.extents {
		if e := a.copyOut(i); e != nil {
			w.err = bb.E(bb.Lost, "write", w.b.address(w.path), fmt.Sprintf(
				"bytes %d to %d, which were written but not committed, went with the connection to the daemon", e.off, e.off+e.length)).
				WithRemedy("write the file again")
			return w.err
		}
		if err := w.again(ctx, a, a.copies[i], a.extents[i].off); err != nil {
			return w.fail(err) // what was put aside is not all back
		}
		if a.landed {
			return nil
		}
		a.copies[i] = nil
	}
	return nil
}

// again writes p, which is of what was put aside, unless that turns out to be committed
// when the connection breaks on the way.
func (w *writer) again(ctx context.Context, a *aside, p []byte, off int64) error {
	if err := w.check(off, int64(len(p))); err != nil {
		return err
	}
	for len(p) > 0 {
		err := w.ready(ctx, int64(len(p)), off)
		if a.landed {
			return w.err // what err asks for is not needed any more
		}
		if err != nil {
			return err
		}
		e, dst := w.part(int64(len(p)), off)
		k := len(dst)
		e.sum = checksum.Copy(dst, p[:k], e.sum)
		off, p = off+int64(k), p[k:]
		if err := w.push(ctx, e, false); err != nil {
			return err
		}
	}
	return nil
}

// commit makes everything pending part of the file. Closing closes the handle too.
func (w *writer) commit(ctx context.Context, closing bool) error {
	err := w.live(ctx, func(s *session) error {
		if w.landed {
			return nil
		}
		return w.commitOn(ctx, s, closing)
	})
	if err != nil {
		return bb.Wrap(commitOp(closing), w.b.address(w.path), err)
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
func (w *writer) commitOn(ctx context.Context, s *session, closing bool) error {
	if err := w.transferred(ctx); err != nil {
		return err
	}
	m, data := w.message(closing)
	var reply wire.Committed
	c, err := s.start(ctx, wire.Type_TYPE_COMMIT, m, data, &reply)
	if err == nil {
		err = s.await(ctx, c)
	}
	if err == nil {
		w.acknowledged(&reply)
		return w.settle(ctx)
	}
	switch {
	case isBroken(err):
		w.doubt = w.doubt || wasSent(err)
		return err
	case c != nil && !c.finished():
		s.abandon(c, nil)
		w.mayBeWritten()
		return err
	}
	if openErr := w.settle(ctx); openErr != nil {
		return openErr // the reason of the commit's failure
	}
	if !w.mayBeWritten() {
		if moved := w.move(ctx); moved != nil {
			return errors.Join(err, moved)
		}
	}
	return err
}

// message makes the Commit of everything pending, in memory that is used again.
func (w *writer) message(closing bool) (*wire.Commit, []byte) {
	m := &w.msg
	when := w.o.ModTime
	if when.IsZero() {
		when = time.Now()
	}
	m.Handle, m.Close, m.MtimeNs = w.handle, closing, when.UnixNano()
	m.Writer, m.Number = w.numbered()
	m.Extents = m.Extents[:0]
	if missing := len(w.pending) - len(w.items); missing > 0 {
		fresh := make([]wire.NewExtent, missing)
		for i := range fresh {
			w.items = append(w.items, &fresh[i])
		}
	}
	var data []byte
	for i := range w.pending {
		e, item := &w.pending[i], w.items[i]
		item.FileOffset, item.Length, item.Checksum, item.Lease, item.SegmentOffset = e.off, e.length, e.sum, 0, 0
		if e.mem.lease != nil {
			item.Lease, item.SegmentOffset = e.mem.lease.id, e.mem.lease.base+e.seg
		} else if data == nil {
			data = e.bytes()
		} else {
			data = append(data, e.bytes()...) // a slice without spare room: this copies it first
		}
		m.Extents = append(m.Extents, item)
	}
	return m, data
}

// numbered returns what a commit of everything pending is known by: the number of the
// one before if that was not acknowledged and is repeated, so that it is carried out once.
func (w *writer) numbered() (writer, number uint64) {
	if w.name == 0 {
		w.name = rand.Uint64() | 1
	}
	if w.number == 0 || w.sent < 0 || w.sent != w.written {
		w.number++
	}
	w.sent = w.written
	return w.name, w.number
}

// acknowledged takes the daemon's answer to a commit over.
func (w *writer) acknowledged(m *wire.Committed) {
	w.id, w.generation = FileID(m.File), Generation(m.Generation)
	w.committed, w.doubt = true, false
	w.sent = -1 // the next commit is another one
	w.size = max(w.size, m.Size)
	if w.moving != nil && w.session.far != nil {
		w.session.far.health.worked()
	}
	w.staged = 0
	w.backlog.committed()
	w.access.committed(w)
	if w.access == access(w.small) && w.session.leases() {
		w.access = leased{} // a file that is synced now and then is written to its lease directly
	}
	w.closeBase()
}

// sync commits, if there is anything that was not.
func (w *writer) sync(ctx context.Context) error {
	if w.err == nil && len(w.pending) == 0 && w.committed {
		return nil
	}
	return w.commit(ctx, false)
}

// close commits and closes. If that fails, what was not committed is forgotten.
func (w *writer) close(ctx context.Context) error {
	w.closing = true
	err := w.commit(ctx, true)
	w.end(err != nil)
	return err
}

// end lets go of everything. Leases go back to the daemon after an abort is through,
// since a commit that nobody waited for may be ahead of it.
func (w *writer) end(abort bool) {
	w.closeBase()
	if w.moving != nil {
		_ = w.moving.drain() // whoever needs to know that it failed was told
		w.moving.free()
		w.moving = nil
	}
	release := func(*call) {
		w.forget()
		w.sp.leave()
		if w.small != nil {
			w.small.free()
		}
	}
	if !abort || w.handle == 0 || w.session.isBroken() {
		release(nil)
		return
	}
	c := w.session.post(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: w.handle, Close: true, Abort: true}, release)
	if w.opening != nil {
		w.session.closeHandle(w.handle) // an open that failed leaves a handle, too
	}
	w.session.heed(c)
}

// closeBase forgets what was committed before.
func (w *writer) closeBase() {
	if w.base != nil {
		w.base.close()
		w.base = nil
	}
}
