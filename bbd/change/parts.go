package change

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/dirty"
	"forebay/bbd/file"
	"forebay/bbd/freeze"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/txn"
)

// Names is the part of a buffer's namespace, with its transactions, that changes use.
type Names interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	ListUnion(ctx context.Context, v txn.UnionDir, after string, limit int) (entries []bb.Entry, more bool, err error)
	Rename(ctx context.Context, srcDir bb.DirID, srcName string, dstDir bb.DirID, dstName string, o namespace.RenameOptions) (namespace.Renamed, error)
	Exchange(ctx context.Context, dirA bb.DirID, nameA string, dirB bb.DirID, nameB string, o namespace.ExchangeOptions) (namespace.Exchanged, error)
	Remove(ctx context.Context, parent bb.DirID, name string, o namespace.RemoveOptions) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
	Scan(ctx context.Context, dir bb.DirID, fn func(bb.Entry) error) error
	Movable(ctx context.Context, from, to bb.DirID, atMost int) ([]txn.Move, error)
}

// Log is the additional part of a namespace that is a log.
type Log interface {
	// MergeDir moves many entries in one change.
	MergeDir(ctx context.Context, from, to bb.DirID, most int, may func(e *bb.Entry, to bb.DirID) bool) (moved []nslog.Merged, more bool, err error)
}

// Flusher is the part of the flusher that changes use.
type Flusher interface {
	Hold(ctx context.Context, buffer string, paths ...string) (*flusher.Held, error)
	HoldRename(ctx context.Context, buffer, from, to string) (*flusher.Held, error)
	HoldExchange(ctx context.Context, buffer, a, b string) (*flusher.Held, error)
	Forget(flusher.Key)
}

// Memory is the part of package store that changes use.
type Memory interface {
	Drop(file bb.FileID)
	SyncDrops(ctx context.Context) error
}

// Cache has the buffer's files that are being read. Its methods may be called concurrently.
type Cache interface {
	// SaveReaders brings the bytes into memory that readers of a file need from the store's object.
	// It leaves out readers of generation newer.
	SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error
	// Renamed notes the new place of a file that may be read.
	Renamed(file bb.FileID, dir bb.DirID, name string)
	// Removed notes that a file has no entry any more.
	Removed(file bb.FileID)
}

// Replicas are the second copies of the buffer's files. Its methods may be called concurrently.
type Replicas interface {
	// Discard drops a node's bytes of a generation (0: of the whole file) in the background. Node "" means none.
	Discard(node bb.NodeID, file bb.FileID, n bb.Generation)
	// DiscardReplaced drops other nodes' bytes of a replaced file. It does nothing for a nil entry.
	DiscardReplaced(ctx context.Context, e *bb.Entry)
}

// StoreOps carries the buffer's renames and removals out on its store.
type StoreOps interface {
	// ReplayStoreOps submits the operations that the namespace has noted, in order.
	ReplayStoreOps(ctx context.Context) error
}

// Transactions are those of the buffer. Its methods may be called concurrently.
type Transactions interface {
	// Do calls do, and calls it again if files that were materialized meanwhile were in its way.
	Do(ctx context.Context, do func() error) error
	// Wait waits until a decided transaction is in its place.
	Wait(ctx context.Context, id bb.TxnID) error
}

// Gate keeps a buffer from changes while it is about to be destroyed. Its methods may be called concurrently.
type Gate interface {
	Enter(ctx context.Context, op string) error
	Leave()
	Freeze(ctx context.Context) (thaw func(), err error)
}

// Options are the environment of the changes of all buffers. Its functions may be called concurrently.
type Options struct {
	// Enter returns a buffer that the session's user may enter.
	Enter func(ctx context.Context, v call.Visitor, op, buffer string) (*Buffer, error)
	// Daemons is Enter for requests that only daemons may make.
	Daemons func(ctx context.Context, r call.Request, op, buffer string) (*Buffer, error)
	Owners  owner.Node
	Cluster freeze.Cluster // nil: this daemon is alone
	Flusher Flusher
	Store   Memory
	Silence time.Duration // of another daemon, after which it is not waited for
	Emit    func(bb.Event)
	Log     *slog.Logger
	Go      func(func()) // starts a goroutine that ends soon, or with the daemon
}

// Parts are the parts of a buffer that its changes use.
type Parts struct {
	Spec         func() bb.Buffer // its record
	Names        Names
	Log          Log // nil: the namespace is none
	Paths        *paths.Tree
	Files        *file.Files // open for writing
	Dirty        *dirty.Files
	Cache        Cache
	Replicas     Replicas
	Store        StoreOps
	Follows      func(e *bb.Entry, path string) bool // the store has the renamed or removed file, or will have it
	Transactions Transactions
	Gate         Gate
	// Flushed waits until a path and everything below it is on the store, in a buffer with durability flushed.
	Flushed func(ctx context.Context, c access.Caller, op, path string) error
}

// Service answers requests that change names. Its methods may be called concurrently.
type Service struct{ o Options }

// New returns the service for requests that change names.
func New(o Options) *Service { return &Service{o} }

// Buffer changes the names of one buffer. Its methods may be called concurrently.
type Buffer struct {
	o           Options
	ctx         context.Context // ends when the daemon stops
	name        string
	p           Parts
	directories lockorder.Mutex[lockrank.Directories] // a directory is renamed for a transaction
	later       sync.Map                              // places by the files that an exchange may still move there (CatchUp)
}

// NewBuffer returns the changer of a buffer's names, until ctx ends.
func NewBuffer(ctx context.Context, o Options, name string, p Parts) *Buffer {
	return &Buffer{o: o, ctx: ctx, name: name, p: p}
}

func (b *Buffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.p.Names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
