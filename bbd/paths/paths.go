// Package paths resolves, lists and makes the paths of a buffer with the rights of a caller, as readers see them
// through the transactions that are committed. It must never depend on the place of a file's bytes,
// nor on its owner.
package paths

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/walk"
	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/namespace"
	"forebay/meta/txn"
)

// Names are the required methods of a buffer's namespace, whose contracts these are.
type Names interface {
	walk.Names
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	LookupUnion(ctx context.Context, dir txn.UnionDir, name string) (bb.Entry, txn.UnionDir, error)
	Mkdir(ctx context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error)
	SetAttr(ctx context.Context, dir bb.DirID, name string, a namespace.Attr) (bb.Entry, error)
	KnownDecisions() uint64
	Decisions(ctx context.Context) (uint64, error)
	Txn(ctx context.Context, id bb.TxnID) (bb.Txn, error)
	TxnTask(ctx context.Context, id bb.TxnID, task string) (winner string, err error)
}

// Tree has the paths of one buffer. Its methods may be called concurrently.
type Tree struct {
	spec        func() bb.Buffer
	names       Names
	materialize func(context.Context, bb.TxnID) error
}

// New returns the paths of a buffer. Spec returns its record. Materialize waits until a decided transaction is in its
// place.
func New(spec func() bb.Buffer, names Names, materialize func(context.Context, bb.TxnID) error) *Tree {
	return &Tree{spec, names, materialize}
}

// PermissionBits are the bits of a mode that entries have.
const PermissionBits = fs.FileMode(0o777)

// tries is how often a path is looked up that others change meanwhile.
const tries = 5

func (t *Tree) address(path string) string {
	return bb.Address{Buffer: t.spec().Name, Path: path}.String()
}

// Clean returns the form of a path that names in the store are made of. The path was checked.
func Clean(path string) string {
	p, err := bb.CleanPath(path)
	if err != nil {
		return path
	}
	return p
}

// Dir is a directory with the attributes that decide the right to enter or change it.
type Dir struct {
	ID   bb.DirID
	UID  uint32
	GID  uint32
	Mode fs.FileMode
}

// Permits reports whether a caller has all of some rights to the directory.
func (d *Dir) Permits(c *access.Caller, right access.Right) bool {
	return c.Permits(d.UID, d.GID, d.Mode, right)
}

func (t *Tree) root() Dir {
	spec := t.spec()
	return Dir{bb.RootDir, spec.UID, spec.GID, spec.Mode}
}

// Parent walks to the directory of a path's last name, for a caller that is about to change
// something there, checking that it may enter every directory on the way. Transactions that are
// committed into one of them are materialized first. So nothing is a union any more.
func (t *Tree) Parent(ctx context.Context, c access.Caller, op, path string) (dir Dir, name string, err error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return Dir{}, "", bb.Wrap(op, t.address(path), err)
	}
	if len(names) == 0 {
		return Dir{}, "", bb.E(bb.Invalid, op, t.address(path), "the root directory cannot be the target")
	}
	dir = t.root()
	for _, name := range names[:len(names)-1] {
		if !dir.Permits(&c, access.Execute) {
			return dir, "", access.Denied(op, t.address(path), "search the directory")
		}
		e, err := t.names.Lookup(ctx, dir.ID, name)
		for err == nil && e.Txn != 0 {
			if err = t.materialize(ctx, e.Txn); err == nil {
				e, err = t.names.Lookup(ctx, dir.ID, name)
			}
		}
		if err != nil {
			return dir, "", bb.Wrap(op, t.address(path), err)
		}
		if !e.IsDir() {
			return dir, "", bb.E(bb.NotDirectory, op, t.address(path), name+" is "+e.Type.Noun())
		}
		dir = Dir{e.Dir, e.UID, e.GID, e.Mode}
	}
	if !dir.Permits(&c, access.Execute) {
		return dir, "", access.Denied(op, t.address(path), "search the directory")
	}
	return dir, names[len(names)-1], nil
}

// Lookup finds the entry of a path as readers see it. The root directory has one too.
func (t *Tree) Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error) {
	e, _, err := t.LookupUnion(ctx, c, op, path)
	return e, err
}

// LookupUnion is Lookup that also returns how a directory's entries are looked up.
func (t *Tree) LookupUnion(ctx context.Context, c access.Caller, op, path string) (e bb.Entry, v txn.UnionDir, err error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, v, bb.Wrap(op, t.address(path), err)
	}
	for range tries {
		e, v, err = t.lookupOnce(ctx, c, op, path, names)
		if !errors.Is(err, namespace.ErrConflict) {
			break
		}
	}
	return e, v, err
}

func (t *Tree) lookupOnce(ctx context.Context, c access.Caller, op, path string, names []string) (bb.Entry, txn.UnionDir, error) {
	root := t.root()
	e := bb.Entry{Type: bb.TypeDirectory, Dir: root.ID, UID: root.UID, GID: root.GID, Mode: root.Mode, MTime: t.spec().Created}
	v := txn.RootUnion()
	for i, name := range names {
		switch {
		case !e.IsDir():
			return e, v, bb.E(bb.NotDirectory, op, t.address(path), names[i-1]+" is "+e.Type.Noun())
		case !c.Permits(e.UID, e.GID, e.Mode, access.Execute):
			return e, v, access.Denied(op, t.address(path), "search the directory")
		}
		var err error
		if e, v, err = t.names.LookupUnion(ctx, v, name); err != nil {
			return e, v, bb.Wrap(op, t.address(path), err)
		}
	}
	return e, v, nil
}

// Walk visits a file, or a directory with all below it, with the rights of a caller.
func (t *Tree) Walk(ctx context.Context, c access.Caller, op, path string, visit walk.Visitor) error {
	e, v, err := t.LookupUnion(ctx, c, op, path)
	switch {
	case err != nil:
		return err
	case e.IsDir():
		w := walk.Walk{Names: t.names, Buffer: t.spec().Name, Caller: c, Visit: visit}
		return w.Tree(ctx, path, &e, v)
	case visit.File != nil:
		return visit.File(path, &e)
	}
	return nil
}

// List returns a page of a directory: at most limit entries after a name, and whether more follow. A page that is
// the first one shows all of a transaction or nothing. If a transaction was decided meanwhile, it
// reads again.
func (t *Tree) List(ctx context.Context, c access.Caller, path, after string, limit int) (entries []bb.Entry, more bool, err error) {
	const op = "list"
	for range tries {
		decisions := t.names.KnownDecisions()
		e, v, err := t.LookupUnion(ctx, c, op, path)
		switch {
		case err != nil:
			return nil, false, err
		case !e.IsDir():
			return nil, false, bb.E(bb.NotDirectory, op, t.address(path), "it is "+e.Type.Noun())
		case !c.Permits(e.UID, e.GID, e.Mode, access.Read):
			return nil, false, access.Denied(op, t.address(path), "read the directory")
		}
		entries, more, err = t.names.ListUnion(ctx, v, after, limit)
		if bb.KindOf(err) == bb.NotFound && !v.Plain() {
			continue // it was materialized meanwhile
		}
		if err != nil {
			return nil, false, bb.Wrap(op, t.address(path), err)
		}
		if after != "" {
			break
		}
		now, err := t.names.Decisions(ctx)
		if err != nil {
			return nil, false, bb.Wrap(op, t.address(path), err)
		}
		if now == decisions {
			break
		}
	}
	return entries, more, nil
}

// MkdirAll creates a directory and those above it. One that is there already is no error. After an error
// that Partly has marked, some may be there.
func (t *Tree) MkdirAll(ctx context.Context, c access.Caller, path string, mode fs.FileMode) (bb.Entry, error) {
	names, err := bb.SplitPath(path)
	if err != nil {
		return bb.Entry{}, bb.Wrap("mkdir", t.address(path), err)
	}
	for i := 1; i < len(names); i++ {
		_, err := t.Mkdir(ctx, c, strings.Join(names[:i], "/"), mode)
		if err != nil && bb.KindOf(err) != bb.Exists {
			return bb.Entry{}, Partly(err)
		}
	}
	e, err := t.Mkdir(ctx, c, path, mode)
	if bb.KindOf(err) == bb.Exists {
		e, err = t.Lookup(ctx, c, "mkdir", path)
		if err == nil && !e.IsDir() {
			err = bb.E(bb.Exists, "mkdir", t.address(path), "a file has this name")
		}
	}
	return e, Partly(err)
}

// Mkdir creates a directory of the caller's.
func (t *Tree) Mkdir(ctx context.Context, c access.Caller, path string, mode fs.FileMode) (bb.Entry, error) {
	dir, name, err := t.Parent(ctx, c, "mkdir", path)
	if err != nil {
		if names, _ := bb.SplitPath(path); len(names) == 0 {
			return bb.Entry{}, bb.E(bb.Exists, "mkdir", t.address(path), "the root directory exists")
		}
		return bb.Entry{}, err
	}
	if _, err := t.names.Lookup(ctx, dir.ID, name); err == nil {
		return bb.Entry{}, bb.E(bb.Exists, "mkdir", t.address(path), "the name is taken")
	}
	if err := t.mayMake(ctx, "mkdir", path); err != nil {
		return bb.Entry{}, err
	}
	if !dir.Permits(&c, access.Write) {
		return bb.Entry{}, access.Denied("mkdir", t.address(path), "write the directory")
	}
	e, err := t.names.Mkdir(ctx, dir.ID, name, namespace.Owner{UID: c.UID, GID: c.GIDs[0], Mode: mode & PermissionBits})
	return e, bb.Wrap("mkdir", t.address(path), err)
}

// Mknod creates an entry of the caller's that has no bytes, by a function that stores it. Its type, target and mode are
// given, and its time of modification unless that is now.
func (t *Tree) Mknod(ctx context.Context, c access.Caller, path string, e bb.Entry, store func(context.Context, bb.Entry) (bb.Entry, error)) (bb.Entry, error) {
	const op = "mknod"
	dir, name, err := t.Parent(ctx, c, op, path)
	if err == nil {
		err = t.mayMake(ctx, op, path)
	}
	if err != nil {
		return bb.Entry{}, err
	}
	if _, err := t.names.Lookup(ctx, dir.ID, name); err == nil {
		return bb.Entry{}, bb.E(bb.Exists, op, t.address(path), "the name is taken")
	}
	if !dir.Permits(&c, access.Write) {
		return bb.Entry{}, access.Denied(op, t.address(path), "write the directory")
	}
	e.Parent, e.Name, e.UID, e.GID, e.Mode = dir.ID, name, c.UID, c.GIDs[0], e.Mode&PermissionBits
	if e.MTime.IsZero() {
		e.MTime = time.Now().Round(0).UTC()
	}
	e, err = store(ctx, e)
	return e, bb.Wrap(op, t.address(path), err)
}

// SetAttr changes attributes of the caller's file or directory.
func (t *Tree) SetAttr(ctx context.Context, c access.Caller, path string, a namespace.Attr) (bb.Entry, error) {
	const op = "setattr"
	return t.setAttr(ctx, c, op, path, a, func(e *bb.Entry) error {
		if wrong := mayNotSet(&c, e, &a); wrong != "" {
			return access.Denied(op, t.address(path), wrong)
		}
		return nil
	})
}

// SetXattr changes an extended attribute of a file or directory that the caller may write. NotFound and Exists may be
// about the attribute.
func (t *Tree) SetXattr(ctx context.Context, c access.Caller, path string, change xattr.Change) (bb.Entry, error) {
	const op = "setxattr"
	return t.setAttr(ctx, c, op, path, namespace.Attr{Xattr: &change}, func(e *bb.Entry) error {
		if !e.Type.Special() && !c.Permits(e.UID, e.GID, e.Mode, access.Write) {
			return access.Denied(op, t.address(path), "write it")
		}
		return nil
	})
}

// setAttrTries is how often a change of attributes is checked anew, since another one of the entry came between.
const setAttrTries = 100

// setAttr changes attributes of the entry that may has accepted. If another file was renamed into
// the place meanwhile, or the entry has another owner by then, it is checked again.
func (t *Tree) setAttr(ctx context.Context, c access.Caller, op, path string, a namespace.Attr, may func(*bb.Entry) error) (e bb.Entry, err error) {
	for range setAttrTries {
		dir, name, err := t.Parent(ctx, c, op, path)
		if err == nil {
			err = t.MayChange(op, path)
		}
		if err != nil {
			return bb.Entry{}, err
		}
		if e, err = t.names.Lookup(ctx, dir.ID, name); err != nil {
			return bb.Entry{}, bb.Wrap(op, t.address(path), err)
		}
		if err := may(&e); err != nil {
			return bb.Entry{}, err
		}
		a.Revision = e.Revision
		e, err = t.names.SetAttr(ctx, dir.ID, name, a)
		if !errors.Is(err, namespace.ErrConflict) || ctx.Err() != nil {
			return e, bb.Wrap(op, t.address(path), err)
		}
	}
	return bb.Entry{}, bb.E(bb.Busy, op, t.address(path), "others keep changing it").WithRemedy("try again")
}

// mayNotSet returns the part of a change of attributes that a caller may not do, or "" if it may do all.
func mayNotSet(c *access.Caller, e *bb.Entry, a *namespace.Attr) string {
	switch {
	case !c.Owns(e.UID):
		return "change another user's file"
	case a.UID != nil && *a.UID != e.UID && !c.System:
		return "give a file away"
	case a.GID != nil && *a.GID != e.GID && !c.System && !slices.Contains(c.GIDs, *a.GID):
		return "give a file to a group that is not the user's"
	}
	return ""
}

// Partly returns the error of a change in several steps. Some of them may have been carried out,
// unless the error is a refusal from the start.
func Partly(err error) error {
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Cancelled, bb.Busy, bb.Internal:
		return bb.MaybeDone(err)
	}
	return err
}
