package registry

import (
	"context"
	"iter"
	"log/slog"

	"forebay/bbd/access"
	"forebay/bbd/aside"
	"forebay/bbd/backings"
	"forebay/bbd/fate"
	"forebay/bbd/freeze"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/gossip"
	metatxn "forebay/meta/txn"
)

// Buffer is a buffer that a daemon serves. Its methods may be called concurrently.
type Buffer interface {
	comparable
	Name() string
	// Spec returns the buffer's record.
	Spec() bb.Buffer
	// Replace replaces the record by a newer one.
	Replace(spec bb.Buffer)
	// Gate keeps changes apart from the end of the buffer.
	Gate() *freeze.Gate
	// Saved returns why the buffer may not be destroyed, or nil if it may.
	Saved(ctx context.Context) error
	// ForgetFiles drops the files that are open or dirty.
	ForgetFiles()
}

// Records has the records of buffers in the namespace, whose contracts these are.
type Records interface {
	CreateBuffer(ctx context.Context, spec bb.Buffer) (bb.Buffer, error)
	Buffer(ctx context.Context, name string) (bb.Buffer, error)
	Buffers(ctx context.Context) ([]bb.Buffer, error)
	DestroyBuffer(ctx context.Context, name string) error
	WatchBuffers(ctx context.Context, known []string, fn func(meta.BufferChange)) error
	Namespace(ctx context.Context, buffer string) (*metatxn.Tree, error)
	BeginAnew(ctx context.Context, of bb.Buffer, keep func(*bb.Entry) bool) (meta.Anew, error)
	Rebuilding(ctx context.Context, buffer string) (bool, error)
	Rebuilt(ctx context.Context, buffer string) error
}

// Store are the required methods of memory, whose contracts these are.
type Store interface {
	Files() iter.Seq[store.FileInfo]
	Checksum(file bb.FileID, n bb.Generation) (sum uint64, size int64, err error)
	Drop(file bb.FileID)
}

// Stores are the backing stores of all buffers, whose contracts these are.
type Stores interface {
	LookUp(url string) string
	Probe(ctx context.Context, c access.Caller, spec bb.Buffer, where bb.Backing, count int) (id string, held backings.Contents, err error)
	Forget(buffer string) error
}

// Flusher are the required methods of the queue of flushes, whose contracts these are.
type Flusher interface {
	Hold(ctx context.Context, buffer string, paths ...string) (*flusher.Held, error)
	ForgetBuffer(buffer string)
}

// Cluster are the required methods of the other nodes, whose contracts these are.
type Cluster interface {
	freeze.Cluster
	AllSupport(what string, since uint32) error
	Members() []gossip.Member
}

// Options are the environment of a registry. Its functions may be called concurrently.
type Options[B Buffer] struct {
	Table   *Table[B]
	Open    func(spec bb.Buffer, ns *metatxn.Tree) B // returns a buffer that is to be served
	Records Records
	Store   Store
	Stores  Stores
	Flusher Flusher
	Cluster Cluster // nil: this daemon is alone
	Aside   *aside.List
	Inside  func(path string) bool                       // reports whether a path is, is in, or holds one of the daemon's own folders
	Disk    bool                                         // this daemon has a disk tier
	Held    func(buffer string) map[bb.FileID]*fate.Held // memory's parts of the files of a buffer
	// Elsewhere reports whether another node owns an entry's file.
	Elsewhere func(e *bb.Entry) bool
	Damage    func(buffer string) string // returns the note for a buffer that is set aside (aside.DamageNotes)
	Dropped   func(b B)                  // is called of each buffer that was destroyed
	// Restore restores the files of a buffer that is not served yet, from memory, and returns their fates.
	Restore func(ctx context.Context, b B) (fate.Reassertion, error)
	// Compare compares the store with the files of a rebuilt buffer that memory had evicted by then, and adds to their
	// fates those that the store does not have.
	Compare func(ctx context.Context, b B, held map[bb.FileID]*fate.Held, was *fate.Reassertion) error
	Emit    func(bb.Event)
	Log     *slog.Logger
}

// Service makes, attaches, finds and destroys buffers, and answers requests for that. Its methods may be
// called concurrently.
type Service[B Buffer] struct {
	ctx context.Context
	o   Options[B]
}

// New returns a registry whose work ends with ctx.
func New[B Buffer](ctx context.Context, o Options[B]) *Service[B] { return &Service[B]{ctx, o} }

// address returns the address of a buffer.
func address(name string) string { return bb.Address{Buffer: name}.String() }
