package bbd

import (
	"context"
	"path"
	"path/filepath"

	"forebay/bbd/aside"
	"forebay/bbd/buffer"
	"forebay/bbd/call"
	"forebay/bbd/fate"
	"forebay/bbd/owner"
	"forebay/bbd/readcache"
	"forebay/bbd/reassert"
	"forebay/bbd/recovery"
	"forebay/bbd/registry"
	"forebay/internal/bb"
	"forebay/meta"
	metatxn "forebay/meta/txn"
)

// newRegistry makes the registry of the buffers that this daemon serves.
func (d *Daemon) newRegistry() *registry.Service[*buffer.Buffer] {
	o := registry.Options[*buffer.Buffer]{
		Table: &d.buffers, Open: func(spec bb.Buffer, ns *metatxn.Tree) *buffer.Buffer { return buffer.New(d.ctx, d.host, spec, ns) },
		Records: d.meta, Store: d.store, Stores: d.stores, Flusher: d.flusher, Aside: d.aside,
		Inside: d.inside, Disk: d.cfg.Store.DiskDir != "",
		Held:      func(buffer string) map[bb.FileID]*fate.Held { return reassert.HeldFiles(d.store)[buffer] },
		Damage:    func(buffer string) string { return recovery.Damage(d.store, buffer) },
		Elsewhere: func(e *bb.Entry) bool { return d.owners().OwnedElsewhere(e) },
		Restore:   d.restore, Compare: func(ctx context.Context, b *buffer.Buffer, held map[bb.FileID]*fate.Held, was *fate.Reassertion) error {
			return b.CompareEvicted(ctx, held, was)
		},
		Dropped: func(b *buffer.Buffer) { d.work.batch.Destroyed(jobBuffer{b, d}) }, Emit: d.emit, Log: d.log,
	}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return registry.New(d.ctx, o)
}

// newHost returns the part of the daemon that all buffers use.
func (d *Daemon) newHost() *buffer.Host {
	return &buffer.Host{
		Owners: d.owners(), Cluster: d.cluster, IDs: d.ids, Observe: d.observe,
		Store: d.store, Alloc: d.alloc, Bypass: readcache.NewBypass(), Flusher: d.flusher, Stores: d.stores, Drains: d.work.drains, DamageNotes: d.aside.DamageNotes(),
		Find: d.buffer, RaiseIDs: d.raiseIDs, Unreadable: func() bool { return d.meta.Stats().Garbage > 0 },
		Draining: d.draining.Active, Short: d.pressure.Load,
		Settings: buffer.Settings{
			Inline: d.cfg.Limits.Inline, ResumeGrace: d.cfg.ResumeGrace, DirtyAge: d.cfg.Flush.DirtyAge, DrainTimeout: d.cfg.Flush.DrainTimeout,
			Silence: d.cfg.silence(), Since: d.since,
		},
		Emit: d.emit, Go: d.wg.Go, Log: d.log,
	}
}

// owners decides which files are this node's.
func (d *Daemon) owners() owner.Node {
	return owner.Node{Self: d.cfg.Node, Alone: d.cluster == nil}
}

// raiseIDs makes the namespace count the ids as claimed that this daemon uses.
func (d *Daemon) raiseIDs(ctx context.Context) error {
	return d.meta.IDs().Raise(ctx, max(d.ids.Block(), reassert.NewestBlock(reassert.HeldFiles(d.store))))
}

// watchForgotten restores entries that the namespace has forgotten, until the daemon stops.
func (d *Daemon) watchForgotten() {
	reassert.Watch(d.ctx, func() reassert.Connection {
		now := d.meta.Status()
		return reassert.Connection{Connected: now.Connected, Reconnects: now.Reconnects}
	}, ofAll(d, (*buffer.Buffer).Reassertion))
}

// newAside returns the list of the buffers that are set aside. It is used before there is a namespace.
func newAside(d *Daemon) *aside.List {
	return aside.New(aside.Options{
		Context: d.ctx, DamageNotes: aside.DamageNotes{Dir: filepath.Join(d.cfg.StateDir, "aside")}, Emit: d.emit, Log: d.log,
		Buffer:        func(ctx context.Context, name string) (bb.Buffer, error) { return d.meta.Buffer(ctx, name) },
		DestroyBuffer: func(ctx context.Context, name string) error { return d.meta.DestroyBuffer(ctx, name) },
		Lock:          d.buffers.Lock, Rebuilds: meta.Damaged,
		Drop: func(name string) { d.work.buffers.Forget(name) },
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
func (d *Daemon) buffer(ctx context.Context, name string) (*buffer.Buffer, error) {
	return d.work.buffers.Find(ctx, name)
}

// bufferFor returns a buffer that the visitor may enter.
func (d *Daemon) bufferFor(ctx context.Context, v call.Visitor, op, name string) (*buffer.Buffer, error) {
	return d.work.buffers.For(ctx, v, op, name)
}

// entering returns a function that returns a part of a buffer that a visitor may enter.
func entering[P any](d *Daemon, part func(*buffer.Buffer) P) func(ctx context.Context, v call.Visitor, op, name string) (P, error) {
	return func(ctx context.Context, v call.Visitor, op, name string) (p P, err error) {
		b, err := d.bufferFor(ctx, v, op, name)
		if err != nil {
			return p, err
		}
		return part(b), nil
	}
}

// ofAll returns a function that returns a part of each buffer that the daemon serves.
func ofAll[P any](d *Daemon, part func(*buffer.Buffer) P) func() []P {
	return func() []P { return each(d.buffers.All(), part) }
}

// each returns a part of each buffer.
func each[P any](buffers []*buffer.Buffer, part func(*buffer.Buffer) P) (all []P) {
	for _, b := range buffers {
		all = append(all, part(b))
	}
	return all
}
