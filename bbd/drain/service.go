// Package drain flushes a buffer, or a path and everything below it, on all daemons, waits until the
// store has it, and names the unsaved files. It empties nodes, and has receipts. It must never
// depend on the flush of a file, nor on the place of its bytes.
package drain

import (
	"context"
	"log/slog"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/fate"
	"forebay/bbd/flushrule"
	"forebay/bbd/transfer"
	"forebay/bbd/walk"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/ops"
)

// Buffer is one buffer. Its methods may be called concurrently.
type Buffer interface {
	Spec() bb.Buffer
	Names() Names
	// Path returns where an entry lies now. It returns bb.NotFound if it was removed.
	Path(ctx context.Context, e *bb.Entry) (string, error)
	// DirtyPath returns the path of a file that waits for its flush, or the part of it that is
	// known without the namespace. If nothing is known, it is "".
	DirtyPath(ctx context.Context, file bb.FileID) string
	// Walk visits a file, or a directory with all below it.
	Walk(ctx context.Context, c access.Caller, op, path string, visit walk.Visitor) error
	// Owner returns the node that decides about a file, and OwnedElsewhere reports whether that is another one.
	Owner(e *bb.Entry) bb.NodeID
	OwnedElsewhere(e *bb.Entry) bool
	// Enqueue queues a dirty file of this node for its flush. It may have been renamed, removed or flushed since its entry
	// was looked up.
	Enqueue(ctx context.Context, e *bb.Entry)
	// Rules returns the holds of the buffer's flush rules.
	Rules() *flushrule.Buffer
	// CloseAbandoned closes the files of this node whose writers are gone for good.
	CloseAbandoned(ctx context.Context) error
	// Mend restores the entries of dirty files that the namespace has forgotten. It returns those
	// that it could not restore. mended means that others are queued.
	Mend(ctx context.Context) (left []fate.Unexplained, mended bool, err error)
	// Unasked returns the dirty files in no queue, when an error has kept Mend from an answer.
	Unasked(why error) []fate.Unexplained
	// Materialize waits until a decided transaction is in the namespace.
	Materialize(ctx context.Context, id bb.TxnID) error
}

// Names are the methods of a buffer's namespace that a drain needs.
type Names interface {
	ScanAll(ctx context.Context, visit func(bb.Entry) error) error
	Resolve(ctx context.Context, path string) (bb.Entry, error)
	StoreOps(ctx context.Context) ([]namespace.StoreOp, error)
	Txns(ctx context.Context) ([]bb.Txn, error)
}

// Flusher are the methods of the flusher that a drain needs, whose contracts these are.
type Flusher interface {
	Drain(ctx context.Context, buffer string, progress func(flusher.Progress)) (flusher.Report, error)
	FlushFirst(ctx context.Context, buffer string, keys []flusher.Key, told func(files, bytes int64)) []flusher.Unsaved
	Overwrite(buffer, path string, keys []flusher.Key)
	OpsStuck(buffer, path string) error
}

// Options are the environment of a Service. Its functions may be called concurrently.
type Options struct {
	Node       bb.NodeID
	Epoch      uint64           // this start of the daemon
	Cluster    *cluster.Cluster // nil: this daemon is alone
	Operations *ops.Operations
	Transfers  *transfer.Service
	Flusher    Flusher
	State      *NodeState // of this node
	// Enter returns a buffer that the session's user may enter.
	Enter func(ctx context.Context, v call.Visitor, op, buffer string) (Buffer, error)
	// MoveOut saves this node's only copies. They are flushed, or moved to nodes that have room for
	// them, first of all to those given. Unsaved files are in the progress.
	MoveOut func(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error
	// Store returns the store of a buffer.
	Store func(ctx context.Context, buffer string) (backing.Store, error)
	// Open opens a store for a user on behalf of a buffer.
	Open func(ctx context.Context, c access.Caller, url string, spec bb.Buffer) (backing.Store, error)
	Emit func(bb.Event)
	Log  *slog.Logger
}

// Service drains. Its methods may be called concurrently.
type Service struct{ o Options }

// New returns a service.
func New(o Options) *Service { return &Service{o} }
