package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/bbd/writeback"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newWriteback makes what carries a buffer's dirty files to its store.
func newWriteback(b *buffer) *writeback.Buffer {
	d := b.d
	return writeback.New(d.ctx, writeback.Options{
		Owners: b.owners, Cluster: d.cluster, Flusher: d.flusher, Store: d.store, Open: d.stores.Get, Wake: d.alloc.Wake, Emit: d.emit,
		Go: d.wg.Go, Log: d.log,
	}, b.name, writebackFiles{b}, b.ns, b.dirty)
}

// catalog returns the flusher's catalog of all buffers.
func (d *Daemon) catalog() writeback.Catalog {
	return writeback.Catalog{Of: func(ctx context.Context, name string) (*writeback.Buffer, error) {
		b, err := d.buffer(ctx, name)
		if err != nil {
			return nil, err
		}
		return b.writeback, nil
	}}
}

// writebackFiles are the files of a buffer, for package writeback.
type writebackFiles struct{ b *buffer }

// Spec returns the buffer's record.
func (f writebackFiles) Spec() bb.Buffer { return f.b.Spec() }

// OpenPaths returns the paths of the files that are being written and have been committed in part.
func (f writebackFiles) OpenPaths() []string { return f.b.open.PublishedPaths() }

// Lock keeps others from changing the entry at a place: a rename has it locked until the daemon has followed.
func (f writebackFiles) Lock(at bb.Place) (unlock func()) { return f.b.open.Lock(at) }

// SaveReaders brings into memory what readers of a file would need from the store's object.
func (f writebackFiles) SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error {
	return f.b.cache.SaveReaders(ctx, file, newer)
}

// Pin keeps in memory what is there of a snapshot.
func (f writebackFiles) Pin(ctx context.Context, e *bb.Entry, snap *store.Snapshot) (writeback.Pinned, error) {
	source, err := f.b.cache.View(e, snap).Source(ctx)
	if err != nil {
		return nil, err // no nil source in an interface
	}
	return source, nil
}

// Discard tells another node that a generation does not count any more.
func (f writebackFiles) Discard(node bb.NodeID, file bb.FileID, n bb.Generation) {
	f.b.replicas.Discard(node, file, n)
}

// ReportLost marks a file lost, and publishes that.
func (f writebackFiles) ReportLost(ctx context.Context, e *bb.Entry) error {
	return f.b.recovery.ReportLost(ctx, e)
}

// Destroyed reports whether the buffer is gone, or another one has its name.
func (f writebackFiles) Destroyed(ctx context.Context) bool {
	now, err := f.b.d.buffer(ctx, f.b.name)
	return now != f.b && (err == nil || bb.KindOf(err) == bb.NotFound)
}

// recheckFiles answers another daemon.
func (d *Daemon) recheckFiles(ctx context.Context, r *rpc.Request, m *wire.Recheck) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "recheck", m.Buffer)
	if err == nil {
		_, err = bb.CleanPath(m.Path)
	}
	if err == nil {
		err = b.writeback.ReconcileHere(ctx, writeback.Doubt{Path: m.Path, Tree: m.Tree})
	}
	return &wire.Empty{}, err
}
