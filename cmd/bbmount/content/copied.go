package content

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"forebay/client"
	"forebay/cmd/bbmount/kernel"
	"forebay/cmd/bbmount/sparse"
)

// Copied is a content that the client library carries. Bytes are copied between the kernel's
// requests and the daemon's memory.
//
//	idle ──read──▶ r is open ──write──▶ w is open ──release──▶ idle
//
// While w is open, it answers reads too, with its uncommitted bytes.
type Copied struct {
	owner   Owner
	view    *kernel.View
	sharing kernel.Sharing
	w       File
	emptied bool // w began from nothing, and that is not committed
	older   bool // the daemon has the content before that, even if w has bytes by now

	opening sync.Mutex // guards r
	r       File

	state struct {
		sync.Mutex
		Unsaved
		writing bool // w is open
	}
}

// Copy returns the content of a file that nothing has open yet, whose pages in the kernel are view's.
func Copy(o Owner, view *kernel.View, s kernel.Sharing) *Copied {
	return &Copied{owner: o, view: view, sharing: s}
}

// Made begins new content with a file that was just made, is open for writing, and has no bytes. The caller is alone.
func (c *Copied) Made(w File, mtime time.Time) { c.writing(w, &client.Entry{ModTime: mtime}) }

// writing records that w is open, and the content that it begins with.
func (c *Copied) writing(w File, e *client.Entry) {
	c.w = w
	c.view.Writing(e.Generation)
	c.state.Lock()
	defer c.state.Unlock()
	c.state.writing, c.state.Unsaved = true, Unsaved{e.Size, e.ModTime}
}

// Unsaved implements Content.
func (c *Copied) Unsaved() *Unsaved {
	c.state.Lock()
	defer c.state.Unlock()
	if !c.state.writing {
		return nil
	}
	u := c.state.Unsaved
	return &u
}

// grown records that bytes up to end were written.
func (c *Copied) grown(end int64) {
	c.state.Lock()
	defer c.state.Unlock()
	c.state.Size, c.state.ModTime = max(c.state.Size, end), time.Now()
}

// reader returns the file open for reading. Used is the caller's earlier reader, which has failed.
func (c *Copied) reader(ctx context.Context, used File) (File, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.r != nil && c.r != used {
		return c.r, nil
	}
	r, _, err := c.owner.Open(ctx, client.OpenOptions{})
	if err != nil {
		return nil, err
	}
	if used != nil {
		used.Abort()
	}
	c.r = r
	return r, nil
}

// DropReader closes the file that reads use. The next read opens it as it is then. The caller is alone.
func (c *Copied) DropReader() {
	if c.r != nil {
		c.r.Abort()
		c.r = nil
	}
}

// readTries is how often a read opens a file again whose connection, name or generation has changed.
const readTries = 3

// ReadAt implements Content.
func (c *Copied) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = c.owner.Until(ctx, func() (err error) {
		n, err = c.readNow(ctx, p, off)
		return err
	})
	return n, err
}

func (c *Copied) readNow(ctx context.Context, p []byte, off int64) (int, error) {
	switch {
	case c.sharing == kernel.Coherent: // this mount's bytes are committed, others' may be newer than any reader
		r, _, err := c.owner.Open(ctx, client.OpenOptions{})
		if err != nil {
			return 0, err
		}
		defer r.Abort()
		return r.ReadAtContext(ctx, p, off)
	case c.w != nil:
		return c.w.ReadAtContext(ctx, p, off)
	}
	var used File
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
func (c *Copied) writer(ctx context.Context) (File, error) {
	if c.owner.Moved() {
		if err := c.Release(ctx); err != nil {
			return nil, err
		}
	}
	if c.w != nil {
		return c.w, nil
	}
	w, e, err := c.owner.Open(ctx, client.OpenOptions{Write: true})
	if err != nil {
		return nil, err
	}
	c.DropReader()
	c.writing(w, &e)
	return w, nil
}

// WriteAt implements Content.
func (c *Copied) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
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

// Truncate implements Content.
func (c *Copied) Truncate(ctx context.Context, size int64) error {
	if size == 0 {
		return c.empty(ctx)
	}
	w, err := c.writer(ctx)
	if err != nil {
		return err
	}
	now := c.Unsaved().Size
	if e, err := c.owner.Stat(ctx); err != nil {
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
func (c *Copied) empty(ctx context.Context) error {
	if u := c.Unsaved(); u != nil && u.Size == 0 {
		return nil
	}
	if err := c.Release(ctx); err != nil {
		return err
	}
	w, _, err := c.owner.Open(ctx, client.OpenOptions{Write: true, Truncate: true})
	if err != nil {
		return err
	}
	c.DropReader()
	c.emptied, c.older = true, true
	c.writing(w, &client.Entry{ModTime: time.Now()})
	return nil
}

// shorten writes the first bytes of the file as a new generation, since generations do not get
// shorter. When it fails, the file is as it was.
func (c *Copied) shorten(ctx context.Context, size int64) error {
	if err := c.Release(ctx); err != nil {
		return err
	}
	r, e, err := c.owner.Open(ctx, client.OpenOptions{})
	if err != nil {
		return err
	}
	defer r.Abort()
	w, _, err := c.owner.Open(ctx, client.OpenOptions{Write: true, Truncate: true})
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
	c.DropReader()
	e.Size, e.ModTime = size, time.Now()
	c.writing(w, &e)
	return nil
}

// Sync implements Content.
func (c *Copied) Sync(ctx context.Context) error {
	if c.w == nil {
		return nil
	}
	if err := c.w.SetModTime(c.Unsaved().ModTime); err != nil {
		return err
	}
	err := c.w.SyncContext(ctx)
	if err == nil {
		c.emptied, c.older = false, false
	}
	return err
}

// Release implements Content.
func (c *Copied) Release(ctx context.Context) error {
	if c.w == nil {
		return nil
	}
	closed, u := c.owner.Closing(), c.Unsaved()
	var err error
	if c.emptied {
		err = c.Sync(ctx) // a close that brings no bytes changes nothing
	} else {
		err = c.w.SetModTime(c.Unsaved().ModTime)
	}
	if err == nil {
		err = c.w.Close()
	} else {
		c.w.Abort()
	}
	closed(u, err)
	c.closed() // from here on the kept entry answers
	return err
}

// closed records that w is closed.
func (c *Copied) closed() {
	c.view.Closed(c.w.Alone())
	c.w, c.emptied, c.older = nil, false, false
	c.owner.Closed()
	c.state.Lock()
	defer c.state.Unlock()
	c.state.writing = false
}

// Detach implements Content.
func (c *Copied) Detach(ctx context.Context) (Content, error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	base, e, err := c.owner.Open(ctx, client.OpenOptions{})
	if err != nil {
		return nil, err
	}
	mtime := e.ModTime
	if u := c.Unsaved(); u != nil {
		mtime = u.ModTime
	}
	return newOrphan(base, e.Size, mtime), nil
}

// Discard implements Content.
func (c *Copied) Discard() {
	c.DropReader()
	if c.w != nil {
		c.w.Abort()
		c.closed()
	}
}
