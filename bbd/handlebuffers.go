package bbd

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/fabric"
	"forebay/bbd/handle"
	"forebay/bbd/rpc"
	"forebay/bbd/share"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newFileService makes what answers requests on files.
func (d *Daemon) newFileService() *handle.Service {
	l := &d.cfg.Limits
	return handle.New(d.ctx, handle.Options{
		Enter: func(ctx context.Context, s *rpc.Session, op, name string) (*handle.Buffer, error) {
			b, err := d.bufferFor(ctx, s, op, name)
			if err != nil {
				return nil, err
			}
			return b.handles, nil
		},
		BufferOf:  func(b alloc.Buffer) *handle.Buffer { return b.(memoryBuffer).handles },
		Admission: func(s *rpc.Session) *fabric.Admission { return clientOf(s).admission },
		Stopping:  d.server.Closed, Read: d.observe.Read, NextID: d.ids.Next, Store: d.store, Alloc: d.alloc,
		Shares: handle.Shares{
			Files: share.NewPool(int64(l.OpenFiles)), Pins: share.NewPool(d.store.Stats().Memory.Capacity), MaxPinned: d.alloc.MaxLease(),
		},
		Limits: handle.Limits{Handles: l.Handles, Leases: l.Leases, LeaseMin: l.LeaseMin, LeaseMax: l.LeaseMax, Inline: l.Inline},
	})
}

// newHandlesOf makes what requests on the files of a buffer use.
func newHandlesOf(b *buffer) *handle.Buffer {
	d := b.d
	return handle.NewBuffer(b.name, handle.Parts{
		Spec: b.Spec, Owners: b.owners, Files: b.open, Names: b.ns, Cache: b.cache, Gate: b.gate,
		Memory: memoryBuffer{b}, Segments: b.writers, Lookup: b.paths.Lookup, Tier: b.paths.TierOf, Describe: b.entries.Describe, UsedFrom: b.usedFrom,
		Forward: func(ctx context.Context, c access.Caller, node bb.NodeID, tier bb.Tier, writer uint64, m *wire.Open) (handle.Relay, *wire.Opened, error) {
			relay, opened, err := b.forward.Open(ctx, c, node, tier, writer, m)
			if err != nil {
				return nil, nil, err // no nil relay in an interface
			}
			return relay, opened, nil
		},
		Flushed:  func(ctx context.Context, e *bb.Entry) error { return d.flusher.Wait(ctx, b.key(e)) },
		DirtyAge: d.cfg.Flush.DirtyAge,
	})
}
