package bbd

import (
	"context"
	"io"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/alloc"
	"forebay/bbd/migrate"
	"forebay/bbd/origin"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newMigrations makes what moves a buffer's files to other nodes.
func newMigrations(b *buffer) *migrate.Buffer {
	d := b.d
	o := migrate.Options{
		Owners: b.owners, Store: d.store, Alloc: d.alloc, Forget: d.flusher.Forget, Draining: d.draining.Active, Flush: d.cfg.Flush.DrainTimeout, Log: d.log,
	}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return migrate.New(d.ctx, o, b.name, migrateFiles{b}, b.cache, b.ns, b.dirty)
}

// take makes this daemon the owner of a closed file.
func (d *Daemon) take(ctx context.Context, r *rpc.Request, m *wire.Take) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "take", m.Buffer)
	if err == nil {
		err = b.migrations.Accept(ctx, r.Session().Peer(), m)
	}
	return &wire.Empty{}, err
}

// moveFiles moves closed files to other nodes, until so many bytes are gone, and returns how many are.
func (d *Daemon) moveFiles(ctx context.Context, bytes int64) int64 {
	var all []*migrate.Buffer
	for _, b := range d.buffers.All() {
		all = append(all, b.migrations)
	}
	return migrate.Free(ctx, d.cluster, all, bytes)
}

// moveAllOut flushes what this node alone has, or moves it to other nodes.
func (d *Daemon) moveAllOut(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	specs, err := d.work.buffers.Specs(ctx)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		b, err := d.buffer(ctx, spec.Name)
		if bb.KindOf(err) == bb.NotFound {
			continue
		}
		if err == nil {
			err = b.migrations.Empty(ctx, to, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// migrateFiles are the files of a buffer, for package migrate.
type migrateFiles struct{ b *buffer }

// Spec returns the buffer's record.
func (f migrateFiles) Spec() bb.Buffer { return f.b.Spec() }

// Hold keeps a file from being flushed.
func (f migrateFiles) Hold(ctx context.Context, path string) (release func(), err error) {
	held, err := f.b.d.flusher.Hold(ctx, f.b.name, path)
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

// Reserve keeps a closed file from being changed at a place, until release is called.
func (f migrateFiles) Reserve(at bb.Place, path string) (release func(), ok bool) {
	return f.b.open.Reserve(at, path)
}

// Fetch brings all of a file in from its owner as this store's own.
func (f migrateFiles) Fetch(ctx context.Context, e *bb.Entry) error {
	b := f.b
	from, _, err := b.sources.OpenAt(ctx, b.owners.Of(e), &wire.Open{Path: e.Name, File: uint64(e.File), Generation: uint64(e.Generation)})
	if err != nil {
		return err
	}
	defer from.Close()
	// If there is no room after all, another node may have it: two that wait for each other
	// to make some would wait for long.
	w := alloc.NewWriter(b.d.alloc, memoryBuffer{b}, b.Spec().UID, bb.TierMemory)
	w.NoWait = !b.d.store.Stats().Populating // which makes room by itself
	defer w.ReleaseIdle()
	return from.Read(ctx, []origin.Run{{From: 0, To: e.Size}}, func(ctx context.Context, _ origin.Run, from io.Reader) error {
		same, err := b.cache.Absorb(ctx, w, from, e)
		if err == nil && !same {
			err = bb.E(bb.Checksum, "take", b.address(e.Name), "what came from its home is not what its entry says")
		}
		return err
	})
}

// Lock keeps what this node has of a file from being promoted, discarded and replaced.
func (f migrateFiles) Lock(ctx context.Context, file bb.FileID) (unlock func(), err error) {
	return f.b.replicas.Lock(ctx, file)
}

// HasReplica reports whether this node has the second copy of a closed file, all of it.
func (f migrateFiles) HasReplica(e *bb.Entry) bool { return f.b.replicas.Complete(e) }

// Promote makes this node, which has the second copy, the owner of a file.
func (f migrateFiles) Promote(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error {
	return f.b.replicas.Promote(ctx, e, file, n)
}

// Requeue queues a dirty file for its flush.
func (f migrateFiles) Requeue(ctx context.Context, e *bb.Entry) { f.b.recovery.Requeue(ctx, e) }

// Flush saves what this node has.
func (f migrateFiles) Flush(ctx context.Context) error {
	return f.b.d.work.drains.Here(ctx, drainBuffer{f.b})
}
