package buffer

import (
	"context"

	"forebay/bbd/change"
	"forebay/bbd/entries"
	"forebay/bbd/reassert"
	"forebay/bbd/writeback"
	"forebay/internal/bb"
	"forebay/meta/nslog"
	"forebay/meta/nslog/shared"
)

// ChangeOptions returns the options of changes of names in all buffers.
func (h *Host) ChangeOptions() change.Options {
	o := change.Options{Owners: h.Owners, Flusher: h.Flusher, Store: h.Store, Silence: h.Settings.Silence, Emit: h.Emit, Log: h.Log, Go: h.Go}
	if h.Cluster != nil {
		o.Cluster = h.Cluster
	}
	return o
}

// newChanges makes the part that changes the names of a buffer.
func newChanges(b *Buffer) *change.Buffer {
	p := change.Parts{
		Spec: b.Spec, Names: b.ns, Paths: b.paths, Files: b.open, Dirty: b.dirty, Cache: b.cache, Replicas: b.replicas, Store: b.writeback,
		Follows: writeback.StoreFollows, Transactions: b.materializer, Gate: b.gate, Flushed: b.Flushed,
	}
	if l, whole := b.ns.Tree.(change.Log); whole {
		p.Log = l
	}
	return change.NewBuffer(b.ctx, b.h.ChangeOptions(), b.name, p)
}

// A namespace that is a log has additional methods. Those of its owner are more.
var (
	_ reassert.Log = (*nslog.Engine)(nil)
	_ change.Log   = (*nslog.Engine)(nil)
	_ reassert.Log = (*shared.Tree)(nil)
)

// log returns the namespace as one that is a log, or nil if it is none.
func (b *Buffer) log() reassert.Log {
	in, _ := b.ns.Tree.(reassert.Log)
	return in
}

// EntryOptions returns the options of requests about entries in all buffers.
func (h *Host) EntryOptions() entries.Options {
	o := entries.Options{Owners: h.Owners, Store: h.Store}
	if h.Cluster != nil {
		o.Cluster = h.Cluster
	}
	return o
}

// readSize sets the size of a file that is open for writing, as the cache reads it.
func (b *Buffer) readSize(ctx context.Context, e *bb.Entry, path string) error {
	v, err := b.cache.Open(ctx, e, path)
	if err == nil {
		v.Close()
	}
	return err
}

// newEntries makes the part that describes the entries of a buffer.
func newEntries(b *Buffer) *entries.Buffer {
	return entries.NewBuffer(b.h.EntryOptions(), b.name, entries.Parts{
		Paths: b.paths, Names: b.ns, Dirty: b.dirty, Make: b.make, Flushed: b.Flushed, AsideDir: b.reassertion.AsideDir, MarkSteps: b.rules.MarkEntries,
		Changed: b.announce, ReadSize: b.readSize,
	})
}
