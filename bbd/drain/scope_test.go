package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"forebay/bbd/access"
	"forebay/bbd/flushrule"
	"forebay/bbd/walk"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/namespace"
	"forebay/meta/ops"
)

// tree is a buffer whose entries lie in its root, and its namespace.
type tree struct {
	Buffer  // panics where a test needs more
	spec    bb.Buffer
	entries []bb.Entry
	ops     []namespace.StoreOp
	gone    map[string]bool // removed after the namespace was read
}

func (b *tree) Spec() bb.Buffer { return b.spec }
func (b *tree) Rules() *flushrule.Buffer {
	return flushrule.New(flushrule.Options{}, b.spec, nil, nil, nil)
}
func (b *tree) Names() Names                    { return names{b} }
func (b *tree) Owner(e *bb.Entry) bb.NodeID     { return e.Holders[0] }
func (b *tree) OwnedElsewhere(e *bb.Entry) bool { return e.Holders[0] != "n1" }
func (b *tree) notThere(path string) error      { return bb.E(bb.NotFound, "look", path, "it is not there") }
func (b *tree) has(name string) bool            { return b.find(name) != nil }
func (b *tree) find(name string) (e *bb.Entry) {
	if i := slices.IndexFunc(b.entries, func(e bb.Entry) bool { return e.Name == name }); i >= 0 {
		e = &b.entries[i]
	}
	return e
}

func (b *tree) Path(_ context.Context, e *bb.Entry) (string, error) {
	if b.gone[e.Name] {
		return "", b.notThere(e.Name)
	}
	return e.Name, nil
}

func (b *tree) Walk(_ context.Context, _ access.Caller, _, path string, visit walk.Visitor) error {
	if path != "" && !b.has(path) {
		return b.notThere(path)
	}
	for i := range b.entries {
		if e := &b.entries[i]; !e.IsDir() && (path == "" || e.Name == path) {
			if err := visit.File(e.Name, e); err != nil {
				return err
			}
		}
	}
	return nil
}

type names struct{ b *tree }

func (n names) ScanAll(_ context.Context, visit func(bb.Entry) error) error {
	for _, e := range n.b.entries {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

func (n names) Resolve(_ context.Context, path string) (bb.Entry, error) {
	if e := n.b.find(path); e != nil {
		return *e, nil
	}
	return bb.Entry{}, n.b.notThere(path)
}

func (n names) StoreOps(context.Context) ([]namespace.StoreOp, error) {
	return slices.Clone(n.b.ops), nil
}

func (n names) Txns(context.Context) ([]bb.Txn, error) { return nil, nil }

// newTree has a file in each state at this node, n1, and a dirty and an open one at another.
func newTree() *tree {
	file := func(id bb.FileID, name string, node bb.NodeID) bb.Entry {
		return bb.Entry{Type: bb.TypeFile, File: id, Generation: 2, Name: name, Size: int64(id), Holders: []bb.NodeID{node}}
	}
	b := &tree{spec: bb.Buffer{Name: "b", NoFlush: []string{"*.tmp"}}, gone: map[string]bool{"removed": true}}
	b.entries = []bb.Entry{
		file(1, "dirty", "n1"), file(2, "clean", "n1"), file(3, "open", "n1"), file(4, "lost", "n1"), file(5, "x.tmp", "n1"),
		file(6, "there", "n2"), file(7, "open there", "n2"), file(8, "removed", "n1"),
		{Type: bb.TypeDirectory, Name: "dir"},
	}
	b.entries[1].SetFlushed(bb.Flushed{Generation: 2})
	b.entries[2].Open, b.entries[6].Open = true, true
	b.entries[3].Lost = true
	return b
}

func paths[K comparable](of map[K]string) string { return fmt.Sprint(slices.Sorted(maps.Values(of))) }

// TestRest: a drain has left the dirty files of all owners, unless a pattern keeps them back, and the
// lost ones. A path that is gone has nothing left.
func TestRest(t *testing.T) {
	t.Parallel()
	s := New(Options{Node: "n1"})
	for below, want := range map[string]string{
		"": "[dirty there] 1", "dirty": "[dirty] 0", "clean": "[] 0", "x.tmp": "[] 0", "lost": "[] 1", "nowhere": "[] 0",
	} {
		left, err := s.scope(newTree(), below).rest(t.Context())
		if got := fmt.Sprint(paths(left.dirty), " ", left.lostTotal); err != nil || got != want {
			t.Errorf("below %q: %s (%v), want %s", below, got, err, want)
		}
	}
}

// TestDirty: this node flushes its own dirty files. Kept and open files are reported.
func TestDirty(t *testing.T) {
	t.Parallel()
	b := newTree()
	c := New(Options{Node: "n1"}).scope(b, "")
	dirty, report, err := c.dirty(t.Context())
	if err != nil || len(dirty) != 2 || dirty[content{1, 2}].path != "dirty" || dirty[content{8, 2}].path != "removed" {
		t.Errorf("dirty: %v (%v)", dirty, err)
	}
	if fmt.Sprint(report.Excluded, report.Open) != "[x.tmp] [open]" {
		t.Errorf("held %v, open %v", report.Excluded, report.Open)
	}
	b.entries[0].SetFlushed(bb.Flushed{Generation: 2})
	b.entries[7].Holders[0] = "n2"
	if err := c.stillDirty(t.Context(), dirty); err != nil || len(dirty) != 0 {
		t.Errorf("after the flush of one and the move of the other: %v (%v)", dirty, err)
	}
}

// TestAway: the dirty and open files of owners without an answer are named. A task without a node is
// about those of all nodes that have none.
func TestAway(t *testing.T) {
	t.Parallel()
	tasks, err := Tasks([]bb.NodeID{"n3", "n1"})
	if err != nil || len(tasks) != 3 || tasks[1].Node != "n1" || tasks[2].Node != "n3" {
		t.Fatalf("tasks: %+v (%v)", tasks, err)
	}
	for name, task := range map[string]ops.Task{"of all others": tasks[0], "of a node": {Node: "n2"}} {
		isAway, err := awayOf(&task)
		if err != nil {
			t.Fatal(err)
		}
		answer := new(wire.Progress)
		if err := New(Options{Node: "n1"}).scope(newTree(), "").addAway(t.Context(), answer, isAway); err != nil {
			t.Fatal(err)
		}
		if len(answer.Failed) != 2 || answer.Failed[0].Path != "there" || answer.Failed[1].Path != "open there" || answer.BytesTotal != 13 {
			t.Errorf("%s: %v", name, answer)
		}
	}
}

// stuck is a flusher of which an operation has failed.
type stuck struct {
	Flusher
	path string
}

func (s stuck) OpsStuck(_, path string) error {
	if path == s.path {
		return bb.E(bb.Permission, "rename", path, "refused")
	}
	return nil
}

var _ Flusher = (*flusher.Flusher)(nil)

// TestCarriedOut: a drain below a path waits for the operations that concern it alone, and not for one
// that has failed.
func TestCarriedOut(t *testing.T) {
	t.Parallel()
	b := newTree()
	b.ops = []namespace.StoreOp{{OldPath: "other"}, {OldPath: "from", NewPath: "to/x"}}
	s := New(Options{Node: "n1", Flusher: stuck{path: "from"}})
	for below, want := range map[string]bb.Kind{"dirty": 0, "to": bb.Permission, "from": bb.Permission} {
		err := s.scope(b, below).carriedOut(t.Context())
		if (err != nil) != (want != 0) || err != nil && bb.KindOf(err) != want {
			t.Errorf("below %s: %v, want %v", below, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.scope(b, "other").carriedOut(ended); bb.KindOf(err) != bb.Unavailable {
		t.Errorf("one that is on its way: %v", err)
	}
}

// TestNodeState: a node that is being emptied, or was, accepts nothing. One of which not all was saved
// does again.
func TestNodeState(t *testing.T) {
	t.Parallel()
	var n NodeState
	n.Begin()
	n.Begin()
	if n.undo() || !n.Active() {
		t.Error("undone while drains run")
	}
	n.end(false)
	if !n.Active() {
		t.Error("works while a drain runs")
	}
	if n.end(false); n.Active() {
		t.Error("does not work after drains that left something")
	}
	n.Begin()
	if n.end(true); !n.Active() {
		t.Error("works after it was emptied")
	}
	if !n.undo() || n.Active() {
		t.Error("cannot be undone")
	}
}
