package buffer

import (
	"cmp"
	"context"
	"errors"
	"reflect"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/fate"
	"forebay/bbd/recovery"
	"forebay/bbd/writeback"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// Recover recovers the files of a buffer, after the store operations that the daemon's last life had left.
func (b *Buffer) Recover(ctx context.Context, files map[bb.FileID]*fate.Held, start *recovery.Start) error {
	if err := b.writeback.ReplayStoreOps(ctx); err != nil {
		return err
	}
	b.h.Go(b.Sweep)
	spec := b.Spec()
	b.recovery.Suspect(b.h.DamageNotes.Of(&spec))
	return b.recovery.Recover(ctx, files, start)
}

// Salvage corrects the entries of this daemon's files that were read of a damaged log, by memory (fate.Salvage). The
// entry of a file is removed that memory does not have, since a record that cannot be read may have removed it.
func (b *Buffer) Salvage(ctx context.Context, held map[bb.FileID]*fate.Held) error {
	var own []bb.Entry
	err := b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if e.Type == bb.TypeFile && !b.h.Owners.OwnedElsewhere(&e) {
			own = append(own, e)
		}
		return nil
	})
	for i := 0; i < len(own) && err == nil; i++ {
		err = b.salvage(ctx, &own[i], held[own[i].File])
	}
	return err
}

// salvage corrects an entry. One that was removed, renamed or changed meanwhile stays as it is.
func (b *Buffer) salvage(ctx context.Context, was *bb.Entry, h *fate.Held) error {
	whole := func(e *bb.Entry) bool {
		sum, size, err := b.h.Store.Checksum(e.File, e.Generation)
		return err == nil && size == e.Size && sum == e.Checksum
	}
	is := *was
	keep := fate.Salvage(&is, h, b.Spec().Codec, whole)
	at := is.Place()
	var err error
	switch {
	case !keep:
		_, err = b.ns.Remove(ctx, was.Parent, was.Name, namespace.RemoveOptions{Revision: was.Revision})
	case at != was.Place():
		_, err = b.ns.Rename(ctx, was.Parent, was.Name, at.Dir, at.Name, namespace.RenameOptions{StoreOp: was.Flushed.Generation != 0})
		if kind := bb.KindOf(err); kind == bb.Exists || kind == bb.NotFound || kind == bb.NotDirectory {
			at, err = was.Place(), nil // another file has the name, or its directory is lost
		}
	}
	if keep && err == nil && !reflect.DeepEqual(is, *was) {
		_, err = b.ns.Update(ctx, at.Dir, at.Name, func(now *bb.Entry) error {
			if now.File == was.File {
				fate.Salvage(now, h, b.Spec().Codec, whole)
				now.Parent, now.Name = at.Dir, at.Name
			}
			return nil
		})
	}
	if kind := bb.KindOf(err); kind == bb.NotFound || kind == bb.Busy {
		return nil
	}
	return err
}

// comparesAtOnce bounds the files that are compared with the store at once.
const comparesAtOnce = 16

// CompareEvicted compares the store with those files that memory has no longer whole, after the namespace was rebuilt.
// A rename without a record may have been carried out on the store, or not. A file that the store does not have is
// marked lost. One without an entry is among those that are lost, and no longer among those that are on the store. The
// files that could not be compared are compared later.
func (b *Buffer) CompareEvicted(ctx context.Context, held map[bb.FileID]*fate.Held, was *fate.Reassertion) error {
	if b.Spec().Backing == "" {
		return nil
	}
	var evicted []bb.Entry
	err := b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if h := held[e.File]; e.Type == bb.TypeFile && e.State() == bb.StateClean && h != nil && h.Evicted > 0 {
			evicted = append(evicted, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	failed := make([]error, len(evicted))
	var all errgroup.Group
	all.SetLimit(comparesAtOnce)
	for i := range evicted {
		all.Go(func() error {
			failed[i] = b.compareEvicted(ctx, &evicted[i])
			return nil
		})
	}
	_ = all.Wait() // the errors are in failed
	for i := range evicted {
		if e := &evicted[i]; e.Lost {
			path, _ := b.pathAt(ctx, e.Place())
			was.Lost = append(was.Lost, fate.Unexplained{File: e.File, Generation: e.Generation, Path: cmp.Or(path, e.Name), Bytes: e.Size, Reason: e.Reason})
		}
	}
	return errors.Join(errors.Join(failed...), b.compareForgotten(ctx, was))
}

// compareEvicted compares one file, whose entry it updates.
func (b *Buffer) compareEvicted(ctx context.Context, e *bb.Entry) error {
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		return err
	}
	if err := b.writeback.ReconcileHere(ctx, writeback.Uncertain{Path: path}); err != nil {
		b.writeback.Changed(path)
		return err
	}
	now, err := b.ns.Lookup(ctx, e.Parent, e.Name)
	if err == nil && now.File == e.File {
		*e = now
	}
	return err
}

// compareForgotten searches the store for the files that have no entry since the store was to have
// all of them.
func (b *Buffer) compareForgotten(ctx context.Context, was *fate.Reassertion) error {
	if len(was.OnStore) == 0 {
		return nil
	}
	store, err := b.h.Stores.Get(ctx, b.name)
	if err != nil {
		return err
	}
	there := was.OnStore[:0]
	for i, u := range was.OnStore {
		switch _, err := store.Stat(ctx, u.Path+codec.Suffix(b.Spec().Codec)); {
		case bb.KindOf(err) == bb.NotFound:
			u.Reason = "all of it was evicted, and the store has nothing under this name: it may be there under one from before a rename"
			b.h.Log.Error("a file that the namespace had forgotten is not on the store under its name", "buffer", b.name, "path", u.Path, "bytes", u.Bytes, "file", u.File, "generation", u.Generation)
			was.Lost = append(was.Lost, u)
		case err != nil:
			was.OnStore = append(there, was.OnStore[i:]...)
			return err
		default:
			there = append(there, u)
		}
	}
	was.OnStore = there
	return nil
}

// Sweep removes from the buffer's store the unfinished uploads of a daemon's life that is over.
func (b *Buffer) Sweep() {
	if b.Spec().Backing == "" {
		return
	}
	store, err := b.h.Stores.Get(b.ctx, b.name)
	if err == nil {
		_, err = store.Sweep(b.ctx)
	}
	if err != nil && b.ctx.Err() == nil {
		b.h.Log.Warn("removing unfinished uploads", "buffer", b.name, "err", err)
	}
}

// newRecovery makes the part that recovers the files of a buffer.
func newRecovery(b *Buffer) *recovery.Buffer {
	h := b.h
	return recovery.New(recovery.Options{Owners: h.Owners, Store: h.Store, Lost: h.Observe.Lost, Emit: h.Emit, Log: h.Log}, b.name,
		recovery.Parts{Spec: b.Spec, Open: b.open, Queue: b.writeback, Replicas: b.replicas, Entries: b.reassertion, Names: b.ns})
}
