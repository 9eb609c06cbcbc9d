package bbd

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/dirty"
	"forebay/bbd/file"
	"forebay/bbd/freeze"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/rpc"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/txn"
)

// changeNames is what is needed of a buffer's namespace with its transactions, whose contracts these are.
type changeNames interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	ListUnion(ctx context.Context, v txn.UnionDir, after string, limit int) (entries []bb.Entry, more bool, err error)
	Rename(ctx context.Context, srcDir bb.DirID, srcName string, dstDir bb.DirID, dstName string, o namespace.RenameOptions) (namespace.Renamed, error)
	Remove(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
	Movable(ctx context.Context, from, to bb.DirID, atMost int) ([]txn.Move, error)
}

// changeLog is what a namespace that is a log does besides.
type changeLog interface {
	// MergeDir moves many entries in one change.
	MergeDir(ctx context.Context, from, to bb.DirID, most int, may func(e *bb.Entry, to bb.DirID) bool) (moved []nslog.Merged, more bool, err error)
}

// changeFlusher is what is needed of the flusher, whose contracts these are.
type changeFlusher interface {
	Hold(ctx context.Context, buffer string, paths ...string) (*flusher.Held, error)
	HoldRename(ctx context.Context, buffer, from, to string) (*flusher.Held, error)
	Forget(flusher.Key)
}

// changeStore is what is needed of memory, whose contracts these are.
type changeStore interface {
	Drop(file bb.FileID)
	SyncDrops(ctx context.Context) error
}

// changeCache has what is read of the buffer's files. Its methods may be called concurrently.
type changeCache interface {
	// SaveReaders brings into memory what the readers of a file need of the store's object, unless they read
	// generation newer.
	SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error
	// Renamed notes where a file lies now that may be read.
	Renamed(file bb.FileID, dir bb.DirID, name string)
	// Removed notes that a file has no entry any more.
	Removed(file bb.FileID)
}

// changeReplicas are the second copies of the buffer's files. Its methods may be called concurrently.
type changeReplicas interface {
	// Discard drops what a node has of a generation, 0 for all of the file, later; a node "" is none.
	Discard(node bb.NodeID, file bb.FileID, n bb.Generation)
	// DiscardReplaced drops what other nodes have of a file that another one has replaced; nil: none.
	DiscardReplaced(ctx context.Context, e *bb.Entry)
}

// storeOps carries the buffer's renames and removals out on its store.
type storeOps interface {
	// ReplayStoreOps submits what the namespace has noted, in order.
	ReplayStoreOps(ctx context.Context) error
}

// Transactions are those of the buffer. Its methods may be called concurrently.
type changeTransactions interface {
	// Do calls do, and once more after what was materialized meanwhile was in its way.
	Do(ctx context.Context, do func() error) error
	// Wait waits until a decided transaction is in its place.
	Wait(ctx context.Context, id bb.TxnID) error
}

// changeGate keeps a buffer from changes while it is about to be destroyed. Its methods may be called concurrently.
type changeGate interface {
	Enter(ctx context.Context, op string) error
	Leave()
	Freeze(ctx context.Context) (thaw func(), err error)
}

// changeOptions are what changes of all buffers use. Its functions may be called concurrently.
type changeOptions struct {
	// Enter returns a buffer that the session's user may enter.
	Enter func(ctx context.Context, s *rpc.Session, op, buffer string) (*changeBuffer, error)
	// Daemons is Enter for requests that only daemons may make.
	Daemons func(ctx context.Context, r *rpc.Request, op, buffer string) (*changeBuffer, error)
	Owners  owner.Node
	Cluster freeze.Cluster // nil: this daemon is alone
	Flusher changeFlusher
	Store   changeStore
	Silence time.Duration // of another daemon, after which nobody waits for it any more
	Emit    func(bb.Event)
	Go      func(func()) // starts what ends soon, or with the daemon
}

// changeParts are what changes of a buffer need of the rest of it.
type changeParts struct {
	Spec         func() bb.Buffer // its record
	Names        changeNames
	Log          changeLog // nil: the namespace is none
	Paths        *paths.Tree
	Files        *file.Files // open for writing
	Dirty        *dirty.Files
	Cache        changeCache
	Replicas     changeReplicas
	Store        storeOps
	Follows      func(e *bb.Entry, path string) bool // the store has what is renamed or removed, or is about to
	Transactions changeTransactions
	Gate         changeGate
	// Flushed waits until the store has what lies at a path and below it, in a buffer that wants that.
	Flushed func(ctx context.Context, c access.Caller, op, path string) error
}

// changeService answers requests that change names. Its methods may be called concurrently.
type changeService struct{ o changeOptions }

// newChangeService returns what answers requests that change names.
func newChangeService(o changeOptions) *changeService { return &changeService{o} }

// changeBuffer changes the names of one buffer. Its methods may be called concurrently.
type changeBuffer struct {
	o           changeOptions
	ctx         context.Context // ends when the daemon stops
	name        string
	p           changeParts
	directories lockorder.Mutex[lockrank.Directories] // a directory is renamed for a transaction
}

// newChangeBuffer returns what changes the names of a buffer until ctx ends.
func newChangeBuffer(ctx context.Context, o changeOptions, name string, p changeParts) *changeBuffer {
	return &changeBuffer{o: o, ctx: ctx, name: name, p: p}
}

func (b *changeBuffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

// pathAt returns the path of a place now.
func (b *changeBuffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.p.Names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
