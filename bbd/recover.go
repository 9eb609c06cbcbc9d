package bbd

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"forebay/bbd/aside"
	"forebay/bbd/fate"
	"forebay/bbd/reassert"
	"forebay/bbd/recovery"
	"forebay/internal/bb"
)

// recover compares what is in memory with the namespace, which is the truth about what exists, and
// takes everything up where the last life of the daemon left it: package recovery has the table of what
// becomes of a file.
//
// Where a record cannot be read, as after an older release was put back, nothing is
// dropped: what is here may be what it is about.
func (d *Daemon) recover(ctx context.Context) error {
	d.wg.Go(func() {
		select {
		case <-time.After(d.cfg.ResumeGrace):
			d.store.FreeUncommitted()
			d.alloc.Wake()
		case <-d.ctx.Done():
		}
	})
	specs, err := d.meta.Buffers(ctx)
	if err != nil {
		return err
	}
	start := &recovery.Start{Known: make(map[bb.FileID]struct{})}
	files := reassert.HeldFiles(d.store)
	o := d.reassertOptions()
	kept, err := reassert.SettleBufferless(&o, specs, files, func(buffer string) (bool, error) { return d.meta.BufferGone(ctx, buffer) }, d.aside.Keep)
	if err != nil {
		return err
	}
	for _, file := range kept {
		start.Keep(file)
	}
	if d.cluster != nil {
		start.Dirty = recovery.DirtyGenerations(d.store.Files())
	}
	for _, spec := range specs {
		d.cfg.Steps.At("the namespace: buffers and files", func() string {
			return strings.TrimSpace("buffer " + spec.Name + ", " + bb.Count(len(files[spec.Name]), "file") + " in memory. " + d.silence())
		})
		if err := d.recoverBuffer(ctx, spec, files[spec.Name], start); err != nil {
			return err
		}
	}
	d.store.Settle() // what was lost with an earlier memory is recorded
	if unread := d.meta.Stats().Garbage; unread > 0 {
		// They may be of files that are here.
		d.log.Error("memory of files without an entry is kept: records of the namespace cannot be read, which a newer release may be able to", "records", unread)
		return nil
	}
	for f := range d.store.Files() {
		if _, ok := start.Known[f.File]; !ok {
			d.store.Drop(f.File)
		}
	}
	return nil
}

// recoverBuffer recovers a buffer, unless another daemon destroys it meanwhile.
func (d *Daemon) recoverBuffer(ctx context.Context, spec bb.Buffer, files map[bb.FileID]*fate.Held, start *recovery.Start) error {
	b, err := d.takeUp(ctx, spec)
	if err == nil {
		b.recovery.Suspect(d.aside.Doubts().Of(&spec))
		if err = b.recover(ctx, files, start); err == nil {
			return d.aside.Doubts().Forget(&spec)
		}
	}
	if bb.KindOf(err) != bb.NotFound {
		return d.putAside(ctx, spec, b, start, err)
	}
	now, lookupErr := d.meta.Buffer(ctx, spec.Name)
	if bb.KindOf(lookupErr) != bb.NotFound {
		if lookupErr != nil || now.State != bb.BufferDestroying && now.Created.Equal(spec.Created) {
			return d.putAside(ctx, spec, b, start, err)
		}
	}
	if b != nil {
		d.buffers.Lock()
		delete(d.buffers.byName, b.name)
		d.buffers.Unlock()
		d.dropBuffer(b)
	}
	return nil
}

// putAside ends the recovery of a buffer that has failed, with all that memory has of the buffer kept:
// one buffer keeps no daemon from starting. It returns errors that are not of the buffer alone.
func (d *Daemon) putAside(ctx context.Context, spec bb.Buffer, b *buffer, start *recovery.Start, why error) error {
	if !aside.Concerns(why) || ctx.Err() != nil {
		return why
	}
	if b != nil {
		d.buffers.Lock()
		delete(d.buffers.byName, b.name)
		d.buffers.Unlock()
		b.gate.Destroyed()
		d.flusher.ForgetBuffer(b.name)
		b.forgetFiles()
		d.forgetStore(b.name)
	}
	held := reassert.HeldFiles(d.store)[spec.Name]
	for file := range held {
		start.Keep(file)
	}
	return d.aside.Put(spec, held, recovery.Doubt(d.store, spec.Name), why)
}

// newAside returns what has the buffers that are set aside. It is used before there is a namespace.
func newAside(d *Daemon) *aside.List {
	return aside.New(aside.Options{
		Context: d.ctx, Doubts: aside.Doubts{Dir: filepath.Join(d.cfg.StateDir, "aside")}, Emit: d.emit, Log: d.log,
		Buffer:        func(ctx context.Context, name string) (bb.Buffer, error) { return d.meta.Buffer(ctx, name) },
		DestroyBuffer: func(ctx context.Context, name string) error { return d.meta.DestroyBuffer(ctx, name) },
		Lock:          d.buffers.changing.Lock,
		Drop:          func(name string) { d.dropFiles(name); d.forgetStore(name) },
	})
}

// takeUp makes a buffer one that this daemon serves.
func (d *Daemon) takeUp(ctx context.Context, spec bb.Buffer) (*buffer, error) {
	ns, err := d.meta.Namespace(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	b := newBuffer(d, spec, ns)
	d.stores.LookUp(spec.Backing)
	d.buffers.Lock()
	defer d.buffers.Unlock()
	d.buffers.byName[spec.Name] = b
	return b, nil
}

// recover recovers the files of a buffer, after what the last life of the daemon had yet to do on its store.
func (b *buffer) recover(ctx context.Context, files map[bb.FileID]*fate.Held, start *recovery.Start) error {
	if err := b.writeback.ReplayStoreOps(ctx); err != nil {
		return err
	}
	if b.Spec().Backing != "" {
		b.d.wg.Go(func() { b.sweep(b.d.ctx) })
	}
	return b.recovery.Recover(ctx, files, start)
}

// sweep removes what the last life of the daemon left of unfinished uploads.
func (b *buffer) sweep(ctx context.Context) {
	store, err := b.d.stores.Get(ctx, b.name)
	if err == nil {
		_, err = store.Sweep(ctx)
	}
	if err != nil && ctx.Err() == nil {
		b.d.log.Warn("removing unfinished uploads", "buffer", b.name, "err", err)
	}
}

// newRecovery makes what recovers the files of a buffer.
func newRecovery(b *buffer) *recovery.Buffer {
	d := b.d
	return recovery.New(recovery.Options{Owners: b.owners, Store: d.store, Lost: d.observe.Lost, Emit: d.emit, Log: d.log}, b.name,
		recovery.Parts{Spec: b.Spec, Open: b.open, Queue: b.writeback, Replicas: b.replicas, Entries: b.reassertion, Names: b.ns})
}
