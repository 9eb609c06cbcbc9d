package paths

import (
	"context"
	"fmt"
	"io/fs"
	"testing"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/txn"
)

// world is a namespace without unions: entries by place, and one transaction.
type world struct {
	Names   // of which the tests need no more than these
	entries map[bb.Place]bb.Entry
	txn     bb.Txn
	winner  string // of its tasks
	calls   []string
	before  func() // a change of attributes, once
}

func (w *world) Lookup(_ context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	e, ok := w.entries[bb.Place{Dir: dir, Name: name}]
	if !ok {
		return e, bb.NotFound
	}
	return e, nil
}

func (w *world) LookupUnion(ctx context.Context, _ txn.UnionDir, name string) (bb.Entry, txn.UnionDir, error) {
	e, err := w.Lookup(ctx, bb.RootDir, name)
	return e, txn.RootUnion(), err
}

func (w *world) Mkdir(_ context.Context, parent bb.DirID, name string, o namespace.Owner) (bb.Entry, error) {
	e := bb.Entry{Parent: parent, Name: name, Type: bb.TypeDirectory, Dir: bb.DirID(100 + len(w.entries)), UID: o.UID, GID: o.GID, Mode: o.Mode}
	w.entries[e.Place()] = e
	return e, nil
}

func (w *world) Txn(context.Context, bb.TxnID) (bb.Txn, error) { return w.txn, nil }
func (w *world) TxnTask(context.Context, bb.TxnID, string) (string, error) {
	return w.winner, nil
}

// materialize ends the union of a directory.
func (w *world) materialize(_ context.Context, id bb.TxnID) error {
	w.calls = append(w.calls, fmt.Sprint("materialize ", id))
	for at, e := range w.entries {
		if e.Txn == id {
			e.Txn = 0
			w.entries[at] = e
		}
	}
	return nil
}

// user is the owner of the tests' buffer, and other another one.
var (
	user  = access.Caller{UID: 1000, GIDs: []uint32{1000}}
	other = access.Caller{UID: 2000, GIDs: []uint32{2000}}
)

func newTree(entries ...bb.Entry) (*Tree, *world) {
	w := &world{entries: map[bb.Place]bb.Entry{}}
	for _, e := range entries {
		w.entries[e.Place()] = e
	}
	spec := bb.Buffer{Name: "b", UID: 1000, GID: 1000, Mode: 0o755, Tiers: []bb.TierRule{{Pattern: "out/", Tier: bb.TierDisk}}}
	return New(func() bb.Buffer { return spec }, w, w.materialize), w
}

func directory(name string, mode fs.FileMode) bb.Entry {
	return bb.Entry{Parent: bb.RootDir, Name: name, Type: bb.TypeDirectory, Dir: 50, UID: 1000, GID: 1000, Mode: mode}
}

// TestParent: the way to a name is open to users with the right to enter each directory, and no
// directory on it is a union of a transaction afterwards.
func TestParent(t *testing.T) {
	t.Parallel()
	union := directory("u", 0o755)
	union.Txn = 3
	for _, c := range []struct {
		name  string
		c     access.Caller
		path  string
		entry bb.Entry
		want  error // nil: it is in directory 50
		calls int
	}{
		{"a directory of the user's", user, "d/f", directory("d", 0o700), nil, 0},
		{"one that others may enter", other, "d/f", directory("d", 0o711), nil, 0},
		{"one that they may not", other, "d/f", directory("d", 0o700), bb.Permission, 0},
		{"a file", user, "d/f", bb.Entry{Parent: bb.RootDir, Name: "d", Type: bb.TypeFile, UID: 1000, Mode: 0o700}, bb.NotDirectory, 0},
		{"nothing", user, "x/f", directory("d", 0o700), bb.NotFound, 0},
		{"the root", user, "", directory("d", 0o700), bb.Invalid, 0},
		{"a union", user, "u/f", union, nil, 1},
	} {
		tree, w := newTree(c.entry)
		dir, name, err := tree.Parent(t.Context(), c.c, "open", c.path)
		if c.want != nil {
			if bb.KindOf(err) != c.want {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		} else if err != nil || dir.ID != 50 || name != "f" || len(w.calls) != c.calls {
			t.Errorf("%s: %+v, %q, %v, %q", c.name, dir, name, err, w.calls)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	t.Parallel()
	tree, w := newTree()
	e, err := tree.MkdirAll(t.Context(), user, "a", 0o2770)
	if err != nil || e.Mode != 0o770 || e.UID != 1000 {
		t.Errorf("%+v, %v", e, err)
	}
	if again, err := tree.MkdirAll(t.Context(), user, "a", 0o700); err != nil || again.Dir != e.Dir {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := tree.MkdirAll(t.Context(), other, "a/b", 0o700); bb.KindOf(err) != bb.Permission {
		t.Errorf("in another user's: %v", err)
	}
	if _, err := tree.Mkdir(t.Context(), other, "c", 0o700); bb.KindOf(err) != bb.Permission {
		t.Errorf("in the root, which is another user's: %v", err)
	}
	w.entries[bb.Place{Dir: bb.RootDir, Name: "f"}] = bb.Entry{Parent: bb.RootDir, Name: "f", Type: bb.TypeFile, UID: 1000, Mode: 0o600}
	if _, err := tree.MkdirAll(t.Context(), user, "f", 0o700); bb.KindOf(err) != bb.Exists {
		t.Errorf("where a file is: %v", err)
	}
}

func TestMayNotSet(t *testing.T) {
	t.Parallel()
	id := func(n uint32) *uint32 { return &n }
	system := access.Caller{System: true}
	members := access.Caller{UID: 1000, GIDs: []uint32{1000, 50}}
	for name, c := range map[string]struct {
		c   access.Caller
		a   namespace.Attr
		may bool
	}{
		"one's own":                     {user, namespace.Attr{}, true},
		"another's":                     {other, namespace.Attr{}, false},
		"another's, by root":            {system, namespace.Attr{UID: id(5), GID: id(6)}, true},
		"the owner that it has":         {user, namespace.Attr{UID: id(1000)}, true},
		"another owner":                 {user, namespace.Attr{UID: id(2000)}, false},
		"a group of the user's":         {members, namespace.Attr{GID: id(50)}, true},
		"the group that it has already": {user, namespace.Attr{GID: id(7)}, true},
		"a group of others":             {user, namespace.Attr{GID: id(50)}, false},
	} {
		if wrong := mayNotSet(&c.c, &bb.Entry{UID: 1000, GID: 7}, &c.a); (wrong == "") != c.may {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

// TestHidden: in the hidden tree, clients change entries below their attempts and nothing else, and make and
// remove the directories of attempts while the task is not decided.
func TestHidden(t *testing.T) {
	t.Parallel()
	id := bb.TxnID(7)
	x := bb.HiddenDir + "/" + id.String() + "/"
	open, closed := bb.Txn{ID: id, State: bb.TxnOpen, Destination: "out"}, bb.Txn{ID: id, State: bb.TxnFolded}
	for _, c := range []struct {
		path                 string
		txn                  bb.Txn
		winner               string
		change, make, remove bool
	}{
		{"f", open, "", true, true, true},
		{x + "attempt/t/1/f", open, "", true, true, true},
		{x + "attempt/t/1/f", closed, "1", true, true, true}, // its directory is gone by then
		{x + "attempt/t/1", open, "", false, true, true},
		{x + "attempt/t", open, "", false, true, true},
		{x + "attempt/t/1", open, "2", false, false, false},
		{x + "attempt/t/1", closed, "", false, false, false},
		{x + "attempt", open, "", false, false, false},
		{x + "output/f", open, "", false, false, false},
		{x[:len(x)-1], open, "", false, false, false},
	} {
		tree, w := newTree()
		w.txn, w.winner = c.txn, c.winner
		got := [3]bool{
			tree.MayChange("open", c.path) == nil, tree.mayMake(t.Context(), "mkdir", c.path) == nil, tree.MayRemove(t.Context(), c.path) == nil,
		}
		if got != [3]bool{c.change, c.make, c.remove} {
			t.Errorf("%s, %s, %q: change, make, remove: %v", c.path, c.txn.State, c.winner, got)
		}
	}
	tree, w := newTree()
	w.txn = open
	for _, c := range []struct {
		from, to string
		may      bool
	}{
		{"f", "g", true},
		{x + "attempt/t/1/f", x + "attempt/t/1/g", true},
		{x + "attempt/t/1/f", x + "attempt/t/2/f", false},
		{x + "attempt/t/1/f", "f", false},
		{"f", x + "attempt/t/1/f", false},
		{x + "attempt/t/1", x + "attempt/t/2", false},
	} {
		if err := tree.MayRename(c.from, c.to); (err == nil) != c.may {
			t.Errorf("rename of %s to %s: %v", c.from, c.to, err)
		}
	}
	for path, want := range map[string]bb.Tier{
		"out/a": bb.TierDisk, "a": bb.TierMemory, x + "attempt/t/1/a": bb.TierDisk, x + "output/a": bb.TierMemory,
	} {
		if got := tree.TierOf(t.Context(), path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}
