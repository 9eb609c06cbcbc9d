package nslog

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
)

// place is a name in a directory.
type place struct {
	dir  bb.DirID
	name string
}

func (p place) key() []byte { return record.AppendEntryKey(nil, p.dir, p.name) }

// Rename moves a file or a directory, with all that it holds, to a new name, atomically. The cost
// does not depend on its size. It returns Invalid if a directory would come to lie below itself,
// IsDirectory and NotDirectory if a file and a directory would replace each other, NotEmpty if a
// directory would replace one that is not empty, and *namespace.Unfolded if it would replace one
// that a transaction is committed into while the output is not in it yet.
func (e *Engine) Rename(ctx context.Context, srcDir bb.DirID, srcName string, dstDir bb.DirID, dstName string, o namespace.RenameOptions) (namespace.Renamed, error) {
	if err := errors.Join(checkPlace(srcDir, srcName), checkPlace(dstDir, dstName)); err != nil {
		return namespace.Renamed{}, err
	}
	n := renaming{e: e, o: o, src: place{srcDir, srcName}, dst: place{dstDir, dstName}}
	r, err := e.change(ctx, "rename", srcName, func(b *owner.Round) (result, error) {
		n := n
		n.b = b
		return n.run()
	})
	return namespace.Renamed{Entry: r.entry, Replaced: r.replaced}, err
}

// renaming is one attempt to rename.
type renaming struct {
	e        *Engine
	b        *owner.Round
	o        namespace.RenameOptions
	src, dst place
	from, to bb.Entry
	replaces bool
	moved    bb.Entry
}

func (n *renaming) run() (r result, err error) {
	if err := n.read(); err != nil {
		return r, err
	}
	if n.src == n.dst {
		return result{entry: n.from}, nil
	}
	if err := n.allowed(); err != nil {
		return r, err
	}
	if n.from.IsDir() {
		err = n.checkDir()
	} else if n.o.StoreOp && !n.b.UsePaths() {
		err = owner.ErrPostponed
	}
	if err != nil {
		return r, err
	}
	n.move()
	key, value, err := encode(&n.moved)
	if err != nil {
		return r, err
	}
	if n.o.StoreOp {
		if err := n.storeOp(); err != nil {
			return r, err
		}
	}
	n.moved.SetRevision(n.b.StoreEntry(key, value))
	n.b.Remove(n.src.key())
	r.entry = n.moved
	if n.replaces {
		r.replaced = &n.to
	}
	return r, nil
}

// move makes the entry that is at the new place.
func (n *renaming) move() {
	n.moved = n.from
	n.moved.Parent, n.moved.Name = n.dst.dir, n.dst.name
	n.moved.SetBefore(n.kept(), n.attempts())
}

// read looks up both places.
func (n *renaming) read() error {
	src, dst := n.src.key(), n.dst.key()
	if !n.b.Touch(src) || n.src != n.dst && !n.b.Touch(dst) || !n.b.Use(n.dst.dir) {
		return owner.ErrPostponed
	}
	var found bool
	var err error
	switch n.from, found, err = find(n.b.Table, n.src.dir, n.src.name); {
	case err != nil:
		return err
	case !found:
		return notFound("rename", n.src.name)
	case !n.b.Table.HasDir(n.dst.dir):
		return dirGone("rename", n.dst.name)
	}
	n.to, n.replaces, err = find(n.b.Table, n.dst.dir, n.dst.name)
	return err
}

// allowed holds the rules of rename(2) on replacements.
func (n *renaming) allowed() error {
	switch {
	case !n.replaces:
		return nil
	case !n.o.Replace:
		return exists("rename", n.dst.name)
	case n.from.IsDir() && !n.to.IsDir():
		return bb.E(bb.NotDirectory, "rename", n.dst.name, "a directory cannot replace a file")
	case !n.from.IsDir() && n.to.IsDir():
		return bb.E(bb.IsDirectory, "rename", n.dst.name, "a file cannot replace a directory")
	case n.to.Txn != 0:
		return &namespace.Unfolded{ID: n.to.Txn}
	}
	return nil
}

// checkDir checks the conditions of a directory's rename. All of one round but the first wait for
// the next, so that no two of them together make a directory its own ancestor.
func (n *renaming) checkDir() error {
	if !n.b.ChangePaths() || n.replaces && !n.b.Empty(n.to.Dir) {
		return owner.ErrPostponed
	}
	if n.b.Table.Within(n.dst.dir, n.from.Dir) {
		return bb.E(bb.Invalid, "rename", n.src.name, "the new place lies below the directory itself")
	}
	if n.replaces && n.b.Table.Len(n.to.Dir) > 0 {
		return notEmpty("rename", n.dst.name)
	}
	return nil
}

func notEmpty(op, name string) error {
	return bb.E(bb.NotEmpty, op, name, "the directory holds something").WithRemedy("remove what it holds first")
}

// kept returns the object that the store keeps under the new name until the renamed file is flushed
// first. A file that was flushed takes its own object along, in one step of the store.
func (n *renaming) kept() bb.Flushed {
	if !n.replaces || n.moved.IsDir() || n.moved.Flushed.Generation != 0 {
		return bb.Flushed{}
	}
	return n.to.Stored()
}

// attempts returns the objects that flushes may have put under the new name by the time that the
// store has followed. Objects of a file that was never flushed stay under its old name, and are
// removed there. A flushed file takes its object along, if it has replaced the flushed one.
func (n *renaming) attempts() []bb.Content {
	var all []bb.Content
	if n.moved.Flushed.Generation != 0 {
		all = n.moved.Attempts()
	}
	if n.replaces {
		all = bb.AddContents(all, n.to.Unrecorded()...)
	}
	return all
}

func (n *renaming) storeOp() error {
	from, err := pathTo(n.b, n.src)
	if err != nil {
		return err
	}
	to, err := pathTo(n.b, n.dst)
	if err != nil {
		return err
	}
	op := namespace.StoreOp{
		Op: namespace.OpRename, OldPath: from, NewPath: to, File: n.moved.File, IsDir: n.moved.IsDir(),
		Flushed: n.from.Flushed, Left: n.from.Replaced(), Attempts: n.from.Unrecorded(),
	}
	if n.replaces && op.Flushed.Generation != 0 {
		op.Replaced, op.ReplacedAttempts = n.to.Stored(), n.to.Unrecorded()
	}
	n.e.storeOp(n.b, op)
	return nil
}

// pathTo returns the path of a name. The change depends on paths.
func pathTo(b *owner.Round, p place) (string, error) {
	dir, err := b.Table.Path(p.dir)
	if dir == "" {
		return p.name, err
	}
	return dir + "/" + p.name, err
}
