package buffer

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/dirty"
	"forebay/bbd/file"
	"forebay/bbd/paths"
	"forebay/bbd/replica"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
)

// newOpen makes the part that has the files of a buffer that are open for writing.
func newOpen(b *Buffer) *file.Files {
	h, s := b.h, &b.h.Settings
	return file.New(b.ctx, file.Options{
		Owners: h.Owners, Store: h.Store, NextID: h.IDs.Next, After: h.IDs.After, Elsewhere: h.elsewhere,
		Grace: s.ResumeGrace, Since: s.Since, Go: h.Go, Log: h.Log,
	}, b.name, file.Parts{
		Spec: b.Spec, Revisions: func() bool { return b.log() != nil }, Committed: b.committed,
		Names: b.ns, Paths: filePaths{b.paths}, Cache: b.cache, Replicas: fileReplicas{b}, Queue: fileQueue{b}, Gate: b.gate,
		CatchUp: func(file bb.FileID) (bool, error) { return b.changes.CatchUp(file) }, // b.changes is made later
	})
}

// elsewhere returns the node that new files are made at while this one is being emptied, or "" for this one.
func (h *Host) elsewhere() bb.NodeID {
	if h.Draining() && h.Cluster != nil {
		if nodes := h.Cluster.Candidates(0, ""); len(nodes) > 0 {
			return nodes[0]
		}
	}
	return ""
}

// committed counts a commit.
func (b *Buffer) committed(extents []store.NewExtent) {
	b.usage.Absorbed(b.h.Observe.Committed(extents))
}

// usedFrom notes that another node has opened a file that may have to move. It may be used there
// again. A node "" is none.
func (b *Buffer) usedFrom(file bb.FileID, node bb.NodeID) {
	if node != "" {
		b.dirty.Change(file, func(f *dirty.File) { f.Near = node })
	}
}

// filePaths are the paths of a buffer, for its open files.
type filePaths struct{ *paths.Tree }

// Parent returns the place of a path's last name, and whether the caller may create an entry there.
func (p filePaths) Parent(ctx context.Context, c access.Caller, op, path string) (at bb.Place, mayCreate bool, err error) {
	dir, name, err := p.Tree.Parent(ctx, c, op, path)
	return bb.Place{Dir: dir.ID, Name: name}, dir.Permits(&c, access.Write|access.Execute), err
}

// fileReplicas keep second copies of a buffer's generations, for its open files.
type fileReplicas struct{ b *Buffer }

// Copy returns the copy of a generation that a node is recorded to have, or nil if it is to have none.
func (r fileReplicas) Copy(at bb.NodeID) file.Replica {
	b := r.b
	if b.h.Cluster == nil || at == "" && !b.replicas.Wanted() {
		return nil
	}
	c := &secondCopy{of: b.replicas}
	if at != "" {
		c.Found(b.h.Cluster.Incarnation(at))
	}
	return c
}

// Discard drops a node's bytes of a generation.
func (r fileReplicas) Discard(node bb.NodeID, file bb.FileID, n bb.Generation) {
	r.b.replicas.Discard(node, file, n)
}

// secondCopy is the second copy of a generation that is being written.
type secondCopy struct {
	replica.Copy
	of *replica.Buffer
}

// Commit brings the copy up to date with a commit, where the buffer requires one.
func (c *secondCopy) Commit(ctx context.Context, g *file.Generation, extents []store.NewExtent) (second bb.NodeID, moved bool, err error) {
	if !c.of.Wanted() {
		return "", false, nil
	}
	was := c.At().Node
	whole, err := c.of.Commit(ctx, &c.Copy, (*replica.Generation)(g), extents)
	if err != nil || !whole {
		return "", false, err
	}
	now := c.At().Node
	return now, now != was, nil
}

// Settled reports whether the copy has all that was committed.
func (c *secondCopy) Settled(bytes int64, near bb.NodeID) bool {
	return c.of.Settled(&c.Copy, bytes, near)
}

// HasTargets reports whether a node can get a request to keep a copy.
func (c *secondCopy) HasTargets(bytes int64, near bb.NodeID) bool {
	return c.of.HasTargets(bytes, near)
}

// fileQueue has the closed files of a buffer, for its open ones.
type fileQueue struct{ b *Buffer }

// Changed announces another generation of a file.
func (q fileQueue) Changed(path string) { q.b.announce(path) }

// announce publishes that the entry at a path has changed.
func (b *Buffer) announce(path string) {
	b.h.Emit(bb.Event{Kind: bb.EventChanged, Buffer: b.name, Path: paths.Clean(path)})
}

// Closed queues a closed file for its flush.
func (q fileQueue) Closed(e *bb.Entry, path string, near bb.NodeID, second file.Replica) {
	b := q.b
	b.h.Emit(bb.Event{Kind: bb.EventCommitted, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size})
	b.rules.Note(path) // the flusher does not request a path again for a file that it holds back
	b.writeback.Enqueue(*e, flusher.Item{Key: b.key(e), Size: e.Size})
	b.usedFrom(e.File, near)
	if c, ok := second.(*secondCopy); ok {
		b.dirty.Change(e.File, c.Closed)
	}
}

// Suspect notes that the store may have an object of a file.
func (q fileQueue) Suspect(path string, attempts []bb.Content) {
	q.b.h.Flusher.Suspect(q.b.name, path, attempts)
}
