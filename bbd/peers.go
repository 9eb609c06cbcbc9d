package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/buffer"
	"forebay/bbd/call"
	"forebay/bbd/handle"
	"forebay/bbd/migrate"
	"forebay/bbd/replica"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/bbd/writeback"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Files that daemons move and copy among each other, and the requests that only daemons may make.

// daemonsBuffer is buffer for requests that only daemons may make.
func (d *Daemon) daemonsBuffer(ctx context.Context, r call.Request, op, name string) (*buffer.Buffer, error) {
	if !r.Caller().Relayed || !r.Caller().System {
		return nil, access.Denied(op, bb.Address{Buffer: name}.String(), "send requests that only daemons send")
	}
	return d.buffer(ctx, name)
}

// acceptMigration makes this daemon the owner of a closed file.
func (d *Daemon) acceptMigration(ctx context.Context, r *rpc.Request, m *wire.Take) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "take", m.Buffer)
	if err == nil {
		err = b.Migrations().Accept(ctx, r.Session().Peer(), m)
	}
	return &wire.Empty{}, err
}

// replicate records extents of a file on request of the file's owner.
func (d *Daemon) replicate(ctx context.Context, r *rpc.Request, m *wire.Replicate) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "replicate", m.Buffer)
	if err != nil {
		return nil, err
	}
	address := bb.Address{Buffer: m.Buffer}.String()
	extents, written, err := b.Handles().NewExtents(ctx, handle.Destination{Session: r.Session(), Path: address}, r.Data(), m.Extents)
	if err != nil {
		return nil, err
	}
	defer written()
	if m.Parts != 0 {
		if extents, err = clientOf(r.Session()).parts.Join(bb.FileID(m.File), m, extents); err != nil || m.More {
			return &wire.Empty{}, bb.Wrap("replicate", address, err)
		}
	}
	return &wire.Empty{}, b.Replicas().Record(ctx, m, extents)
}

// discard drops bytes that do not count any more, unless the namespace relies on them.
func (d *Daemon) discard(ctx context.Context, r *rpc.Request, m *wire.Discard) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "discard", m.Buffer)
	if err == nil {
		err = b.Replicas().Drop(ctx, r.Session().Peer(), bb.FileID(m.File), bb.Generation(m.Generation))
	}
	return &wire.Empty{}, err
}

// reconcileFiles compares files of this node with the store, after another daemon has flushed them late.
func (d *Daemon) reconcileFiles(ctx context.Context, r *rpc.Request, m *wire.Recheck) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "reconcile", m.Buffer)
	if err == nil {
		_, err = bb.CleanPath(m.Path)
	}
	if err == nil {
		err = b.Writeback().ReconcileHere(ctx, writeback.Uncertain{Path: m.Path, Tree: m.Tree})
	}
	return &wire.Empty{}, err
}

// repair makes second copies again that are gone.
func (d *Daemon) repair() {
	replica.Repair(d.ctx, d.cluster, d.cfg.ResumeGrace, ofAll(d, (*buffer.Buffer).Replicas))
}

// overflow is the memory of other nodes, for package alloc.
type overflow struct{ d *Daemon }

// FreeElsewhere returns how much memory of other nodes is free.
func (o overflow) FreeElsewhere() int64 { return o.d.cluster.FreeElsewhere() }

// Migrate moves closed files to other nodes, until so many bytes are gone, and returns how many are.
func (o overflow) Migrate(ctx context.Context, bytes int64) int64 {
	return migrate.Free(ctx, o.d.cluster, ofAll(o.d, (*buffer.Buffer).Migrations)(), bytes)
}

// moveAllOut flushes this node's only copies, or moves them to other nodes.
func (d *Daemon) moveAllOut(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	specs, err := d.work.buffers.Specs(ctx)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		b, err := d.buffer(ctx, spec.Name)
		if bb.KindOf(err) == bb.NotFound {
			continue
		}
		if err == nil {
			err = b.Migrations().Empty(ctx, to, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
