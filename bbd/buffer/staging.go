package buffer

import (
	"context"
	"io/fs"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/file"
	"forebay/bbd/owner"
	"forebay/bbd/readcache"
	"forebay/bbd/staging"
	"forebay/bbd/walk"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/namespace"
)

// The part of a buffer that stages use. Some of it is in drain.go.
var _ staging.Buffer = (*Buffer)(nil)

// Lookup returns an entry as readers see it.
func (b *Buffer) Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error) {
	return b.paths.Lookup(ctx, c, op, path)
}

// Walk visits a file, or a directory with all below it.
func (b *Buffer) Walk(ctx context.Context, c access.Caller, op, path string, visit walk.Visitor) error {
	return b.paths.Walk(ctx, c, op, path, visit)
}

// MakeDir creates a directory.
func (b *Buffer) MakeDir(ctx context.Context, c access.Caller, path string, mode uint32) error {
	_, err := b.paths.Mkdir(ctx, c, path, fs.FileMode(mode))
	return err
}

// SetAttr sets attributes of an entry that is the caller's.
func (b *Buffer) SetAttr(ctx context.Context, c access.Caller, op, path string, attr namespace.Attr) error {
	dir, name, err := b.paths.Parent(ctx, c, op, path)
	if err != nil {
		return err
	}
	if _, err = b.ns.SetAttr(ctx, dir.ID, name, attr); err == nil {
		b.announce(path)
	}
	return bb.Wrap(op, b.address(path), err)
}

// AddXattrs adds extended attributes to those of an entry that is the caller's.
func (b *Buffer) AddXattrs(ctx context.Context, c access.Caller, op, path string, xattrs xattr.List) error {
	dir, name, err := b.paths.Parent(ctx, c, op, path)
	if err != nil {
		return err
	}
	_, err = b.ns.Update(ctx, dir.ID, name, func(e *bb.Entry) error {
		e.Xattrs = string(xattr.List(e.Xattrs).With(xattrs))
		return nil
	})
	return bb.Wrap(op, b.address(path), err)
}

// Create begins a generation.
func (b *Buffer) Create(ctx context.Context, c access.Caller, path string, mode fs.FileMode) (staging.File, error) {
	f, err := b.open.Open(ctx, c, file.OpenOptions{Path: path, Create: true, Truncate: true, Mode: mode})
	if err != nil {
		return nil, err
	}
	return stagingFile{f, b.ctx}, nil
}

// Change calls do when the buffer is not about to be destroyed.
func (b *Buffer) Change(ctx context.Context, op string, do func() error) error {
	if err := b.gate.Enter(ctx, op); err != nil {
		return err
	}
	defer b.gate.Leave()
	return do()
}

// Segments returns the writer that fills segments with bytes of a file.
func (b *Buffer) Segments(ctx context.Context, uid uint32, path string) *alloc.Writer {
	return b.writers.Of(uid, b.paths.TierOf(ctx, path))
}

// Replica returns the node that has a second copy.
func (b *Buffer) Replica(e *bb.Entry) bb.NodeID { return owner.Replica(e) }

// Adoptable reports whether a file has nothing to lose at the node that owns it.
func (b *Buffer) Adoptable(e *bb.Entry) bool { return owner.Adoptable(e) }

// stagingFile is a generation that is staged in, for package staging.
type stagingFile struct {
	*file.File
	ctx context.Context
}

// Close shows the generation.
func (f stagingFile) Close(ctx context.Context, mtime time.Time) error {
	_, err := f.File.Close(ctx, file.Commit{MTime: mtime})
	return err
}

// Cancel drops the generation.
func (f stagingFile) Cancel() { f.File.Cancel(f.ctx) }

// Pin opens a closed file, and pins its bytes that are in memory.
func (b *Buffer) Pin(ctx context.Context, c access.Caller, path string) (stage.Pinned, error) {
	e, view, err := b.handles.OpenRead(ctx, c, path)
	if bb.KindOf(err) == bb.Unsupported {
		if link, lookupErr := b.paths.Lookup(ctx, c, "stage-out", path); lookupErr == nil && link.Type == bb.TypeSymlink {
			return staging.PinLink(path, &link), nil
		}
	}
	if err != nil {
		return nil, err
	}
	if e.Open {
		view.Close()
		return nil, bb.E(bb.Busy, "stage-out", b.address(path), "the file is being written").WithRemedy("close it first")
	}
	source, err := view.Source(ctx)
	if err != nil {
		view.Close()
		return nil, err
	}
	return &pinnedFile{source, path}, nil
}

// pinnedFile is a file whose bytes stay where they are while they are copied out.
type pinnedFile struct {
	*readcache.Source
	path string
}

// Entry returns the entry of the file that is copied out.
func (p *pinnedFile) Entry() stage.Entry { return staging.Leaving(p.path, p.View().Entry()) }

// Verify checks every extent that is in memory. The others are checked when they are read.
func (p *pinnedFile) Verify(ctx context.Context) error {
	return p.View().Snapshot().Verify(ctx, 0, p.Size())
}
