package bbd

import (
	"sync/atomic"

	"forebay/bbd/alloc"
	"forebay/bbd/batch"
	"forebay/bbd/change"
	"forebay/bbd/dirty"
	"forebay/bbd/entries"
	"forebay/bbd/file"
	"forebay/bbd/flushrule"
	"forebay/bbd/forward"
	"forebay/bbd/freeze"
	"forebay/bbd/handle"
	"forebay/bbd/migrate"
	"forebay/bbd/origin"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/reassert"
	"forebay/bbd/recovery"
	"forebay/bbd/replica"
	"forebay/bbd/txn"
	"forebay/bbd/writeback"
	"forebay/flusher"
	"forebay/internal/bb"
	metatxn "forebay/meta/txn"
)

// buffer is what the daemon keeps of one buffer while it runs. Each part has a lock of its
// own; their order is that of Daemon.
type buffer struct {
	d    *Daemon
	name string
	ns   *metatxn.Tree

	current atomic.Pointer[bb.Buffer] // what the namespace says of it; replaced, never changed

	open   *file.Files
	dirty  *dirty.Files
	owners owner.Node // of its files
	parts

	gate         *freeze.Gate // of changes
	usage        batch.Usage
	due          atomic.Int64 // Unix nanoseconds: when its job ends; 0: none
	materializer *txn.Materializer
	paths        *paths.Tree
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
	recovery    *recovery.Buffer
	entries     *entries.Buffer
	handles     *handle.Buffer
	changes     *change.Buffer
	rules       *flushrule.Buffer
}

func newBuffer(d *Daemon, spec bb.Buffer, ns *metatxn.Tree) *buffer {
	b := &buffer{d: d, name: spec.Name, ns: ns, gate: freeze.New(bb.Address{Buffer: spec.Name}.String())}
	b.current.Store(&spec)
	b.dirty = dirty.New()
	b.owners = d.owners()
	b.writers, b.sources = alloc.NewWriters(d.alloc, memoryBuffer{b}), newSources(b)
	b.cache, b.forward = newCache(b), newForward(b)
	b.writeback, b.replicas, b.migrations = newWriteback(b), newReplicas(b), newMigrations(b)
	b.reassertion = newReassertion(b)
	b.materializer = txn.NewMaterializer(d.ctx, ns, b.mover(), d.wg.Go, d.log.With("buffer", b.name))
	b.paths = paths.New(b.Spec, ns, b.materializer.Wait)
	b.open = newOpen(b)
	b.recovery = newRecovery(b)
	b.rules = newRules(b, spec)
	b.entries = newEntries(b)
	b.handles, b.changes = newHandlesOf(b), newChanges(b)
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

func (b *buffer) key(e *bb.Entry) flusher.Key {
	return flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation}
}
