package buffer

import (
	"context"

	"forebay/bbd/flushrule"
	"forebay/internal/bb"
)

// newRules makes the part that holds back the steps that a buffer's flush rules keep in memory.
func newRules(b *Buffer, spec bb.Buffer) *flushrule.Buffer {
	h := b.h
	return flushrule.New(flushrule.Options{
		Owners: h.Owners, Serves: func(node bb.NodeID) bool { return h.Cluster == nil || h.Cluster.Serves(node) }, Short: h.Short,
		DirtyAge: h.Settings.DirtyAge, Dropped: b.droppedSteps, Emit: h.Emit, Warn: h.Log.Warn,
		Remove: func(ctx context.Context, path string, e *bb.Entry) error { // b.changes is made later
			return b.changes.RemoveUnchanged(ctx, path, e)
		},
		Reconsider: func(paths []string) { h.Flusher.Reconsider(b.name, paths) },
	}, spec, b.dirty, b.paths, b.ns)
}

// droppedSteps counts superseded files that were dropped from memory.
func (b *Buffer) droppedSteps(files, bytes int64) {
	b.h.Observe.Metrics.Dropped(files, bytes)
	b.usage.Dropped(files, bytes)
}
