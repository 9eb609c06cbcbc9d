package file

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"forebay/bbd/dedup"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// Commit is a writer's change of a file.
type Commit struct {
	ID      dedup.ID          // of a commit that may be repeated
	Extents []store.NewExtent // in the order written: later ones win
	// Last is the last byte of the least size that the file has afterwards, a zero. It is dropped if the file
	// has that size already, so that it lies over no byte of another writer. Empty: Extents decide.
	Last  []store.NewExtent
	MTime time.Time
}

// extents are those that change a file of a size.
func (c *Commit) extents(size int64) []store.NewExtent {
	if len(c.Last) == 0 || c.Last[0].FileOffset < size {
		return c.Extents
	}
	return slices.Concat(c.Last, c.Extents)
}

// Commit makes extents part of the file and returns its size. They are visible and
// survive this daemon's death when it returns. A commit that is repeated is carried out
// once.
func (f *File) Commit(ctx context.Context, c Commit) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable("sync"); err != nil {
		return 0, err
	}
	if err := f.recordOnce(ctx, c.ID, c.extents(f.visibleSize())); err != nil {
		return 0, err
	}
	f.entry.MTime = c.MTime
	if err := f.publishSynced(ctx); err != nil {
		return 0, err
	}
	return f.in.o.Store.Size(f.file, f.generation)
}

// recordOnce is record of a commit that may be repeated.
func (f *File) recordOnce(ctx context.Context, id dedup.ID, extents []store.NewExtent) error {
	if f.in.commits.Seen(f.file, f.generation, id) {
		return nil
	}
	if err := f.record(ctx, extents); err != nil {
		return err
	}
	f.in.commits.Add(f.file, f.generation, id)
	return nil
}

// record writes the commit records, here and at a second node where the buffer requires
// that, before anything is acknowledged.
func (f *File) record(ctx context.Context, extents []store.NewExtent) error {
	if f.state.committed && len(extents) == 0 {
		if f.stored() != nil || f.second == nil || f.second.Settled(f.size(), f.near) {
			return nil
		}
		return f.replicate(ctx, nil)
	}
	err := f.in.o.Store.Commit(store.Commit{
		File: f.file, Generation: f.generation, Base: f.base, Fresh: f.state.fresh,
		Buffer: f.in.name, Extents: extents,
	})
	if err != nil {
		return bb.Wrap("commit", f.path, err)
	}
	f.state.committed = true
	f.in.p.Committed(extents)
	return f.replicate(ctx, extents)
}

// replicate brings the second copy up to date with a commit, where there is to be one. f is locked.
func (f *File) replicate(ctx context.Context, extents []store.NewExtent) error {
	if f.second == nil {
		return nil
	}
	g := Generation{Entry: f.entry, Path: f.path, Near: f.near}
	g.Entry.Parent, g.Entry.Name, g.Entry.File, g.Entry.Generation = f.at.Dir, f.at.Name, f.file, f.generation
	second, moved, err := f.second.Commit(ctx, &g, extents)
	if err != nil || second == "" {
		return err
	}
	if moved {
		f.published.Store(false) // the next put sends it to the namespace
	}
	f.entry.Holders = []bb.NodeID{f.in.o.Owners.Self, second}
	return nil
}

// publishSynced is publish of a generation that has bytes, which it announces.
func (f *File) publishSynced(ctx context.Context) error {
	was := f.published.Load()
	err := f.publish(ctx)
	if err == nil && !was {
		f.in.p.Queue.Changed(f.path)
	}
	return err
}

// publish puts the generation into the namespace, marked open, if it is not there.
func (f *File) publish(ctx context.Context) error {
	if f.published.Load() {
		return nil
	}
	e := f.entry
	e.Open, e.Generation, e.Checksum, e.Size, e.Lost, e.Reason = true, f.generation, 0, 0, false, ""
	e.Closed = bb.Closing{}
	if err := f.put(ctx, e); err != nil {
		return f.superseded(err)
	}
	f.identify()
	f.published.Store(true)
	return nil
}

// identify writes the identity of the generation: its file and path. The namespace has it by then and the
// writer has no answer yet. So an identity is proof that the namespace acknowledged the generation. An identity
// that was written before would bring back, after a kill in between and later changes of the name, content that
// was never acknowledged.
func (f *File) identify() {
	if err := f.in.identify(&f.entry, f.path, f.writer); err != nil {
		f.in.o.Log.Warn("the identity of a file was not written: the file cannot be restored if the namespace loses it", "path", f.path, "err", err)
	}
}

// superseded abandons the generation if err is that another node's is the file's.
func (f *File) superseded(err error) error {
	if errors.Is(err, ErrSuperseded) && f.state.phase != phaseSuperseded {
		if err := f.in.o.Store.Void(f.file, f.generation); err != nil {
			f.in.o.Log.Warn("a generation was not voided", "path", f.path, "err", err)
		}
		f.advance(eventSuperseded)
		f.in.forget(f)
	}
	return err
}

// put stores the entry, whether or not the namespace has it. It is carried through although the
// client may be gone. A change of unknown outcome would leave the daemon with another state of the
// file than the namespace's.
func (f *File) put(ctx context.Context, e bb.Entry) error {
	if err := ctx.Err(); err != nil {
		return bb.Wrap("commit", f.path, err)
	}
	ctx = f.in.ctx
	wanted := e
	e.Parent, e.Name = f.at.Dir, f.at.Name
	var err error
	if !f.state.exists {
		var revision uint64
		revision, err = f.in.p.Names.Create(ctx, e)
		e.SetRevision(revision)
		f.state.exists = bb.KindOf(err) == bb.Exists && f.in.made(ctx, &e)
		if bb.KindOf(err) == bb.Exists && !f.state.exists && !f.in.o.Owners.Alone && !f.exclusive {
			return ErrSuperseded
		}
	}
	if f.state.exists {
		e, err = f.update(ctx, e)
	}
	if bb.KindOf(err) == bb.NotFound && !f.in.o.Owners.Alone {
		moved, unknown := f.in.p.CatchUp(f.file)
		switch {
		case moved:
			return f.put(ctx, wanted)
		case unknown != nil:
			return bb.Wrap("commit", f.path, unknown)
		}
		if err = f.taken(ctx, err); bb.KindOf(err) == bb.NotFound {
			f.abandon()
		}
	}
	if err != nil {
		return bb.Wrap("commit", f.path, err)
	}
	f.entry, f.state.exists = e, true
	return nil
}

// taken returns notFound if another node has removed, replaced or adopted the file, or named it
// lost. A namespace that has no entry of it, and no mark of a removal, has forgotten it. The
// acknowledged content stays in memory, and lookForForgotten makes the entry again.
func (f *File) taken(ctx context.Context, notFound error) error {
	e, err := f.in.p.Names.LookupAgain(ctx, f.at.Dir, f.at.Name)
	var removed bool
	switch {
	case err == nil:
		removed = e.File != f.file || e.Generation != f.generation || e.Lost || f.in.o.Owners.OwnedElsewhere(&e)
	case bb.KindOf(err) == bb.NotFound:
		removed, err = f.in.p.Names.Removed(ctx, f.at.Dir, f.at.Name, f.file, f.entry.Revision)
	}
	if err != nil || removed {
		return cmp.Or(err, notFound)
	}
	return bb.E(bb.Unavailable, "commit", f.path, "the namespace has lost the file's entry; the file is kept, and its entry is restored").
		WithRemedy("try again in a while; bbctl status lists files that are not restored")
}

// made reports whether the entry at a place is that of the file itself. A session that ended while
// its create was in flight did not receive the success.
func (s *Files) made(ctx context.Context, e *bb.Entry) bool {
	now, err := s.p.Names.Lookup(ctx, e.Parent, e.Name)
	return err == nil && now.File == e.File
}

// update puts an entry whose other attributes may have been changed meanwhile. The writer's
// attributes are taken from e, the rest from the namespace. The generation takes the place of the
// old one, unless it is published already. Another one there is ErrSuperseded, or has taken
// the place of a published one, since its node was declared dead.
func (f *File) update(ctx context.Context, e bb.Entry) (bb.Entry, error) {
	s, old, published := f.in, f.old, f.published.Load()
	return s.p.Names.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		switch {
		case now.File != e.File:
			return bb.E(bb.NotFound, "commit", e.Name, "another file has this name now")
		case now.Generation == e.Generation && s.o.Owners.Of(now) == s.o.Owners.Of(&e) && !now.Lost:
		case published:
			return bb.E(bb.NotFound, "commit", e.Name, "this node's generation of the file was replaced: "+now.Reason)
		case now.Generation != old || now.Open && s.o.Owners.Of(now) != s.o.Owners.Of(&e):
			return ErrSuperseded
		}
		if now.Generation != e.Generation {
			now.Supersede()
		}
		now.Generation, now.Size, now.Checksum, now.Open = e.Generation, e.Size, e.Checksum, e.Open
		now.Holders, now.MTime, now.Lost, now.Reason = e.Holders, e.MTime, e.Lost, e.Reason
		now.Closed = e.Closed
		if e.Flushed.Generation == e.Generation {
			now.SetFlushed(e.Flushed)
		}
		f.addXattrs(now)
		return nil
	})
}
