package buffer

import (
	"context"
	"io"

	"forebay/bbd/alloc"
	"forebay/bbd/migrate"
	"forebay/bbd/origin"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newMigrations makes the part that moves a buffer's files to other nodes.
func newMigrations(b *Buffer) *migrate.Buffer {
	h := b.h
	o := migrate.Options{
		Owners: h.Owners, Store: h.Store, Alloc: h.Alloc, Forget: h.Flusher.Forget, Draining: h.Draining, Flush: h.Settings.DrainTimeout, Log: h.Log,
	}
	if h.Cluster != nil {
		o.Cluster = h.Cluster
	}
	return migrate.New(b.ctx, o, b.name, migrate.Parts{
		Spec: b.Spec, Files: migrateFiles{b}, Open: b.open, Replicas: b.replicas, Queue: b.recovery, Readers: b.cache, Names: b.ns, Dirty: b.dirty,
	})
}

// migrateFiles are the files of a buffer, for package migrate.
type migrateFiles struct{ b *Buffer }

// Hold keeps a file from being flushed.
func (f migrateFiles) Hold(ctx context.Context, path string) (release func(), err error) {
	held, err := f.b.h.Flusher.Hold(ctx, f.b.name, path)
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

// Fetch brings all of a file in from its owner as this store's own.
func (f migrateFiles) Fetch(ctx context.Context, e *bb.Entry) error {
	b := f.b
	from, _, err := b.sources.OpenAt(ctx, b.h.Owners.Of(e), &wire.Open{Path: e.Name, File: uint64(e.File), Generation: uint64(e.Generation)})
	if err != nil {
		return err
	}
	defer from.Close()
	// If there is no room after all, another node may have it. Two that wait for each other to make
	// some would wait for long.
	w := alloc.NewWriter(b.h.Alloc, b, b.Spec().UID, bb.TierMemory)
	w.NoWait = !b.h.Store.Stats().Populating // which makes room by itself
	defer w.ReleaseIdle()
	return from.Read(ctx, []origin.Run{{From: 0, To: e.Size}}, func(ctx context.Context, _ origin.Run, from io.Reader) error {
		same, err := b.cache.Absorb(ctx, w, from, e)
		if err == nil && !same {
			err = bb.E(bb.Checksum, "take", b.address(e.Name), "data read from the owner does not match the file's checksum")
		}
		return err
	})
}

// Flush saves this node's files.
func (f migrateFiles) Flush(ctx context.Context) error {
	return f.b.h.Drains.Here(ctx, f.b)
}
