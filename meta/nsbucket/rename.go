package nsbucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/cache"
	"forebay/meta/nsbucket/record"
	"forebay/meta/retry"
)

// Rename moves a file or a directory, with all that it holds, to a new name, in one atomic batch of
// any content. It returns Invalid if a directory would come to lie below itself, IsDirectory and
// NotDirectory if a file and a directory would replace each other, NotEmpty if a directory would
// replace one that is not empty, and *Unfolded if it would replace one that a transaction is
// committed into while the output is not in it yet.
//
// All renames of directories in a buffer go one after the other. Each expects, and rewrites, the
// paths key, which it reads before it climbs from the new place to the root. So no two of them can
// together make a directory its own ancestor.
func (ns *Namespace) Rename(ctx context.Context, srcDir bb.DirID, srcName string, dstDir bb.DirID, dstName string, o namespace.RenameOptions) (namespace.Renamed, error) {
	if err := errors.Join(checkPlace(srcDir, srcName), checkPlace(dstDir, dstName)); err != nil {
		return namespace.Renamed{}, err
	}
	src, dst := entryID{srcDir, srcName}, entryID{dstDir, dstName}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		r, err := ns.tryRename(ctx, src, dst, o)
		if !errors.Is(err, kv.ErrRevision) {
			return r, kv.Wrap("rename", srcName, err)
		}
		ns.entries.Forget(src)
		ns.entries.Forget(dst)
		ns.dirs.Forget(dstDir)
	}
	return namespace.Renamed{}, kv.Wrap("rename", srcName, kv.ErrRevision)
}

// rename is one attempt: the records that were read, and the batch that they lead to.
type rename struct {
	ns       *Namespace
	src, dst entryID
	from, to cache.Known[bb.Entry]
	moved    bb.Entry
	dstSeq   uint64 // revision of the record of the directory that it goes to

	changes []kv.Change
	entries []entryChange
	dirs    []dirChange
}

func (ns *Namespace) tryRename(ctx context.Context, src, dst entryID, o namespace.RenameOptions) (namespace.Renamed, error) {
	r := &rename{ns: ns, src: src, dst: dst}
	if err := r.read(ctx); err != nil {
		return namespace.Renamed{}, err
	}
	if src == dst {
		return namespace.Renamed{Entry: r.from.Value}, nil
	}
	if err := namespace.MayReplace(&r.from.Value, r.replaced(), o); err != nil {
		return namespace.Renamed{}, err
	}
	if r.from.Value.IsDir() {
		done := ns.known.renaming()
		err := r.plan(ctx, o)
		if err == nil {
			err = ns.commit(ctx, r.changes, r.entries, r.dirs)
		}
		done(err)
		return r.result(err)
	}
	if err := r.plan(ctx, o); err != nil {
		return namespace.Renamed{}, err
	}
	return r.result(ns.commit(ctx, r.changes, r.entries, r.dirs))
}

func (r *rename) result(err error) (namespace.Renamed, error) {
	if err != nil {
		return namespace.Renamed{}, err
	}
	return namespace.Renamed{Entry: r.moved, Replaced: r.replaced()}, nil
}

// read reads both places and clears a mark of removal of the new directory.
func (r *rename) read(ctx context.Context) error {
	var err error
	if r.from, err = r.ns.load(ctx, r.src.dir, r.src.name); err != nil {
		return err
	}
	if !r.from.Live {
		return bb.E(bb.NotFound, "rename", r.src.name, "there is no such file or directory")
	}
	seq, gone, err := r.ns.settledDir(ctx, r.dst.dir)
	if err != nil {
		return err
	}
	if gone {
		return dirGone("rename", r.dst.name)
	}
	r.dstSeq = seq
	r.to, err = r.ns.load(ctx, r.dst.dir, r.dst.name)
	return err
}

// plan makes the batch:
//
//	e.NEW    the entry                       as it was read: not there, or replaced
//	x.check  checks that d.NEWDIR is as it was read, not marked
//	d.DIR    of a directory: its new place   as it was read
//	x.paths  of a directory                  as it was read before the climb
//	d.OLD    of a replaced empty directory: deleted, as it was marked
//	o.ID     the StoreOp                     checks x.paths
//	e.OLD    deleted, last                   as it was read; names the file that was replaced
func (r *rename) plan(ctx context.Context, o namespace.RenameOptions) error {
	r.moved = namespace.Move(&r.from.Value, bb.Place{Dir: r.dst.dir, Name: r.dst.name}, r.replaced())
	key := record.EntryKey(r.dst.dir, r.dst.name)
	data, err := record.SealEntry(key, &r.moved)
	if err != nil {
		return err
	}
	r.entries = append(r.entries, entryChange{r.dst, len(r.changes), &r.moved})
	r.changes = append(r.changes, kv.Change{Key: key, Data: data, Expected: r.to.Seq})
	if r.dst.dir != bb.RootDir {
		r.changes = append(r.changes, kv.Check(record.DirKey(r.dst.dir), r.dstSeq))
	}
	if r.moved.IsDir() {
		if err := r.planDir(ctx, o); err != nil {
			return err
		}
	}
	if o.StoreOp {
		op, err := r.ns.renameOp(ctx, r)
		if err != nil {
			return err
		}
		r.changes = append(r.changes, op)
	}
	r.entries = append(r.entries, entryChange{r.src, len(r.changes), nil})
	// The replaced entry leaves no marker of its own.
	r.changes = append(r.changes, kv.Change{Key: record.EntryKey(r.src.dir, r.src.name), Expected: r.from.Seq, Gone: r.to.Value.File})
	return nil
}

// replaced returns the entry that is replaced, or nil if none is.
func (r *rename) replaced() *bb.Entry {
	if !r.to.Live {
		return nil
	}
	return &r.to.Value
}

func (r *rename) planDir(ctx context.Context, o namespace.RenameOptions) error {
	dir := r.moved.Dir
	paths, err := r.ns.paths(ctx)
	if err != nil {
		return err
	}
	place, c, err := r.ns.moveDir(ctx, r.src.dir, &r.moved, bb.E(bb.Invalid, "rename", r.src.name, "the new place lies below the directory itself"))
	if err != nil {
		return err
	}
	r.dirs = append(r.dirs, dirChange{dir, len(r.changes), place})
	r.changes = append(
		r.changes, c,
		kv.Change{Key: record.PathsKey, Data: strconv.AppendUint(nil, uint64(dir), 16), Expected: paths},
	)
	if !r.to.Live {
		return nil
	}
	marked, err := r.ns.markEmpty(ctx, "rename", &r.to.Value)
	if err != nil {
		return err
	}
	r.dirs = append(r.dirs, dirChange{r.to.Value.Dir, len(r.changes), nil})
	r.changes = append(r.changes, kv.Change{Key: record.DirKey(r.to.Value.Dir), Expected: marked})
	return nil
}

// moveDir returns the record of a directory at its new place, and the change that stores it. Invalid is the error if the new
// place lies below the directory itself. From is the directory that it leaves.
func (ns *Namespace) moveDir(ctx context.Context, from bb.DirID, moved *bb.Entry, invalid error) (*record.Directory, kv.Change, error) {
	if from != moved.Parent {
		below, err := ns.within(ctx, moved.Parent, moved.Dir)
		if err != nil {
			return nil, kv.Change{}, gone(err) // removed meanwhile, which the next attempt finds
		}
		if below {
			return nil, kv.Change{}, invalid
		}
	}
	c, err := ns.fetchDir(ctx, moved.Dir)
	if err == nil && !c.Live {
		err = kv.ErrRevision
	}
	if err != nil {
		return nil, kv.Change{}, err
	}
	place := &record.Directory{Parent: moved.Parent, Name: moved.Name, Rest: c.Value.Rest}
	data, err := record.SealDir(moved.Dir, *place)
	return place, kv.Change{Key: record.DirKey(moved.Dir), Data: data, Expected: c.Seq}, err
}

// renameOp makes the StoreOp of a rename. Of a directory, the batch itself expects the paths key as
// it was before. The paths are then checked against that.
func (ns *Namespace) renameOp(ctx context.Context, r *rename) (kv.Change, error) {
	from, paths, err := ns.pathOf(ctx, r.src.dir)
	if err != nil {
		return kv.Change{}, gone(err)
	}
	to, again, err := ns.pathOf(ctx, r.dst.dir)
	if err != nil {
		return kv.Change{}, gone(err)
	}
	if paths != again {
		return kv.Change{}, kv.ErrRevision
	}
	op := namespace.MoveOp(&r.from.Value, join(from, r.src.name), join(to, r.dst.name), r.replaced())
	c, err := ns.ops.Change(ctx, op, paths)
	if !op.IsDir || err != nil {
		return c, err
	}
	for _, other := range r.changes {
		if other.Key == record.PathsKey && other.Expected != paths {
			return kv.Change{}, kv.ErrRevision
		}
	}
	c.Check, c.Expected = "", c.Own
	return c, nil
}

// gone makes a conflict of a directory that was removed while it was used.
func gone(err error) error {
	if errors.Is(err, bb.NotFound) {
		return fmt.Errorf("%w: %w", kv.ErrRevision, err)
	}
	return err
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
