package nslog_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
)

// merged is a model of MergeDir, on paths. It returns whether all below a path was moved.
func merged(o namespacetest.Oracle, from, to string) bool {
	whole := true
	for _, p := range slices.Sorted(maps.Keys(o)) {
		if path.Dir(p) != from {
			continue
		}
		target := path.Join(to, path.Base(p))
		switch {
		case o[target] == "":
			o.Rename(p, target, false)
		case o[p] == "/" && o[target] == "/" && merged(o, p, target):
			o.Remove(p)
		default:
			whole = false
		}
	}
	return whole
}

// mergeAll merges until nothing is left to be done, and checks the moves that are reported.
func mergeAll(t *testing.T, e *nslog.Engine, from, to bb.DirID) {
	t.Helper()
	ctx := metatest.Context(t)
	for more := true; more; {
		var moved []nslog.Merged
		var err error
		if moved, more, err = e.MergeDir(ctx, from, to, 0, nil); err != nil {
			t.Fatal(err)
		}
		for i := range moved {
			m := &moved[i]
			if e, err := e.Lookup(ctx, m.Was.Parent, m.Was.Name); bb.KindOf(err) != bb.NotFound {
				t.Errorf("%s was moved, and is at its old place: %+v (%v)", m.Was.Name, e, err)
			}
			if m.Is.Name == "" {
				if gone, err := e.DirGone(ctx, m.Was.Dir); !gone || err != nil {
					t.Errorf("directory %s was removed, and is there (%v)", m.Was.Name, err)
				}
				continue
			}
			if now, err := e.Lookup(ctx, m.Is.Parent, m.Is.Name); err != nil || now.Revision != m.Is.Revision || now.File != m.Was.File || now.Dir != m.Was.Dir {
				t.Errorf("%s is %+v (%v), want %+v", m.Was.Name, now, err, m.Is)
			}
		}
	}
}

func TestMergeDir(t *testing.T) {
	t.Parallel()
	e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me", CheckpointBytes: 50_000})
	rnd := rand.New(rand.NewPCG(1, 2))
	subject, want := namespacetest.Subject{T: t, NS: e}, namespacetest.Oracle{}
	for round := range 30 {
		top := fmt.Sprint("r", round)
		for _, dir := range []string{top, top + "/from", top + "/to"} {
			if k, err := want.Add(dir, "/"), subject.Add(dir, "/"); k != 0 || err != nil {
				t.Fatal(k, err)
			}
		}
		for i := range 60 {
			p := path.Join(top, []string{"from", "to"}[i%2], fmt.Sprint("n", rnd.IntN(5)))
			for rnd.IntN(3) > 0 {
				p = path.Join(p, fmt.Sprint("n", rnd.IntN(5)))
			}
			what := "/"
			if rnd.IntN(2) == 0 {
				what = bb.FileID(1 + 100*round + i).String()
			}
			if k, err := want.Add(p, what), subject.Add(p, what); bb.KindOf(err) != k {
				t.Fatalf("%s: %v, want kind %v", p, err, k)
			}
		}
		from, to := resolve(t, e, top+"/from"), resolve(t, e, top+"/to")
		mergeAll(t, e, from, to)
		merged(want, top+"/from", top+"/to")
		if got := namespacetest.Paths(t, e); !maps.Equal(got, map[string]string(want)) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
	}
	namespacetest.CheckPaths(t, e)
}

func resolve(t *testing.T, e *nslog.Engine, path string) bb.DirID {
	t.Helper()
	found, err := e.Resolve(metatest.Context(t), path)
	if err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

// A merge with a bound of entries reads no more than it moves.
func TestMergeSome(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me"})
	from, to := namespacetest.Mkdir(t, e, bb.RootDir, "from"), namespacetest.Mkdir(t, e, bb.RootDir, "to")
	const files, most = 50, 20
	for i := range files {
		namespacetest.Create(t, e, from.Dir, fmt.Sprintf("f%03d", i))
	}
	for left := files; left > 0; {
		looked := 0
		moved, more, err := e.MergeDir(ctx, from.Dir, to.Dir, most, func(_ *bb.Entry, there bb.DirID) bool {
			looked++
			return there == to.Dir
		})
		if err != nil || len(moved) != min(left, most) || looked != len(moved) || more != (left > most) {
			t.Fatalf("of %d entries %d were moved, %d looked at, more: %v, %v", left, len(moved), looked, more, err)
		}
		left -= len(moved)
	}
}

func TestMergeDirRefused(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	e := openOn(t, newStream(t, metatest.StartServer(t, t.TempDir())), nslog.Options{Node: "me"})
	a := namespacetest.Mkdir(t, e, bb.RootDir, "a")
	b := namespacetest.Mkdir(t, e, a.Dir, "b")
	c := namespacetest.Mkdir(t, e, bb.RootDir, "c")
	namespacetest.Create(t, e, a.Dir, "f")
	for what, dirs := range map[string][2]bb.DirID{"itself": {a.Dir, a.Dir}, "what is in it": {a.Dir, b.Dir}, "what it is in": {b.Dir, a.Dir}} {
		_, _, err := e.MergeDir(ctx, dirs[0], dirs[1], 0, nil)
		metatest.WantKind(t, "merged with "+what, err, bb.Invalid)
	}
	if _, err := e.Remove(ctx, bb.RootDir, "c", namespace.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	_, _, err := e.MergeDir(ctx, a.Dir, c.Dir, 0, nil)
	metatest.WantKind(t, "merged with what is gone", err, bb.NotFound)
	if moved, more, err := e.MergeDir(ctx, c.Dir, a.Dir, 0, nil); len(moved) > 0 || more || err != nil {
		t.Errorf("what is gone was merged: %v %v %v", moved, more, err)
	}
	// A directory that a transaction is committed into stays, with all below it.
	d := namespacetest.Mkdir(t, e, bb.RootDir, "d")
	marked := namespacetest.Mkdir(t, e, d.Dir, "b")
	marked.Txn = 9
	if _, err := e.Put(ctx, marked); err != nil {
		t.Fatal(err)
	}
	namespacetest.Create(t, e, b.Dir, "g")
	mergeAll(t, e, a.Dir, d.Dir)
	if got := namespacetest.Names(t, e, a.Dir); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v is left, want the directory that is marked", got)
	}
}

// Many are merged at a time, while others create files in the merged directories and rename them.
// Each file is in one place, and many changes share a message.
func TestMergeDirTogether(t *testing.T) {
	t.Parallel()
	ctx := metatest.Context(t)
	s := newStream(t, metatest.StartServer(t, t.TempDir()))
	e := openOn(t, s, nslog.Options{Node: "me", CheckpointBytes: 100_000})
	const tasks, parts = 12, 8
	to := namespacetest.Mkdir(t, e, bb.RootDir, "to")
	var all sync.WaitGroup
	var mu sync.Mutex
	files := map[bb.FileID]bool{}
	for task := range tasks {
		all.Go(func() {
			from, err := e.Mkdir(ctx, bb.RootDir, fmt.Sprint("task", task), namespace.Owner{})
			if err != nil {
				t.Error(err)
				return
			}
			var late sync.WaitGroup
			for part := range parts {
				d, err := e.Mkdir(ctx, from.Dir, fmt.Sprint("p", part), namespace.Owner{})
				if err != nil {
					t.Error(err)
					return
				}
				add := func(name string) {
					f := namespacetest.File(d.Dir, name)
					_, err := e.Create(ctx, f)
					if k := bb.KindOf(err); err != nil && k != bb.NotFound {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					files[f.File] = files[f.File] || err == nil
				}
				add(fmt.Sprint("f", task))
				late.Go(func() { add(fmt.Sprint("late", task)) })
				late.Go(func() {
					_, err := e.Rename(ctx, d.Dir, fmt.Sprint("f", task), from.Dir, fmt.Sprint("moved", task, "-", part), namespace.RenameOptions{})
					if k := bb.KindOf(err); err != nil && k != bb.NotFound {
						t.Error(err)
					}
				})
			}
			for more := true; more; {
				if _, more, err = e.MergeDir(ctx, from.Dir, to.Dir, 0, nil); err != nil {
					t.Error(err)
					return
				}
			}
			late.Wait()
			mergeLeft(ctx, t, e, from.Dir, to.Dir)
		})
	}
	all.Wait()
	for p, what := range namespacetest.Paths(t, e) {
		if id, err := bb.ParseFileID(what); what != "/" && (err != nil || !files[id]) {
			t.Errorf("%s is file %s, which was not made or is there twice", p, what)
		} else if what != "/" {
			files[id] = false
		}
	}
	for id, there := range files {
		if there {
			t.Errorf("file %v is gone", id)
		}
	}
	namespacetest.CheckPaths(t, e)
}

// mergeLeft merges entries that have come in the meantime.
func mergeLeft(ctx context.Context, t *testing.T, e *nslog.Engine, from, to bb.DirID) {
	if _, _, err := e.MergeDir(ctx, from, to, 0, nil); err != nil {
		t.Error(err)
	}
	left, err := e.Sample(ctx, from)
	if err != nil || len(left) > 0 {
		t.Errorf("%d entries are left (%v)", len(left), err)
	}
}
