// Package staging copies files from a store into a buffer, and from a buffer to a store, alone or as an
// operation of all daemons. It must never depend on a buffer's storage of bytes, nor run tasks.
package staging

import (
	"context"
	"io/fs"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/store"
	"forebay/bbd/transfer"
	"forebay/bbd/walk"
	"forebay/flusher/backing"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/namespace"
	"forebay/meta/ops"
)

// Buffer is one buffer. Its methods may be called concurrently. They act with the rights of c.
type Buffer interface {
	Spec() bb.Buffer
	Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error)
	// Walk visits a file, or a directory with all below it.
	Walk(ctx context.Context, c access.Caller, op, path string, visit walk.Visitor) error
	MakeDir(ctx context.Context, c access.Caller, path string, mode uint32) error
	SetAttr(ctx context.Context, c access.Caller, op, path string, attr namespace.Attr) error
	// AddXattrs adds extended attributes to those of a file or directory.
	AddXattrs(ctx context.Context, c access.Caller, op, path string, xattrs xattr.List) error
	// Create begins a generation that replaces the file at a path. The error has a NotOwner
	// if only another node may do that.
	Create(ctx context.Context, c access.Caller, path string, mode fs.FileMode) (File, error)
	// Link makes a symbolic link, with the time of modification if that is not zero, or gives the link that is there
	// another target. With an entity tag in flushed, the store has it already.
	Link(ctx context.Context, c access.Caller, path, target string, mtime time.Time, flushed bb.Flushed) error
	// Change calls do, which shows a file, when the buffer is not about to be destroyed.
	Change(ctx context.Context, op string, do func() error) error
	// Pin opens a closed file, and pins its bytes that are in memory.
	Pin(ctx context.Context, c access.Caller, path string) (stage.Pinned, error)
	// Segments returns the writer that fills segments for a user with bytes of a file.
	Segments(ctx context.Context, uid uint32, path string) *alloc.Writer

	// Owner returns the node that decides about a file, and Replica the one that has a second copy, or
	// "" if none has.
	Owner(e *bb.Entry) bb.NodeID
	Replica(e *bb.Entry) bb.NodeID
	// OwnedElsewhere reports whether another node owns a file, and Adoptable whether such a one has nothing to
	// lose there.
	OwnedElsewhere(e *bb.Entry) bool
	Adoptable(e *bb.Entry) bool
}

// NotOwner is the error for a file that another node owns.
type NotOwner interface {
	error
	Owner() bb.NodeID
}

// File is a generation that comes piece by piece, and is shown when it is closed. Its methods but Stage
// are not called concurrently.
type File interface {
	// Stage adds extents, whose bytes are in segments.
	Stage(ctx context.Context, extents []store.NewExtent) error
	StagedSize() int64
	// SetFlushed makes the generation clean from the start.
	SetFlushed(bb.Flushed)
	// AddXattrs adds extended attributes to those of the file when it is closed. A store has them of a generation that
	// is clean.
	AddXattrs(xattr.List)
	Close(ctx context.Context, mtime time.Time) error
	// Cancel drops the generation instead of Close.
	Cancel()
}

// Options are the environment of a Service. Its functions may be called concurrently.
type Options struct {
	Node       bb.NodeID
	Cluster    *cluster.Cluster // nil: this daemon is alone
	Operations *ops.Operations
	Transfers  *transfer.Service
	// Enter returns a buffer that the session's user may enter, Find any buffer. They return bb.NotFound if there is
	// none.
	Enter func(ctx context.Context, v call.Visitor, op, buffer string) (Buffer, error)
	Find  func(ctx context.Context, buffer string) (Buffer, error)
	// Open opens a store for a user on behalf of a buffer.
	Open func(ctx context.Context, c access.Caller, url string, spec bb.Buffer) (backing.Store, error)
	// Sweeping wraps a stage-out's store, so that the leftovers of an earlier attempt are removed
	// (package leftovers).
	Sweeping func(s backing.Store, c access.Caller, root, job string) backing.Store
	// Inside reports whether a path is one of the daemon's own folders, or in or above one.
	Inside func(path string) bool
}

// Service stages. Its methods may be called concurrently.
type Service struct{ o Options }

// New returns a service.
func New(o Options) *Service { return &Service{o} }

// Tasks returns the tasks that a stage begins with.
func Tasks() []ops.Task { return []ops.Task{{ID: planTask}} }

// address returns bb://buffer/path.
func address(b Buffer, path string) string {
	return bb.Address{Buffer: b.Spec().Name, Path: path}.String()
}

func (s *job) address(path string) string { return address(s.b, path) }
