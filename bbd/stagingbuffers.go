package bbd

import (
	"context"
	"io/fs"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/dedup"
	"forebay/bbd/file"
	"forebay/bbd/owner"
	"forebay/bbd/readcache"
	"forebay/bbd/rpc"
	"forebay/bbd/staging"
	"forebay/bbd/walk"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// newStages makes what stages in and out.
func (d *Daemon) newStages() *staging.Service {
	return staging.New(staging.Options{
		Node: d.cfg.Node, Cluster: d.cluster, Operations: d.meta.Operations(), Transfers: d.work.transfers, Buffers: stagingBuffers{d},
		Open: d.stores.OpenURL, Sweeping: d.unfinished.Sweeping, Inside: d.inside,
	})
}

// stagingBuffers are the daemon's buffers, for package staging.
type stagingBuffers struct{ d *Daemon }

// For returns a buffer that the session's user may enter.
func (s stagingBuffers) For(ctx context.Context, of *rpc.Session, op, name string) (staging.Buffer, error) {
	b, err := s.d.bufferFor(ctx, of, op, name)
	if err != nil {
		return nil, err
	}
	return stagingBuffer{b}, nil
}

// Buffer returns a buffer.
func (s stagingBuffers) Buffer(ctx context.Context, name string) (staging.Buffer, error) {
	b, err := s.d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	return stagingBuffer{b}, nil
}

// stagingBuffer is a buffer, for package staging.
type stagingBuffer struct{ *buffer }

// Lookup returns an entry as readers see it.
func (b stagingBuffer) Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error) {
	return b.paths.Lookup(ctx, c, op, path)
}

// Walk visits a file, or a directory with all below it.
func (b stagingBuffer) Walk(ctx context.Context, c access.Caller, path string, visit walk.Visitor) error {
	return b.paths.Walk(ctx, c, "stage-out", path, visit)
}

// MakeDir creates a directory.
func (b stagingBuffer) MakeDir(ctx context.Context, c access.Caller, path string, mode uint32) error {
	_, err := b.paths.Mkdir(ctx, c, path, fs.FileMode(mode))
	return err
}

// SetAttr sets attributes of an entry that is the caller's.
func (b stagingBuffer) SetAttr(ctx context.Context, c access.Caller, op, path string, attr namespace.Attr) error {
	dir, name, err := b.paths.Parent(ctx, c, op, path)
	if err != nil {
		return err
	}
	_, err = b.ns.SetAttr(ctx, dir.ID, name, attr)
	return bb.Wrap(op, b.address(path), err)
}

// Create begins a generation.
func (b stagingBuffer) Create(ctx context.Context, c access.Caller, path string, mode fs.FileMode) (staging.File, error) {
	f, err := b.open.Open(ctx, c, file.OpenOptions{Path: path, Create: true, Truncate: true, Mode: mode})
	if err != nil {
		return nil, err
	}
	return stagingFile{f, b.d.ctx}, nil
}

// Change calls do when the buffer is not about to be destroyed.
func (b stagingBuffer) Change(ctx context.Context, op string, do func() error) error {
	if err := b.gate.Enter(ctx, op); err != nil {
		return err
	}
	defer b.gate.Leave()
	return do()
}

// Segments returns what fills segments with bytes of a file.
func (b stagingBuffer) Segments(ctx context.Context, uid uint32, path string) *alloc.Writer {
	return b.writers.Of(uid, b.paths.TierOf(ctx, path))
}

// Owner returns the node that decides about a file.
func (b stagingBuffer) Owner(e *bb.Entry) bb.NodeID { return b.owners.Of(e) }

// Replica returns the node that has a second copy.
func (b stagingBuffer) Replica(e *bb.Entry) bb.NodeID { return owner.Replica(e) }

// Foreign reports whether another node owns a file.
func (b stagingBuffer) Foreign(e *bb.Entry) bool { return b.owners.Foreign(e) }

// Adoptable reports whether a file has nothing to lose at the node that owns it.
func (b stagingBuffer) Adoptable(e *bb.Entry) bool { return owner.Adoptable(e) }

// stagingFile is a generation that is staged in, for package staging.
type stagingFile struct {
	*file.File
	ctx context.Context
}

// Close shows the generation.
func (f stagingFile) Close(ctx context.Context, mtime time.Time) error {
	_, err := f.File.Close(ctx, dedup.ID{}, nil, mtime)
	return err
}

// Cancel drops the generation.
func (f stagingFile) Cancel() { f.File.Cancel(f.ctx) }

// Pin opens a closed file, and pins what is in memory of it.
func (b stagingBuffer) Pin(ctx context.Context, c access.Caller, path string) (stage.Pinned, error) {
	e, view, err := b.handles.OpenRead(ctx, c, path)
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

// Entry returns what is copied out.
func (p *pinnedFile) Entry() stage.Entry { return staging.Leaving(p.path, p.View().Entry()) }

// Verify checks every extent that is in memory; the others are when they are read.
func (p *pinnedFile) Verify(ctx context.Context) error {
	return p.View().Snapshot().Verify(ctx, 0, p.Size())
}
