package file

import (
	"context"
	"log/slog"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	Create(ctx context.Context, e bb.Entry) (revision uint64, err error)
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	Removed(ctx context.Context, dir bb.DirID, name string, file bb.FileID, revision uint64) (bool, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Store are the required methods of memory, whose contracts these are.
type Store interface {
	Commit(...store.Commit) error
	Size(file bb.FileID, n bb.Generation) (int64, error)
	Base(file bb.FileID, n bb.Generation) (bb.Generation, error)
	Checksum(file bb.FileID, n bb.Generation) (sum uint64, size int64, err error)
	Seal(file bb.FileID, n bb.Generation) error
	MarkClean(file bb.FileID, n bb.Generation) error
	Void(file bb.FileID, n bb.Generation) error
	DropGeneration(file bb.FileID, n bb.Generation)
	Identify(*store.Identity) error
	IdentityOf(file bb.FileID) (store.Identity, bool)
}

// Paths resolves the paths of a buffer with the rights of a caller. Its methods may be called concurrently.
type Paths interface {
	// Parent returns the place of a path's last name, and whether the caller may create an entry there.
	Parent(ctx context.Context, c access.Caller, op, path string) (at bb.Place, mayCreate bool, err error)
	// MayChange refuses paths that are not for files of users.
	MayChange(op, path string) error
	// Lookup returns the entry of a path as readers see it.
	Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error)
}

// Cache has the read content of the buffer's files. Its methods may be called concurrently, and under the lock of an
// open file.
type Cache interface {
	// Base makes memory's bytes of an entry's generation, and its records of evicted ones, the base of a newer one.
	Base(ctx context.Context, e *bb.Entry, path string) error
	// SumEvicted adds to memory the checksums of the rest of evicted extents of a generation that were
	// partly overwritten. E is the file's entry with its present place. It may read from the store.
	SumEvicted(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error
}

// Generation is one that is being written, for Replica.
type Generation struct {
	Entry bb.Entry  // with the file's place, and the generation
	Path  string    // for messages
	Near  bb.NodeID // the other node that opened it last; "": none has
}

// Replica is the second copy of a generation. Its methods are called under the lock of the file's commits.
type Replica interface {
	// Commit brings the copy up to date with a commit that is recorded here. Second, if not "", is the node that the
	// namespace is to have as the entry's second. moved means that it was another one before. It returns
	// bb.Unavailable if no node has accepted the copy.
	Commit(ctx context.Context, g *Generation, extents []store.NewExtent) (second bb.NodeID, moved bool, err error)
	// Settled reports whether the copy has all that was committed of so many bytes, as far as can be had.
	Settled(bytes int64, near bb.NodeID) bool
	// HasTargets reports whether a node can get a request to keep a copy of so many bytes.
	HasTargets(bytes int64, near bb.NodeID) bool
	// Outdate notes that the copy may lack something.
	Outdate()
}

// Replicator keeps second copies of the buffer's generations. Its methods may be called concurrently.
type Replicator interface {
	// Copy returns the copy of a generation that a node is recorded to have, or "" if there is none yet. Nil: the
	// generation is to have none.
	Copy(at bb.NodeID) Replica
	// Discard drops a node's bytes of a generation, later. Node "" means none.
	Discard(node bb.NodeID, file bb.FileID, n bb.Generation)
}

// Queue has the closed files of the buffer that wait for their flush. Its methods may be called concurrently, and
// under the lock of an open file.
type Queue interface {
	// Closed queues a closed generation. Near is the other node that opened it last, second its second copy, nil
	// for none.
	Closed(e *bb.Entry, path string, near bb.NodeID, second Replica)
	// Changed announces that the namespace has another generation of a file, without a flush to queue.
	Changed(path string)
	// Suspect notes that the store may have an object of a file already under a path, one of these contents or another.
	Suspect(path string, attempts []bb.Content)
}

// Gate keeps a buffer from changes while it is about to be destroyed. Its methods may be called concurrently.
type Gate interface {
	Enter(ctx context.Context, op string) error
	Leave()
}

// Options are the environment of the open files of all buffers of a daemon. Its functions may be called concurrently.
type Options struct {
	Owners owner.Node
	Store  Store
	NextID func() uint64 // a unique number
	// After returns a number for a generation that follows n, which another daemon may have chosen.
	After func(ctx context.Context, n bb.Generation) (bb.Generation, error)
	// Elsewhere returns the node that new files are made at while this one is being emptied, or "" for this one.
	Elsewhere func() bb.NodeID
	Grace     time.Duration // how long a file stays open for writers that may come back
	Since     time.Time     // when the daemon started
	Go        func(func())  // starts a goroutine that ends soon, or with the daemon
	Log       *slog.Logger
}

// Parts are the other parts of the buffer that its open files need.
type Parts struct {
	Spec      func() bb.Buffer                // its record
	Revisions func() bool                     // an entry's revision orders it among all changes, since the namespace is a log
	Committed func(extents []store.NewExtent) // counts a commit
	Names     Names
	Paths     Paths
	Cache     Cache
	Replicas  Replicator
	Queue     Queue
	Gate      Gate
	// CatchUp follows a late exchange of a file that is not at its place, which is locked, and reports whether there was one.
	CatchUp func(bb.FileID) (moved bool, err error)
}
