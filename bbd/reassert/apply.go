package reassert

import (
	"context"
	"fmt"
	"strings"
	"time"

	"forebay/bbd/fate"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// apply carries a decision out. It returns the entry that the file has now, if it was
// made.
func (b *Buffer) apply(ctx context.Context, inv *fate.Inventory, h *fate.Held, becomes fate.Fate, r *fate.Reassertion) (*bb.Entry, error) {
	left := func(reason string) (*bb.Entry, error) {
		u := fate.Unexplained{File: h.File, Generation: h.Newest, Bytes: h.Resident, Reason: reason}
		if h.Identity != nil {
			u.Path = h.Identity.Path
		}
		b.o.Log.Error("bytes that no entry explains are kept", "buffer", b.name, "path", u.Path, "file", u.File, "bytes", u.Bytes, "reason", reason)
		r.Left = append(r.Left, u)
		return nil, nil
	}
	switch becomes {
	case fate.Drop:
		b.o.Store.Drop(h.File)
		return nil, nil
	case fate.Keep:
		return left("only the store has a part of it, or its entry is another node's")
	case fate.Remake:
		e, path, err := b.remakeEntry(ctx, inv, h)
		if err == nil {
			b.publishFound(&e, path, "the namespace had lost its entry")
			r.Remade = append(r.Remade, path)
			return &e, nil
		}
		if kind := bb.KindOf(err); kind != bb.Exists && kind != bb.NotFound && kind != bb.NotDirectory {
			return nil, err
		}
	}
	e, path, err := b.setAside(ctx, h)
	if err != nil {
		if ctx.Err() != nil || bb.KindOf(err) == bb.Unavailable {
			return nil, err
		}
		return left("it cannot be put below " + bb.LostDir + ": " + err.Error())
	}
	b.publishFound(&e, path, e.Reason)
	r.SetAside = append(r.SetAside, path)
	return &e, nil
}

// entryOf makes the entry that a file had, as far as its identity has it.
func (b *Buffer) entryOf(h *fate.Held) bb.Entry {
	id := h.Identity
	mtime := id.MTime
	if !id.Closed {
		mtime = foundOpen()
	}
	return bb.Entry{
		Parent: id.Dir, Name: id.Name, Type: bb.TypeFile, File: h.File, Generation: id.Generation,
		Size: id.Size, Checksum: id.Checksum, Open: !id.Closed, Holders: []bb.NodeID{b.o.Owners.Self},
		Mode: id.Mode, UID: id.UID, GID: id.GID, MTime: mtime,
	}
}

// remakeEntry restores an entry, or changes it to the generation in memory. A lost
// directory is made again from the path. Exists,
// NotDirectory, NotFound: it cannot have its name.
func (b *Buffer) remakeEntry(ctx context.Context, inv *fate.Inventory, h *fate.Held) (e bb.Entry, path string, err error) {
	e, path = b.entryOf(h), h.Identity.Path
	if old, ok := inv.Entry(h.File); ok {
		e, err = b.names.Update(ctx, old.Parent, old.Name, func(now *bb.Entry) error { return remake(now, &e) })
		if now, err := b.pathAt(ctx, old.Place()); err == nil {
			path = now
		}
		return e, path, err
	}
	if !inv.HasDir(e.Parent) {
		if e.Parent, err = b.restoreParent(ctx, path); err != nil {
			return e, path, err
		}
	} else if now, err := b.pathAt(ctx, e.Place()); err == nil {
		path = now
	}
	err = b.create(ctx, &e)
	return e, path, err
}

// create makes an entry. An existing one may be its own. An earlier attempt made it, and the answer was lost.
func (b *Buffer) create(ctx context.Context, e *bb.Entry) (err error) {
	e.Revision, err = b.names.Create(ctx, *e)
	if bb.KindOf(err) != bb.Exists {
		return err
	}
	if now, lookupErr := b.names.Lookup(ctx, e.Parent, e.Name); lookupErr == nil && now.File == e.File {
		return nil
	}
	return err
}

// remake changes an entry to the generation in memory. An entry that names it already stays as it
// is. The namespace carried an earlier attempt out, and its answer was lost.
func remake(now, e *bb.Entry) error {
	switch {
	case now.File != e.File || now.Generation > e.Generation:
		return bb.E(bb.Busy, "reassert", now.Name, "it was changed meanwhile").WithRemedy("try again")
	case now.Generation == e.Generation:
		return nil
	}
	now.Supersede()
	now.Generation, now.Size, now.Checksum, now.Open = e.Generation, e.Size, e.Checksum, e.Open
	now.Holders, now.MTime, now.Lost, now.Reason = e.Holders, e.MTime, false, ""
	return nil
}

// restoreParent makes the directories of a path that are not there.
func (b *Buffer) restoreParent(ctx context.Context, path string) (bb.DirID, error) {
	names, err := bb.SplitPath(path)
	if err != nil || len(names) == 0 {
		return 0, bb.E(bb.NotFound, "reassert", path, "the directory does not exist any more")
	}
	dir, err := b.names.MkdirAll(ctx, strings.Join(names[:len(names)-1], "/"), b.owner())
	return dir.Dir, err
}

// pathAt returns the path of a place now.
func (b *Buffer) pathAt(ctx context.Context, at bb.Place) (string, error) {
	dir, err := b.names.PathOf(ctx, at.Dir)
	if err != nil {
		return "", err
	}
	return at.In(dir), nil
}

// owner is the owner of directories that are made again, the buffer's.
func (b *Buffer) owner() namespace.Owner {
	spec := b.files.Spec()
	return namespace.Owner{UID: spec.UID, GID: spec.GID, Mode: spec.Mode.Perm()}
}

// setAside makes an entry of a file below bb.LostDir. Its name there has its id, so it is
// unique.
func (b *Buffer) setAside(ctx context.Context, h *fate.Held) (e bb.Entry, path string, err error) {
	private := b.owner()
	private.Mode = 0o700
	dir, err := b.names.MkdirAll(ctx, bb.LostDir, private)
	if err != nil {
		return e, "", err
	}
	if h.Acked != 0 {
		e = b.entryOf(h)
		e.Reason = fmt.Sprintf("the namespace had lost its entry, and %s is another file, or cannot be restored", b.address(h.Identity.Path))
	} else if e, err = b.entryUnknown(h); err != nil {
		return e, "", err
	}
	suffix := "~" + h.File.String()
	e.Parent, e.Name = dir.Dir, e.Name[:min(len(e.Name), bb.MaxName-len(suffix))]+suffix
	err = b.create(ctx, &e)
	return e, bb.LostDir + "/" + e.Name, err
}

// entryUnknown makes an entry of bytes whose place is unknown.
func (b *Buffer) entryUnknown(h *fate.Held) (e bb.Entry, err error) {
	spec, node := b.files.Spec(), b.o.Owners.Self
	e = bb.Entry{
		Name: "unknown", Type: bb.TypeFile, File: h.File, Generation: h.Newest, Holders: []bb.NodeID{node},
		Mode: 0o600, UID: spec.UID, GID: spec.GID, MTime: time.Now(),
		Reason: "its name was in the memory of node " + string(node) + ", which was lost; parts of it may be, too",
	}
	e.Checksum, e.Size, err = b.o.Store.Checksum(h.File, h.Newest)
	return e, err
}

// AsideDir returns the directory of the files that were set aside, or 0 if there is none.
func (b *Buffer) AsideDir(ctx context.Context) (bb.DirID, error) {
	e, err := b.names.Lookup(ctx, bb.RootDir, bb.LostDir)
	if bb.KindOf(err) == bb.NotFound || err == nil && !e.IsDir() {
		return 0, nil
	}
	return e.Dir, err
}
