// Package writeback carries the content of a buffer's files to its backing store. It is the flusher's catalog,
// submits renames and removals to it in the namespace's order, and reconciles the store with the namespace
// after writes that came late. It must never depend on requests of clients, nor on the making of
// dirty files.
package writeback

import (
	"context"
	"io"
	"log/slog"

	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// Files are the files of a buffer at this daemon. Its methods may be called concurrently.
type Files interface {
	Spec() bb.Buffer
	// OpenPaths returns the paths of the files that are being written and have been committed in part.
	OpenPaths() []string
	// Lock locks a place. No commit, rename or removal is under way there until unlock is called.
	Lock(at bb.Place) (unlock func())
	// CatchUp notes the new place of a file that an exchange has moved of which this node did not learn. The file's place
	// before is locked.
	CatchUp(file bb.FileID) (moved bool, err error)
	// SaveReaders brings into memory the bytes that readers of a file would need from the store's object, before
	// that is replaced by a generation.
	SaveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error
	// Pin keeps the bytes of a snapshot that are in memory there. The snapshot stays the caller's to close, later.
	// Ctx is that of all reads of the rest.
	Pin(ctx context.Context, e *bb.Entry, snap *store.Snapshot) (Pinned, error)
	// Discard notifies another node in the background that a generation does not count any more. A node ""
	// is none.
	Discard(node bb.NodeID, file bb.FileID, n bb.Generation)
	// ReportLost marks a file lost, for the reason that e names, and publishes that.
	ReportLost(ctx context.Context, e *bb.Entry) error
	// Destroyed reports whether the buffer was found to be gone.
	Destroyed(ctx context.Context) bool
}

// Pinned are the bytes of a file, which stay where they are until it is closed.
type Pinned interface {
	backing.Source
	Close()
}

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	Resolve(ctx context.Context, path string) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
	ScanAll(ctx context.Context, visit func(bb.Entry) error) error
	// Replacing returns the decided transaction that has yet to remove the file at a path, or 0 if there is none.
	Replacing(ctx context.Context, path string) (bb.TxnID, error)
	namespace.StoreLog
}

// Flusher are the required methods of the flusher, whose contracts these are.
type Flusher interface {
	Enqueue(flusher.Item)
	Hold(ctx context.Context, buffer string, paths ...string) (*flusher.Held, error)
	Apply(buffer string, op storeop.Op)
	RemoveOrphan(buffer, path string)
	Read(ctx context.Context, buffer, path, codec string, offset int64) (io.ReadCloser, error)
}

// Store are the required methods of memory, whose contracts these are.
type Store interface {
	Snapshot(file bb.FileID, n bb.Generation) (*store.Snapshot, error)
	MarkClean(file bb.FileID, n bb.Generation) error
	MarkDirty(file bb.FileID, n bb.Generation) error
	DropGeneration(file bb.FileID, n bb.Generation)
}

// Options are the environment of all buffers of a daemon. Its functions may be called concurrently.
type Options struct {
	Owners  owner.Node
	Cluster *cluster.Cluster // nil: this daemon is alone
	Flusher Flusher
	Store   Store
	Open    func(ctx context.Context, buffer string) (backing.Store, error) // the buffer's backing store
	Wake    func()                                                          // checks again whether writers can have memory
	Emit    func(bb.Event)
	Go      func(func()) // starts a goroutine that ends soon, or with the daemon
	Log     *slog.Logger
}

// Buffer has the files of one buffer that wait for their flush, and the operations that its store has yet to follow. Its
// methods may be called concurrently.
type Buffer struct {
	o     Options
	ctx   context.Context // ends when the daemon stops
	name  string
	files Files
	names Names
	dirty *dirty.Files

	pending   *pendingOps // the operations that the store has yet to follow
	uncertain uncertain
}

// New returns the write-back of a buffer's files, which works until ctx ends. Dirty has those that wait.
func New(ctx context.Context, o Options, name string, files Files, names Names, dirty *dirty.Files) *Buffer {
	return &Buffer{o: o, ctx: ctx, name: name, files: files, names: names, dirty: dirty, pending: newPendingOps(names.PendingOps())}
}

func (b *Buffer) address(path string) string { return bb.Address{Buffer: b.name, Path: path}.String() }

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}

func (b *Buffer) key(e *bb.Entry) flusher.Key {
	return flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation}
}

// Enqueue hands a dirty file to the flusher. In a scratch buffer nothing is flushed, but
// files may have to move to other nodes.
func (b *Buffer) Enqueue(e bb.Entry, item flusher.Item) {
	backed := b.files.Spec().Backing != ""
	if backed || b.o.Cluster != nil {
		b.addDirty(&e)
	}
	if backed {
		b.o.Flusher.Enqueue(item)
	}
}

func (b *Buffer) addDirty(e *bb.Entry) {
	f := dirty.File{At: e.Place(), Generation: e.Generation, Bare: e.Type == bb.TypeSymlink}
	if second := owner.Replica(e); second != "" && b.o.Cluster != nil {
		f.Second = b.o.Cluster.Incarnation(second)
	}
	b.dirty.Add(e.File, f)
}
