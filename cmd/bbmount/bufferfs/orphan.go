package bufferfs

import (
	"context"
	"os"
	"sync"
	"time"

	"forebay/cmd/bbmount/opened"
	"forebay/cmd/bbmount/sparse"
)

// orphan is the content of a file that is open and has no name any more. The daemon keeps its old
// content for openers. The first write copies that to a temporary file of this process, where all
// further ones go.
type orphan struct {
	base    *opened.File // nil: scratch has the content
	scratch *os.File     // nil: nothing was written yet

	state struct {
		sync.Mutex
		unsaved
	}
}

func newOrphan(base *opened.File, size int64, mtime time.Time) *orphan {
	o := &orphan{base: base}
	o.state.unsaved = unsaved{size, mtime}
	return o
}

func (o *orphan) unsaved() *unsaved {
	o.state.Lock()
	defer o.state.Unlock()
	u := o.state.unsaved
	return &u
}

func (o *orphan) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	if o.scratch != nil {
		return o.scratch.ReadAt(p, off)
	}
	return o.base.ReadAtContext(ctx, p, off)
}

// own makes the temporary file.
func (o *orphan) own(ctx context.Context) error {
	if o.scratch != nil {
		return nil
	}
	scratch, err := os.CreateTemp("", "bbmount-unlinked-*")
	if err != nil {
		return err
	}
	err = os.Remove(scratch.Name())
	if err == nil {
		err = sparse.Copy(ctx, o.unsaved().size, o.base.ReadAtContext,
			func(_ context.Context, p []byte, off int64) (int, error) { return scratch.WriteAt(p, off) })
	}
	if err != nil {
		scratch.Close()
		return err
	}
	o.scratch = scratch
	return nil
}

func (o *orphan) writeAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := o.own(ctx); err != nil {
		return 0, err
	}
	n, err := o.scratch.WriteAt(p, off)
	o.resize(max(o.unsaved().size, off+int64(n)))
	return n, err
}

func (o *orphan) truncate(ctx context.Context, size int64) error {
	if err := o.own(ctx); err != nil {
		return err
	}
	if err := o.scratch.Truncate(size); err != nil {
		return err
	}
	o.resize(size)
	return nil
}

func (o *orphan) resize(size int64) {
	o.state.Lock()
	defer o.state.Unlock()
	o.state.unsaved = unsaved{size, time.Now()}
}

// sync does nothing, since no name leads to the bytes after a crash.
func (o *orphan) sync(context.Context) error { return nil }

func (o *orphan) release(context.Context) error { return nil }

func (o *orphan) detach(context.Context) (content, error) { return o, nil }

func (o *orphan) discard() {
	if o.base != nil {
		o.base.Abort()
	}
	if o.scratch != nil {
		o.scratch.Close()
	}
}
