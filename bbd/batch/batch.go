// Package batch follows batch jobs. It begins and ends their records for the hooks of the batch system,
// makes their buffers, and does the remaining work after a job's end. It must never depend on the
// keeping, flushing or copying of bytes.
package batch

import (
	"context"
	"log/slog"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
	records "forebay/meta/batch"
	"forebay/meta/ops"
)

// Buffers are the buffers of the daemon. Its methods may be called concurrently.
type Buffers interface {
	// Buffer returns a buffer. bb.NotFound if there is none.
	Buffer(ctx context.Context, name string) (Buffer, error)
	// Served is Buffer for one that this daemon serves already. It returns false if it does not.
	Served(name string) (Buffer, bool)
	// All returns the buffers that this daemon serves.
	All() []Buffer
	// Create creates a buffer with the rights of c. Missing fields of spec come from the request m.
	Create(ctx context.Context, c access.Caller, spec bb.Buffer, m *wire.Buffer) error
	// MarkOrphan marks a buffer that is active as one that its job has left behind.
	MarkOrphan(ctx context.Context, name string) error
	// Dirty returns the dirty bytes on this node, by buffer.
	Dirty() map[string]int64
	// Backlog returns this node's backlog of flushes of a buffer, and its pace.
	Backlog(name string) flusher.BufferStats
}

// Buffer is one buffer. Its methods may be called concurrently.
type Buffer interface {
	Spec() bb.Buffer
	// Usage returns this daemon's counts of it.
	Usage() *Usage
	// SetDue sets when its job ends. The zero time means that this is not known.
	SetDue(time.Time)
	Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error)
	// Materialize ends the transactions that are decided.
	Materialize(ctx context.Context) error
	// FinishDrain completes the store after all files were flushed by their daemons:
	// directories, renames and removals, for which it waits no longer than patience, and the
	// receipt. bb.Busy if a file is dirty.
	FinishDrain(ctx context.Context, patience time.Duration) error
	// Unsaved calls visit for each file that the store does not have as it is.
	Unsaved(ctx context.Context, visit func(e *bb.Entry, path string) error) error
	// Superseded returns the steps that flush rules have kept from the store, since newer ones are complete.
	Superseded(ctx context.Context) ([]bb.SupersededStep, error)
	// Destroy destroys the buffer if check, which is called while no daemon changes it, returns nil.
	Destroy(ctx context.Context, check func(context.Context) error) error
}

// Options are the environment of a Controller. Its functions may be called concurrently.
type Options struct {
	Node       bb.NodeID
	Instance   bb.InstanceID
	Cluster    *cluster.Cluster // nil: this daemon is alone, and has no batch jobs
	Records    *records.Jobs
	Operations *ops.Operations
	Buffers    Buffers
	// StageTasks returns the tasks that a stage begins with, DrainTasks those of a drain on nodes.
	StageTasks func() []ops.Task
	DrainTasks func(nodes []bb.NodeID) ([]ops.Task, error)
	// StagedAway adds to the status of a stage-in that has ended the files that went with a node.
	StagedAway func(ctx context.Context, c access.Caller, s *ops.Status) error
	Emit       func(bb.Event)
	Log        *slog.Logger
}

// Controller follows the batch jobs of a cluster. Its methods may be called concurrently, Run once.
type Controller struct {
	o   Options
	ctx context.Context // of its background work

	// Buffers of jobs that are gone, and whose usage is not written down yet.
	destroyed struct {
		lockorder.Mutex[lockrank.Leaf]
		list []Buffer
	}

	// Of Run alone.
	later map[string]time.Time // when to check again a job in progress
	late  map[string]bool      // jobs that will end before their dirty bytes here are saved
}

// New returns a controller that works until ctx ends.
func New(ctx context.Context, o Options) *Controller {
	return &Controller{o: o, ctx: ctx, later: map[string]time.Time{}, late: map[string]bool{}}
}

// address returns bb://buffer/path.
func address(buffer, path string) string { return bb.Address{Buffer: buffer, Path: path}.String() }
