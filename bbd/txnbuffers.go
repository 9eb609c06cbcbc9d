package bbd

import (
	"context"
	"io/fs"

	"forebay/bbd/access"
	"forebay/bbd/rpc"
	"forebay/bbd/txn"
	"forebay/internal/bb"
	metatxn "forebay/meta/txn"
)

// newTxns makes what serves transactions.
func (d *Daemon) newTxns() *txn.Service {
	return txn.New(d.ctx, txn.Options{
		Node: d.cfg.Node, Cluster: d.cluster, Buffers: txnBuffers{d}, Every: d.cfg.Limits.Reap, Emit: d.emit, Log: d.log,
	})
}

// txnBuffers are the daemon's buffers, for package txn.
type txnBuffers struct{ d *Daemon }

// For returns a buffer that the session's user may enter.
func (s txnBuffers) For(ctx context.Context, of *rpc.Session, op, name string) (txn.Buffer, error) {
	b, err := s.d.bufferFor(ctx, of, op, name)
	if err != nil {
		return nil, err
	}
	return txnBuffer{b}, nil
}

// Existing returns all buffers that there are.
func (s txnBuffers) Existing(ctx context.Context) (all []txn.Buffer, err error) {
	buffers, err := s.d.work.buffers.Existing(ctx)
	for _, b := range buffers {
		all = append(all, txnBuffer{b})
	}
	return all, err
}

// txnBuffer is a buffer, for package txn.
type txnBuffer struct{ *buffer }

// Tree returns the buffer's namespace with its transactions.
func (b txnBuffer) Tree() *metatxn.Tree { return b.ns }

// Mover returns what moves the buffer's files.
func (b txnBuffer) Mover() metatxn.Mover { return b.mover() }

// Materializer returns what materializes the buffer's transactions.
func (b txnBuffer) Materializer() *txn.Materializer { return b.materializer }

// Lookup returns an entry as readers see it.
func (b txnBuffer) Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error) {
	return b.paths.Lookup(ctx, c, op, path)
}

// MakeDirs creates a directory and those above it.
func (b txnBuffer) MakeDirs(ctx context.Context, c access.Caller, path string, mode uint32) error {
	_, err := b.paths.MkdirAll(ctx, c, path, fs.FileMode(mode))
	return err
}

// Settle materializes what is committed into the directories above a path.
func (b txnBuffer) Settle(ctx context.Context, op, path string) error {
	_, _, err := b.paths.Parent(ctx, access.Daemon(), op, path)
	return err
}

// Flushed waits until the store has what lies at a path and below it.
func (b txnBuffer) Flushed(ctx context.Context, c access.Caller, op, path string) error {
	return b.d.work.drains.Flushed(ctx, drainBuffer(b), c, op, path)
}
