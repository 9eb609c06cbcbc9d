package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/file"
	"forebay/bbd/handle"
	"forebay/bbd/peer"
	"forebay/bbd/replica"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newReplicas makes what keeps second copies of a buffer's files.
func newReplicas(b *buffer) *replica.Buffer {
	d := b.d
	o := replica.Options{
		Owners: b.owners, Store: d.store, Inline: d.cfg.Limits.Inline, NextID: d.ids.Next, Forget: d.flusher.Forget, Go: d.wg.Go, Log: d.log,
	}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return replica.New(d.ctx, o, b.name, replicaFiles{b}, b.ns, b.dirty)
}

// repair makes second copies again that are gone.
func (d *Daemon) repair() {
	replica.Repair(d.ctx, d.cluster, d.cfg.ResumeGrace, func() (all []*replica.Buffer) {
		for _, b := range d.buffers.All() {
			all = append(all, b.replicas)
		}
		return all
	})
}

// replicate records extents of a file whose owner is the daemon that asks.
func (d *Daemon) replicate(ctx context.Context, r *rpc.Request, m *wire.Replicate) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "replicate", m.Buffer)
	if err != nil {
		return nil, err
	}
	extents, written, err := b.handles.NewExtents(ctx, handle.Destination{Session: r.Session(), Path: b.address("")}, r.Data(), m.Extents)
	if err != nil {
		return nil, err
	}
	defer written()
	if m.Parts != 0 {
		if extents, err = clientOf(r.Session()).parts.Join(bb.FileID(m.File), m, extents); err != nil || m.More {
			return &wire.Empty{}, bb.Wrap("replicate", b.address(""), err)
		}
	}
	return &wire.Empty{}, b.replicas.Record(ctx, m, extents)
}

// discard forgets bytes that do not count any more, unless the namespace relies on them.
func (d *Daemon) discard(ctx context.Context, r *rpc.Request, m *wire.Discard) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "discard", m.Buffer)
	if err == nil {
		err = b.replicas.Drop(ctx, r.Session().Peer(), bb.FileID(m.File), bb.Generation(m.Generation))
	}
	return &wire.Empty{}, err
}

// replicaFiles are the files of a buffer, for package replica.
type replicaFiles struct{ b *buffer }

// Spec returns the buffer's record.
func (f replicaFiles) Spec() bb.Buffer { return f.b.Spec() }

// Open returns the files that are being written.
func (f replicaFiles) Open() (all []replica.OpenFile) {
	for _, open := range f.b.open.All() {
		if c, ok := open.Replica().(*secondCopy); ok {
			all = append(all, replicaFile{open, c})
		}
	}
	return all
}

// Pin keeps all of a snapshot in memory.
func (f replicaFiles) Pin(ctx context.Context, e *bb.Entry, snap *store.Snapshot) (*store.Pinned, []store.Extent, error) {
	return f.b.cache.View(e, snap).Pin(ctx, 0, snap.Size())
}

// Stage writes the bytes of extents into memory that is leased in a session with another node.
func (f replicaFiles) Stage(ctx context.Context, s *peer.Session, extents []*wire.NewExtent, bytes [][]byte) ([]*wire.NewExtent, func(), error) {
	staged, err := f.b.forward.Stage(ctx, s, bb.TierMemory, extents, bytes)
	if err != nil {
		return nil, nil, err
	}
	return staged.Extents, staged.Done, nil
}

// ForgetIdle drops the copy of a generation that is kept for readers.
func (f replicaFiles) ForgetIdle(file bb.FileID, n bb.Generation) bool {
	return f.b.cache.ForgetIdle(file, n)
}

// Reserve keeps others from changing what lies at a place, until release is called.
func (f replicaFiles) Reserve(at bb.Place, path string) (release func(), ok bool) {
	return f.b.open.Reserve(at, path)
}

// Requeue queues a dirty file for its flush.
func (f replicaFiles) Requeue(ctx context.Context, e *bb.Entry) { f.b.recovery.Requeue(ctx, e) }

// DropFile forgets all bytes of a file.
func (f replicaFiles) DropFile(e *bb.Entry) { f.b.changes.DropFile(e) }

// ReportLost marks a file lost, and publishes that.
func (f replicaFiles) ReportLost(ctx context.Context, e *bb.Entry) error {
	return f.b.recovery.ReportLost(ctx, e)
}

// replicaFile is a file that is being written, for package replica.
type replicaFile struct {
	of     *file.File
	second *secondCopy
}

// File returns the file's number.
func (r replicaFile) File() bb.FileID { return r.of.ID() }

// Published reports whether the namespace has the generation.
func (r replicaFile) Published() bool { return r.of.Published() }

// Replica returns where the second copy is.
func (r replicaFile) Replica() *replica.Copy { return &r.second.Copy }

// Rereplicate makes the second copy again.
func (r replicaFile) Rereplicate(ctx context.Context) (bytes int64, err error) {
	return r.of.Rereplicate(ctx)
}
