package buffer

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/drain"
	"forebay/bbd/fate"
	"forebay/internal/bb"
)

// The methods of a buffer that a drain uses.
var _ drain.Buffer = (*Buffer)(nil)

// Names returns the buffer's namespace.
func (b *Buffer) Names() drain.Names { return b.ns }

// Path returns where an entry lies now.
func (b *Buffer) Path(ctx context.Context, e *bb.Entry) (string, error) {
	return b.pathAt(ctx, e.Place())
}

// DirtyPath returns where a file lies that waits for its flush.
func (b *Buffer) DirtyPath(ctx context.Context, file bb.FileID) string {
	f, ok := b.dirty.Of(file)
	if !ok {
		return ""
	}
	path, err := b.pathAt(ctx, f.At)
	if err != nil {
		return f.At.Name
	}
	return path
}

// Owner returns the node that decides about a file.
func (b *Buffer) Owner(e *bb.Entry) bb.NodeID { return b.h.Owners.Of(e) }

// OwnedElsewhere reports whether another node owns a file.
func (b *Buffer) OwnedElsewhere(e *bb.Entry) bool { return b.h.Owners.OwnedElsewhere(e) }

// Enqueue queues a dirty file of this node for its flush.
func (b *Buffer) Enqueue(ctx context.Context, e *bb.Entry) { b.writeback.EnqueueFound(ctx, e) }

// CloseAbandoned closes the files of this node whose writers are gone for good.
func (b *Buffer) CloseAbandoned(ctx context.Context) error { return b.open.CloseAbandoned(ctx) }

// Mend restores the entries of dirty files that the namespace has forgotten.
func (b *Buffer) Mend(ctx context.Context) (left []fate.Unexplained, mended bool, err error) {
	return b.reassertion.Mend(ctx)
}

// Unasked returns the dirty files in no queue, when an error has kept Mend from an answer.
func (b *Buffer) Unasked(why error) []fate.Unexplained { return b.reassertion.Unasked(why) }

// Materialize waits until a decided transaction is in the namespace.
func (b *Buffer) Materialize(ctx context.Context, id bb.TxnID) error {
	return b.materializer.Wait(ctx, id)
}

// Saved returns why the buffer may not be destroyed, or nil if it may.
func (b *Buffer) Saved(ctx context.Context) error { return drain.Saved(ctx, b, b.open.Count()) }

// Flushed waits until the store has the files at a path and below it, in a buffer with that
// guarantee.
func (b *Buffer) Flushed(ctx context.Context, c access.Caller, op, path string) error {
	return b.h.Drains.Flushed(ctx, b, c, op, path)
}

// FinishDrain saves the objects that a drain of all daemons saves after the files.
func (b *Buffer) FinishDrain(ctx context.Context, patience time.Duration) error {
	return b.h.Drains.Finish(ctx, b, patience)
}

// MaterializeAll ends the transactions that are decided.
func (b *Buffer) MaterializeAll(ctx context.Context) error { return b.h.Drains.Materialize(ctx, b) }
