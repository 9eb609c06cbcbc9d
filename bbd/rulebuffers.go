package bbd

import (
	"context"

	"forebay/bbd/flushrule"
	"forebay/internal/bb"
)

// newRules makes what holds back the steps that a buffer's flush rules keep in memory.
func newRules(b *buffer, spec bb.Buffer) *flushrule.Buffer {
	d := b.d
	return flushrule.New(flushrule.Options{
		Owners: b.owners, Serves: func(node bb.NodeID) bool { return d.cluster == nil || d.cluster.Serves(node) }, Short: d.pressure.Load,
		DirtyAge: d.cfg.Flush.DirtyAge, Dropped: d.observe.Metrics.Dropped, Emit: d.emit, Warn: d.log.Warn,
		Remove: func(ctx context.Context, path string, e *bb.Entry) error { // b.changes is made later
			return b.changes.RemoveUnchanged(ctx, path, e)
		},
		Reconsider: func(paths []string) { d.flusher.Reconsider(b.name, paths) },
	}, spec, b.dirty, b.paths, b.ns)
}

// holdBack judges and drops the steps of all buffers.
func (d *Daemon) holdBack() {
	flushrule.Run(d.ctx, d.pressure.Load, d.short, func() (all []*flushrule.Buffer) {
		for _, b := range d.buffers.All() {
			all = append(all, b.rules)
		}
		return all
	})
}
