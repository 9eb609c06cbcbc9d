package bbd

import (
	"context"
	"io"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/origin"
	"forebay/bbd/owner"
	"forebay/bbd/readcache"
	"forebay/internal/bb"
)

// newSources makes what the files of a buffer are read from that are not in memory.
func newSources(b *buffer) *origin.Sources {
	o := origin.Options{Buffer: b.name, Objects: objects{b}, Entries: b.ns, Go: b.d.wg.Go}
	if b.d.cluster != nil {
		o.Nodes = holders{b.d.cluster, b}
	}
	return origin.New(b.d.ctx, o)
}

// newCache makes what reads of a buffer's files go through.
func newCache(b *buffer) *readcache.Cache {
	d := b.d
	return readcache.New(readcache.Options{
		Buffer: memoryBuffer{b}, Store: d.store, Alloc: d.alloc, Writers: b.writers, Sources: b.sources, Bypass: d.bypass,
		Foreign: b.owners.Foreign, NextID: d.ids.Next, Go: d.wg.Go,
	})
}

// holders are the nodes that have a buffer's files, for package origin.
type holders struct {
	*cluster.Cluster
	b *buffer
}

// Session returns a session of the daemon's own.
func (h holders) Session(ctx context.Context, node bb.NodeID) (origin.Session, error) {
	s, err := h.Cluster.Session(ctx, node, cluster.Who(access.Daemon()))
	if err != nil {
		return nil, err // no nil session in an interface
	}
	return s, nil
}

// Holders returns a file's owner, if that is another node, and the node with its second copy.
func (h holders) Holders(e *bb.Entry) (of, second bb.NodeID) {
	if h.b.owners.Foreign(e) {
		of = h.b.owners.Of(e)
	}
	return of, owner.Replica(e)
}

// Self returns this node.
func (h holders) Self() bb.NodeID { return h.b.d.cfg.Node }

// objects are a buffer's objects on its store, for package origin.
type objects struct{ b *buffer }

// Path returns the path of a file that may have been renamed since its entry was read.
func (o objects) Path(ctx context.Context, e *bb.Entry) (string, error) {
	at := e.Place()
	dir, name, removed, ok := o.b.cache.Where(e.File)
	switch {
	case removed:
		return "", bb.E(bb.NotFound, "read", o.b.address(e.Name), "the file was removed, and its evicted bytes with it")
	case ok:
		at = bb.Place{Dir: dir, Name: name}
	}
	return o.b.pathAt(ctx, at)
}

// FormerNames returns the names that the store may still have a file under.
func (o objects) FormerNames(ctx context.Context, path string) (names []string, away bb.NodeID, err error) {
	return o.b.writeback.FormerNames(ctx, path)
}

// Open opens an object.
func (o objects) Open(ctx context.Context, path, codec string, offset int64) (io.ReadCloser, error) {
	return o.b.d.flusher.Read(ctx, o.b.name, path, codec, offset)
}

// pathAt returns the path of a place now.
func (b *buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.ns.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}
