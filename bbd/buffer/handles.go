package buffer

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/forward"
	"forebay/bbd/handle"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newHandles makes the part that requests on the files of a buffer use.
func newHandles(b *Buffer) *handle.Buffer {
	h := b.h
	return handle.NewBuffer(b.name, handle.Parts{
		Spec: b.Spec, Owners: h.Owners, Files: b.open, Names: b.ns, Cache: b.cache, Gate: b.gate,
		Memory: b, Segments: b.writers, Lookup: b.paths.Lookup, Tier: b.paths.TierOf, Describe: b.entries.Describe, UsedFrom: b.usedFrom,
		Forward: func(ctx context.Context, c access.Caller, node bb.NodeID, tier bb.Tier, writer uint64, m *wire.Open) (handle.Forwarded, *wire.Opened, error) {
			forwarded, opened, err := b.forward.Open(ctx, c, node, tier, writer, m)
			if err != nil {
				return nil, nil, err // no nil forwarded in an interface
			}
			return forwarded, opened, nil
		},
		Flushed:  func(ctx context.Context, e *bb.Entry) error { return h.Flusher.Wait(ctx, b.key(e)) },
		DirtyAge: h.Settings.DirtyAge,
	})
}

// newForward makes the part that forwards writes to files of a buffer that other nodes own.
func newForward(b *Buffer) *forward.Buffer {
	h := b.h
	return forward.New(b.ctx, forward.Options{
		Cluster: h.Cluster, Leases: h.Store, Inline: h.Settings.Inline, Go: h.Go, Log: h.Log,
	}, b.name, ownerReader{b})
}

// ownerReader reads at the nodes that own a buffer's files, for package forward.
type ownerReader struct{ b *Buffer }

// Layout returns the extents and the size of the generation that m describes.
func (r ownerReader) Layout(ctx context.Context, node bb.NodeID, m *wire.Open) ([]store.MirrorExtent, int64, error) {
	owner, opened, err := r.b.sources.OpenAt(ctx, node, m)
	if err != nil {
		return nil, 0, err
	}
	defer owner.Close()
	there, err := owner.Layout(ctx)
	return there, opened.GetEntry().GetSize(), err
}
