package bbd

import (
	"context"
	"path"
	"path/filepath"

	"forebay/bbd/aside"
	"forebay/bbd/drain"
	"forebay/bbd/fate"
	"forebay/bbd/freeze"
	"forebay/bbd/reassert"
	"forebay/bbd/recovery"
	"forebay/bbd/registry"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	metatxn "forebay/meta/txn"
)

// newRegistry makes what has the buffers that this daemon serves.
func (d *Daemon) newRegistry() *registry.Service[*buffer] {
	o := registry.Options[*buffer]{
		Table: &d.buffers, Open: func(spec bb.Buffer, ns *metatxn.Tree) *buffer { return newBuffer(d, spec, ns) },
		Records: d.meta, Store: d.store, Stores: d.stores, Flusher: d.flusher, Aside: d.aside,
		Inside: d.inside, Disk: d.cfg.Store.DiskDir != "",
		Held:    func(buffer string) map[bb.FileID]*fate.Held { return reassert.HeldFiles(d.store)[buffer] },
		Doubt:   func(buffer string) string { return recovery.Doubt(d.store, buffer) },
		Dropped: func(b *buffer) { d.work.batch.Destroyed(jobBuffer{b}) }, Emit: d.emit, Log: d.log,
	}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return registry.New(d.ctx, o)
}

// newAside returns what has the buffers that are set aside. It is used before there is a namespace.
func newAside(d *Daemon) *aside.List {
	return aside.New(aside.Options{
		Context: d.ctx, Doubts: aside.Doubts{Dir: filepath.Join(d.cfg.StateDir, "aside")}, Emit: d.emit, Log: d.log,
		Buffer:        func(ctx context.Context, name string) (bb.Buffer, error) { return d.meta.Buffer(ctx, name) },
		DestroyBuffer: func(ctx context.Context, name string) error { return d.meta.DestroyBuffer(ctx, name) },
		Lock:          d.buffers.Lock,
		Drop:          func(name string) { d.work.buffers.Forget(name) },
	})
}

// inside reports whether a path is, is in, or holds one of the daemon's own folders.
func (d *Daemon) inside(p string) bool {
	for _, own := range []string{d.cfg.StateDir, d.cfg.Store.ShmDir, d.cfg.Store.DiskDir} {
		if own != "" && bb.Overlaps(path.Clean(p), path.Clean(own)) {
			return true
		}
	}
	return false
}

// buffer returns a buffer, and attaches it if it is to be served here from now on.
func (d *Daemon) buffer(ctx context.Context, name string) (*buffer, error) {
	return d.work.buffers.Find(ctx, name)
}

// bufferFor returns a buffer that the session's user may enter.
func (d *Daemon) bufferFor(ctx context.Context, s *rpc.Session, op, name string) (*buffer, error) {
	return d.work.buffers.For(ctx, s, op, name)
}

// Name returns the buffer's name.
func (b *buffer) Name() string { return b.name }

// Replace replaces the buffer's record by a newer one.
func (b *buffer) Replace(spec bb.Buffer) { b.current.Store(&spec) }

// Gate returns what keeps changes apart from the end of the buffer.
func (b *buffer) Gate() *freeze.Gate { return b.gate }

// Saved returns why the buffer may not be destroyed; nil: it may.
func (b *buffer) Saved(ctx context.Context) error {
	return drain.Saved(ctx, drainBuffer{b}, b.open.Count())
}

// ForgetFiles forgets the files that are open or dirty.
func (b *buffer) ForgetFiles() {
	b.open.Clear()
	b.dirty.Clear()
	b.writers.Clear()
}
