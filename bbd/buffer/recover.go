package buffer

import (
	"context"

	"forebay/bbd/fate"
	"forebay/bbd/recovery"
	"forebay/internal/bb"
)

// Recover recovers the files of a buffer, after the store operations that the daemon's last life had left.
func (b *Buffer) Recover(ctx context.Context, files map[bb.FileID]*fate.Held, start *recovery.Start) error {
	if err := b.writeback.ReplayStoreOps(ctx); err != nil {
		return err
	}
	b.h.Go(b.Sweep)
	spec := b.Spec()
	b.recovery.Suspect(b.h.Doubts.Of(&spec))
	return b.recovery.Recover(ctx, files, start)
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
