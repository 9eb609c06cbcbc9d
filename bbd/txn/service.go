// Package txn serves the requests of transactions, and ends those that have no client any
// more. It must never depend on the moving of files, nor on a namespace's record of a transaction.
package txn

import (
	"context"
	"log/slog"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/internal/bb"
	metatxn "forebay/meta/txn"
)

// Buffer is one buffer. Its methods may be called concurrently.
type Buffer interface {
	Spec() bb.Buffer
	Tree() *metatxn.Tree
	Mover() metatxn.Mover
	Materializer() *Materializer
	Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error)
	// MakeDirs creates a directory and those above it. One that is there already is no error.
	MakeDirs(ctx context.Context, c access.Caller, path string, mode uint32) error
	// MaterializeAbove materializes the transactions that are committed into directories above a path.
	MaterializeAbove(ctx context.Context, op, path string) error
	// Flushed waits until the store has the files at a path and below it, in a buffer with that
	// guarantee.
	Flushed(ctx context.Context, c access.Caller, op, path string) error
}

// Options are the environment of a Service. Its functions may be called concurrently.
type Options struct {
	Node    bb.NodeID
	Cluster *cluster.Cluster // nil: this daemon is alone
	// Enter returns a buffer that the session's user may enter.
	Enter func(ctx context.Context, v call.Visitor, op, buffer string) (Buffer, error)
	// Existing returns all existing buffers, also those that only other daemons have served so
	// far. Those before an error are returned with it.
	Existing func(ctx context.Context) ([]Buffer, error)
	Every    time.Duration // how often transactions are looked after; 0: 5 s
	Emit     func(bb.Event)
	Log      *slog.Logger
}

// Service serves the requests of transactions. Its methods may be called concurrently, Reap once.
type Service struct {
	o   Options
	ctx context.Context // of its background work
}

// reapEvery is how often all transactions are looked after, if the options leave it open.
const reapEvery = 5 * time.Second

// New returns a service that works until ctx ends.
func New(ctx context.Context, o Options) *Service {
	if o.Every == 0 {
		o.Every = reapEvery
	}
	return &Service{o: o, ctx: ctx}
}

// address returns bb://buffer/path.
func address(b Buffer, path string) string {
	return bb.Address{Buffer: b.Spec().Name, Path: path}.String()
}
