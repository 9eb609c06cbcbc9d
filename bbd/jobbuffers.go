package bbd

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/batch"
	"forebay/bbd/bufferspec"
	"forebay/bbd/drain"
	"forebay/bbd/staging"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// newBatch makes what follows batch jobs.
func (d *Daemon) newBatch() *batch.Controller {
	return batch.New(d.ctx, batch.Options{
		Node: d.cfg.Node, Instance: d.store.Instance(), Cluster: d.cluster, Records: d.meta.BatchJobs(), Operations: d.meta.Operations(),
		Buffers: jobBuffers{d}, Transfers: jobTransfers{d}, Emit: d.emit, Log: d.log,
	})
}

// jobBuffers are the daemon's buffers, for package batch.
type jobBuffers struct{ d *Daemon }

// Buffer returns a buffer.
func (s jobBuffers) Buffer(ctx context.Context, name string) (batch.Buffer, error) {
	b, err := s.d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	return jobBuffer{b}, nil
}

// Served returns a buffer that this daemon serves already.
func (s jobBuffers) Served(name string) (batch.Buffer, bool) {
	b := s.d.buffers.Served(name)
	return jobBuffer{b}, b != nil
}

// All returns the buffers that this daemon serves.
func (s jobBuffers) All() (all []batch.Buffer) {
	for _, b := range s.d.buffers.All() {
		all = append(all, jobBuffer{b})
	}
	return all
}

// Create creates a buffer. Of what its store has already no more is counted than is needed: each node
// of a job creates it.
func (s jobBuffers) Create(ctx context.Context, c access.Caller, spec bb.Buffer, m *wire.Buffer) error {
	bufferspec.Complete(&spec, m, time.Now())
	_, _, err := s.d.work.buffers.CreateFor(ctx, c, spec, 1)
	return err
}

// MarkOrphan marks an active buffer as an orphan.
func (s jobBuffers) MarkOrphan(ctx context.Context, name string) error {
	spec, err := s.d.meta.Buffer(ctx, name)
	if err != nil || spec.State != bb.BufferActive {
		return nil
	}
	spec.State = bb.BufferOrphan
	_, err = s.d.meta.UpdateBuffer(ctx, spec)
	return err
}

// Dirty returns the dirty bytes on this node, by buffer.
func (s jobBuffers) Dirty() map[string]int64 {
	dirty := map[string]int64{}
	for name, b := range s.d.store.Stats().Buffers {
		dirty[name] = b.Dirty
	}
	return dirty
}

// Backlog returns what this node has yet to flush.
func (s jobBuffers) Backlog(name string) flusher.BufferStats { return s.d.flusher.BufferStats(name) }

// jobBuffer is one of jobBuffers.
type jobBuffer struct{ b *buffer }

// Spec returns the buffer's record.
func (j jobBuffer) Spec() bb.Buffer { return j.b.Spec() }

// Usage returns what was counted of the buffer.
func (j jobBuffer) Usage() *batch.Usage { return &j.b.usage }

// SetDue sets when the buffer's job ends.
func (j jobBuffer) SetDue(due time.Time) {
	if due.IsZero() {
		j.b.due.Store(0)
	} else {
		j.b.due.Store(due.UnixNano())
	}
}

// Lookup returns an entry as readers see it.
func (j jobBuffer) Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error) {
	return j.b.paths.Lookup(ctx, c, op, path)
}

// Materialize ends the transactions that are decided.
func (j jobBuffer) Materialize(ctx context.Context) error {
	return j.b.d.work.drains.Materialize(ctx, drainBuffer{j.b})
}

// FinishDrain saves what a drain of all daemons saves after the files.
func (j jobBuffer) FinishDrain(ctx context.Context, patience time.Duration) error {
	return j.b.d.work.drains.Finish(ctx, drainBuffer{j.b}, patience)
}

// Unsaved visits the files that the store does not have as they are.
func (j jobBuffer) Unsaved(ctx context.Context, visit func(e *bb.Entry, path string) error) error {
	return j.b.rules.Unsaved(ctx, func(e *bb.Entry, path string) error {
		if path == "" {
			return nil // removed meanwhile
		}
		return visit(e, path)
	})
}

// Destroy destroys the buffer.
func (j jobBuffer) Destroy(ctx context.Context, check func(context.Context) error) error {
	return j.b.d.work.buffers.DestroyIf(ctx, j.b, check)
}

// jobTransfers are stages and drains, for package batch.
type jobTransfers struct{ d *Daemon }

// StageTasks returns the tasks that a stage begins with.
func (jobTransfers) StageTasks() []ops.Task { return staging.Tasks() }

// DrainTasks returns the tasks of a drain.
func (jobTransfers) DrainTasks(nodes []bb.NodeID) ([]ops.Task, error) { return drain.Tasks(nodes) }

// StagedAway adds the files that went with a node.
func (t jobTransfers) StagedAway(ctx context.Context, c access.Caller, s *ops.Status) error {
	return t.d.work.stages.StagedAway(ctx, c, s)
}
