package posix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix/opendir"
	"forebay/internal/bb"
)

// Another program replaces a file between the check of its name and the step that depends on it.
// Its file is there afterwards.

// kernels are the abilities of file systems.
var kernels = map[string]func(*Options){
	"flags": func(*Options) {},
	"links": func(o *Options) { o.rename2 = refuseFlags },
	"neither": func(o *Options) {
		o.rename2 = refuseFlags
		o.link = func(*os.Root, string, string) error { return unix.EPERM }
	},
}

func refuseFlags(*os.Root, string, string, uint) error { return unix.EINVAL }

// raced is a store in which something happens between look and step.
type raced struct {
	*Store
	t   *testing.T
	dir string
}

func newRaced(t *testing.T, kernel func(*Options)) *raced {
	r := &raced{t: t, dir: t.TempDir()}
	opts := Options{Owner: backing.NewOwner(7)}
	kernel(&opts)
	s, err := Open(r.dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Store = s
	return r
}

func (r *raced) put(name, content string) backing.Version {
	r.t.Helper()
	o, err := r.Put(r.t.Context(), name, backing.NewBytes([]byte(content)), backing.PutOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return o.Version()
}

// foreign replaces the file under a name with another program's, once, between check and step.
func (r *raced) foreign(name, content string) {
	r.opts.between = func(string) {
		r.opts.between = func(string) {}
		file := filepath.Join(r.dir, "elsewhere")
		if err := errors.Join(os.WriteFile(file, []byte(content), 0o644), os.Rename(file, filepath.Join(r.dir, name))); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *raced) expect(want map[string]string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		got, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if w, ok := want[e.Name()]; err != nil || !ok || w != string(got) {
			r.t.Errorf("%s holds %q, %v; want %q", e.Name(), got, err, w)
		}
	}
	if len(entries) != len(want) {
		r.t.Errorf("%d files, want %d", len(entries), len(want))
	}
}

func (r *raced) mustBeForeign(err error) {
	r.t.Helper()
	if !errors.Is(err, backing.ErrForeign) {
		r.t.Errorf("error %v, want a conflict", err)
	}
}

func TestReplacedBeforeItIsRemoved(t *testing.T) {
	for name, kernel := range kernels {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, kernel)
			is := r.put("a", "ours")
			r.foreign("a", "theirs")
			r.mustBeForeign(r.RemoveIf(t.Context(), "a", is))
			r.expect(map[string]string{"a": "theirs"})
		})
	}
}

func TestReplacedBeforeItIsRenamed(t *testing.T) {
	for name, kernel := range kernels {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, kernel)
			is := r.put("a", "ours")
			r.foreign("a", "theirs")
			r.mustBeForeign(r.RenameIf(t.Context(), "a", "b", is, backing.Version{}))
			r.expect(map[string]string{"a": "theirs"})
			if name != "flags" { // two steps: see docs/durability.md
				return
			}
			is, over := r.put("a", "ours"), r.put("b", "older")
			r.foreign("a", "theirs")
			r.mustBeForeign(r.RenameIf(t.Context(), "a", "b", is, over))
			r.expect(map[string]string{"a": "theirs", "b": "older"})
		})
	}
}

func TestNewNameIsTakenBeforeARename(t *testing.T) {
	for _, name := range []string{"flags", "links"} {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, kernels[name])
			is := r.put("a", "ours")
			r.foreign("b", "theirs")
			r.mustBeForeign(r.RenameIf(t.Context(), "a", "b", is, backing.Version{}))
			r.expect(map[string]string{"a": "ours", "b": "theirs"})
		})
	}
	r := newRaced(t, kernels["flags"])
	is, over := r.put("a", "ours"), r.put("b", "older")
	r.foreign("b", "theirs")
	r.mustBeForeign(r.RenameIf(t.Context(), "a", "b", is, over))
	r.expect(map[string]string{"a": "ours", "b": "theirs"})
}

func TestReplacedBeforeAPutReplacesIt(t *testing.T) {
	r := newRaced(t, kernels["flags"])
	is := r.put("a", "ours")
	r.foreign("a", "theirs")
	_, err := r.Put(t.Context(), "a", backing.NewBytes([]byte("newer")), backing.PutOptions{Keep: true, Replaces: is.ETag})
	r.mustBeForeign(err)
	r.expect(map[string]string{"a": "theirs"})
}

// TestPutOverADirectory: a directory with a file's name stays, also if it comes in the last moment.
func TestPutOverADirectory(t *testing.T) {
	for _, inside := range []string{"", "inside"} {
		r := newRaced(t, kernels["flags"])
		is := r.put("b", "ours")
		over := func(name string) error {
			return errors.Join(ignoreMissing(os.Remove(filepath.Join(r.dir, name))), os.MkdirAll(filepath.Join(r.dir, name, inside), 0o755))
		}
		if err := over("a"); err != nil {
			t.Fatal(err)
		}
		r.opts.between = func(name string) {
			r.opts.between = func(string) {}
			if err := over(name); err != nil {
				t.Error(err)
			}
		}
		for name, replaces := range map[string]string{"a": "", "b": is.ETag} {
			_, err := r.Put(t.Context(), name, backing.NewBytes([]byte("newer")), backing.PutOptions{Keep: true, Replaces: replaces})
			if !errors.Is(err, bb.Exists) {
				t.Errorf("over directory %s, which holds %q: %v", name, inside, err)
			}
		}
		entries, err := os.ReadDir(r.dir)
		if err != nil || len(entries) != 2 || !entries[0].IsDir() || !entries[1].IsDir() {
			t.Errorf("the store has %v (%v), want two directories", entries, err)
		}
	}
}

// TestCutRemoval: if the file aside is the version in its name, Sweep ends a removal that a crash
// has cut after its first step.
func TestCutRemoval(t *testing.T) {
	r := newRaced(t, kernels["flags"])
	dead := backing.Owner{Instance: 7, Life: 99}
	aside := func(name string, is backing.Version) string {
		base, ok := dead.AsideName(name, is)
		if !ok {
			t.Fatal("the name is too long")
		}
		if err := os.Rename(filepath.Join(r.dir, name), filepath.Join(r.dir, base)); err != nil {
			t.Fatal(err)
		}
		return base
	}
	aside("a", r.put("a", "ours"))
	wrong := r.put("c", "other")
	r.put("b", "theirs")
	aside("b", wrong)
	r.put("c", "theirs too")
	left := aside("c", wrong)
	r.put("c", "newer")
	living, _ := r.opts.Owner.AsideName("d", r.put("d", "in the middle of it"))
	if err := os.Rename(filepath.Join(r.dir, "d"), filepath.Join(r.dir, living)); err != nil {
		t.Fatal(err)
	}
	if err := r.List(t.Context(), "", func(o backing.Object) error {
		if o.Name != "c" {
			return bb.E(bb.Internal, "list", o.Name, "is listed")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Sweep(context.Background()); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want 1", n, err)
	}
	r.expect(map[string]string{"b": "theirs", "c": "newer", left: "theirs too", living: "in the middle of it"})
}

// TestCutRename: a rename that a crash has cut between its steps is ended by the next call.
func TestCutRename(t *testing.T) {
	steps := map[string]struct {
		over bool
		cut  func(dir string) error
		want map[string]string
	}{
		"moved":   {false, func(dir string) error { return os.Rename(dir+"/a", dir+"/b") }, map[string]string{"b": "ours"}},
		"linked":  {false, func(dir string) error { return os.Link(dir+"/a", dir+"/b") }, map[string]string{"b": "ours"}},
		"swapped": {true, func(dir string) error { return swap(dir) }, map[string]string{"b": "ours"}},
		"somebody has the old name": {true, func(dir string) error {
			return errors.Join(swap(dir), os.WriteFile(dir+"/x", []byte("theirs"), 0o644), os.Rename(dir+"/x", dir+"/a"))
		}, map[string]string{"a": "theirs", "b": "ours"}},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, kernels["flags"])
			is, over := r.put("a", "ours"), backing.Version{}
			if step.over {
				over = r.put("b", "older")
			}
			if err := step.cut(r.dir); err != nil {
				t.Fatal(err)
			}
			if err := r.RenameIf(t.Context(), "a", "b", is, over); err != nil {
				t.Error(err)
			}
			r.expect(step.want)
		})
	}
}

// TestCutReplacingRename: for each step of a rename over another file as the last before a crash,
// the old name never has the replaced file, and the next start ends the rename, in any order of
// Sweep and the rename.
func TestCutReplacingRename(t *testing.T) {
	type crash struct{}
	for _, sweepFirst := range []bool{true, false} {
		for last := 1; ; last++ {
			r := newRaced(t, kernels["flags"])
			is, over := r.put("a", "ours"), r.put("b", "older")
			step := func(err error) error {
				r.mustNotHold("a", "older")
				if last--; last == 0 {
					panic(crash{})
				}
				return err
			}
			steps := last
			r.opts.rename2 = func(root *os.Root, old, newName string, flags uint) error {
				return step(opendir.Rename(root, old, newName, flags))
			}
			r.opts.link = func(root *os.Root, old, newName string) error { return step(root.Link(old, newName)) }
			ended := func() (ended bool) {
				defer func() { ended = recover() == nil }()
				if err := r.RenameIf(t.Context(), "a", "b", is, over); err != nil {
					t.Error(err)
				}
				return true
			}()
			if ended {
				if steps < 3 {
					t.Errorf("the rename has %d steps: the test does not test", steps-1)
				}
				break
			}
			r.opts = Options{Owner: backing.Owner{Instance: 7, Life: 99}}.withDefaults()
			sweep := func() {
				if _, err := r.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if sweepFirst {
				sweep()
				r.mustNotHold("a", "older")
			}
			if err := r.RenameIf(t.Context(), "a", "b", is, over); err != nil {
				t.Error(err)
			}
			if !sweepFirst {
				sweep()
			}
			r.expect(map[string]string{"b": "ours"})
			last = steps
		}
	}
}

func (r *raced) mustNotHold(name, content string) {
	r.t.Helper()
	if got, err := os.ReadFile(filepath.Join(r.dir, name)); err == nil && string(got) == content {
		r.t.Errorf("%s holds %q", name, content)
	}
}

func swap(dir string) error {
	return unix.Renameat2(unix.AT_FDCWD, dir+"/a", unix.AT_FDCWD, dir+"/b", unix.RENAME_EXCHANGE)
}

func TestAsideNames(t *testing.T) {
	owner, is := backing.NewOwner(7), backing.Version{ETag: "1:2", Size: 3}
	for _, base := range []string{"a", ".x.tmp", string(backingtest.Data(1, 1)) + "ü"} {
		name, ok := owner.AsideName(base, is)
		got, aside := backing.Aside("d/" + name)
		if !ok || !aside || got != base || !backing.IsTemp(name) || !backing.MayRemove(name, is) || backing.MayRemove(name, backing.Version{ETag: "1:2", Size: 4}) {
			t.Errorf("%q: %q, %v; it was %q, %v", base, name, ok, got, aside)
		}
	}
	if _, ok := owner.AsideName(string(make([]byte, 200)), is); ok {
		t.Error("the name is longer than a file's may be")
	}
	if _, ok := backing.Aside(owner.TempName()); ok || backing.MayRemove(owner.TempName(), is) {
		t.Error("a temporary file was moved aside")
	}
}
