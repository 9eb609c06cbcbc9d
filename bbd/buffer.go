package bbd

import (
	"context"
	"sync/atomic"

	"forebay/bbd/alloc"
	"forebay/bbd/batch"
	"forebay/bbd/dedup"
	"forebay/bbd/dirty"
	"forebay/bbd/forward"
	"forebay/bbd/freeze"
	"forebay/bbd/lockrank"
	"forebay/bbd/migrate"
	"forebay/bbd/origin"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/reassert"
	"forebay/bbd/replica"
	"forebay/bbd/txn"
	"forebay/bbd/writeback"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	metatxn "forebay/meta/txn"
)

// buffer is what the daemon keeps of one buffer while it runs. Each part has a lock of its
// own; their order is that of Daemon.
type buffer struct {
	d    *Daemon
	name string
	ns   *metatxn.Tree

	current atomic.Pointer[bb.Buffer] // what the namespace says of it; replaced, never changed

	open   *openFiles
	dirty  *dirty.Files
	owners owner.Node // of its files
	parts

	gate         *freeze.Gate // of changes
	usage        batch.Usage
	due          atomic.Int64 // Unix nanoseconds: when its job ends; 0: none
	commits      dedup.Table
	materializer *txn.Materializer
	paths        *paths.Tree
	directories  lockorder.Mutex[lockrank.Directories] // a directory is renamed for a transaction
}

// parts are what other packages do with a buffer's files.
type parts struct {
	writers     *alloc.Writers
	sources     *origin.Sources
	cache       *readcache.Cache
	forward     *forward.Buffer
	writeback   *writeback.Buffer
	replicas    *replica.Buffer
	migrations  *migrate.Buffer
	reassertion *reassert.Buffer
}

func newBuffer(d *Daemon, spec bb.Buffer, ns *metatxn.Tree) *buffer {
	b := &buffer{d: d, name: spec.Name, ns: ns, gate: freeze.New(bb.Address{Buffer: spec.Name}.String())}
	b.current.Store(&spec)
	b.open, b.dirty = newOpenFiles(), dirty.New()
	b.owners = d.owners()
	b.writers, b.sources = alloc.NewWriters(d.alloc, memoryBuffer{b}), newSources(b)
	b.cache, b.forward = newCache(b), newForward(b)
	b.writeback, b.replicas, b.migrations = newWriteback(b), newReplicas(b), newMigrations(b)
	b.reassertion = newReassertion(b)
	b.materializer = txn.NewMaterializer(d.ctx, ns, mover{b}, d.wg.Go, d.log.With("buffer", b.name))
	b.paths = paths.New(b.Spec, ns, b.materializer.Wait)
	return b
}

// owners decides which files are this node's.
func (d *Daemon) owners() owner.Node {
	return owner.Node{Self: d.cfg.Node, Alone: d.cluster == nil}
}

// Spec returns the buffer's record, as this daemon knows it.
func (b *buffer) Spec() bb.Buffer { return *b.current.Load() }

// address returns bb://buffer/path.
func (b *buffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

// closed queues a closed file for its flush.
func (b *buffer) closed(e bb.Entry, path string) {
	b.d.emit(bb.Event{Kind: bb.EventCommitted, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size})
	b.writeback.Enqueue(e, flusher.Item{Key: b.key(&e), Size: e.Size})
}

func (b *buffer) key(e *bb.Entry) flusher.Key {
	return flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation}
}

// usedFrom notes that another node has opened a file that may have to move: it may be
// wanted there again. A node "" is none.
func (b *buffer) usedFrom(file bb.FileID, node bb.NodeID) {
	if node != "" {
		b.dirty.Change(file, func(f *dirty.File) { f.Near = node })
	}
}

// made reports whether the entry at a place is that of the file itself: a session that
// ended while its create was on the way did not hear that it succeeded.
func (b *buffer) made(ctx context.Context, e *bb.Entry) bool {
	now, err := b.ns.Lookup(ctx, e.Parent, e.Name)
	return err == nil && now.File == e.File
}

// update puts an entry whose other attributes may have been changed meanwhile: what
// the writer decides is taken from e, the rest from the namespace.
// Old is the generation that e's takes the place of, unless it is published already.
// Another one there is errSuperseded, or has taken the place of a published one: its
// node was given up for dead.
func (b *buffer) update(ctx context.Context, e bb.Entry, old bb.Generation, published bool) (bb.Entry, error) {
	return b.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		switch {
		case now.File != e.File:
			return bb.E(bb.NotFound, "commit", e.Name, "another file has this name now")
		case now.Generation == e.Generation && b.owners.Of(now) == b.owners.Of(&e) && !now.Lost:
		case published:
			return bb.E(bb.NotFound, "commit", e.Name, "this node's generation of the file was given up: "+now.Reason)
		case now.Generation != old || now.Open && b.owners.Of(now) != b.owners.Of(&e):
			return errSuperseded
		}
		if now.Generation != e.Generation {
			now.Supersede()
		}
		now.Generation, now.Size, now.Checksum, now.Open = e.Generation, e.Size, e.Checksum, e.Open
		now.Holders, now.MTime, now.Lost, now.Reason = e.Holders, e.MTime, e.Lost, e.Reason
		if e.Flushed.Generation == e.Generation {
			now.SetFlushed(e.Flushed)
		}
		return nil
	})
}
