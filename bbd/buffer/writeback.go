package buffer

import (
	"context"

	"forebay/bbd/store"
	"forebay/bbd/writeback"
	"forebay/flusher/codec"
	"forebay/internal/bb"
)

// newWriteback makes the part that carries a buffer's dirty files to its store.
func newWriteback(b *Buffer) *writeback.Buffer {
	h := b.h
	return writeback.New(b.ctx, writeback.Options{
		Owners: h.Owners, Cluster: h.Cluster, Flusher: h.Flusher, Store: h.Store, Open: h.Stores.Get, Wake: h.Alloc.Wake, Emit: h.Emit,
		Go: h.Go, Log: h.Log,
	}, b.name, writebackFiles{later{b}}, b.ns, b.dirty)
}

// writebackFiles are the files of a buffer, for package writeback.
type writebackFiles struct{ later }

// OpenPaths returns the paths of the files that are being written and have been committed in part.
func (f writebackFiles) OpenPaths() []string { return f.b.open.PublishedPaths() }

// CatchUp notes the new place of a file that a late exchange has moved.
func (f writebackFiles) CatchUp(file bb.FileID) (bool, error) { return f.b.changes.CatchUp(file) }

// SaveReaders brings into memory the bytes that readers of a file would need from the store's object.
func (f writebackFiles) SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error {
	return f.b.cache.SaveReaders(ctx, file, newer)
}

// Pin keeps the bytes of a snapshot that are in memory there.
func (f writebackFiles) Pin(ctx context.Context, e *bb.Entry, snap *store.Snapshot) (writeback.Pinned, error) {
	source, err := f.b.cache.View(e, snap).Source(ctx)
	if err != nil {
		return nil, err // no nil source in an interface
	}
	return source, nil
}

// Discard notifies another node that a generation does not count any more.
func (f writebackFiles) Discard(node bb.NodeID, file bb.FileID, n bb.Generation) {
	f.b.replicas.Discard(node, file, n)
}

// Destroyed reports whether the buffer is gone, or another one has its name.
func (f writebackFiles) Destroyed(ctx context.Context) bool {
	now, err := f.b.h.Find(ctx, f.b.name)
	return now != f.b && (err == nil || bb.KindOf(err) == bb.NotFound)
}

// Changed checks a file whose object on the store was changed late. It is flushed again, or is reported lost if
// its bytes are nowhere else.
func (b *Buffer) Changed(object string) {
	path := object
	if plain, of := codec.OfName(object); of != codec.None && of == b.Spec().Codec {
		path = plain
	}
	b.writeback.Changed(path)
}
