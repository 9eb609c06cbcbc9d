package bufferfs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sync/semaphore"

	"forebay/client"
	"forebay/cmd/bbmount/allocate"
	"forebay/cmd/bbmount/attr"
	"forebay/cmd/bbmount/attrcache"
	"forebay/cmd/bbmount/content"
	"forebay/cmd/bbmount/kernel"
	"forebay/cmd/bbmount/opened"
	"forebay/cmd/bbmount/passthrough"
	"forebay/cmd/bbmount/request"
	"forebay/cmd/bbmount/room"
	"forebay/cmd/bbmount/sparse"
	"forebay/internal/bb"
)

// file is the part of a node that is a file.
type file struct {
	use     *semaphore.Weighted // 1 by readers, exclusively by all others
	moved   atomic.Bool         // the path has changed while the content was open
	handles int                 // guarded by use
	writers int                 // of them, those open for writing; guarded by use
	lost    error               // why another program's request could not commit writers' bytes, until one of them has it; guarded by use

	backing *passthrough.Backing // of openers, who all read by passthrough; nil: none does; guarded by use

	view kernel.View
	made attrcache.Made

	state struct {
		sync.Mutex
		content content.Content // nil: it is not open. It changes while use is exclusive
		last    client.Entry    // of a file without a name
	}
}

const exclusively = 1 << 30

// lock acquires the use of a file.
func (n *node) lock(ctx context.Context, weight int64) (unlock func(), err error) {
	if err := n.use.Acquire(ctx, weight); err != nil {
		return nil, bb.Cancelled
	}
	return func() { n.use.Release(weight) }, nil
}

// current returns the content, nil if the file is not open.
func (n *node) current() content.Content {
	n.state.Lock()
	defer n.state.Unlock()
	return n.state.content
}

// become changes the content.
func (n *node) become(c content.Content) {
	n.state.Lock()
	n.state.content = c
	n.state.Unlock()
	f := n.fsys
	f.mu.Lock()
	defer f.mu.Unlock()
	if c == nil {
		delete(f.mu.open, n)
	} else {
		f.mu.open[n] = struct{}{}
	}
}

// unsaved is that of the content. It is nil, too, if the file has no node.
func (n *node) unsaved() *content.Unsaved {
	if n == nil {
		return nil
	}
	if c := n.current(); c != nil && (n.fsys.sharing != kernel.Coherent || n.isUnlinked()) {
		return c.Unsaved()
	}
	return nil
}

// written ends a change of the content. On a coherent mount, all nodes see it when it returns.
func (n *node) written(ctx context.Context, c content.Content, err error) error {
	if err == nil && n.fsys.sharing == kernel.Coherent {
		err = n.changed(c.Sync(ctx))
	}
	if err != nil {
		n.view.Forget()
	}
	return err
}

func (n *node) lastEntry() client.Entry {
	n.state.Lock()
	defer n.state.Unlock()
	return n.state.last
}

// remember keeps the entry of a node without a name for openers.
func (n *node) remember(ctx context.Context) error {
	e, err := n.stat(ctx)
	n.state.Lock()
	defer n.state.Unlock()
	n.state.last = e
	return err
}

// setLast changes attributes of a file without a name.
func (n *node) setLast(a client.Attr) client.Entry {
	n.state.Lock()
	defer n.state.Unlock()
	attr.Apply(&n.state.last, a)
	return n.state.last
}

// handle is an open file of a program.
type handle struct {
	n       *node
	write   bool
	direct  bool                 // its bytes go past the kernel's pages, which others may read
	backing *passthrough.Backing // nil: it reads as usual
	opening kernel.Opening
}

var _ = []any{
	fusefs.FileReader((*handle)(nil)), fusefs.FileWriter((*handle)(nil)), fusefs.FileFlusher((*handle)(nil)),
	fusefs.FileFsyncer((*handle)(nil)), fusefs.FileReleaser((*handle)(nil)), fusefs.FileAllocater((*handle)(nil)),
}

// Open implements open of a file that is there.
func (n *node) Open(ctx context.Context, flags uint32) (h fusefs.FileHandle, how uint32, errno syscall.Errno) {
	if inside(ctx) {
		h, err := n.reopen(ctx, flags)
		return h, 0, n.fsys.errno(err)
	}
	f, thread := n.fsys, request.Thread(ctx)
	ctx, done := f.request(ctx)
	defer done()
	p, _ := f.pathOf(n) // none: it has no name, and a second attempt leads elsewhere
	second := f.retries.Second(thread, p)
	err := passthrough.Settled(ctx, func() (err error) {
		h, how, err = n.open(ctx, flags, second)
		return err
	})
	return h, f.sharing.How(how, flags), f.errno(f.retries.Failed(thread, p, err))
}

// open requests the file's state from the daemon. An opener reads the content of earlier closes,
// anywhere. ESTALE makes the kernel look the path up again and retry, once: the second attempt.
func (n *node) open(ctx context.Context, flags uint32, second bool) (h *handle, how uint32, err error) {
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	c := n.current()
	e, met := client.Entry{State: client.StateOpen}, kernel.Opening{}
	if !n.isUnlinked() {
		if e, how, met, err = n.fresh(ctx, second); err != nil {
			return nil, 0, err
		}
	} else if c == nil {
		return nil, 0, syscall.ESTALE
	}
	by, err := n.backing.Way(passthrough.Opening{Nameless: n.isUnlinked(), Others: n.handles}, &e, flags)
	if err != nil {
		return nil, 0, err
	}
	if c == nil {
		n.become(n.copied())
	} else if f, ok := c.(*content.Copied); ok && how == 0 {
		f.DropReader()
	}
	if n.fsys.passes.Wanted(by) {
		n.backing = n.layOut(ctx, &e)
	}
	h = n.opened(flags)
	h.opening, h.backing = met, n.backing
	h.backing.Enter()
	return h, how, nil
}

// fresh returns FOPEN_KEEP_CACHE if the kernel's pages are those of the file as it is now. It refuses a first attempt if
// the kernel has another size. The second one has a size that is younger than the call of open.
func (n *node) fresh(ctx context.Context, second bool) (e client.Entry, how uint32, met kernel.Opening, err error) {
	e, err = n.stat(ctx)
	if err != nil || n.unsaved() != nil {
		e.State = client.StateOpen // for programs here
		return e, 0, met, err
	}
	size, pages, met := n.view.Agrees(&e)
	switch {
	case pages:
		return e, fuse.FOPEN_KEEP_CACHE, met, nil
	case !size && !second:
		return e, 0, met, syscall.ESTALE
	}
	kernel.DropAttributes(n.EmbeddedInode()) // of two answers the kernel drops the last, and its size is at times that of an older reader
	return e, 0, met, nil
}

// layOut has the daemon lay the file out for the kernel. It returns nil if that cannot be.
func (n *node) layOut(ctx context.Context, e *client.Entry) *passthrough.Backing {
	f, now, err := n.openFile(ctx, client.OpenOptions{Linear: true})
	if err != nil {
		return nil // the reader returns the reason
	}
	return passthrough.Map(f.File, e, &now, f.Abort)
}

// PassthroughFd implements fs.FilePassthroughFder.
func (h *handle) PassthroughFd() (int, bool) { return h.backing.Fd() }

// opened counts a handle. The caller has the use exclusively.
func (n *node) opened(flags uint32) *handle {
	h := &handle{n: n, write: flags&syscall.O_ACCMODE != syscall.O_RDONLY, direct: n.fsys.sharing == kernel.DirectWrites && n.fsys.sharing.Direct(flags)}
	n.handles++
	if h.write {
		n.writers++
	}
	return h
}

// Create implements open of a file that is not there.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	caller, thread := request.Caller(ctx), request.Thread(ctx)
	ctx, done := n.fsys.request(ctx)
	defer done()
	inode, h, err := n.create(ctx, name, flags, fs.FileMode(mode).Perm(), caller, out)
	if client.KindOf(err) == client.ErrExists && flags&syscall.O_EXCL == 0 {
		p, _ := n.fsys.childPath(n, name)
		err = n.fsys.retries.Failed(thread, p, syscall.ESTALE) // another opener was faster, so the kernel looks it up, and opens it
	}
	if err != nil {
		return nil, nil, 0, n.fsys.errno(err)
	}
	return inode, h, n.fsys.sharing.How(0, flags), fusefs.OK
}

func (n *node) create(ctx context.Context, name string, flags uint32, mode fs.FileMode, caller fuse.Owner, out *fuse.EntryOut) (*fusefs.Inode, *handle, error) {
	f := n.fsys
	p, unshare, err := f.share(ctx, n, name)
	if err != nil {
		return nil, nil, err
	}
	defer unshare()
	at := f.kept.At(p)
	w, err := f.make(ctx, p, mode)
	if err != nil {
		return nil, nil, err
	}
	var null *fs.FileMode
	if mode == 0 {
		null = &mode // the client takes no mode for the usual one
	}
	e, err := w.Entry()
	if err == nil {
		err = f.give(ctx, p, caller, null)
	}
	if err != nil {
		w.Abort()
		return nil, nil, errors.Join(err, f.b.Remove(ctx, p))
	}
	e.Name, e.Mode, e.UID, e.GID = name, mode, caller.Uid, caller.Gid
	inode := n.child(ctx, &e)
	c := inode.Operations().(*node)
	made := c.copied()
	made.Made(w, e.ModTime)
	c.become(made)
	c.made.Set(&e)
	c.fill(&e, nil, &out.Attr)
	c.times(&e, at, out)
	return inode, c.opened(flags), nil
}

// make creates a file, until the outcome is known.
func (f *FS) make(ctx context.Context, p string, mode fs.FileMode) (w *opened.File, err error) {
	err = f.settled.Create(ctx, p, mode, func(o client.OpenOptions) (err error) {
		w, err = opened.Open(f.ctx, ctx, f.b, p, o)
		return err
	})
	return w, err
}

// Read implements read.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n := h.n
	ctx, done := n.fsys.request(ctx)
	defer done()
	unlock, err := n.lock(ctx, 1)
	if err != nil {
		return nil, n.fsys.errno(err)
	}
	defer unlock()
	n.view.Dropped(h.opening)
	k, err := n.current().ReadAt(ctx, dest, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, n.fsys.errno(err)
	}
	return fuse.ReadResultData(dest[:k]), fusefs.OK
}

// Write implements write.
func (h *handle) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	n := h.n
	ctx, done := n.fsys.request(ctx)
	defer done()
	k, shared, err := h.put(ctx, data, off)
	if h.direct && shared && k > 0 {
		kernel.DropPages(n.EmbeddedInode(), off, int64(k)) // others may have read older bytes into them beside this write
	}
	return uint32(k), n.fsys.errno(err)
}

// put writes for a program. It reports whether other openers share the file.
func (h *handle) put(ctx context.Context, data []byte, off int64) (k int, shared bool, err error) {
	n := h.n
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return 0, false, err
	}
	defer unlock()
	if off > bb.MaxFileSize-int64(len(data)) {
		return 0, false, syscall.EFBIG
	}
	c := n.current()
	k, err = c.WriteAt(ctx, data, off)
	if k > 0 && h.direct {
		n.view.Passed(off + int64(k))
	} else if k > 0 {
		n.view.Wrote(off + int64(k))
	}
	// An error counts beside written bytes, too, since the kernel overlooks a short write of a mapping's pages.
	return k, n.handles > 1, n.written(ctx, c, err)
}

// Flush implements close. Written bytes are committed when it returns. If no other program has the
// file open for writing, it is closed, so that it can be flushed to the store.
func (h *handle) Flush(ctx context.Context) syscall.Errno {
	if !h.write {
		return fusefs.OK
	}
	return h.commit(ctx, func(ctx context.Context, c content.Content) error {
		if h.n.writers > 1 {
			return c.Sync(ctx)
		}
		return c.Release(ctx)
	})
}

// Fsync implements fsync and fdatasync.
func (h *handle) Fsync(ctx context.Context, _ uint32) syscall.Errno {
	return h.commit(ctx, func(ctx context.Context, c content.Content) error { return c.Sync(ctx) })
}

func (h *handle) commit(ctx context.Context, do func(context.Context, content.Content) error) syscall.Errno {
	n := h.n
	ctx, done := n.fsys.request(ctx)
	defer done()
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return n.fsys.errno(err)
	}
	defer unlock()
	err = n.changed(do(ctx, n.current()))
	if h.write {
		err, n.lost = cmp.Or(err, n.lost), nil
	}
	return n.fsys.errno(err)
}

// changed counts a change for the keepers of entries, and returns err.
func (n *node) changed(err error) error {
	n.fsys.changes.Add(1)
	return err
}

// Release closes a handle, after its last close. Later writes of a shared mapping are committed. A
// failure of that cannot be reported.
func (h *handle) Release(call context.Context) syscall.Errno {
	if h.backing != nil {
		h.n.fsys.passes.After(call.(*fuse.Context), h.release)
	} else {
		h.release()
	}
	return fusefs.OK
}

func (h *handle) release() {
	n := h.n
	ctx := n.fsys.ctx
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return // the mount has ended
	}
	defer unlock()
	if h.backing != nil && h.backing.Leave() {
		n.backing = nil
	}
	n.handles--
	if h.write {
		n.writers--
	}
	c := n.current()
	if n.writers == 0 {
		n.lost = nil
		if err := n.changed(c.Release(ctx)); err != nil {
			n.fsys.log.Error("closing a file failed: its last writes are not saved", "err", err)
		}
	}
	if n.handles == 0 {
		c.Discard()
		n.become(nil)
	}
}

// finish commits and closes a file that programs have open.
func (n *node) finish(ctx context.Context) error {
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return err
	}
	defer unlock()
	c := n.current()
	if c == nil {
		return nil
	}
	err = c.Release(ctx)
	c.Discard()
	n.become(nil)
	return err
}

// release commits and closes a file that is open for writing. It is opened again when it is used.
func (n *node) release(ctx context.Context) error { return n.quiet(ctx, func() error { return nil }) }

// quiet is release, and then do, during which the file has no other user.
func (n *node) quiet(ctx context.Context, do func() error) error {
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return err
	}
	defer unlock()
	if c := n.current(); c != nil {
		if err := n.changed(c.Release(ctx)); err != nil {
			n.lost = err
			return err
		}
	}
	return n.changed(do())
}

// truncate changes the size.
func (n *node) truncate(ctx context.Context, size int64) error {
	if size > bb.MaxFileSize {
		return syscall.EFBIG
	}
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return err
	}
	defer unlock()
	if n.backing != nil {
		return passthrough.ErrRead
	}
	c := n.current()
	if c == nil { // truncate(2)
		c = n.copied()
		defer c.Discard()
	}
	err = c.Truncate(ctx, size)
	if err == nil && n.writers == 0 {
		err = c.Release(ctx)
	}
	n.view.Wrote(0)
	return n.changed(n.written(ctx, c, err))
}

// Allocate implements fallocate.
func (h *handle) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	ctx, done := h.n.fsys.request(ctx)
	defer done()
	return h.n.fsys.errno(h.n.allocate(ctx, off, size, mode))
}

func (n *node) allocate(ctx context.Context, off, size uint64, mode uint32) error {
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := n.stat(ctx)
	if err != nil {
		return err
	}
	if u := n.unsaved(); u != nil {
		e.Size = u.Size
	}
	p, errno := allocate.Of(mode, off, size, e.Size)
	if errno != 0 {
		return errno
	}
	if _, free, err := room.Of(ctx, n.fsys.c, n.fsys.b.Name()); err != nil || free < p.Room {
		return cmp.Or(err, error(syscall.ENOSPC))
	}
	if err = sparse.Zero(ctx, p.ZeroAt, p.ZeroTo, n.current().WriteAt); err == nil && p.Size > e.Size {
		err = n.current().Truncate(ctx, p.Size)
	}
	n.view.Wrote(0)
	return n.changed(n.written(ctx, n.current(), err))
}

// replaced carries out a change that takes the file's name away. Openers keep its bytes. n may be nil.
func (n *node) replaced(ctx context.Context, do func() error) error {
	if n == nil {
		return do()
	}
	if n.IsDir() {
		err := n.remember(ctx)
		if err == nil {
			err = do()
		}
		if err == nil {
			n.fsys.unlink(n)
		}
		return err
	}
	unlock, err := n.lock(ctx, exclusively)
	if err != nil {
		return err
	}
	defer unlock()
	c := n.current()
	if c == nil || n.isUnlinked() {
		if err = do(); err == nil {
			n.fsys.unlink(n)
		}
		return n.changed(err)
	}
	return n.changed(n.orphan(ctx, c, do))
}

func (n *node) orphan(ctx context.Context, c content.Content, do func() error) error {
	rest, err := c.Detach(ctx)
	if err != nil {
		return err
	}
	err = n.remember(ctx)
	if err == nil {
		err = do()
	}
	if err != nil {
		rest.Discard()
		return err
	}
	n.fsys.unlink(n)
	c.Discard()
	n.become(rest)
	return nil
}
