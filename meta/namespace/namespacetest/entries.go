package namespacetest

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func testCreateLookupPut(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		e := Create(t, ns, bb.RootDir, "part-00001.parquet")
		got, err := ns.Resolve(ctx, "/part-00001.parquet")
		if err != nil || got.File != e.File || got.Revision != e.Revision || got.Parent != bb.RootDir || got.Name != e.Name ||
			!slices.Equal(got.Holders, e.Holders) || !got.MTime.IsZero() {
			t.Fatalf("%+v %v, stored %+v", got, err, e)
		}
		_, err = ns.Create(ctx, File(bb.RootDir, e.Name))
		metatest.WantKind(t, "create again", err, bb.Exists)

		stale := got
		got.Size, got.MTime = 99, time.Unix(5, 7).UTC()
		if got.Revision, err = ns.Put(ctx, got); err != nil {
			t.Fatal(err)
		}
		_, err = ns.Put(ctx, stale)
		metatest.WantKind(t, "put of an old revision", err, bb.Busy)
		if !errors.Is(err, namespace.ErrConflict) {
			t.Errorf("no conflict: %v", err)
		}
		again, err := ns.Lookup(ctx, bb.RootDir, e.Name)
		if err != nil || again.Size != 99 || !again.MTime.Equal(got.MTime) || again.Revision != got.Revision {
			t.Errorf("%+v %v", again, err)
		}
		stale.Revision = 0
		_, err = ns.Put(ctx, stale)
		metatest.WantKind(t, "put without a revision", err, bb.Invalid)
	})
}

// testSpecial: symbolic links, FIFOs and sockets are entries like files. They are stored as they are,
// replace each other and files, and are removed with trees.
func testSpecial(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, ns, other namespace.Tree) {
		ctx := metatest.Context(t)
		dir := Mkdir(t, ns, bb.RootDir, "d")
		special := func(name string, typ bb.EntryType, target string) bb.Entry {
			e := File(dir.Dir, name)
			e.Type, e.Target, e.Size, e.Generation, e.Holders = typ, target, int64(len(target)), 0, nil
			return e
		}

		for _, e := range []bb.Entry{special("l", bb.TypeSymlink, "../\xff"), special("p", bb.TypeFIFO, ""), special("s", bb.TypeSocket, "")} {
			var err error
			if e.Revision, err = ns.Create(ctx, e); err != nil {
				t.Fatal(err)
			}
			got, err := other.Lookup(ctx, dir.Dir, e.Name)
			if err != nil || got.Type != e.Type || got.Target != e.Target || got.File != e.File || got.State() != bb.StateClean {
				t.Errorf("%+v %v, stored %+v", got, err, e)
			}

		}
		for what, bad := range map[string]bb.Entry{
			"a link to nowhere": special("x", bb.TypeSymlink, ""), "a FIFO with a target": special("x", bb.TypeFIFO, "y"),
			"a NUL": special("x", bb.TypeSymlink, "a\x00b"), "too long": special("x", bb.TypeSymlink, strings.Repeat("a", bb.MaxTarget+1)),
			"an unknown type": special("x", 77, ""),
		} {
			_, err := ns.Create(ctx, bad)
			metatest.WantKind(t, what, err, bb.Invalid)
		}
		_, err := ns.Resolve(ctx, "d/l/x")
		metatest.WantKind(t, "below a link", err, bb.NotDirectory)
		Create(t, ns, bb.RootDir, "f")
		for _, to := range []string{"f", "p"} { // over a file, and over a FIFO
			at := dir.Dir
			if to == "f" {
				at = bb.RootDir
			}
			l, err := ns.Lookup(ctx, dir.Dir, "l")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ns.Rename(ctx, dir.Dir, "l", at, to, namespace.RenameOptions{Replace: true}); err != nil {
				t.Fatal(err)
			}
			got, err := other.LookupAgain(ctx, at, to)
			if err != nil || got.Target != l.Target || got.File != l.File {
				t.Errorf("%+v %v at %s", got, err, to)
			}
			if to == "f" {
				if _, err := ns.Rename(ctx, at, to, dir.Dir, "l", namespace.RenameOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := ns.RemoveAll(ctx, bb.RootDir, "d", namespace.RemoveOptions{}, func(bb.Entry) {}); err != nil {
			t.Error(err)
		}
		_, err = other.LookupAgain(ctx, bb.RootDir, "d")
		metatest.WantKind(t, "after the removal", err, bb.NotFound)
	})
}

func testRecreateAfterRemove(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		for range 3 {
			e := Create(t, ns, bb.RootDir, "x.tmp")
			removed, err := ns.Remove(ctx, bb.RootDir, "x.tmp", namespace.RemoveOptions{})
			if err != nil || removed.File != e.File {
				t.Fatalf("%+v %v", removed, err)
			}
			_, err = ns.Lookup(ctx, bb.RootDir, "x.tmp")
			metatest.WantKind(t, "lookup after remove", err, bb.NotFound)
			_, err = ns.Put(ctx, e)
			metatest.WantKind(t, "put after remove", err, bb.Busy)
			_, err = ns.Remove(ctx, bb.RootDir, "x.tmp", namespace.RemoveOptions{})
			metatest.WantKind(t, "remove again", err, bb.NotFound)
		}
	})
}

func testBadNames(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		for _, name := range []string{"", ".", "..", "a/b", "a\x00", string(make([]byte, 300)), "a\xff"} {
			_, err := ns.Create(ctx, File(bb.RootDir, name))
			metatest.WantKind(t, "create "+name, err, bb.Invalid)
			_, err = ns.Mkdir(ctx, bb.RootDir, name, namespace.Owner{})
			metatest.WantKind(t, "mkdir "+name, err, bb.Invalid)
			_, err = ns.Rename(ctx, bb.RootDir, "x", bb.RootDir, name, namespace.RenameOptions{})
			metatest.WantKind(t, "rename to "+name, err, bb.Invalid)
			_, err = ns.Exchange(ctx, bb.RootDir, "x", bb.RootDir, name, namespace.ExchangeOptions{})
			metatest.WantKind(t, "exchange with "+name, err, bb.Invalid)
			_, err = ns.Remove(ctx, bb.RootDir, name, namespace.RemoveOptions{})
			metatest.WantKind(t, "remove "+name, err, bb.Invalid)
		}
		for what, e := range map[string]bb.Entry{
			"no type":       {Parent: 1, Name: "x"},
			"no id":         {Parent: 1, Name: "x", Type: bb.TypeFile},
			"negative size": {Parent: 1, Name: "x", Type: bb.TypeFile, File: 1, Size: -1},
			"no parent":     {Name: "x", Type: bb.TypeFile, File: 1},
			"old":           {Parent: 1, Name: "x", Type: bb.TypeFile, File: 1, MTime: time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC)},
		} {
			_, err := ns.Create(ctx, e)
			metatest.WantKind(t, what, err, bb.Invalid)
		}
		if got := Names(t, ns, bb.RootDir); len(got) > 0 {
			t.Errorf("left %q", got)
		}
	})
}

func testResolveNamesTheComponent(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		a := Mkdir(t, ns, bb.RootDir, "a")
		Create(t, ns, a.Dir, "f")
		for path, want := range map[string]struct {
			kind bb.Kind
			at   string
		}{
			"a/f":     {0, ""},
			"":        {0, ""},
			"a/x":     {bb.NotFound, "bb://buf/a/x"},
			"x/y/z":   {bb.NotFound, "bb://buf/x"},
			"a/f/z/w": {bb.NotDirectory, "bb://buf/a/f"},
			"a/../b":  {bb.Invalid, `"a/../b"`},
		} {
			_, err := ns.Resolve(ctx, path)
			metatest.WantKind(t, path, err, want.kind)
			var e *bb.Error
			if errors.As(err, &e) && e.Path != want.at {
				t.Errorf("%s: error is about %s, want %s", path, e.Path, want.at)
			}
		}
		dir, name, err := ns.ResolveParent(ctx, "a/new")
		if err != nil || dir != a.Dir || name != "new" {
			t.Errorf("%v %v %v", dir, name, err)
		}
		_, _, err = ns.ResolveParent(ctx, "/")
		metatest.WantKind(t, "parent of the root", err, bb.Invalid)
	})
}

func testRootAttributes(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		root, err := ns.Root(ctx)
		if err != nil || root.Mode != 0o755 || root.UID != 7 || root.Dir != bb.RootDir {
			t.Fatalf("%+v %v", root, err)
		}
		mode, gid := root.Mode&0o700, uint32(9)
		if _, err := ns.SetAttr(ctx, 0, "", namespace.Attr{Mode: &mode, GID: &gid}); err != nil {
			t.Fatal(err)
		}
		root, err = ns.Resolve(ctx, "/")
		if err != nil || root.Mode != 0o700 || root.GID != 9 || root.UID != 7 {
			t.Errorf("%+v %v", root, err)
		}
	})
}

func testSetAttr(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		Create(t, ns, bb.RootDir, "f")
		mode, uid, when := bb.Entry{}.Mode|0o600, uint32(3), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		e, err := ns.SetAttr(ctx, bb.RootDir, "f", namespace.Attr{Mode: &mode, UID: &uid, MTime: &when})
		if err != nil || e.Mode != 0o600 || e.UID != 3 || !e.MTime.Equal(when) || e.Size != 10 {
			t.Errorf("%+v %v", e, err)
		}
		_, err = ns.SetAttr(ctx, bb.RootDir, "none", namespace.Attr{})
		metatest.WantKind(t, "of nothing", err, bb.NotFound)
		failed := errors.New("no")
		if _, err = ns.Update(ctx, bb.RootDir, "f", func(*bb.Entry) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
	})
}

func testMkdir(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		e, err := ns.MkdirAll(ctx, "a/b/c", namespace.Owner{UID: 4, GID: 5, Mode: 0o750})
		if err != nil || e.Name != "c" || e.UID != 4 || e.Mode != 0o750 {
			t.Fatalf("%+v %v", e, err)
		}
		again, err := ns.MkdirAll(ctx, "/a//b/c/", namespace.Owner{})
		if err != nil || again.Dir != e.Dir {
			t.Errorf("%+v %v", again, err)
		}
		if p, err := ns.PathOf(ctx, e.Dir); p != "a/b/c" || err != nil {
			t.Errorf("%q %v", p, err)
		}
		if p, err := ns.PathOf(ctx, bb.RootDir); p != "" || err != nil {
			t.Errorf("%q %v", p, err)
		}
		_, err = ns.PathOf(ctx, 12345)
		metatest.WantKind(t, "path of nothing", err, bb.NotFound)
		Create(t, ns, e.Dir, "f")
		_, err = ns.MkdirAll(ctx, "a/b/c/f/g", namespace.Owner{})
		metatest.WantKind(t, "below a file", err, bb.NotDirectory)
		_, err = ns.Mkdir(ctx, e.Dir, "f", namespace.Owner{})
		metatest.WantKind(t, "over a file", err, bb.Exists)
		_, err = ns.Mkdir(ctx, 999, "x", namespace.Owner{})
		metatest.WantKind(t, "in no directory", err, bb.NotFound)
		_, err = ns.Create(ctx, File(999, "x"))
		metatest.WantKind(t, "file in no directory", err, bb.NotFound)
	})
}

func testRemoveDirectory(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		d := Mkdir(t, ns, bb.RootDir, "d")
		Create(t, ns, d.Dir, "f")
		_, err := ns.Remove(ctx, bb.RootDir, "d", namespace.RemoveOptions{})
		metatest.WantKind(t, "remove of a full directory", err, bb.NotEmpty)
		Create(t, ns, d.Dir, "g") // the mark is off again
		for _, name := range []string{"f", "g"} {
			if _, err := ns.Remove(ctx, d.Dir, name, namespace.RemoveOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ns.Remove(ctx, bb.RootDir, "d", namespace.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = ns.Create(ctx, File(d.Dir, "late"))
		metatest.WantKind(t, "create in a removed directory", err, bb.NotFound)
		_, err = ns.Mkdir(ctx, d.Dir, "late", namespace.Owner{})
		metatest.WantKind(t, "mkdir in a removed directory", err, bb.NotFound)
		_, _, err = ns.List(ctx, d.Dir, "", 10)
		metatest.WantKind(t, "list of a removed directory", err, bb.NotFound)
		_, err = ns.PathOf(ctx, d.Dir)
		metatest.WantKind(t, "path of a removed directory", err, bb.NotFound)
		Create(t, ns, bb.RootDir, "x")
		_, err = ns.Rename(ctx, bb.RootDir, "x", d.Dir, "x", namespace.RenameOptions{})
		metatest.WantKind(t, "rename into a removed directory", err, bb.NotFound)
		left := 0
		if err := ns.ScanAll(ctx, func(bb.Entry) error { left++; return nil }); err != nil || left != 1 {
			t.Errorf("%d entries left: %v", left, err)
		}
	})
}

func testRename(t *testing.T, factory Factory) {
	for name, c := range map[string]struct {
		from, to string
		o        namespace.RenameOptions
		kind     bb.Kind
		there    []string // paths afterwards
		gone     []string
	}{
		"file":                          {"f", "d/new", namespace.RenameOptions{}, 0, []string{"d/new"}, []string{"f"}},
		"file onto a file":              {"f", "g", namespace.RenameOptions{}, bb.Exists, []string{"f", "g"}, nil},
		"file replaces a file":          {"f", "g", namespace.RenameOptions{Replace: true}, 0, []string{"g"}, []string{"f"}},
		"file onto itself":              {"f", "f", namespace.RenameOptions{}, 0, []string{"f"}, nil},
		"file replaces a directory":     {"f", "d", namespace.RenameOptions{Replace: true}, bb.IsDirectory, []string{"f", "d/sub"}, nil},
		"nothing":                       {"none", "g", namespace.RenameOptions{Replace: true}, bb.NotFound, []string{"g"}, nil},
		"directory":                     {"d", "empty/d", namespace.RenameOptions{}, 0, []string{"empty/d/sub/h"}, []string{"d"}},
		"directory, same parent":        {"d", "d2", namespace.RenameOptions{}, 0, []string{"d2/sub/h"}, []string{"d"}},
		"directory replaces empty":      {"d", "empty", namespace.RenameOptions{Replace: true}, 0, []string{"empty/sub/h"}, []string{"d"}},
		"directory onto empty":          {"d", "empty", namespace.RenameOptions{}, bb.Exists, []string{"d/sub/h", "empty"}, nil},
		"directory replaces a full one": {"empty", "d", namespace.RenameOptions{Replace: true}, bb.NotEmpty, []string{"d/sub/h", "empty"}, nil},
		"directory replaces a file":     {"d", "f", namespace.RenameOptions{Replace: true}, bb.NotDirectory, []string{"d/sub/h", "f"}, nil},
		"directory below itself":        {"d", "d/sub/d", namespace.RenameOptions{}, bb.Invalid, []string{"d/sub/h"}, nil},
		"directory into itself":         {"d", "d/x", namespace.RenameOptions{}, bb.Invalid, []string{"d/sub/h"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			factory.one(t, func(t *testing.T, ns namespace.Tree) {
				ctx := metatest.Context(t)
				f := Create(t, ns, bb.RootDir, "f")
				g := Create(t, ns, bb.RootDir, "g")
				Mkdir(t, ns, bb.RootDir, "empty")
				sub, err := ns.MkdirAll(ctx, "d/sub", namespace.Owner{})
				if err != nil {
					t.Fatal(err)
				}
				Create(t, ns, sub.Dir, "h")
				sd, sn, err := ns.ResolveParent(ctx, c.from)
				if err != nil {
					t.Fatal(err)
				}
				dd, dn, err := ns.ResolveParent(ctx, c.to)
				if err != nil {
					t.Fatal(err)
				}
				r, err := ns.Rename(ctx, sd, sn, dd, dn, c.o)
				metatest.WantKind(t, "rename", err, c.kind)
				if c.kind == 0 && (r.Entry.Name != dn || r.Entry.Parent != dd) {
					t.Errorf("renamed to %+v", r.Entry)
				}
				if c.from == "f" && c.to == "g" && c.kind == 0 && (r.Replaced == nil || r.Replaced.File != g.File || r.Entry.File != f.File) {
					t.Errorf("%+v replaced %+v", r.Entry, r.Replaced)
				}
				for _, p := range c.there {
					if _, err := ns.Resolve(ctx, p); err != nil {
						t.Errorf("%s: %v", p, err)
					}
				}
				for _, p := range c.gone {
					_, err := ns.Resolve(ctx, p)
					metatest.WantKind(t, p, err, bb.NotFound)
				}
				if _, err := ns.Resolve(ctx, "d"); err == nil {
					d, _ := ns.Resolve(ctx, "d")
					Create(t, ns, d.Dir, "after") // no mark was left
				}
				CheckPaths(t, ns)
				if c.kind == 0 && r.Entry.Revision != 0 {
					if _, err := ns.Put(ctx, r.Entry); err != nil {
						t.Errorf("put of the renamed entry: %v", err)
					}
				}
			})
		})
	}
}

func testRemoveAll(t *testing.T, factory Factory) {
	for _, op := range []bool{false, true} {
		factory.one(t, func(t *testing.T, ns namespace.Tree) {
			ctx := metatest.Context(t)
			sub, err := ns.MkdirAll(ctx, "top/a/b", namespace.Owner{})
			if err != nil {
				t.Fatal(err)
			}
			top, _ := ns.Resolve(ctx, "top")
			for i := range 1100 {
				Create(t, ns, top.Dir, "f"+string(rune('a'+i%26))+time.Duration(i).String())
			}
			for i := range 20 {
				Create(t, ns, sub.Dir, time.Duration(i).String())
			}
			Create(t, ns, bb.RootDir, "stays")
			n := 0
			if err := ns.RemoveAll(ctx, bb.RootDir, "top", namespace.RemoveOptions{StoreOp: op}, func(bb.Entry) { n++ }); err != nil {
				t.Fatal(err)
			}
			if n != 1123 {
				t.Errorf("told of %d, want 1123", n)
			}
			if got := Paths(t, ns); len(got) != 1 || got["stays"] == "" {
				t.Errorf("left %d", len(got))
			}
			ops, err := ns.StoreOps(ctx)
			if err != nil || op && len(ops) != 1123 || !op && len(ops) != 0 {
				t.Fatalf("%d operations, %v", len(ops), err)
			}
			if op && (ops[len(ops)-1].OldPath != "top" || !ops[len(ops)-1].IsDir) {
				t.Errorf("the last operation is %+v", ops[len(ops)-1])
			}
			metatest.WantKind(t, "again", ns.RemoveAll(ctx, bb.RootDir, "top", namespace.RemoveOptions{}, nil), bb.NotFound)
		})
	}
}

func testStoreOps(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		all := namespace.RenameOptions{Replace: true, StoreOp: true}
		d, err := ns.MkdirAll(ctx, "a/b", namespace.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		f := Create(t, ns, d.Dir, "f")
		f.Flushed = bb.Flushed{Generation: 1, ETag: "e", Size: 4, Codec: "zstd", By: "n1", At: time.Unix(1, 2).UTC()}
		if _, err := ns.Put(ctx, f); err != nil {
			t.Fatal(err)
		}
		steps := []func() error{
			func() error { _, err := ns.Rename(ctx, d.Dir, "f", bb.RootDir, "g", all); return err },
			func() error { _, err := ns.Rename(ctx, bb.RootDir, "a", bb.RootDir, "z", all); return err },
			func() error {
				_, err := ns.Remove(ctx, d.Parent, "b", namespace.RemoveOptions{StoreOp: true})
				return err
			},
			func() error {
				_, err := ns.Remove(ctx, bb.RootDir, "g", namespace.RemoveOptions{StoreOp: true})
				return err
			},
		}
		for i, step := range steps {
			if err := step(); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		ops, err := ns.StoreOps(ctx)
		if err != nil || len(ops) != 4 {
			t.Fatalf("%+v %v", ops, err)
		}
		want := []namespace.StoreOp{
			{Op: namespace.OpRename, OldPath: "a/b/f", NewPath: "g", File: f.File, Flushed: f.Flushed, By: "me"},
			{Op: namespace.OpRename, OldPath: "a", NewPath: "z", IsDir: true, By: "me"},
			{Op: namespace.OpRemove, OldPath: "z/b", IsDir: true, By: "me"},
			{Op: namespace.OpRemove, OldPath: "g", File: f.File, Flushed: f.Flushed, By: "me"},
		}
		for i, op := range ops {
			revision := op.Revision
			op.Seq, op.Revision = 0, 0
			if !reflect.DeepEqual(op, want[i]) {
				t.Errorf("%d: %+v, want %+v", i, op, want[i])
			}
			for _, there := range []bool{true, false} {
				if pending, err := ns.StoreOpPending(ctx, revision); err != nil || pending != there {
					t.Errorf("%d: pending %v (%v)", i, pending, err)
				}
				if done, err := ns.DoneStoreOp(ctx, revision); err != nil || done != there {
					t.Errorf("%d: %v (%v)", i, done, err)
				}
			}
		}
		if ops, err := ns.StoreOps(ctx); err != nil || len(ops) != 0 {
			t.Errorf("left %+v %v", ops, err)
		}
		e := Create(t, ns, bb.RootDir, "file")
		_, err = ns.DoneStoreOp(ctx, e.Revision)
		metatest.WantKind(t, "done with an entry", err, bb.Invalid)
		_, err = ns.StoreOpPending(ctx, e.Revision)
		metatest.WantKind(t, "pending entry", err, bb.Invalid)
		if _, err := ns.Lookup(ctx, bb.RootDir, "file"); err != nil {
			t.Error(err)
		}
	})
}

// testRenameKeepsReplaced: a file that was never flushed records the store's object of the one that
// it has replaced, until it leaves the name. Then the store is to remove it.
func testRenameKeepsReplaced(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		over := namespace.RenameOptions{Replace: true}
		noted := namespace.RenameOptions{Replace: true, StoreOp: true}
		was := bb.Flushed{Generation: 1, ETag: "e", Codec: "zstd", By: "n1"}
		rename := func(from, to string, o namespace.RenameOptions, replaced bb.Flushed) {
			t.Helper()
			r, err := ns.Rename(ctx, bb.RootDir, from, bb.RootDir, to, o)
			if err != nil {
				t.Fatal(err)
			}
			e, err := ns.Lookup(ctx, bb.RootDir, to)
			if err != nil || e.Replaced() != replaced || r.Entry.Replaced() != replaced {
				t.Errorf("%s over %s: replaced %+v, %+v, want %+v (%v)", from, to, e.Replaced(), r.Entry.Replaced(), replaced, err)
			}
		}
		flushed := func(name string) bb.Entry {
			t.Helper()
			e := Create(t, ns, bb.RootDir, name)
			e.Flushed = was
			if _, err := ns.Put(ctx, e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		flushed("f")
		Create(t, ns, bb.RootDir, "f2")
		Create(t, ns, bb.RootDir, "f3")
		rename("f2", "f", over, was)
		rename("f3", "f", over, was)
		rename("f", "g", noted, bb.Flushed{})
		flushed("h")
		rename("g", "h", over, was)
		last, err := ns.Remove(ctx, bb.RootDir, "h", namespace.RemoveOptions{StoreOp: true})
		if err != nil {
			t.Fatal(err)
		}
		moved := flushed("i")
		flushed("j")
		Create(t, ns, bb.RootDir, "j2")
		rename("j2", "j", over, was)
		rename("i", "j", noted, bb.Flushed{})
		ops, err := ns.StoreOps(ctx)
		if err != nil {
			t.Fatal(err)
		}
		one := []bb.Content{{Size: last.Size, Checksum: last.Checksum}} // all have it
		want := []namespace.StoreOp{
			{Op: namespace.OpRename, OldPath: "f", NewPath: "g", File: last.File, Left: was, Attempts: one, By: "me"},
			{Op: namespace.OpRemove, OldPath: "h", File: last.File, Left: was, Attempts: one, By: "me"},
			{Op: namespace.OpRename, OldPath: "i", NewPath: "j", File: moved.File, Flushed: was, Replaced: was, ReplacedAttempts: one, By: "me"},
		}
		for i := range ops {
			ops[i].Seq, ops[i].Revision = 0, 0
		}
		if !reflect.DeepEqual(ops, want) {
			t.Errorf("noted %+v, want %+v", ops, want)
		}
	})
}

// testAttemptsFollowRenames: contents that flushes may have put under a name without a record are
// recorded with the name's next file, and with the operations that the store has yet to follow.
func testAttemptsFollowRenames(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		contents := func(sizes ...int64) (all []bb.Content) {
			for _, n := range sizes {
				all = append(all, bb.Content{Size: n, Checksum: uint64(n)})
			}
			return all
		}
		write := func(name string, flushed bool, sizes ...int64) {
			t.Helper()
			e := Create(t, ns, bb.RootDir, name)
			for _, n := range sizes {
				if _, err := ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
					if now.Size == e.Size { // the first: nothing was written before
						now.SetBefore(now.Replaced(), nil)
					} else {
						now.Supersede()
					}
					now.Generation++
					now.Size, now.Checksum = n, uint64(n)
					if flushed {
						now.SetFlushed(bb.Flushed{Generation: now.Generation, ETag: name})
						flushed = false // the later ones are not
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		rename := func(from, to string, want []bb.Content) {
			t.Helper()
			if _, err := ns.Rename(ctx, bb.RootDir, from, bb.RootDir, to, namespace.RenameOptions{Replace: true, StoreOp: true}); err != nil {
				t.Fatal(err)
			}
			e, err := ns.Lookup(ctx, bb.RootDir, to)
			if err != nil || !slices.Equal(e.Attempts(), want) {
				t.Errorf("%s over %s: attempts %v, want %v (%v)", from, to, e.Attempts(), want, err)
			}
		}
		lastOp := func(attempts, replaced []bb.Content) {
			t.Helper()
			ops, err := ns.StoreOps(ctx)
			if err != nil || len(ops) == 0 {
				t.Fatal(ops, err)
			}
			op := ops[len(ops)-1]
			if !slices.Equal(op.Attempts, attempts) || !slices.Equal(op.ReplacedAttempts, replaced) {
				t.Errorf("the operation has %v and %v, want %v and %v", op.Attempts, op.ReplacedAttempts, attempts, replaced)
			}
		}
		write("a", false, 11, 12)
		write("b", false, 21, 22)
		rename("a", "b", contents(21, 22)) // objects that it may have left under its own name are removed there
		lastOp(contents(11, 12), nil)
		write("c", true, 31, 32, 33)
		rename("c", "b", contents(32, 21, 22, 12)) // it takes along the possible objects under its name
		lastOp(contents(32, 33), contents(21, 22, 12))
		rename("b", "d", contents(32, 21, 22, 12))
		if _, err := ns.Remove(ctx, bb.RootDir, "d", namespace.RemoveOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
		lastOp(contents(32, 21, 22, 12, 33), nil)

		// Lists that merge stay bounded.
		write("e", true, 1, 2)
		for i := range int64(3) {
			var many []int64
			for n := range int64(40) {
				many = append(many, 1000*(i+1)+n)
			}
			write("f", false, many...)
			if _, err := ns.Rename(ctx, bb.RootDir, "e", bb.RootDir, "f", namespace.RenameOptions{Replace: true, StoreOp: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := ns.Rename(ctx, bb.RootDir, "f", bb.RootDir, "e", namespace.RenameOptions{StoreOp: true}); err != nil {
				t.Fatal(err)
			}
		}
		if e, err := ns.Lookup(ctx, bb.RootDir, "e"); err != nil || len(e.Attempts()) != bb.MaxAttempts || e.Attempts()[bb.MaxAttempts-1].Size != 3039 {
			t.Errorf("%d attempts, %v; want %d", len(e.Attempts()), err, bb.MaxAttempts)
		}
	})
}

// testTakeOverStoreOps: of two that claim an operation, one has it, and the order stays.
func testTakeOverStoreOps(t *testing.T, factory Factory) {
	open := factory(t)
	dead, heir := open("dead"), open("heir")
	if dead == heir {
		return // one process alone changes it, so there is no other to take over from
	}
	ctx := metatest.Context(t)
	rename := func(ns namespace.Tree, from, to string) {
		t.Helper()
		if _, err := ns.Rename(ctx, bb.RootDir, from, bb.RootDir, to, namespace.RenameOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
	}
	Mkdir(t, dead, bb.RootDir, "a")
	rename(dead, "a", "b")
	rename(heir, "b", "c")
	rename(dead, "c", "d")
	before, err := dead.StoreOps(ctx)
	if err != nil || len(before) != 3 {
		t.Fatalf("%+v %v", before, err)
	}
	if n, err := heir.TakeOverStoreOps(ctx, "dead"); err != nil || n != 2 {
		t.Fatalf("%d taken over (%v)", n, err)
	}
	if n, err := heir.TakeOverStoreOps(ctx, "dead"); err != nil || n != 0 {
		t.Fatalf("%d taken over again (%v)", n, err)
	}
	after, err := heir.StoreOps(ctx)
	if err != nil || len(after) != 3 {
		t.Fatalf("%+v %v", after, err)
	}
	for i, op := range after {
		if op.By != "heir" || op.Seq != before[i].Seq || op.OldPath != before[i].OldPath || op.NewPath != before[i].NewPath {
			t.Errorf("%d: %+v was %+v", i, op, before[i])
		}
		if before[i].By == "heir" {
			continue
		}
		if pending, err := dead.StoreOpPending(ctx, before[i].Revision); err != nil || pending {
			t.Errorf("%d: who lost it finds it pending (%v)", i, err)
		}
		if done, err := dead.DoneStoreOp(ctx, before[i].Revision); err != nil || done {
			t.Errorf("%d: who lost it struck it out (%v)", i, err)
		}
	}
	for i, op := range after {
		if done, err := heir.DoneStoreOp(ctx, op.Revision); err != nil || !done {
			t.Errorf("%d: %v (%v)", i, done, err)
		}
	}
}

// testRemovedIsEvidence: a free name is evidence of a removal of its entry in a revision that the
// namespace has had, and of no other.
func testRemovedIsEvidence(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		want := func(e *bb.Entry, what string, revision uint64, removed bool) {
			t.Helper()
			got, err := ns.Removed(ctx, e.Parent, e.Name, e.File, revision)
			if err != nil || got != removed {
				t.Errorf("%s: removed: %v (%v), want %v", what, got, err, removed)
			}
		}
		e := Create(t, ns, bb.RootDir, "f")
		want(&e, "a file that is there", e.Revision, false)
		other := File(bb.RootDir, "never")
		want(&other, "a file that never was", e.Revision+1<<40, false)
		if _, err := ns.Remove(ctx, bb.RootDir, "f", namespace.RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		want(&e, "a file that was removed", e.Revision, true)
		Create(t, ns, bb.RootDir, "f")
		want(&e, "a file whose name is used again", e.Revision, false)
		moved := Create(t, ns, bb.RootDir, "g")
		if _, err := ns.Rename(ctx, bb.RootDir, "g", bb.RootDir, "h", namespace.RenameOptions{}); err != nil {
			t.Fatal(err)
		}
		want(&moved, "a file that was renamed", moved.Revision, true)
	})
}

// testFollowStoreOps: a follower gets once each operation that came and of each that went.
func testFollowStoreOps(t *testing.T, factory Factory) {
	factory.one(t, func(t *testing.T, ns namespace.Tree) {
		ctx := metatest.Context(t)
		follower := ns.PendingOps()
		read := func(what string, came, went int) []namespace.StoreOp {
			t.Helper()
			c, w, err := follower.Read(ctx)
			if err != nil || len(c) != came || len(w) != went {
				t.Fatalf("%s: %d came and %d went (%v), want %d and %d", what, len(c), len(w), err, came, went)
			}
			return c
		}
		read("at first", 0, 0)
		remove := func(name string) {
			t.Helper()
			Create(t, ns, bb.RootDir, name)
			if _, err := ns.Remove(ctx, bb.RootDir, name, namespace.RemoveOptions{StoreOp: true}); err != nil {
				t.Fatal(err)
			}
		}
		done := func(op namespace.StoreOp) {
			t.Helper()
			if done, err := ns.DoneStoreOp(ctx, op.Revision); !done || err != nil {
				t.Fatal(done, err)
			}
		}
		remove("a")
		remove("b")
		ops := read("after two", 2, 0)
		if ops[0].OldPath != "a" || ops[1].OldPath != "b" || ops[0].Seq >= ops[1].Seq {
			t.Errorf("read %+v", ops)
		}
		read("after nothing", 0, 0)
		done(ops[0])
		remove("c")
		c := read("after one went and one came", 1, 1)
		remove("d")
		if all, err := ns.StoreOps(ctx); err != nil || len(all) != 3 {
			t.Fatalf("%d are pending (%v), want 3", len(all), err)
		} else {
			done(all[2])
		}
		read("after one that came and went", 0, 0)
		done(ops[1])
		done(c[0])
		read("after all went", 0, 2)
	})
}
