package bbd

import (
	"context"

	"forebay/bbd/reassert"
	"forebay/internal/bb"
)

// reassertOptions returns what package reassert uses for all buffers.
func (d *Daemon) reassertOptions() reassert.Options {
	return reassert.Options{
		Owners: d.owners(), Store: d.store, RaiseIDs: d.raiseIDs, Unreadable: func() bool { return d.meta.Stats().Garbage > 0 },
		Emit: d.emit, Log: d.log,
	}
}

// newReassertion makes what restores a buffer's entries that the namespace has forgotten.
func newReassertion(b *buffer) *reassert.Buffer {
	var log reassert.Log // no nil engine in an interface
	if l := b.log(); l != nil {
		log = l
	}
	return reassert.New(b.d.reassertOptions(), b.name, reassertFiles{b}, b.ns, log, b.dirty)
}

// raiseIDs makes the namespace count the ids as claimed that this daemon uses.
func (d *Daemon) raiseIDs(ctx context.Context) error {
	return d.meta.IDs().Raise(ctx, max(d.ids.Block(), reassert.NewestBlock(d.store)))
}

// watchForgotten restores entries that the namespace has forgotten, until the daemon stops.
func (d *Daemon) watchForgotten() {
	reassert.Watch(d.ctx, func() reassert.Connection {
		now := d.meta.Status()
		return reassert.Connection{Connected: now.Connected, Reconnects: now.Reconnects}
	}, func() (all []*reassert.Buffer) {
		for _, b := range d.buffers.All() {
			all = append(all, b.reassertion)
		}
		return all
	})
}

// reassertFiles are the files of a buffer, for package reassert.
type reassertFiles struct{ b *buffer }

// Spec returns the buffer's record.
func (f reassertFiles) Spec() bb.Buffer { return f.b.Spec() }

// Open returns a file that is being written.
func (f reassertFiles) Open(file bb.FileID) reassert.OpenFile {
	if open := f.b.open.Of(file); open != nil {
		return open
	}
	return nil
}

// Lock keeps others from changing the entry at a place.
func (f reassertFiles) Lock(at bb.Place) (unlock func()) { return f.b.open.Lock(at) }

// Queued reports whether the flusher has a file.
func (f reassertFiles) Queued(file bb.FileID) bool { return f.b.d.flusher.Has(f.b.name, file) }

// Requeue queues a dirty file for its flush.
func (f reassertFiles) Requeue(ctx context.Context, e *bb.Entry) { f.b.recovery.Requeue(ctx, e) }

// Reopen makes a file open again whose writer may come back.
func (f reassertFiles) Reopen(e *bb.Entry) { f.b.open.Reopen(e) }

// Recover recovers a file at a start.
func (f reassertFiles) Recover(ctx context.Context, e *bb.Entry) (missing string) {
	return f.b.recovery.RecoverFile(ctx, e)
}
