// Package change carries out renames and removals in a buffer, of clients and of transactions, at this daemon
// or at the one that owns the file, and pauses conflicting flushes meanwhile. It must never depend on the flush
// of a file, nor on the records that keep the names.
package change

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/peer"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
)

// Renames and removals change the backing store too (contract 8). Each pauses the
// flushes under the names that it changes. One atomic step changes the namespace and notes the
// operation on the store. The flusher carries that out, in
// order, before later flushes of the same names. The note survives a crash.
//
// From the change of the namespace on, the daemon's context is used. The change is completed even
// if its client disconnects, since the daemon's own records of places must follow it.

// Rename renames a file or directory.
func (v *Service) Rename(ctx context.Context, r call.Request, m *wire.Rename) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "rename", m.Buffer)
	if err != nil {
		return nil, err
	}
	if err := b.rename(ctx, *r.Caller(), m.From, m.To, !m.NoReplace); err != nil {
		return nil, err
	}
	if !r.Caller().Relayed { // else the requesting daemon waits
		if err := b.p.Flushed(ctx, *r.Caller(), "rename", paths.Clean(m.To)); err != nil {
			return nil, err
		}
	}
	return &wire.Empty{}, nil
}

func (b *Buffer) rename(ctx context.Context, c access.Caller, fromPath, toPath string, replace bool) error {
	const op = "rename"
	if err := b.p.Paths.MayRename(fromPath, toPath); err != nil {
		return err
	}
	fromDir, fromName, err := b.p.Paths.Parent(ctx, c, op, fromPath)
	if err != nil {
		return err
	}
	toDir, toName, err := b.p.Paths.Parent(ctx, c, op, toPath)
	if err != nil {
		return err
	}
	for _, dir := range []paths.Dir{fromDir, toDir} {
		if !dir.Permits(&c, access.Write) {
			return access.Denied(op, b.address(fromPath), "change the directory")
		}
	}
	return b.onOwner(ctx, c, op, fromPath, bb.Place{Dir: fromDir.ID, Name: fromName}, func(s *peer.Session) error {
		m := &wire.Rename{Buffer: b.name, From: fromPath, To: toPath, NoReplace: !replace}
		_, err := s.Ask(ctx, wire.Type_TYPE_RENAME, m, nil, nil)
		return err
	}, func() error {
		return b.p.Transactions.Do(ctx, func() error {
			return b.renameHere(ctx, fromPath, toPath, bb.Place{Dir: fromDir.ID, Name: fromName}, bb.Place{Dir: toDir.ID, Name: toName}, replace)
		})
	})
}

// renameHere renames a directory, or a file that this node owns.
func (b *Buffer) renameHere(ctx context.Context, fromPath, toPath string, at, target bb.Place, replace bool) (err error) {
	const op = "rename"
	defer func() { err = b.dropped(op, b.address(fromPath), err) }() // once nothing is held any more
	from, to := paths.Clean(fromPath), paths.Clean(toPath)
	if from == to {
		_, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
		return bb.Wrap(op, b.address(fromPath), err)
	}
	held, err := b.o.Flusher.HoldRename(ctx, b.name, from, to)
	if err != nil {
		return bb.Wrap(op, b.address(fromPath), err)
	}
	defer held.Release()

	release, err := b.holdOthers(ctx, at, target, from, to)
	if err != nil {
		return bb.Wrap(op, b.address(fromPath), err)
	}
	defer release()
	// Bytes for readers are saved before the places are locked. That may wait for room, which the
	// writers of these files may have to make.
	if err := b.saveReadersAt(ctx, target); err != nil {
		return bb.Wrap(op, b.address(toPath), err)
	}
	if err := b.p.Gate.Enter(ctx, op); err != nil {
		return err
	}
	defer b.p.Gate.Leave()
	defer b.p.Files.Lock(at, target)()
	e, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
	if err != nil {
		return bb.Wrap(op, b.address(fromPath), err)
	}
	if b.o.Owners.OwnedElsewhere(&e) && !owner.Adoptable(&e) {
		return owner.Changed(op, b.address(fromPath))
	}
	if err := ctx.Err(); err != nil {
		return bb.Wrap(op, b.address(fromPath), err)
	}
	ctx = b.ctx
	concerned := b.p.Spec().Backing != "" && (held.Orphan || b.p.Follows(&e, from))
	renamed, err := b.p.Names.Rename(ctx, at.Dir, at.Name, target.Dir, target.Name, namespace.RenameOptions{Replace: replace, StoreOp: concerned})
	if err != nil {
		return bb.Wrap(op, b.address(fromPath), err)
	}
	flushes := "" // the object of a symbolic link is not compressed
	if e.Type == bb.TypeFile {
		flushes = b.p.Spec().Codec
	}
	held.Renamed(e.File, e.Flushed, flushes)
	b.moved(at, target, to, &renamed)
	b.p.Replicas.DiscardReplaced(ctx, renamed.Replaced)
	if concerned {
		if err := b.p.Store.ReplayStoreOps(ctx); err != nil {
			return bb.MaybeDone(bb.Wrap(op, b.address(fromPath), err))
		}
	}
	b.o.Emit(bb.Event{Kind: bb.EventRenamed, Buffer: b.name, Path: to, Reason: "from " + from})
	return nil
}

// saveReadersAt is readcache.Cache.SaveReaders of the file that has a name, before it is replaced or removed.
func (b *Buffer) saveReadersAt(ctx context.Context, at bb.Place) error {
	e, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return b.p.Cache.SaveReaders(ctx, e.File, 0)
}

// moved updates the daemon's records of places after a rename. Open files at both are locked.
func (b *Buffer) moved(at, target bb.Place, path string, renamed *namespace.Renamed) {
	e := &renamed.Entry
	b.p.Files.Move(at, target, path)
	if !e.IsDir() {
		b.p.Dirty.Change(e.File, func(f *dirty.File) { f.At = target })
		b.p.Cache.Renamed(e.File, target.Dir, target.Name)
		b.p.Files.IdentifyAt(e, path)
	}
	if old := renamed.Replaced; old != nil && !old.IsDir() {
		b.DropFile(old)
	}
}

// pathOrName returns the path of a place, or its name if the directory is gone.
func (b *Buffer) pathOrName(at bb.Place) string {
	path, err := b.pathAt(b.ctx, at)
	if err != nil {
		return at.Name
	}
	return path
}

// dropped ends a removal, or a rename that may have replaced a file. Bytes on the disk tier do not
// come back after a loss of power.
func (b *Buffer) dropped(op, address string, err error) error {
	if err != nil {
		return err
	}
	return bb.MaybeDone(bb.Wrap(op, address, b.o.Store.SyncDrops(b.ctx)))
}

// DropFile drops the bytes of a file without an entry. Readers that have it open
// keep them.
func (b *Buffer) DropFile(e *bb.Entry) {
	b.p.Cache.Removed(e.File)
	b.p.Dirty.Forget(e.File, e.Generation)
	b.o.Flusher.Forget(flusher.Key{Buffer: b.name, File: e.File, Generation: e.Generation})
	b.o.Store.Drop(e.File)
	b.p.Replicas.Discard(owner.Replica(e), e.File, 0)
}

// Remove removes a file, an empty directory, or a tree.
func (v *Service) Remove(ctx context.Context, r call.Request, m *wire.Remove) (proto.Message, error) {
	b, err := v.o.Enter(ctx, r, "remove", m.Buffer)
	if err != nil {
		return nil, err
	}
	if err := b.p.Paths.MayRemove(ctx, m.Path); err != nil {
		return nil, err
	}
	if m.Recursive && m.Page > 0 {
		p := &removePage{most: m.Page}
		err := b.removeAll(ctx, *r.Caller(), paths.Clean(m.Path), p)
		return p.answer(paths.Partly(err))
	}
	if m.Recursive {
		err = paths.Partly(b.removeAll(ctx, *r.Caller(), paths.Clean(m.Path), nil))
	} else {
		err = b.Remove(ctx, *r.Caller(), m.Path)
	}
	if err != nil {
		return nil, err
	}
	return &wire.Empty{}, nil
}

// Remove removes a file or an empty directory of any owner, with the rights of a caller.
func (b *Buffer) Remove(ctx context.Context, c access.Caller, path string) error {
	const op = "remove"
	dir, name, err := b.p.Paths.Parent(ctx, c, op, path)
	if err != nil {
		return err
	}
	if !dir.Permits(&c, access.Write) {
		return access.Denied(op, b.address(path), "change the directory")
	}
	at := bb.Place{Dir: dir.ID, Name: name}
	return b.onOwner(ctx, c, op, path, at, func(s *peer.Session) error {
		_, err := s.Ask(ctx, wire.Type_TYPE_REMOVE, &wire.Remove{Buffer: b.name, Path: path}, nil, nil)
		return err
	}, func() error {
		return b.p.Transactions.Do(ctx, func() error { return b.removeHere(ctx, path, at, expected{}) })
	})
}

// removeHere removes an empty directory, or a file that this node owns, if it is the expected one.
func (b *Buffer) removeHere(ctx context.Context, path string, at bb.Place, want expected) (err error) {
	const op = "remove"
	defer func() { err = b.dropped(op, b.address(path), err) }() // once nothing is held any more
	p := paths.Clean(path)
	held, err := b.o.Flusher.Hold(ctx, b.name, p)
	if err != nil {
		return bb.Wrap(op, b.address(path), err)
	}
	defer held.Release()
	if err := b.saveReadersAt(ctx, at); err != nil {
		return bb.Wrap(op, b.address(path), err)
	}
	defer b.p.Files.Lock(at)()
	e, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
	if err != nil {
		return bb.Wrap(op, b.address(path), err)
	}
	if !want.fits(&e, p) {
		return bb.E(bb.NotFound, op, b.address(path), "it has been replaced")
	}
	if b.o.Owners.OwnedElsewhere(&e) && !owner.Adoptable(&e) {
		return owner.Changed(op, b.address(path))
	}
	if err := ctx.Err(); err != nil {
		return bb.Wrap(op, b.address(path), err)
	}
	ctx = b.ctx
	concerned := b.p.Spec().Backing != "" && (held.Orphan || b.p.Follows(&e, p))
	o := namespace.RemoveOptions{StoreOp: concerned}
	if want.id != 0 {
		o.Revision = e.Revision
	}
	e, err = b.p.Names.Remove(ctx, at.Dir, at.Name, o)
	if err != nil {
		return bb.Wrap(op, b.address(path), err)
	}
	if !e.IsDir() {
		b.p.Files.Unlink(at)
		b.DropFile(&e)
	}
	if concerned {
		if err := b.p.Store.ReplayStoreOps(ctx); err != nil {
			return bb.MaybeDone(bb.Wrap(op, b.address(path), err))
		}
	}
	b.o.Emit(bb.Event{Kind: bb.EventRemoved, Buffer: b.name, Path: p})
	return nil
}

// removeAll removes a tree, deepest first, page by page. It can be repeated after
// any failure. The root itself stays when it is the target. It ends with errPage once
// the page, if there is one, is full.
func (b *Buffer) removeAll(ctx context.Context, c access.Caller, path string, p *removePage) error {
	isDir := false
	for {
		e, v, err := b.p.Paths.LookupUnion(ctx, c, "remove", path)
		if err != nil {
			return err
		}
		if e.Txn != 0 {
			if err := b.p.Transactions.Wait(ctx, e.Txn); err != nil {
				return err
			}
			continue // to its present entries
		}
		if isDir = e.IsDir(); !isDir {
			break
		}
		room := p.room()
		if room == 0 {
			return errPage
		}
		entries, more, err := b.p.Names.ListUnion(ctx, v, "", room)
		if err != nil {
			return bb.Wrap("remove", b.address(path), err)
		}
		if err := b.removeEntries(ctx, c, path, entries, p); err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if path == "" {
		return nil
	}
	return p.count(isDir, b.Remove(ctx, c, path))
}

// removeAtOnce is how many files of a directory are removed at a time. The namespace makes one
// change of those that meet.
const removeAtOnce = 64

// removeEntries removes entries of a directory: its files many at a time, then its directories
// one after the other.
func (b *Buffer) removeEntries(ctx context.Context, c access.Caller, dir string, entries []bb.Entry, p *removePage) error {
	var dirs []string
	files, filesCtx := errgroup.WithContext(ctx)
	files.SetLimit(removeAtOnce)
	for i := range entries {
		child := strings.TrimPrefix(dir+"/"+entries[i].Name, "/")
		if entries[i].IsDir() {
			dirs = append(dirs, child)
			continue
		}
		files.Go(func() error { return ifPresent(p.count(false, b.Remove(filesCtx, c, child))) })
	}
	err := files.Wait()
	for i := 0; i < len(dirs) && err == nil; i++ {
		err = ifPresent(b.removeAll(ctx, c, dirs[i], p))
	}
	return err
}

// ifPresent is the error of a removal that ignores absent files.
func ifPresent(err error) error {
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}
