package bbd

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/drain"
	"forebay/bbd/fate"
	"forebay/bbd/flushrule"
	"forebay/bbd/rpc"
	"forebay/bbd/walk"
	"forebay/internal/bb"
)

// newDrains makes what drains buffers and nodes.
func (d *Daemon) newDrains() *drain.Service {
	return drain.New(drain.Options{
		Node: d.cfg.Node, Epoch: d.epoch, Cluster: d.cluster, Operations: d.meta.Operations(), Transfers: d.work.transfers,
		Buffers: drainBuffers{d}, Flusher: d.flusher, State: &d.draining, MoveOut: d.moveAllOut,
		Store: d.stores.Get, Open: d.stores.OpenURL, Emit: d.emit, Log: d.log,
	})
}

// drainBuffers are the daemon's buffers, for package drain.
type drainBuffers struct{ d *Daemon }

// For returns a buffer that the session's user may enter.
func (s drainBuffers) For(ctx context.Context, of *rpc.Session, op, name string) (drain.Buffer, error) {
	b, err := s.d.bufferFor(ctx, of, op, name)
	if err != nil {
		return nil, err
	}
	return drainBuffer{b}, nil
}

// drainBuffer is a buffer, for package drain.
type drainBuffer struct{ *buffer }

// Names returns the buffer's namespace.
func (b drainBuffer) Names() drain.Names { return b.ns }

// Path returns where an entry lies now.
func (b drainBuffer) Path(ctx context.Context, e *bb.Entry) (string, error) {
	return b.pathAt(ctx, e.Place())
}

// DirtyPath returns where a file lies that waits for its flush.
func (b drainBuffer) DirtyPath(ctx context.Context, file bb.FileID) string {
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

// Walk visits a file, or a directory with all below it.
func (b drainBuffer) Walk(ctx context.Context, path string, visit walk.Visitor) error {
	return b.paths.Walk(ctx, access.Caller{System: true}, "drain", path, visit)
}

// Owner returns the node that decides about a file.
func (b drainBuffer) Owner(e *bb.Entry) bb.NodeID { return b.owners.Of(e) }

// Foreign reports whether another node owns a file.
func (b drainBuffer) Foreign(e *bb.Entry) bool { return b.owners.Foreign(e) }

// Enqueue queues a dirty file of this node for its flush.
func (b drainBuffer) Enqueue(ctx context.Context, e *bb.Entry) { b.writeback.EnqueueFound(ctx, e) }

// Rules returns what the buffer's flush rules hold back.
func (b drainBuffer) Rules() *flushrule.Buffer { return b.rules }

// CloseAbandoned closes the files of this node whose writers are gone for good.
func (b drainBuffer) CloseAbandoned(ctx context.Context) error { return b.open.CloseAbandoned(ctx) }

// Mend restores the entries of dirty files that the namespace has forgotten.
func (b drainBuffer) Mend(ctx context.Context) (left []fate.Unexplained, mended bool, err error) {
	return b.reassertion.Mend(ctx)
}

// Unasked returns the dirty files in no queue, when an error has kept Mend from an answer.
func (b drainBuffer) Unasked(why error) []fate.Unexplained { return b.reassertion.Unasked(why) }

// Materialize waits until a decided transaction is in the namespace.
func (b drainBuffer) Materialize(ctx context.Context, id bb.TxnID) error {
	return b.materializer.Wait(ctx, id)
}
