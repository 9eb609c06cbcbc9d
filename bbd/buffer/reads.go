package buffer

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

// newSources makes the sources of a buffer's bytes that are not in memory.
func newSources(b *Buffer) *origin.Sources {
	o := origin.Options{Buffer: b.name, Objects: objects{b}, Entries: b.ns, Go: b.h.Go}
	if b.h.Cluster != nil {
		o.Nodes = holders{b.h.Cluster, b}
	}
	return origin.New(b.ctx, o)
}

// newCache makes the cache that serves reads of a buffer's files.
func newCache(b *Buffer) *readcache.Cache {
	h := b.h
	return readcache.New(readcache.Options{
		Buffer: b, Store: h.Store, Alloc: h.Alloc, Writers: b.writers, Sources: b.sources, Bypass: h.Bypass,
		OwnedElsewhere: h.Owners.OwnedElsewhere, NextID: h.IDs.Next, Go: h.Go,
	})
}

// holders are the nodes that have a buffer's files, for package origin.
type holders struct {
	*cluster.Cluster
	b *Buffer
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
	if h.b.h.Owners.OwnedElsewhere(e) {
		of = h.b.h.Owners.Of(e)
	}
	return of, owner.Replica(e)
}

// Self returns this node.
func (h holders) Self() bb.NodeID { return h.b.h.Owners.Self }

// objects are a buffer's objects on its store, for package origin.
type objects struct{ b *Buffer }

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
	return o.b.h.Flusher.Read(ctx, o.b.name, path, codec, offset)
}
