package meta

import (
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/txn"
)

// damaged is a namespace of which one record is to be damaged.
type damaged struct {
	t    *testing.T
	dir  string
	tree *txn.Tree
}

// again damages the record and returns the namespace of the log that is begun anew, and its
// description.
func (d *damaged) again(fill func(), keep func(*bb.Entry) bool) (*txn.Tree, Anew) {
	d.t.Helper()
	ctx := testContext(d.t)
	d.dir = d.t.TempDir()
	s := startServer(d.t, d.dir)
	m := connectTo(d.t, Options{InProcess: s, SoleWriter: true, Engine: EngineLog, Node: "n1"})
	d.tree = newBuffer(d.t, m, "b")
	fill()
	spec, err := m.Buffer(ctx, "b")
	if err != nil {
		d.t.Fatal(err)
	}
	m.Close()
	s.Shutdown()
	metatest.FlipText(d.t, d.dir, "NS_forebay-b-", "the-damaged-one")
	s = startServer(d.t, d.dir)
	m = connectTo(d.t, Options{InProcess: s, SoleWriter: true, Node: "n1"})
	has, err := m.BeginAnew(ctx, spec, keep)
	if err != nil {
		d.t.Fatal(err)
	}
	tree, err := m.Namespace(ctx, "b")
	if err != nil {
		d.t.Fatal(err)
	}
	return tree, has
}

// flushed makes a file that the store has.
func (d *damaged) flushed(dir bb.DirID, name string, file bb.FileID) {
	d.t.Helper()
	e := bb.Entry{
		Parent: dir, Name: name, Type: bb.TypeFile, File: file, Generation: 3, Size: 4, Checksum: uint64(file), MTime: time.Unix(9, 0),
		Flushed: bb.Flushed{Generation: 3, ETag: "tag-" + file.String(), Size: 4, Checksum: uint64(file)},
	}
	if _, err := d.tree.Create(testContext(d.t), e); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) rename(from, to string) {
	d.t.Helper()
	if _, err := d.tree.Rename(testContext(d.t), bb.RootDir, from, bb.RootDir, to, namespace.RenameOptions{StoreOp: true, Replace: true}); err != nil {
		d.t.Fatal(err)
	}
}

// TestBeginAnewSpecial: symbolic links, FIFOs and sockets are in a log alone. All that can be read of it are in the
// next one.
func TestBeginAnewSpecial(t *testing.T) {
	t.Parallel()
	d := &damaged{t: t}
	specials := []bb.Entry{
		{Parent: bb.RootDir, Name: "l", Type: bb.TypeSymlink, File: 21, Extras: bb.Extras{Target: "../x"}, Mode: 0o777, MTime: time.Unix(9, 0).UTC()},
		{Parent: bb.RootDir, Name: "p", Type: bb.TypeFIFO, File: 22, Mode: 0o600, UID: 5, MTime: time.Unix(9, 0).UTC()},
		{Parent: bb.RootDir, Name: "s", Type: bb.TypeSocket, File: 23, Mode: 0o600, MTime: time.Unix(9, 0).UTC()},
	}
	tree, has := d.again(func() {
		namespacetest.Create(t, d.tree, bb.RootDir, "the-damaged-one")
		for _, e := range specials {
			if _, err := d.tree.Create(testContext(t), e); err != nil {
				t.Fatal(err)
			}
		}
		namespacetest.Mkdir(t, d.tree, bb.RootDir, "dir")
		attr := namespace.Attr{Xattr: &xattr.Change{Name: "user.a", Value: "of a directory"}}
		if _, err := d.tree.SetAttr(testContext(t), bb.RootDir, "dir", attr); err != nil {
			t.Fatal(err)
		}
	}, func(*bb.Entry) bool { return false })
	if has.Specials != len(specials) {
		t.Errorf("has %+v", has)
	}
	if dir, err := tree.Lookup(testContext(t), bb.RootDir, "dir"); err != nil || dir.Xattrs != string(xattr.Make(xattr.Attr{Name: "user.a", Value: "of a directory"})) {
		t.Errorf("%+v %v", dir, err)
	}
	for _, want := range specials {
		got, err := tree.Lookup(testContext(t), bb.RootDir, want.Name)
		got.Revision = 0
		if err != nil || got.Target != want.Target || got.Type != want.Type || got.File != want.File || got.Mode != want.Mode || got.UID != want.UID {
			t.Errorf("%+v (%v), want %+v", got, err, want)
		}
	}
}

// TestBeginAnewStoreOps: the next log has the operations that the store had yet to follow, except
// those that would meet the object of another file, or remove any object there. An unreadable
// rename is among them, if memory or a newer entry has the name.
func TestBeginAnewStoreOps(t *testing.T) {
	t.Parallel()
	d := &damaged{t: t}
	tree, _ := d.again(func() {
		dir, err := d.tree.MkdirAll(testContext(t), "dir", namespace.Owner{Mode: 0o700})
		if err != nil {
			t.Fatal(err)
		}
		d.flushed(dir.Dir, "in", 30)
		namespacetest.Create(t, d.tree, bb.RootDir, "the-damaged-one")
		for name, file := range map[string]bb.FileID{"a": 31, "b": 32, "c": 33, "d": 34, "memory": 35} {
			d.flushed(bb.RootDir, name, file)
		}
		never := bb.Entry{Parent: bb.RootDir, Name: "never", Type: bb.TypeFile, File: 36, Generation: 3, Open: true, MTime: time.Unix(9, 0)}
		if _, err := d.tree.Create(testContext(t), never); err != nil {
			t.Fatal(err)
		}
		d.rename("a", "a2")
		d.rename("b", "the-damaged-one")
		d.rename("the-damaged-one", "b3")
		d.rename("b3", "b4") // this one alone can be read
		d.rename("dir", "dir2")
		d.rename("c", "c2")
		d.flushed(bb.RootDir, "c", 33+100)
		if _, err := d.tree.Remove(testContext(t), bb.RootDir, "d", namespace.RemoveOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.tree.Remove(testContext(t), bb.RootDir, "never", namespace.RemoveOptions{StoreOp: true}); err != nil {
			t.Fatal(err)
		}
	}, func(e *bb.Entry) bool {
		if e.File == 35 {
			e.Name = "memory2"
		}
		return true
	})
	ops, err := tree.StoreOps(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, op := range ops {
		got = append(got, op.OldPath+" "+op.NewPath)
		if op.By != "n1" && op.By != "" {
			t.Errorf("%+v is another node's", op)
		}
	}
	for _, want := range []string{"memory memory2", "a a2", "b b4", "b3 b4", "dir dir2", "c c2", "d "} {
		if !slices.Contains(got, want) {
			t.Errorf("%q are there, want %q", got, want)
		}
	}
	if slices.Contains(got, "never ") {
		t.Errorf("%q are there: one removes whatever has the name", got)
	}
	if slices.Index(got, "b b4") > slices.Index(got, "a a2") {
		t.Errorf("%q: what cannot be read comes first", got)
	}
}

// TestBeginAnewCommitted: a transaction that was committed and has not got its files to their
// places continues. A transaction that was not committed is gone.
func TestBeginAnewCommitted(t *testing.T) {
	t.Parallel()
	for _, replace := range [][]string{nil, {"old"}} {
		d := &damaged{t: t}
		ids := map[string]bb.TxnID{}
		tree, has := d.again(func() {
			ctx := testContext(t)
			namespacetest.Create(t, d.tree, bb.RootDir, "the-damaged-one")
			for i, key := range []string{"committed", "open", "aborted"} {
				to, err := d.tree.MkdirAll(ctx, "to-"+key, namespace.Owner{Mode: 0o700})
				if err != nil {
					t.Fatal(err)
				}
				x, err := d.tree.BeginTxn(ctx, bb.Txn{Destination: "to-" + key, Dir: to.Dir, Key: key, Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				ids[key] = x.ID
				output, err := d.tree.MkdirAll(ctx, x.Path()+"/output/below", namespace.Owner{Mode: 0o700})
				if err != nil {
					t.Fatal(err)
				}
				d.flushed(output.Dir, "part", bb.FileID(40+i))
				switch key {
				case "committed":
					d.flushed(to.Dir, "old", 50)
					if _, err = d.tree.CommitTxn(ctx, x.ID, replace); err == nil {
						_, err = d.tree.DecideTxn(ctx, x.ID)
					}
				case "aborted":
					_, err = d.tree.AbortTxn(ctx, x.ID, "no")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}, func(*bb.Entry) bool { return true })
		if has.Decided != 1 || len(has.Replaces) != len(replace) {
			t.Errorf("has %+v", has)
		}
		for key, want := range map[string]bb.TxnState{"committed": bb.TxnFolding, "open": "", "aborted": bb.TxnAborted} {
			if x, err := tree.Txn(testContext(t), ids[key]); x.State != want || (err != nil) != (want == "") {
				t.Errorf("%s: %+v (%v)", key, x, err)
			}
		}
		if hidden, err := tree.HiddenTxns(testContext(t)); err != nil || !slices.Equal(hidden, []bb.TxnID{ids["committed"]}) {
			t.Errorf("trees of %v (%v)", hidden, err)
		}
		v, path := txn.RootUnion(), []string{"to-committed", "below", "part"}
		for i, name := range path {
			e, below, err := tree.LookupUnion(testContext(t), v, name)
			if err != nil || i == len(path)-1 && e.File != 40 {
				t.Fatalf("%v: %+v (%v)", path[:i+1], e, err)
			}
			v = below
		}
	}
}
