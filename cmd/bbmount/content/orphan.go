package content

import (
	"context"
	"os"
	"sync"
	"time"

	"forebay/cmd/bbmount/sparse"
)

// Orphan is the content of a file that is open and has no name any more. The daemon keeps its old
// content for openers. The first write copies that to a temporary file of this process, where all
// further ones go.
type Orphan struct {
	base    File     // nil: scratch has the content
	scratch *os.File // nil: nothing was written yet

	state struct {
		sync.Mutex
		Unsaved
	}
}

func newOrphan(base File, size int64, mtime time.Time) *Orphan {
	o := &Orphan{base: base}
	o.state.Unsaved = Unsaved{size, mtime}
	return o
}

// Restored returns the content that the temporary file of an earlier process is.
func Restored(scratch *os.File, mtime time.Time) (*Orphan, error) {
	info, err := scratch.Stat()
	if err != nil {
		return nil, err
	}
	o := &Orphan{scratch: scratch}
	o.state.Unsaved = Unsaved{info.Size(), mtime}
	return o, nil
}

// Scratch returns the descriptor of the temporary file, which holds the whole content from then on, for Restored. The caller
// is alone, and does not close it.
func (o *Orphan) Scratch(ctx context.Context) (int, error) {
	if err := o.own(ctx); err != nil {
		return 0, err
	}
	return int(o.scratch.Fd()), nil
}

// Unsaved implements Content.
func (o *Orphan) Unsaved() *Unsaved {
	o.state.Lock()
	defer o.state.Unlock()
	u := o.state.Unsaved
	return &u
}

// ReadAt implements Content.
func (o *Orphan) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if o.scratch != nil {
		return o.scratch.ReadAt(p, off)
	}
	return o.base.ReadAtContext(ctx, p, off)
}

// own makes the temporary file.
func (o *Orphan) own(ctx context.Context) error {
	if o.scratch != nil {
		return nil
	}
	scratch, err := os.CreateTemp("", "bbmount-unlinked-*")
	if err != nil {
		return err
	}
	err = os.Remove(scratch.Name())
	if err == nil {
		err = sparse.Copy(ctx, o.Unsaved().Size, o.base.ReadAtContext,
			func(_ context.Context, p []byte, off int64) (int, error) { return scratch.WriteAt(p, off) })
	}
	if err != nil {
		scratch.Close()
		return err
	}
	o.scratch = scratch
	return nil
}

// WriteAt implements Content.
func (o *Orphan) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := o.own(ctx); err != nil {
		return 0, err
	}
	n, err := o.scratch.WriteAt(p, off)
	o.resize(max(o.Unsaved().Size, off+int64(n)))
	return n, err
}

// Truncate implements Content.
func (o *Orphan) Truncate(ctx context.Context, size int64) error {
	if err := o.own(ctx); err != nil {
		return err
	}
	if err := o.scratch.Truncate(size); err != nil {
		return err
	}
	o.resize(size)
	return nil
}

func (o *Orphan) resize(size int64) {
	o.state.Lock()
	defer o.state.Unlock()
	o.state.Unsaved = Unsaved{size, time.Now()}
}

// Sync does nothing, since no name leads to the bytes after a crash.
func (o *Orphan) Sync(context.Context) error { return nil }

// Release implements Content.
func (o *Orphan) Release(context.Context) error { return nil }

// Detach implements Content.
func (o *Orphan) Detach(context.Context) (Content, error) { return o, nil }

// Discard implements Content.
func (o *Orphan) Discard() {
	if o.base != nil {
		o.base.Abort()
	}
	if o.scratch != nil {
		o.scratch.Close()
	}
}
