package bufferfs

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"forebay/client"
	"forebay/cmd/bbmount/kernel"
	"forebay/cmd/bbmount/opened"
	"forebay/cmd/bbmount/sparse"
)

// copied is a content that the client library carries. Bytes are copied between the kernel's
// requests and the daemon's memory.
//
//	idle ──read──▶ r is open ──write──▶ w is open ──release──▶ idle
//
// While w is open, it answers reads too, with its uncommitted bytes.
type copied struct {
	n       *node
	w       *opened.File
	emptied bool // w began from nothing, and that is not committed
	older   bool // the daemon has the content before that, even if w has bytes by now

	opening sync.Mutex // guards r
	r       *opened.File

	state struct {
		sync.Mutex
		unsaved
		writing bool // w is open
	}
}

// writing records that w is open, and the content that it begins with.
func (c *copied) writing(w *opened.File, e *client.Entry) {
	c.w = w
	c.n.view.Writing(e.Generation)
	c.state.Lock()
	defer c.state.Unlock()
	c.state.writing, c.state.unsaved = true, unsaved{e.Size, e.ModTime}
}

func (c *copied) unsaved() *unsaved {
	c.state.Lock()
	defer c.state.Unlock()
	if !c.state.writing {
		return nil
	}
	u := c.state.unsaved
	return &u
}

// grown records that bytes up to end were written.
func (c *copied) grown(end int64) {
	c.state.Lock()
	defer c.state.Unlock()
	c.state.size, c.state.mtime = max(c.state.size, end), time.Now()
}

// open opens the file, which must be the one that the node is. While another node's daemon is waited for, names may change.
func (c *copied) open(ctx context.Context, o client.OpenOptions) (file *opened.File, e client.Entry, err error) {
	err = c.n.fsys.peers.Until(ctx, func() (err error) {
		file, e, err = c.openNow(ctx, o)
		return err
	})
	return file, e, err
}

func (c *copied) openNow(ctx context.Context, o client.OpenOptions) (*opened.File, client.Entry, error) {
	f := c.n.fsys
	p, unshare, err := f.share(ctx, c.n, "")
	if err != nil {
		return nil, client.Entry{}, err
	}
	defer unshare()
	file, err := opened.Open(f.ctx, ctx, f.b, p, o)
	if client.KindOf(err) == client.ErrNotFound {
		err = syscall.ESTALE // another client has removed it
	}
	if err != nil {
		return nil, client.Entry{}, err
	}
	e, err := file.Entry()
	if err == nil && e.File != c.n.id {
		err = syscall.ESTALE
	}
	if err != nil {
		file.Abort()
		return nil, client.Entry{}, err
	}
	return file, e, nil
}

// reader returns the file open for reading. Used is the caller's earlier reader, which has failed.
func (c *copied) reader(ctx context.Context, used *opened.File) (*opened.File, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.r != nil && c.r != used {
		return c.r, nil
	}
	r, _, err := c.open(ctx, client.OpenOptions{})
	if err != nil {
		return nil, err
	}
	if used != nil {
		used.Abort()
	}
	c.r = r
	return r, nil
}

// dropReader has the next read open the file as it is then. The caller is alone.
func (c *copied) dropReader() {
	if c.r != nil {
		c.r.Abort()
		c.r = nil
	}
}

// readTries is how often a read opens a file again whose connection, name or generation has changed.
const readTries = 3

func (c *copied) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = c.n.fsys.peers.Until(ctx, func() (err error) {
		n, err = c.readNow(ctx, p, off)
		return err
	})
	return n, err
}

func (c *copied) readNow(ctx context.Context, p []byte, off int64) (int, error) {
	switch {
	case c.n.fsys.sharing == kernel.Coherent: // this mount's bytes are committed, others' may be newer than any reader
		r, _, err := c.open(ctx, client.OpenOptions{})
		if err != nil {
			return 0, err
		}
		defer r.Abort()
		return r.ReadAtContext(ctx, p, off)
	case c.w != nil:
		return c.w.ReadAtContext(ctx, p, off)
	}
	var used *opened.File
	for try := 1; ; try++ {
		r, err := c.reader(ctx, used)
		if err != nil {
			return 0, err
		}
		n, err := r.ReadAtContext(ctx, p, off)
		lost := err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil
		if !lost || try == readTries {
			return n, err
		}
		used = r
	}
}

// writer opens the file for writing, if it is not. After a rename of a directory above it, it
// is opened again where it is.
func (c *copied) writer(ctx context.Context) (*opened.File, error) {
	if c.n.moved.Swap(false) {
		if err := c.release(ctx); err != nil {
			return nil, err
		}
	}
	if c.w != nil {
		return c.w, nil
	}
	w, e, err := c.open(ctx, client.OpenOptions{Write: true})
	if err != nil {
		return nil, err
	}
	c.dropReader()
	c.writing(w, &e)
	return w, nil
}

func (c *copied) writeAt(ctx context.Context, p []byte, off int64) (int, error) {
	w, err := c.writer(ctx)
	if err != nil {
		return 0, err
	}
	n, err := w.WriteAtContext(ctx, p, off)
	if n > 0 {
		c.emptied = false
		c.grown(off + int64(n))
	}
	return n, err
}

func (c *copied) truncate(ctx context.Context, size int64) error {
	if size == 0 {
		return c.empty(ctx)
	}
	w, err := c.writer(ctx)
	if err != nil {
		return err
	}
	now := c.unsaved().size
	if e, err := c.n.stat(ctx); err != nil {
		return err
	} else if !c.older {
		now = max(now, e.Size) // other nodes may have written more
	}
	if size < now {
		return c.shorten(ctx, size)
	}
	c.emptied = false
	c.grown(size)
	return w.Extend(size)
}

// empty begins the file anew. Its old content is there until the next commit.
func (c *copied) empty(ctx context.Context) error {
	if u := c.unsaved(); u != nil && u.size == 0 {
		return nil
	}
	if err := c.release(ctx); err != nil {
		return err
	}
	w, _, err := c.open(ctx, client.OpenOptions{Write: true, Truncate: true})
	if err != nil {
		return err
	}
	c.dropReader()
	c.emptied, c.older = true, true
	c.writing(w, &client.Entry{ModTime: time.Now()})
	return nil
}

// shorten writes the first bytes of the file as a new generation, since generations do not get
// shorter. When it fails, the file is as it was.
func (c *copied) shorten(ctx context.Context, size int64) error {
	if err := c.release(ctx); err != nil {
		return err
	}
	r, e, err := c.open(ctx, client.OpenOptions{})
	if err != nil {
		return err
	}
	defer r.Abort()
	w, _, err := c.open(ctx, client.OpenOptions{Write: true, Truncate: true})
	if err != nil {
		return err
	}
	err = sparse.Copy(ctx, size, r.ReadAtContext, w.WriteAtContext)
	if err == nil {
		err = w.SyncContext(ctx)
	}
	if err != nil {
		w.Abort()
		return err
	}
	c.dropReader()
	e.Size, e.ModTime = size, time.Now()
	c.writing(w, &e)
	return nil
}

func (c *copied) sync(ctx context.Context) error {
	if c.w == nil {
		return nil
	}
	if err := c.w.SetModTime(c.unsaved().mtime); err != nil {
		return err
	}
	err := c.w.SyncContext(ctx)
	if err == nil {
		c.emptied, c.older = false, false
	}
	return err
}

func (c *copied) release(ctx context.Context) error {
	if c.w == nil {
		return nil
	}
	at, u := c.n.closing(), c.unsaved()
	var err error
	if c.emptied {
		err = c.sync(ctx) // a close that brings no bytes changes nothing
	} else {
		err = c.w.SetModTime(c.unsaved().mtime)
	}
	if err == nil {
		err = c.w.Close()
	} else {
		c.w.Abort()
	}
	c.n.closed(at, u, err)
	c.closed() // from here on the kept entry answers
	return err
}

// closed records that w is closed.
func (c *copied) closed() {
	c.n.view.Closed(c.w.Alone())
	c.w, c.emptied, c.older = nil, false, false
	c.state.Lock()
	defer c.state.Unlock()
	c.state.writing = false
	c.n.fsys.changes.Add(1)
}

func (c *copied) detach(ctx context.Context) (content, error) {
	if err := c.sync(ctx); err != nil {
		return nil, err
	}
	base, e, err := c.open(ctx, client.OpenOptions{})
	if err != nil {
		return nil, err
	}
	mtime := e.ModTime
	if u := c.unsaved(); u != nil {
		mtime = u.mtime
	}
	return newOrphan(base, e.Size, mtime), nil
}

func (c *copied) discard() {
	c.dropReader()
	if c.w != nil {
		c.w.Abort()
		c.closed()
	}
}
