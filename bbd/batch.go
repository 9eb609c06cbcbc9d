package bbd

import (
	"context"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/batch"
	"forebay/bbd/buffer"
	"forebay/bbd/bufferspec"
	"forebay/bbd/drain"
	"forebay/bbd/staging"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newBatch makes the controller of batch jobs.
func (d *Daemon) newBatch() *batch.Controller {
	return batch.New(d.ctx, batch.Options{
		Node: d.cfg.Node, Instance: d.store.Instance(), Cluster: d.cluster, Records: d.meta.BatchJobs(), Operations: d.meta.Operations(),
		Buffers: jobBuffers{d}, StageTasks: staging.Tasks, DrainTasks: drain.Tasks, StagedAway: d.work.stages.StagedAway, Emit: d.emit, Log: d.log,
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
	return jobBuffer{b, s.d}, nil
}

// Served returns a buffer that this daemon serves already.
func (s jobBuffers) Served(name string) (batch.Buffer, bool) {
	b := s.d.buffers.Served(name)
	return jobBuffer{b, s.d}, b != nil
}

// All returns the buffers that this daemon serves.
func (s jobBuffers) All() []batch.Buffer {
	return ofAll(s.d, func(b *buffer.Buffer) batch.Buffer { return jobBuffer{b, s.d} })()
}

// Create creates a buffer. The files on its store are counted only as far as needed, since each
// node of a job creates it.
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

// Backlog returns this node's backlog of flushes.
func (s jobBuffers) Backlog(name string) flusher.BufferStats { return s.d.flusher.BufferStats(name) }

// jobBuffer is one of jobBuffers.
type jobBuffer struct {
	*buffer.Buffer
	d *Daemon
}

// Materialize ends the transactions that are decided.
func (j jobBuffer) Materialize(ctx context.Context) error { return j.MaterializeAll(ctx) }

// Unsaved visits the files that the store does not have as they are.
func (j jobBuffer) Unsaved(ctx context.Context, visit func(e *bb.Entry, path string) error) error {
	return j.Rules().Unsaved(ctx, func(e *bb.Entry, path string) error {
		if path == "" {
			return nil // removed meanwhile
		}
		return visit(e, path)
	})
}

// Superseded returns the steps that flush rules have kept from the store.
func (j jobBuffer) Superseded(ctx context.Context) ([]bb.SupersededStep, error) {
	return j.Rules().SupersededSteps(ctx)
}

// Destroy destroys the buffer.
func (j jobBuffer) Destroy(ctx context.Context, check func(context.Context) error) error {
	return j.d.work.buffers.DestroyIf(ctx, j.Buffer, check)
}
