package bbd

import (
	"context"
	"strings"
	"time"

	"forebay/bbd/buffer"
	"forebay/bbd/fate"
	"forebay/bbd/reassert"
	"forebay/bbd/recovery"
	"forebay/internal/bb"
	"forebay/meta"
)

// recover compares the content of memory, the files, with the namespace, which is the truth about existing files, and
// restores the state of the daemon's last life. Package recovery has the table of the fates of a
// file.
//
// Where a record cannot be read, as after an older release was put back, nothing is dropped. The
// bytes here may be the subject of that record.
func (d *Daemon) recover(ctx context.Context, files map[string]map[bb.FileID]*fate.Held) error {
	d.wg.Go(func() {
		select {
		case <-time.After(d.cfg.ResumeGrace):
			d.store.FreeUncommitted()
			d.alloc.Wake()
		case <-d.ctx.Done():
		}
	})
	ctx = meta.Restoring(ctx)
	specs, err := d.meta.Buffers(ctx)
	if err != nil {
		return err
	}
	start := &recovery.Start{Known: make(map[bb.FileID]struct{})}
	o := d.host.ReassertOptions()
	kept, err := reassert.DropBufferless(&o, specs, files, func(buffer string) (bool, error) { return d.meta.BufferGone(ctx, buffer) }, d.aside.Keep)
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
		kept, err := d.work.buffers.Recover(ctx, spec, func(b *buffer.Buffer) error { return d.recoverFiles(ctx, b, files[spec.Name], start) })
		if err != nil {
			return err
		}
		for _, file := range kept {
			start.Keep(file)
		}
	}
	d.store.Settle() // the losses of an earlier memory are recorded
	if unread := d.meta.Stats().Garbage; unread > 0 {
		// They may be of files that are here.
		d.log.Error("memory of files without an entry is kept: some records of the namespace cannot be read; a newer release may read them", "records", unread)
		return nil
	}
	for _, f := range d.store.FileIDs() {
		if _, ok := start.Known[f]; !ok {
			d.store.Drop(f)
		}
	}
	return nil
}

// restore restores the files of a buffer whose namespace was rebuilt, as a start does.
func (d *Daemon) restore(ctx context.Context, b *buffer.Buffer) (fate.Reassertion, error) {
	spec, start := b.Spec(), &recovery.Start{Known: make(map[bb.FileID]struct{})}
	err := d.recoverFiles(ctx, b, reassert.HeldOf(d.store, &spec), start)
	return start.Was, err
}

// recoverFiles recovers the files of a buffer, whose namespace may be being rebuilt.
func (d *Daemon) recoverFiles(ctx context.Context, b *buffer.Buffer, files map[bb.FileID]*fate.Held, start *recovery.Start) error {
	rebuilding, err := d.meta.Rebuilding(ctx, b.Name())
	if err == nil && rebuilding {
		err = b.Salvage(ctx, files)
	}
	if err != nil {
		return err
	}
	return b.Recover(ctx, files, start)
}
