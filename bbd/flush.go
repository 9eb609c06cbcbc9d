package bbd

import (
	"context"
	"os"
	"path/filepath"

	"forebay/bbd/writeback"
	"forebay/flusher"
	"forebay/internal/bb"
)

// smallPerWorker is how many small files are flushed to a directory at a time in place of one
// other. Those that wait for a sync together share one. A service answers each by itself, and gets
// a third. docs/performance.md has figures.
const (
	smallPerWorker = 24
	serviceUnits   = 3
)

// startFlusher starts the worker pool that carries dirty files to the stores.
func (d *Daemon) startFlusher() error {
	f := d.cfg.Flush
	spool := filepath.Join(d.cfg.StateDir, "spool")
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return bb.Wrap("start", spool, err)
	}
	catalog := d.catalog()
	options := flusher.Options{
		Catalog: catalog, Stores: d.stores.Get, Policy: d.policy, Pressure: d.pressure.Load,
		Workers: f.Workers, SmallPerWorker: smallPerWorker, DirtyAge: f.DirtyAge, Idle: f.Idle, Backoff: f.Backoff,
		Observe: d.flushEvent, Applied: catalog.Applied, Ours: catalog.Ours, OurDirs: catalog.OurDirs,
		Node: d.cfg.Node, SpoolDir: spool, Logger: d.log,
	}
	if d.cluster != nil {
		options.Mine, options.Orphan = catalog.StillOwner, catalog.OrphanObject
	}
	d.flusher = flusher.New(options)
	return nil
}

// policy returns a buffer's policy to the flusher, which holds its lock.
func (d *Daemon) policy(name string) flusher.Policy {
	b := d.buffers.Served(name)
	if b == nil {
		return flusher.Policy{}
	}
	spec := b.Spec()
	p := flusher.Policy{Codec: spec.Codec, NoFlush: spec.NoFlush, DirtyAge: spec.DirtyAge, KeepExisting: spec.Existing.Keeps(), Store: d.stores.Shared(spec.Backing), User: spec.UID, Steps: b.Rules().Steps(), Due: b.Due()}
	if !d.stores.InDirectory(spec.Backing) {
		p.SmallUnits = serviceUnits
	}
	return p
}

// flushEvent receives the flusher's events.
func (d *Daemon) flushEvent(e flusher.Event) {
	switch e.Kind {
	case flusher.EventFlushed:
		d.observe.Metrics.Flushed(e.Bytes, e.Took, e.DirtyFor)
		if b := d.buffers.Served(e.Key.Buffer); b != nil {
			b.Usage().Flushed(e.Bytes, e.Took)
		}
		d.setFailing(e.Key, nil)
	case flusher.EventDeferred:
		if b := d.buffers.Served(e.Key.Buffer); b != nil {
			b.Rules().Note(e.Path)
		}
	case flusher.EventDropped:
		d.setFailing(e.Key, nil)
	case flusher.EventFailed:
		d.flushFailed(e)
	case flusher.EventApplyFailed:
		d.observe.Metrics.FlushFailed(bb.KindOf(e.Err))
	}
}

func (d *Daemon) flushFailed(e flusher.Event) {
	d.observe.FlushFailed(bb.KindOf(e.Err))
	d.setFailing(e.Key, e.Err)
	d.emit(bb.Event{
		Kind: bb.EventFlushFailed, Buffer: e.Key.Buffer, Path: e.Path, Generation: e.Key.Generation,
		Bytes: e.Bytes, Reason: e.Err.Error(),
	})
}

// setFailing records why a file's last flush failed, for lists of files.
func (d *Daemon) setFailing(k flusher.Key, err error) {
	if b := d.buffers.Served(k.Buffer); b != nil {
		b.Failed(k.File, err)
	}
}

// catalog returns the flusher's catalog of all buffers.
func (d *Daemon) catalog() writeback.Catalog {
	return writeback.Catalog{Of: func(ctx context.Context, name string) (*writeback.Buffer, error) {
		b, err := d.buffer(ctx, name)
		if err != nil {
			return nil, err
		}
		return b.Writeback(), nil
	}}
}
