package posix

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/internal/durabletest"
	"forebay/internal/powertest"
)

// powerRun does things to a store until one fails, and writes them down.
type powerRun struct {
	t    *testing.T
	s    *Store
	past *durabletest.History
	ids  uint64
	now  map[string]durabletest.Version
	last durabletest.Event // the operation that failed
}

func (r *powerRun) do(e durabletest.Event, f func(ctx context.Context) error) bool {
	ended := r.past.Begin(e)
	if err := f(r.t.Context()); err != nil {
		r.last = e
		return false
	}
	ended(durabletest.Done)
	for _, c := range e.Changes {
		r.now[c.Path] = c.Version
	}
	return true
}

func (r *powerRun) put(name string, size int) bool {
	r.ids++
	p := make([]byte, size)
	durabletest.Fill(p, r.ids, 0)
	change := durabletest.Change{Path: name, Version: durabletest.Of(p)}
	return r.do(durabletest.Event{Op: durabletest.Close, Keeps: durabletest.OnStore, Changes: []durabletest.Change{change}},
		func(ctx context.Context) error {
			_, err := r.s.Put(ctx, name, backing.NewBytes(p), backing.PutOptions{Attrs: &backing.Attrs{Mode: 0o644}})
			return err
		})
}

func (r *powerRun) rename(from, to string) bool {
	changes := []durabletest.Change{{Path: from}, {Path: to, Version: r.now[from]}}
	return r.do(durabletest.Event{Op: durabletest.Rename, Changes: changes}, func(ctx context.Context) error { return r.s.Rename(ctx, from, to) })
}

func (r *powerRun) remove(name string) bool {
	return r.do(durabletest.Event{Op: durabletest.Remove, Changes: []durabletest.Change{{Path: name}}},
		func(ctx context.Context) error { return r.s.Remove(ctx, name) })
}

// all does the operations of a flusher on a store: new files in new directories, small and large,
// files over files, moves and removals.
func (r *powerRun) all() bool {
	return r.put("a", 1000) && r.put("d/e/b", 3000) && r.put("a", 2000) && r.put("d/large", directMin+100) &&
		r.rename("a", "c") && r.put("a", 700) && r.rename("a", "c") && r.rename("d/e/b", "b") &&
		r.put("x/y", 600) && r.rename("x/y", "d/e/y") && r.remove("c") && r.put("c", 100) && r.remove("d/large") && r.put("d/large", 10)
}

// seen has the contents of final names.
func (r *powerRun) seen(dir string) durabletest.Observation {
	o := durabletest.Observation{Begin: r.past.Now(), Files: map[string]durabletest.Found{}, Live: true}
	for name := range r.now {
		o.Files[name] = durabletest.Found{}
	}
	for _, c := range r.last.Changes {
		o.Files[c.Path] = durabletest.Found{}
	}
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, file)
		if err != nil || e.IsDir() || backing.IsTemp(name) {
			return err
		}
		p, err := os.ReadFile(file)
		o.Files[name] = durabletest.Find(p)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// The power is cut after each change and each sync. The result of a confirmed call is there, bit
// for bit, that of any other is there as a whole or not at all, and a file that was being moved has
// one of its names.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of calls through FUSE, of one goroutine")
	}
	dir := t.TempDir()
	steps := 0
	for cut := 0; ; cut++ {
		ended := t.Run(fmt.Sprint("after ", cut), func(t *testing.T) {
			f := powertest.Mount(t, dir)
			s, err := Open(dir, options())
			if err != nil {
				t.Fatal(err)
			}
			f.CutAfter(cut)
			r := &powerRun{t: t, s: s, past: durabletest.NewHistory(), now: map[string]durabletest.Version{}}
			if r.all() {
				steps = len(f.Steps())
			}
			story := f.Steps()
			r.past.Over()
			f.Restart(0)
			for _, seed := range []uint64{0, 2, uint64(cut) + powertest.Corners} {
				if seed > 0 {
					f.Instead(seed)
				}
				o := r.seen(dir)
				for _, v := range r.past.Judge(o) {
					t.Errorf("seed %d: %v; steps %q", seed, v, story)
				}
				if c := r.last.Changes; len(c) == 2 && !o.Files[c[0].Path].Version.There && o.Files[c[1].Path].Version != c[1].Version {
					t.Errorf("seed %d: %s has neither its old name nor the new one, %s; steps %q", seed, c[0].Path, c[1].Path, story)
				}
			}
			again, err := Open(dir, options())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.Put(t.Context(), "d/after", backing.NewBytes(backingtest.Data(10, 1)), backing.PutOptions{}); err != nil {
				t.Errorf("a put after the cut: %v", err)
			}
		})
		if !ended || steps > 0 {
			break
		}
	}
	if steps < 60 {
		t.Errorf("everything took %d steps: the test does not test", steps)
	}
}
