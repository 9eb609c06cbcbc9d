package namespacetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

// testXattrs: extended attributes belong to the file or directory. They are with it wherever it goes, and through any
// change of it.
func testXattrs(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, ns, other namespace.Tree) {
		ctx := metatest.Context(t)
		dir := Mkdir(t, ns, bb.RootDir, "d")
		for _, name := range []string{"f", "g"} {
			Create(t, ns, bb.RootDir, name)
		}
		change := func(name string, c xattr.Change) error {
			_, err := ns.SetAttr(ctx, bb.RootDir, name, namespace.Attr{Xattr: &c})
			return err
		}
		want := func(in bb.DirID, name string, want ...xattr.Attr) {
			t.Helper()
			e, err := other.LookupAgain(ctx, in, name)
			if err != nil || !slices.Equal(slices.Collect(xattr.List(e.Xattrs).All()), want) {
				t.Errorf("%s has %q (%v), want %+v", name, e.Xattrs, err, want)
			}
		}
		big, a := xattr.Attr{Name: "user.big", Value: strings.Repeat("\x00\xff", 4000)}, xattr.Attr{Name: "user.\xff", Value: "1"}
		for _, err := range []error{
			change("f", xattr.Change{Name: big.Name, Value: big.Value}),
			change("f", xattr.Change{Op: xattr.Create, Name: a.Name, Value: a.Value}),
			change("g", xattr.Change{Name: "user.g", Value: "g"}),
			change("d", xattr.Change{Name: "user.d", Value: ""}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want(bb.RootDir, "f", big, a)
		want(bb.RootDir, "d", xattr.Attr{Name: "user.d"})
		metatest.WantKind(t, "too much", change("f", xattr.Change{Name: "user.more", Value: big.Value}), bb.NoSpace)
		metatest.WantKind(t, "create of one that is there", change("f", xattr.Change{Op: xattr.Create, Name: a.Name}), bb.Exists)
		metatest.WantKind(t, "replacing none", change("f", xattr.Change{Op: xattr.Replace, Name: "user.none"}), bb.NotFound)
		metatest.WantKind(t, "removing none", change("f", xattr.Change{Op: xattr.Remove, Name: "user.none"}), bb.NotFound)
		metatest.WantKind(t, "another namespace", change("f", xattr.Change{Name: "trusted.a"}), bb.Unsupported)

		// A new generation keeps them, a rename over a file takes its own along.
		e, err := ns.Update(ctx, bb.RootDir, "f", func(e *bb.Entry) error { e.Generation++; e.Size = 3; return nil })
		if err != nil {
			t.Fatal(err)
		}
		want(bb.RootDir, "f", big, a)
		if _, err := ns.Rename(ctx, bb.RootDir, "f", bb.RootDir, "g", namespace.RenameOptions{Replace: true}); err != nil {
			t.Fatal(err)
		}
		want(bb.RootDir, "g", big, a)
		if _, err := ns.Rename(ctx, bb.RootDir, "g", dir.Dir, "f", namespace.RenameOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := ns.Rename(ctx, bb.RootDir, "d", bb.RootDir, "e", namespace.RenameOptions{}); err != nil {
			t.Fatal(err)
		}
		want(dir.Dir, "f", big, a)
		want(bb.RootDir, "e", xattr.Attr{Name: "user.d"})

		// Of a change that names a revision, nothing is carried out on another one.
		_, err = ns.SetAttr(ctx, dir.Dir, "f", namespace.Attr{Xattr: &xattr.Change{Op: xattr.Remove, Name: a.Name}, Revision: e.Revision + 1<<40})
		if !errors.Is(err, namespace.ErrConflict) || bb.KindOf(err) != bb.Busy {
			t.Errorf("a change of another revision: %v", err)
		}
		now, err := ns.Lookup(ctx, dir.Dir, "f")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ns.SetAttr(ctx, dir.Dir, "f", namespace.Attr{Xattr: &xattr.Change{Op: xattr.Remove, Name: a.Name}, Revision: now.Revision}); err != nil {
			t.Error(err)
		}
		want(dir.Dir, "f", big)

		// Malformed ones are not stored, and a symbolic link has none.
		now.Xattrs = "\x07user.a\x01"
		_, err = ns.Put(ctx, now)
		metatest.WantKind(t, "malformed", err, bb.Invalid)
		link := File(bb.RootDir, "l")
		link.Type, link.Target, link.Generation, link.Holders = bb.TypeSymlink, "x", 0, nil
		if _, err := ns.Create(ctx, link); err != nil {
			t.Fatal(err)
		}
		metatest.WantKind(t, "of a link", change("l", xattr.Change{Name: "user.a"}), bb.Permission)
	})
}
