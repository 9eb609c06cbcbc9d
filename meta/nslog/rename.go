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
	if err := namespace.MayReplace(&n.from, n.replaced(), n.o); err != nil {
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
	n.moved = namespace.Move(&n.from, bb.Place{Dir: n.dst.dir, Name: n.dst.name}, n.replaced())
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
	r.replaced = n.replaced()
	return r, nil
}

// replaced returns the entry that is replaced, or nil if none is.
func (n *renaming) replaced() *bb.Entry {
	if !n.replaces {
		return nil
	}
	return &n.to
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

func (n *renaming) storeOp() error {
	from, err := pathTo(n.b, n.src)
	if err != nil {
		return err
	}
	to, err := pathTo(n.b, n.dst)
	if err != nil {
		return err
	}
	n.e.storeOp(n.b, namespace.MoveOp(&n.from, from, to, n.replaced()))
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
