package nslog_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/stream"
)

// gate is a log with appends that wait while it is shut.
type gate struct {
	process
	shut chan struct{} // nil: it is open
}

func (g *gate) Append(ctx context.Context, subject string, data []byte, f stream.Fence) (uint64, error) {
	if g.shut != nil {
		<-g.shut
	}
	return g.process.Append(ctx, subject, data, f)
}

// tree is a namespace by the ids of its directories. Calls name a directory by its id, at any
// place.
type tree map[bb.DirID]map[string]bb.Entry

func treeOf(t *testing.T, ns namespace.Tree) tree {
	t.Helper()
	all := tree{bb.RootDir: {}}
	if err := ns.ScanAll(metatest.Context(t), func(e bb.Entry) error {
		if all[e.Parent] == nil {
			all[e.Parent] = map[string]bb.Entry{}
		}
		all[e.Parent][e.Name] = e
		if e.IsDir() && all[e.Dir] == nil {
			all[e.Dir] = map[string]bb.Entry{}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func (all tree) clone() tree {
	c := tree{}
	for id, entries := range all {
		c[id] = maps.Clone(entries)
	}
	return c
}

// paths returns the paths that lead from the root.
func (all tree) paths() map[string]string {
	out := map[string]string{}
	var walk func(bb.DirID, string)
	walk = func(dir bb.DirID, at string) {
		for name, e := range all[dir] {
			out[path.Join(at, name)] = idOf(&e)
			if e.IsDir() {
				walk(e.Dir, path.Join(at, name))
			}
		}
	}
	walk(bb.RootDir, "")
	return out
}

// call is a change that is made together with others.
type call struct {
	op       int // create, mkdir, remove, rename
	src, dst bb.DirID
	from, to string
	id       uint64 // of new entries
	replace  bool
	kind     bb.Kind // of its error
}

func (c *call) do(t *testing.T, ns namespace.Tree) {
	ctx := metatest.Context(t)
	var err error
	switch c.op {
	case 0:
		_, err = ns.Create(ctx, bb.Entry{Parent: c.src, Name: c.from, Type: bb.TypeFile, File: bb.FileID(c.id)})
	case 1:
		_, err = ns.Mkdir(ctx, c.src, c.from, namespace.Owner{})
	case 2:
		_, err = ns.Remove(ctx, c.src, c.from, namespace.RemoveOptions{StoreOp: c.replace})
	default:
		_, err = ns.Rename(ctx, c.src, c.from, c.dst, c.to, namespace.RenameOptions{Replace: c.replace, StoreOp: c.id%2 == 0})
	}
	c.kind = bb.KindOf(err)
}

// model does the same to a tree.
func (c *call) model(all tree) bb.Kind {
	e, there := all[c.src][c.from]
	switch {
	case c.op < 2 && all[c.src] == nil:
		return bb.NotFound
	case c.op < 2 && there:
		return bb.Exists
	case c.op == 0:
		all[c.src][c.from] = bb.Entry{Type: bb.TypeFile, File: bb.FileID(c.id)}
		return 0
	case c.op == 1:
		all[c.src][c.from] = bb.Entry{Type: bb.TypeDirectory, Dir: bb.DirID(c.id)}
		all[bb.DirID(c.id)] = map[string]bb.Entry{}
		return 0
	case !there:
		return bb.NotFound
	case c.op == 2 && e.IsDir() && len(all[e.Dir]) > 0:
		return bb.NotEmpty
	case c.op == 2:
		delete(all[c.src], c.from)
		if e.IsDir() {
			delete(all, e.Dir)
		}
		return 0
	}
	return c.modelRename(all, e)
}

func (c *call) modelRename(all tree, e bb.Entry) bb.Kind {
	old, taken := all[c.dst][c.to]
	switch {
	case all[c.dst] == nil:
		return bb.NotFound
	case c.src == c.dst && c.from == c.to:
		return 0
	case taken && !c.replace:
		return bb.Exists
	case taken && e.IsDir() && !old.IsDir():
		return bb.NotDirectory
	case taken && !e.IsDir() && old.IsDir():
		return bb.IsDirectory
	case e.IsDir() && all.below(c.dst, e.Dir):
		return bb.Invalid
	case taken && old.IsDir() && len(all[old.Dir]) > 0:
		return bb.NotEmpty
	}
	if taken && old.IsDir() {
		delete(all, old.Dir)
	}
	delete(all[c.src], c.from)
	all[c.dst][c.to] = e
	return 0
}

// below reports whether a directory is top, or below it.
func (all tree) below(dir, top bb.DirID) bool {
	for dir != bb.RootDir {
		if dir == top {
			return true
		}
		up := dir
		for parent, entries := range all {
			for _, e := range entries {
				if e.IsDir() && e.Dir == dir {
					up = parent
				}
			}
		}
		if up == dir {
			return false
		}
		dir = up
	}
	return dir == top
}

// explains reports whether some order of calls leads from a tree to their answers and to the
// entries afterwards.
func explains(all tree, calls []*call, after map[string]string) bool {
	if len(calls) == 0 {
		return maps.Equal(all.paths(), after)
	}
	for i, c := range calls {
		next := all.clone()
		if c.model(next) == c.kind && explains(next, slices.Concat(calls[:i], calls[i+1:]), after) {
			return true
		}
	}
	return false
}

// TestRounds queues several changes for the same round, over and over. Their answers, and the
// entries afterwards, are those of some order in which they happened one by one.
func TestRounds(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		log := &gate{process: process{simulated: &simulated{}, rnd: rnd}}
		e, err := nslog.Open(metatest.Context(t), log, newIDs(), nslog.Options{Buffer: "buf", Node: "me"})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.Prepare(metatest.Context(t), &bb.Buffer{Name: "buf", Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		succeeded := 0
		for round := range rounds {
			before := treeOf(t, e)
			dirs := slices.Sorted(maps.Keys(before))
			name := func() string { return string("ab"[rnd.IntN(2)]) }
			dir := func() bb.DirID { return dirs[rnd.IntN(len(dirs))] }
			log.shut = make(chan struct{})
			var callers sync.WaitGroup
			start := func(do func()) {
				callers.Go(do)
				synctest.Wait()
			}
			start(func() {
				if _, err := e.Update(metatest.Context(t), 0, "", func(*bb.Entry) error { return nil }); err != nil {
					t.Error(err)
				}
			})
			var calls []*call
			for i := range 4 {
				c := &call{
					op: rnd.IntN(6), src: dir(), from: name(), dst: dir(), to: name(), replace: rnd.IntN(2) == 0,
					id: uint64(1)<<62 + uint64(10*round+i),
				}
				calls = append(calls, c)
				start(func() { c.do(t, e) })
			}
			close(log.shut)
			callers.Wait()
			log.shut = nil
			for _, c := range calls {
				if c.kind == 0 {
					succeeded++
				}
			}
			after := treeOf(t, e).paths()
			if !explains(before, calls, after) {
				for _, c := range calls {
					t.Logf("%+v", *c)
				}
				t.Fatalf("round %d: no order of these leads from\n%v\nto\n%v", round, before.paths(), after)
			}
			if n := len(after); n > 9 {
				for _, top := range namespacetest.Names(t, e, bb.RootDir) {
					if err := e.RemoveAll(metatest.Context(t), bb.RootDir, top, namespace.RemoveOptions{}, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if succeeded < rounds/4 {
			t.Errorf("only %d changes succeeded", succeeded)
		}
	})
}
