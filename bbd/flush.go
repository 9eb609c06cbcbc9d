package bbd

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// smallPerWorker is how many small files are flushed at a time in place of one other: a journaling file system makes the
// syncs that are under way together durable with one write of its journal. docs/performance.md has figures.
const smallPerWorker = 8

// startFlusher starts the worker pool that carries dirty files to the stores.
func (d *Daemon) startFlusher() error {
	f := d.cfg.Flush
	spool := filepath.Join(d.cfg.StateDir, "spool")
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return bb.Wrap("start", spool, err)
	}
	options := flusher.Options{
		Catalog: catalog{d}, Stores: d.stores.Get, Policy: d.policy, Pressure: d.pressure.Load,
		Workers: f.Workers, SmallPerWorker: smallPerWorker, DirtyAge: f.DirtyAge, Idle: f.Idle, Backoff: f.Backoff,
		Observe: d.flushEvent, Applied: d.applied, Ours: d.ours, OurDirs: d.ourDirs,
		Node: d.cfg.Node, SpoolDir: spool, Logger: d.log,
	}
	if d.cluster != nil {
		options.Mine, options.Stray = d.mine, d.stray
	}
	d.flusher = flusher.New(options)
	return nil
}

// policy is what the flusher asks about a buffer, holding its lock.
func (d *Daemon) policy(name string) flusher.Policy {
	d.buffers.Lock()
	b := d.buffers.byName[name]
	d.buffers.Unlock()
	if b == nil {
		return flusher.Policy{}
	}
	spec := b.Spec()
	p := flusher.Policy{Codec: spec.Codec, Keep: spec.Keep, DirtyAge: spec.DirtyAge, KeepExisting: spec.Existing.Keeps(), Store: d.stores.Shared(spec.Backing), User: spec.UID}
	if due := b.due.Load(); due != 0 {
		p.Due = time.Unix(0, due)
	}
	return p
}

// applied strikes a rename or removal out that the store has carried out.
func (d *Daemon) applied(ctx context.Context, name string, op flusher.StoreOp) error {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return err
	}
	was, err := b.ns.DoneStoreOp(ctx, op.ID)
	if err == nil && !was && d.cluster != nil {
		d.log.Warn("a store operation was carried out that another node has taken over", "buffer", name, "operation", op.Kind.String(), "path", op.Old)
		b.recheckOp(&op)
	}
	return err
}

// flushEvent hears what the flusher does.
func (d *Daemon) flushEvent(e flusher.Event) {
	switch e.Kind {
	case flusher.EventFlushed:
		d.observe.metrics.Flushed(e.Bytes, e.Took, e.DirtyFor)
		d.countFlush(&e)
		d.setFailing(e.Key, nil)
	case flusher.EventDropped:
		d.setFailing(e.Key, nil)
	case flusher.EventFailed:
		d.flushFailed(e)
	case flusher.EventApplyFailed:
		d.observe.metrics.FlushFailed(bb.KindOf(e.Err))
	}
}

func (d *Daemon) flushFailed(e flusher.Event) {
	kind := bb.KindOf(e.Err)
	d.observe.metrics.FlushFailed(kind)
	if kind == bb.Checksum {
		d.observe.checksum()
	}
	d.setFailing(e.Key, e.Err)
	d.emit(bb.Event{
		Kind: bb.EventFlushFailed, Buffer: e.Key.Buffer, Path: e.Path, Generation: e.Key.Generation,
		Bytes: e.Bytes, Reason: e.Err.Error(),
	})
}

func (d *Daemon) countFlush(e *flusher.Event) {
	d.buffers.Lock()
	b := d.buffers.byName[e.Key.Buffer]
	d.buffers.Unlock()
	if b != nil {
		b.usage.Flushed(e.Bytes, e.Took)
	}
}

// setFailing remembers why a file's last flush failed, for whoever lists it.
func (d *Daemon) setFailing(k flusher.Key, err error) {
	d.buffers.Lock()
	b := d.buffers.byName[k.Buffer]
	d.buffers.Unlock()
	if b == nil {
		return
	}
	if err == nil {
		b.dirty.failed(k.File, "")
		return
	}
	b.usage.Failed()
	b.dirty.failed(k.File, err.Error())
}

// applyNoted hands the flusher the renames and removals that the namespace has noted for the
// store, that it has not been handed yet and that this daemon carries out, in their order. Those
// that were noted before it was called have been handed when it returns, unless they wait for
// another daemon's.
func (b *buffer) applyNoted(ctx context.Context) error {
	_, err := b.noted.hands.Do(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.handNoted(ctx)
	})
	return err
}

func (b *buffer) handNoted(ctx context.Context) error {
	if err := b.readNoted(ctx); err != nil {
		return err
	}
	next, others := b.noted.handable()
	if others {
		b.applyLater()
	}
	codec := b.Spec().Codec
	for _, op := range next {
		done, err := b.keepReplaced(ctx, op)
		if err != nil {
			return err
		}
		if !done {
			for _, o := range storeOps(op, codec) {
				b.d.flusher.Apply(b.name, o)
			}
		}
		b.noted.handed(op)
	}
	return nil
}

// storeOps says what the store has to do for a rename or removal, in a buffer that
// flushes with a codec. Only the last operation carries the id by which it is struck out.
func storeOps(op *namespace.StoreOp, codec string) []flusher.StoreOp {
	var ops []flusher.StoreOp
	switch {
	case op.IsDir && op.Op == namespace.OpRemove:
		ops = []flusher.StoreOp{{Kind: flusher.OpRemove, Old: op.OldPath, Tree: true}}
	case op.IsDir:
		ops = []flusher.StoreOp{{Kind: flusher.OpRename, Old: op.OldPath, New: op.NewPath, Tree: true}}
	case op.Flushed.Generation == 0:
		ops = unflushedOps(op, codec)
	case op.Op == namespace.OpRemove:
		ops = []flusher.StoreOp{removal(op.OldPath, op.Flushed.Codec)}
	default:
		ops = []flusher.StoreOp{{Kind: flusher.OpRename, Old: op.OldPath, New: op.NewPath, Codec: op.Flushed.Codec}}
		// The rename replaces what is in the store under the new name. If that is called
		// otherwise there, it goes when the renamed file has its name.
		if op.Replaced.Generation != 0 && op.Replaced.Codec != op.Flushed.Codec {
			ops = append(ops, removal(op.NewPath, op.Replaced.Codec))
		}
	}
	for i := range ops {
		ops[i].ID, ops[i].More = op.Revision, i < len(ops)-1
		if op.IsDir {
			continue
		}
		ops[i].Was, ops[i].Attempts = []bb.Flushed{op.Flushed, op.Left}, op.Attempts
		ops[i].Replaces, ops[i].ReplacedAttempts = []bb.Flushed{op.Replaced}, op.ReplacedAttempts
		if ops[i].Old != op.OldPath { // a removal of what was replaced
			ops[i].Was, ops[i].Attempts = ops[i].Replaces, ops[i].ReplacedAttempts
		}
	}
	return ops
}

// unflushedOps is storeOps of a file that the store does not have. It may have under the old
// name what the file had replaced, and what an attempt to flush it has left. What the file
// replaces under the new name stays until its flush.
func unflushedOps(op *namespace.StoreOp, codec string) []flusher.StoreOp {
	if op.Op == namespace.OpRename && op.Replaced.Generation != 0 { // of an older release: see keepReplaced
		return []flusher.StoreOp{removal(op.NewPath, op.Replaced.Codec)}
	}
	ops := []flusher.StoreOp{removal(op.OldPath, codec)}
	if op.Left.Generation != 0 && op.Left.Codec != codec {
		ops = append(ops, removal(op.OldPath, op.Left.Codec))
	}
	return ops
}

func removal(path, codec string) flusher.StoreOp {
	return flusher.StoreOp{Kind: flusher.OpRemove, Old: path, Codec: codec}
}

// keepReplaced carries out a rename that an older release has noted: a file that was never
// flushed has replaced a flushed one. That release removed the old object then; it stays until
// the flush of what has the name now. False: nothing has the name that would replace it.
func (b *buffer) keepReplaced(ctx context.Context, op *namespace.StoreOp) (done bool, err error) {
	if op.Op != namespace.OpRename || op.IsDir || op.Flushed.Generation != 0 || op.Replaced.Generation == 0 {
		return false, nil
	}
	e, err := b.ns.Resolve(ctx, op.NewPath)
	if err == nil && !e.IsDir() {
		_, err = b.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
			if now.File != e.File || now.Flushed.Generation != 0 {
				return bb.E(bb.NotFound, "rename", op.NewPath, "another file has the name")
			}
			if now.Replaced.Generation == 0 {
				now.Replaced = op.Replaced
			}
			return nil
		})
	}
	switch kind := bb.KindOf(err); {
	case kind == bb.NotFound || kind == bb.NotDirectory || err == nil && e.IsDir():
		return false, nil
	case err != nil:
		return false, err
	}
	_, err = b.ns.DoneStoreOp(ctx, op.Revision)
	return err == nil, err
}

// remake makes an empty file again of which recovery found nothing, since there was nothing.
func (b *buffer) remake(e *bb.Entry) error {
	f := openFile{buf: b, file: e.File, generation: e.Generation}
	return f.record(b.d.ctx, nil)
}
