// Package namespace is the contract of a namespace of a buffer: the tree of its directories and files, and the
// renames and removals that its backing store has yet to follow. It must never depend on how an engine keeps them
// (meta/nsbucket, meta/nslog), nor buffers, transactions or the connection to the server.
//
// Tree is the interface for callers. namespacetest holds every engine to it.
package namespace

import (
	"context"

	"forebay/internal/bb"
)

// Tree is the namespace of a buffer for its callers: its directories and files, and the changes that
// the backing store has yet to follow. It is safe for concurrent use. namespacetest is its
// conformance suite. nsbucket.Namespace has the contract of each method.
type Tree interface {
	Buffer() string

	Root(ctx context.Context) (bb.Entry, error)
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	Resolve(ctx context.Context, path string) (bb.Entry, error)
	ResolveParent(ctx context.Context, path string) (bb.DirID, string, error)
	EntryOf(ctx context.Context, dir bb.DirID) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
	Removed(ctx context.Context, dir bb.DirID, name string, file bb.FileID, revision uint64) (bool, error)

	Create(ctx context.Context, e bb.Entry) (uint64, error)
	Put(ctx context.Context, e bb.Entry) (uint64, error)
	Update(ctx context.Context, dir bb.DirID, name string, fn func(*bb.Entry) error) (bb.Entry, error)
	SetAttr(ctx context.Context, dir bb.DirID, name string, a Attr) (bb.Entry, error)
	Mkdir(ctx context.Context, parent bb.DirID, name string, o Owner) (bb.Entry, error)
	MkdirAll(ctx context.Context, path string, o Owner) (bb.Entry, error)
	Rename(ctx context.Context, srcDir bb.DirID, srcName string, dstDir bb.DirID, dstName string, o RenameOptions) (Renamed, error)
	Exchange(ctx context.Context, dirA bb.DirID, nameA string, dirB bb.DirID, nameB string, o ExchangeOptions) (Exchanged, error)
	Remove(ctx context.Context, parent bb.DirID, name string, o RemoveOptions) (bb.Entry, error)
	RemoveAll(ctx context.Context, parent bb.DirID, name string, o RemoveOptions, fn func(bb.Entry)) error

	List(ctx context.Context, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error)
	Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error
	ScanAll(ctx context.Context, fn func(bb.Entry) error) error
	ScanMarks(ctx context.Context, fn func(bb.Entry) error, gone func(bb.FileID)) error

	// Distrust drops the cache. The server has been found to have gone back behind it.
	Distrust()

	StoreLog
}

// StoreLog are the renames and removals that the backing store has yet to follow.
type StoreLog interface {
	StoreOps(ctx context.Context) ([]StoreOp, error)
	PendingOps() OpReader
	StoreOpPending(ctx context.Context, revision uint64) (bool, error)
	DoneStoreOp(ctx context.Context, revision uint64) (bool, error)
	TakeOverStoreOps(ctx context.Context, from bb.NodeID) (taken int, err error)
}

// OpReader follows the pending operations of a namespace. It is used by one goroutine at a
// time.
type OpReader interface {
	// Read returns the operations that became pending since the last call, in
	// the order in which they happened, and those that are not pending any more.
	Read(ctx context.Context) (came, went []StoreOp, err error)
}
