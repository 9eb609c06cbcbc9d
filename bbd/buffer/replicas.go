package buffer

import (
	"context"

	"forebay/bbd/file"
	"forebay/bbd/peer"
	"forebay/bbd/replica"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// newReplicas makes the part that keeps second copies of a buffer's files.
func newReplicas(b *Buffer) *replica.Buffer {
	h := b.h
	o := replica.Options{
		Owners: h.Owners, Store: h.Store, Inline: h.Settings.Inline, NextID: h.IDs.Next, Forget: h.Flusher.Forget, Go: h.Go, Log: h.Log,
	}
	if h.Cluster != nil {
		o.Cluster = h.Cluster
	}
	return replica.New(b.ctx, o, b.name, replicaFiles{later{b}}, b.ns, b.dirty)
}

// replicaFiles are the files of a buffer, for package replica.
type replicaFiles struct{ later }

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

// DropFile drops all bytes of a file.
func (f replicaFiles) DropFile(e *bb.Entry) { f.b.changes.DropFile(e) }

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
