package buffer

import (
	"context"
	"io/fs"

	"forebay/bbd/access"
	"forebay/bbd/change"
	"forebay/bbd/txn"
	metatxn "forebay/meta/txn"
)

// The part of a buffer that transactions use. Some of it is in drain.go and staging.go.
var _ txn.Buffer = (*Buffer)(nil)

// Mover returns the mover of the buffer's files.
func (b *Buffer) Mover() metatxn.Mover {
	return change.Mover{Of: b.Changes}
}

// Materializer returns the materializer of the buffer's transactions.
func (b *Buffer) Materializer() *txn.Materializer { return b.materializer }

// MakeDirs creates a directory and those above it.
func (b *Buffer) MakeDirs(ctx context.Context, c access.Caller, path string, mode uint32) error {
	_, err := b.paths.MkdirAll(ctx, c, path, fs.FileMode(mode))
	return err
}

// MaterializeAbove materializes transactions that are committed into the directories above a path.
func (b *Buffer) MaterializeAbove(ctx context.Context, op, path string) error {
	_, _, err := b.paths.Parent(ctx, access.Daemon(), op, path)
	return err
}
