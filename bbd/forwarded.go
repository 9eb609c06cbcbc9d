package bbd

import (
	"context"

	"forebay/bbd/forward"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newForward makes what forwards writes to files of a buffer that other nodes own.
func newForward(b *buffer) *forward.Buffer {
	d := b.d
	return forward.New(d.ctx, forward.Options{
		Cluster: d.cluster, Leases: d.store, Inline: d.cfg.Limits.Inline, Go: d.wg.Go, Log: d.log,
	}, b.name, ownerReader{b})
}

// ownerReader reads at the nodes that own a buffer's files, for package forward.
type ownerReader struct{ b *buffer }

// Layout returns the extents and the size of what m describes.
func (r ownerReader) Layout(ctx context.Context, node bb.NodeID, m *wire.Open) ([]store.MirrorExtent, int64, error) {
	owner, opened, err := r.b.sources.OpenAt(ctx, node, m)
	if err != nil {
		return nil, 0, err
	}
	defer owner.Close()
	there, err := owner.Layout(ctx)
	return there, opened.GetEntry().GetSize(), err
}
