package opendir

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type opener struct {
	t    *testing.T
	root string
	n    int
}

func (o *opener) open(path string) func() (*Dir, error) {
	return func() (*Dir, error) {
		o.t.Helper()
		o.n++
		root, err := os.OpenRoot(o.root)
		if err != nil {
			return nil, err
		}
		f, err := root.Open(path)
		return &Dir{Root: root, File: f}, err
	}
}

func (o *opener) get(c *Cache, path string) *Dir {
	o.t.Helper()
	d, err := c.Get(path, o.open(path))
	if err != nil {
		o.t.Fatal(err)
	}
	return d
}

func newOpener(t *testing.T, dirs ...string) *opener {
	o := &opener{t: t, root: t.TempDir()}
	for _, d := range dirs {
		if err := os.Mkdir(filepath.Join(o.root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// Callers that use a directory at the same time share it, for a while. A forgotten one is not found any more, and its
// last user closes it.
func TestShared(t *testing.T) {
	o, c := newOpener(t, "d", "e"), new(Cache)
	a, b, other := o.get(c, "d"), o.get(c, "d"), o.get(c, "e")
	if a != b || a == other || o.n != 2 {
		t.Errorf("%d directories were opened, want 2", o.n)
	}
	a.Release()
	if _, err := b.File.Stat(); err != nil {
		t.Errorf("closed while it is used: %v", err)
	}
	b.until = time.Now().Add(-time.Second)
	late := o.get(c, "d")
	if late == b {
		t.Error("it was shared for too long")
	}
	b.Release()
	if again := o.get(c, "d"); again != late {
		t.Error("the release of an older one made the newer one forgotten")
	} else {
		again.Release()
	}
	c.Forget()
	if after := o.get(c, "d"); after == late {
		t.Error("one that was forgotten was shared")
	} else {
		after.Release()
	}
	late.Release()
	other.Release()
	for _, d := range []*Dir{a, late, other} {
		if _, err := d.File.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s is open, %v", d.path, err)
		}
	}
	if len(c.open) != 0 {
		t.Errorf("kept: %v", c.open)
	}
}

// Concurrent users never get a closed descriptor.
func TestConcurrent(t *testing.T) {
	o, c := newOpener(t, "d"), new(Cache)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			own := &opener{t: t, root: o.root}
			for range 500 {
				d := own.get(c, "d")
				if !d.Free("none") || d.InPlace() != nil {
					t.Error("the directory cannot be used")
				}
				d.Release()
			}
		})
	}
	wg.Wait()
}

// A directory that was moved, replaced or removed is not in its place any more.
func TestInPlace(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"moved":    func(dir string) error { return os.Rename(dir, dir+"2") },
		"removed":  os.Remove,
		"replaced": func(dir string) error { return errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			o, c := newOpener(t, "d"), new(Cache)
			d := o.get(c, "d")
			defer d.Release()
			if err := d.InPlace(); err != nil {
				t.Error(err)
			}
			if err := change(filepath.Join(o.root, "d")); err != nil {
				t.Fatal(err)
			}
			if err := d.InPlace(); !errors.Is(err, syscall.ESTALE) {
				t.Errorf("%v, want ESTALE", err)
			}
		})
	}
}

// The kernel reports an error of a sync once for each descriptor, and all users of this one get it.
func TestFailedSync(t *testing.T) {
	o, c := newOpener(t, "d"), new(Cache)
	a, b := o.get(c, "d"), o.get(c, "d")
	defer a.Release()
	defer b.Release()
	if err := a.Sync(func() error { return syscall.EIO }); err != syscall.EIO {
		t.Error(err)
	}
	if err := b.Sync(func() error { return nil }); err != syscall.EIO {
		t.Errorf("the other user: %v, want EIO", err)
	}
	fresh := o.get(c, "d")
	defer fresh.Release()
	if err := fresh.Sync(func() error { return nil }); fresh == a || err != nil {
		t.Errorf("one that was opened later: %v", err)
	}
}

// Files are made, renamed and removed. Errors name their paths.
func TestFiles(t *testing.T) {
	o, c := newOpener(t, "d"), new(Cache)
	d := o.get(c, "d")
	defer d.Release()
	f, err := d.Create("a", 0, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if d.Free("a") || !d.Free("b") {
		t.Error("what was made is not there, or another one is")
	}
	path := (*os.PathError)(nil)
	if _, err := d.Create("a", 0, 0o600); !errors.Is(err, os.ErrExist) || !errors.As(err, &path) || path.Path != "d/a" {
		t.Errorf("made twice: %v", err)
	}
	link := (*os.LinkError)(nil)
	if err := d.Rename("none", "b", 0); !errors.Is(err, os.ErrNotExist) || !errors.As(err, &link) || link.Old != "d/none" {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := d.Rename("a", "b", 0); err != nil || d.Free("b") {
		t.Errorf("renamed: %v", err)
	}
	if err := d.Remove("b"); err != nil || !d.Free("b") {
		t.Errorf("removed: %v", err)
	}
}
