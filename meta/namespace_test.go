package meta

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

func TestCreateLookupPut(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		e := create(t, ns, bb.RootDir, "part-00001.parquet")
		got, err := ns.Resolve(ctx, "/part-00001.parquet")
		if err != nil || got.File != e.File || got.Revision != e.Revision || got.Parent != bb.RootDir || got.Name != e.Name ||
			!slices.Equal(got.Holders, e.Holders) || !got.MTime.IsZero() {
			t.Fatalf("%+v %v, stored %+v", got, err, e)
		}
		_, err = ns.Create(ctx, file(t, ns, bb.RootDir, e.Name))
		wantKind(t, "create again", err, bb.Exists)

		stale := got
		got.Size, got.MTime = 99, time.Unix(5, 7).UTC()
		if got.Revision, err = ns.Put(ctx, got); err != nil {
			t.Fatal(err)
		}
		_, err = ns.Put(ctx, stale)
		wantKind(t, "put of an old revision", err, bb.Busy)
		if !errors.Is(err, kv.ErrConflict) {
			t.Errorf("no conflict: %v", err)
		}
		again, err := ns.Lookup(ctx, bb.RootDir, e.Name)
		if err != nil || again.Size != 99 || !again.MTime.Equal(got.MTime) || again.Revision != got.Revision {
			t.Errorf("%+v %v", again, err)
		}
		stale.Revision = 0
		_, err = ns.Put(ctx, stale)
		wantKind(t, "put without a revision", err, bb.Invalid)
	})
}

func TestRecreateAfterRemove(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		for range 3 {
			e := create(t, ns, bb.RootDir, "x.tmp")
			removed, err := ns.Remove(ctx, bb.RootDir, "x.tmp", RemoveOptions{})
			if err != nil || removed.File != e.File {
				t.Fatalf("%+v %v", removed, err)
			}
			_, err = ns.Lookup(ctx, bb.RootDir, "x.tmp")
			wantKind(t, "lookup after remove", err, bb.NotFound)
			_, err = ns.Put(ctx, e)
			wantKind(t, "put after remove", err, bb.Busy)
			_, err = ns.Remove(ctx, bb.RootDir, "x.tmp", RemoveOptions{})
			wantKind(t, "remove again", err, bb.NotFound)
		}
	})
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		for _, name := range []string{"", ".", "..", "a/b", "a\x00", string(make([]byte, 300)), "a\xff"} {
			_, err := ns.Create(ctx, file(t, ns, bb.RootDir, name))
			wantKind(t, "create "+name, err, bb.Invalid)
			_, err = ns.Mkdir(ctx, bb.RootDir, name, Owner{})
			wantKind(t, "mkdir "+name, err, bb.Invalid)
			_, err = ns.Rename(ctx, bb.RootDir, "x", bb.RootDir, name, RenameOptions{})
			wantKind(t, "rename to "+name, err, bb.Invalid)
			_, err = ns.Remove(ctx, bb.RootDir, name, RemoveOptions{})
			wantKind(t, "remove "+name, err, bb.Invalid)
		}
		for what, e := range map[string]bb.Entry{
			"no type":       {Parent: 1, Name: "x"},
			"no id":         {Parent: 1, Name: "x", Type: bb.TypeFile},
			"negative size": {Parent: 1, Name: "x", Type: bb.TypeFile, File: 1, Size: -1},
			"no parent":     {Name: "x", Type: bb.TypeFile, File: 1},
			"old":           {Parent: 1, Name: "x", Type: bb.TypeFile, File: 1, MTime: time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC)},
		} {
			_, err := ns.Create(ctx, e)
			wantKind(t, what, err, bb.Invalid)
		}
		if got := names(t, ns, bb.RootDir); len(got) > 0 {
			t.Errorf("left %q", got)
		}
	})
}

func TestResolveNamesTheComponent(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		a := mkdir(t, ns, bb.RootDir, "a")
		create(t, ns, a.Dir, "f")
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
			wantKind(t, path, err, want.kind)
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
		wantKind(t, "parent of the root", err, bb.Invalid)
	})
}

func TestRootAttributes(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		root, err := ns.Root(ctx)
		if err != nil || root.Mode != 0o755 || root.UID != 7 || root.Dir != bb.RootDir {
			t.Fatalf("%+v %v", root, err)
		}
		mode, gid := root.Mode&0o700, uint32(9)
		if _, err := ns.SetAttr(ctx, 0, "", Attr{Mode: &mode, GID: &gid}); err != nil {
			t.Fatal(err)
		}
		root, err = ns.Resolve(ctx, "/")
		if err != nil || root.Mode != 0o700 || root.GID != 9 || root.UID != 7 {
			t.Errorf("%+v %v", root, err)
		}
	})
}

func TestSetAttr(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		create(t, ns, bb.RootDir, "f")
		mode, uid, when := bb.Entry{}.Mode|0o600, uint32(3), time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		e, err := ns.SetAttr(ctx, bb.RootDir, "f", Attr{Mode: &mode, UID: &uid, MTime: &when})
		if err != nil || e.Mode != 0o600 || e.UID != 3 || !e.MTime.Equal(when) || e.Size != 10 {
			t.Errorf("%+v %v", e, err)
		}
		_, err = ns.SetAttr(ctx, bb.RootDir, "none", Attr{})
		wantKind(t, "of nothing", err, bb.NotFound)
		failed := errors.New("no")
		if _, err = ns.Update(ctx, bb.RootDir, "f", func(*bb.Entry) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
	})
}

func TestMkdir(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		e, err := ns.MkdirAll(ctx, "a/b/c", Owner{UID: 4, GID: 5, Mode: 0o750})
		if err != nil || e.Name != "c" || e.UID != 4 || e.Mode != 0o750 {
			t.Fatalf("%+v %v", e, err)
		}
		again, err := ns.MkdirAll(ctx, "/a//b/c/", Owner{})
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
		wantKind(t, "path of nothing", err, bb.NotFound)
		create(t, ns, e.Dir, "f")
		_, err = ns.MkdirAll(ctx, "a/b/c/f/g", Owner{})
		wantKind(t, "below a file", err, bb.NotDirectory)
		_, err = ns.Mkdir(ctx, e.Dir, "f", Owner{})
		wantKind(t, "over a file", err, bb.Exists)
		_, err = ns.Mkdir(ctx, 999, "x", Owner{})
		wantKind(t, "in no directory", err, bb.NotFound)
		_, err = ns.Create(ctx, file(t, ns, 999, "x"))
		wantKind(t, "file in no directory", err, bb.NotFound)
	})
}

func TestRemoveDirectory(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		d := mkdir(t, ns, bb.RootDir, "d")
		create(t, ns, d.Dir, "f")
		_, err := ns.Remove(ctx, bb.RootDir, "d", RemoveOptions{})
		wantKind(t, "remove of a full directory", err, bb.NotEmpty)
		create(t, ns, d.Dir, "g") // the mark is off again
		for _, name := range []string{"f", "g"} {
			if _, err := ns.Remove(ctx, d.Dir, name, RemoveOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ns.Remove(ctx, bb.RootDir, "d", RemoveOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = ns.Create(ctx, file(t, ns, d.Dir, "late"))
		wantKind(t, "create in a removed directory", err, bb.NotFound)
		_, err = ns.Mkdir(ctx, d.Dir, "late", Owner{})
		wantKind(t, "mkdir in a removed directory", err, bb.NotFound)
		_, _, err = ns.List(ctx, d.Dir, "", 10)
		wantKind(t, "list of a removed directory", err, bb.NotFound)
		_, err = ns.PathOf(ctx, d.Dir)
		wantKind(t, "path of a removed directory", err, bb.NotFound)
		create(t, ns, bb.RootDir, "x")
		_, err = ns.Rename(ctx, bb.RootDir, "x", d.Dir, "x", RenameOptions{})
		wantKind(t, "rename into a removed directory", err, bb.NotFound)
		left := 0
		if err := ns.ScanAll(ctx, func(bb.Entry) error { left++; return nil }); err != nil || left != 1 {
			t.Errorf("%d entries left: %v", left, err)
		}
	})
}

func TestMarkLeftByACrash(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		for i, use := range []func(*testing.T, bb.Entry) error{
			func(t *testing.T, d bb.Entry) error { _, err := ns.Create(ctx, file(t, ns, d.Dir, "f")); return err },
			func(t *testing.T, d bb.Entry) error { _, err := ns.Mkdir(ctx, d.Dir, "f", Owner{}); return err },
			func(t *testing.T, d bb.Entry) error {
				create(t, ns, bb.RootDir, "from")
				_, err := ns.Rename(ctx, bb.RootDir, "from", d.Dir, "f", RenameOptions{})
				return err
			},
		} {
			name := string(rune('a' + i))
			d := mkdir(t, ns, bb.RootDir, name)
			if _, err := ns.markEmpty(ctx, "remove", &d); err != nil {
				t.Fatal(err)
			}
			if err := use(t, d); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			_, err := ns.Remove(ctx, bb.RootDir, name, RemoveOptions{})
			wantKind(t, "remove after use", err, bb.NotEmpty)
		}
	})
}

func TestRename(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to string
		o        RenameOptions
		kind     bb.Kind
		there    []string // paths afterwards
		gone     []string
	}{
		"file":                          {"f", "d/new", RenameOptions{}, 0, []string{"d/new"}, []string{"f"}},
		"file onto a file":              {"f", "g", RenameOptions{}, bb.Exists, []string{"f", "g"}, nil},
		"file replaces a file":          {"f", "g", RenameOptions{Replace: true}, 0, []string{"g"}, []string{"f"}},
		"file onto itself":              {"f", "f", RenameOptions{}, 0, []string{"f"}, nil},
		"file replaces a directory":     {"f", "d", RenameOptions{Replace: true}, bb.IsDirectory, []string{"f", "d/sub"}, nil},
		"nothing":                       {"none", "g", RenameOptions{Replace: true}, bb.NotFound, []string{"g"}, nil},
		"directory":                     {"d", "empty/d", RenameOptions{}, 0, []string{"empty/d/sub/h"}, []string{"d"}},
		"directory, same parent":        {"d", "d2", RenameOptions{}, 0, []string{"d2/sub/h"}, []string{"d"}},
		"directory replaces empty":      {"d", "empty", RenameOptions{Replace: true}, 0, []string{"empty/sub/h"}, []string{"d"}},
		"directory onto empty":          {"d", "empty", RenameOptions{}, bb.Exists, []string{"d/sub/h", "empty"}, nil},
		"directory replaces a full one": {"empty", "d", RenameOptions{Replace: true}, bb.NotEmpty, []string{"d/sub/h", "empty"}, nil},
		"directory replaces a file":     {"d", "f", RenameOptions{Replace: true}, bb.NotDirectory, []string{"d/sub/h", "f"}, nil},
		"directory below itself":        {"d", "d/sub/d", RenameOptions{}, bb.Invalid, []string{"d/sub/h"}, nil},
		"directory into itself":         {"d", "d/x", RenameOptions{}, bb.Invalid, []string{"d/sub/h"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, ns *Namespace) {
				ctx := testContext(t)
				f := create(t, ns, bb.RootDir, "f")
				g := create(t, ns, bb.RootDir, "g")
				mkdir(t, ns, bb.RootDir, "empty")
				sub, err := ns.MkdirAll(ctx, "d/sub", Owner{})
				if err != nil {
					t.Fatal(err)
				}
				create(t, ns, sub.Dir, "h")
				sd, sn, err := ns.ResolveParent(ctx, c.from)
				if err != nil {
					t.Fatal(err)
				}
				dd, dn, err := ns.ResolveParent(ctx, c.to)
				if err != nil {
					t.Fatal(err)
				}
				r, err := ns.Rename(ctx, sd, sn, dd, dn, c.o)
				wantKind(t, "rename", err, c.kind)
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
					wantKind(t, p, err, bb.NotFound)
				}
				if _, err := ns.Resolve(ctx, "d"); err == nil {
					d, _ := ns.Resolve(ctx, "d")
					create(t, ns, d.Dir, "after") // no mark was left
				}
				checkPaths(t, ns)
				if c.kind == 0 && r.Entry.Revision != 0 {
					if _, err := ns.Put(ctx, r.Entry); err != nil {
						t.Errorf("put of the renamed entry: %v", err)
					}
				}
			})
		})
	}
}

func TestRemoveAll(t *testing.T) {
	t.Parallel()
	for _, op := range []bool{false, true} {
		eachMode(t, func(t *testing.T, ns *Namespace) {
			ctx := testContext(t)
			sub, err := ns.MkdirAll(ctx, "top/a/b", Owner{})
			if err != nil {
				t.Fatal(err)
			}
			top, _ := ns.Resolve(ctx, "top")
			for i := range 1100 {
				create(t, ns, top.Dir, "f"+string(rune('a'+i%26))+time.Duration(i).String())
			}
			for i := range 20 {
				create(t, ns, sub.Dir, time.Duration(i).String())
			}
			create(t, ns, bb.RootDir, "stays")
			n := 0
			if err := ns.RemoveAll(ctx, bb.RootDir, "top", RemoveOptions{StoreOp: op}, func(bb.Entry) { n++ }); err != nil {
				t.Fatal(err)
			}
			if n != 1123 {
				t.Errorf("told of %d, want 1123", n)
			}
			if got := tree(t, ns); len(got) != 1 || got["stays"] == "" {
				t.Errorf("left %d", len(got))
			}
			ops, err := ns.StoreOps(ctx)
			if err != nil || op && len(ops) != 1123 || !op && len(ops) != 0 {
				t.Fatalf("%d operations, %v", len(ops), err)
			}
			if op && (ops[len(ops)-1].OldPath != "top" || !ops[len(ops)-1].IsDir) {
				t.Errorf("the last operation is %+v", ops[len(ops)-1])
			}
			wantKind(t, "again", ns.RemoveAll(ctx, bb.RootDir, "top", RemoveOptions{}, nil), bb.NotFound)
		})
	}
}

func TestStoreOps(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		all := RenameOptions{Replace: true, StoreOp: true}
		d, err := ns.MkdirAll(ctx, "a/b", Owner{})
		if err != nil {
			t.Fatal(err)
		}
		f := create(t, ns, d.Dir, "f")
		f.Flushed = bb.Flushed{Generation: 1, ETag: "e", Size: 4, Codec: "zstd", By: "n1", At: time.Unix(1, 2).UTC()}
		if _, err := ns.Put(ctx, f); err != nil {
			t.Fatal(err)
		}
		steps := []func() error{
			func() error { _, err := ns.Rename(ctx, d.Dir, "f", bb.RootDir, "g", all); return err },
			func() error { _, err := ns.Rename(ctx, bb.RootDir, "a", bb.RootDir, "z", all); return err },
			func() error { _, err := ns.Remove(ctx, d.Parent, "b", RemoveOptions{StoreOp: true}); return err },
			func() error { _, err := ns.Remove(ctx, bb.RootDir, "g", RemoveOptions{StoreOp: true}); return err },
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
		want := []StoreOp{
			{Op: OpRename, OldPath: "a/b/f", NewPath: "g", File: f.File, Flushed: f.Flushed, By: "me"},
			{Op: OpRename, OldPath: "a", NewPath: "z", IsDir: true, By: "me"},
			{Op: OpRemove, OldPath: "z/b", IsDir: true, By: "me"},
			{Op: OpRemove, OldPath: "g", File: f.File, Flushed: f.Flushed, By: "me"},
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
		e := create(t, ns, bb.RootDir, "file")
		_, err = ns.DoneStoreOp(ctx, e.Revision)
		wantKind(t, "done with an entry", err, bb.Invalid)
		_, err = ns.StoreOpPending(ctx, e.Revision)
		wantKind(t, "pending entry", err, bb.Invalid)
		if _, err := ns.Lookup(ctx, bb.RootDir, "file"); err != nil {
			t.Error(err)
		}
	})
}

// TestRenameKeepsReplaced: a file that was never flushed knows what the store has of the one that
// it has replaced, until it leaves the name. The store is to remove that then.
func TestRenameKeepsReplaced(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		over := RenameOptions{Replace: true}
		noted := RenameOptions{Replace: true, StoreOp: true}
		was := bb.Flushed{Generation: 1, ETag: "e", Codec: "zstd", By: "n1"}
		rename := func(from, to string, o RenameOptions, replaced bb.Flushed) {
			t.Helper()
			r, err := ns.Rename(ctx, bb.RootDir, from, bb.RootDir, to, o)
			if err != nil {
				t.Fatal(err)
			}
			e, err := ns.Lookup(ctx, bb.RootDir, to)
			if err != nil || e.Replaced != replaced || r.Entry.Replaced != replaced {
				t.Errorf("%s over %s: replaced %+v, %+v, want %+v (%v)", from, to, e.Replaced, r.Entry.Replaced, replaced, err)
			}
		}
		flushed := func(name string) bb.Entry {
			t.Helper()
			e := create(t, ns, bb.RootDir, name)
			e.Flushed = was
			if _, err := ns.Put(ctx, e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		flushed("f")
		create(t, ns, bb.RootDir, "f2")
		create(t, ns, bb.RootDir, "f3")
		rename("f2", "f", over, was)
		rename("f3", "f", over, was)
		rename("f", "g", noted, bb.Flushed{})
		flushed("h")
		rename("g", "h", over, was)
		last, err := ns.Remove(ctx, bb.RootDir, "h", RemoveOptions{StoreOp: true})
		if err != nil {
			t.Fatal(err)
		}
		moved := flushed("i")
		flushed("j")
		create(t, ns, bb.RootDir, "j2")
		rename("j2", "j", over, was)
		rename("i", "j", noted, bb.Flushed{})
		ops, err := ns.StoreOps(ctx)
		if err != nil {
			t.Fatal(err)
		}
		one := []bb.Content{{Size: last.Size, Checksum: last.Checksum}} // all have it
		want := []StoreOp{
			{Op: OpRename, OldPath: "f", NewPath: "g", File: last.File, Left: was, Attempts: one, By: "me"},
			{Op: OpRemove, OldPath: "h", File: last.File, Left: was, Attempts: one, By: "me"},
			{Op: OpRename, OldPath: "i", NewPath: "j", File: moved.File, Flushed: was, Replaced: was, ReplacedAttempts: one, By: "me"},
		}
		for i := range ops {
			ops[i].Seq, ops[i].Revision = 0, 0
		}
		if !reflect.DeepEqual(ops, want) {
			t.Errorf("noted %+v, want %+v", ops, want)
		}
	})
}

// TestAttemptsFollowRenames: what flushes may have put under a name without a record is known to
// whatever has the name next, and to the operations that the store has yet to follow.
func TestAttemptsFollowRenames(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ns *Namespace) {
		ctx := testContext(t)
		contents := func(sizes ...int64) (all []bb.Content) {
			for _, n := range sizes {
				all = append(all, bb.Content{Size: n, Checksum: uint64(n)})
			}
			return all
		}
		write := func(name string, flushed bool, sizes ...int64) {
			t.Helper()
			e := create(t, ns, bb.RootDir, name)
			for _, n := range sizes {
				if _, err := ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
					if now.Size == e.Size { // the first: nothing was written before
						now.Attempts = nil
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
			if _, err := ns.Rename(ctx, bb.RootDir, from, bb.RootDir, to, RenameOptions{Replace: true, StoreOp: true}); err != nil {
				t.Fatal(err)
			}
			e, err := ns.Lookup(ctx, bb.RootDir, to)
			if err != nil || !slices.Equal(e.Attempts, want) {
				t.Errorf("%s over %s: attempts %v, want %v (%v)", from, to, e.Attempts, want, err)
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
		rename("a", "b", contents(21, 22)) // what it may have left under its own name is removed there
		lastOp(contents(11, 12), nil)
		write("c", true, 31, 32, 33)
		rename("c", "b", contents(32, 21, 22, 12)) // it takes along what may be under its name
		lastOp(contents(32, 33), contents(21, 22, 12))
		rename("b", "d", contents(32, 21, 22, 12))
		if _, err := ns.Remove(ctx, bb.RootDir, "d", RemoveOptions{StoreOp: true}); err != nil {
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
			if _, err := ns.Rename(ctx, bb.RootDir, "e", bb.RootDir, "f", RenameOptions{Replace: true, StoreOp: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := ns.Rename(ctx, bb.RootDir, "f", bb.RootDir, "e", RenameOptions{StoreOp: true}); err != nil {
				t.Fatal(err)
			}
		}
		if e, err := ns.Lookup(ctx, bb.RootDir, "e"); err != nil || len(e.Attempts) != bb.MaxAttempts || e.Attempts[bb.MaxAttempts-1].Size != 3039 {
			t.Errorf("%d attempts, %v; want %d", len(e.Attempts), err, bb.MaxAttempts)
		}
	})
}

// TestTakeOverStoreOps: of two that believe an operation to be theirs, one has it, and
// the order stays.
func TestTakeOverStoreOps(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	dead := newBuffer(t, connectTo(t, Options{InProcess: s, Node: "dead"}), "buf")
	heir, err := connectTo(t, Options{InProcess: s, Node: "heir"}).Namespace(testContext(t), "buf")
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	rename := func(ns *Namespace, from, to string) {
		t.Helper()
		if _, err := ns.Rename(ctx, bb.RootDir, from, bb.RootDir, to, RenameOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(t, dead, bb.RootDir, "a")
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
