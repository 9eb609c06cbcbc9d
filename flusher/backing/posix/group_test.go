package posix

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix/syncgroup"
	"forebay/internal/bb"
	"forebay/internal/powertest"
)

// grouped is a store on a file system whose syncfs makes all bytes durable, and no name.
type grouped struct {
	*Store
	groups atomic.Int64
	err    error // of syncfs
	// In a burst, the first sync waits until each other put of it waits for a sync or has ended.
	together     int64
	held         atomic.Bool
	asked, ended atomic.Int64
}

func newGrouped(t *testing.T, f *powertest.FS) *grouped {
	t.Helper()
	g := &grouped{}
	opts := options()
	opts.sync = syncgroup.Options{
		Patience: time.Hour, // the test may be slow
		Proven:   func(*os.File, uint64) bool { return true },
		Now: func() time.Time { // called once for each file that is to be synced
			g.asked.Add(1)
			return time.Now()
		},
		One: func(file *os.File) error {
			if g.together > 0 && g.held.CompareAndSwap(false, true) {
				for g.asked.Load()+g.ended.Load() < g.together {
					runtime.Gosched()
				}
			}
			return file.Sync()
		},
		Whole: func(*os.File) error {
			g.groups.Add(1)
			if g.err != nil {
				return g.err
			}
			return f.SyncBytes()
		},
	}
	s, err := Open(f.Dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	g.Store = s
	return g
}

// small is a file of a burst: its name, its former content (nil: none), and its new one.
type small struct {
	name        string
	before, put []byte
}

// burst is many small files in two directories, some of them over others.
func burst() (files []small) {
	for i := range 24 {
		one := small{name: fmt.Sprintf("d%d/f%d", i%2, i), put: backingtest.Data(int64(900+i), uint64(i+1))}
		if i%5 == 0 {
			one.before = backingtest.Data(700, uint64(100+i))
		}
		files = append(files, one)
	}
	return files
}

// putAll puts all at a time, and returns the errors.
func (g *grouped) putAll(t *testing.T, files []small) []error {
	errs := make([]error, len(files))
	g.asked.Store(0)
	var all sync.WaitGroup
	for i, one := range files {
		all.Go(func() {
			_, errs[i] = g.Put(t.Context(), one.name, backing.NewBytes(one.put), backing.PutOptions{Attrs: &backing.Attrs{Mode: 0o644}})
			g.ended.Add(1)
		})
	}
	all.Wait()
	return errs
}

func (g *grouped) prepare(t *testing.T, files []small) {
	t.Helper()
	for _, one := range files {
		if one.before == nil {
			continue
		}
		if _, err := g.Put(t.Context(), one.name, backing.NewBytes(one.before), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// The power is cut after each change and each sync of many puts at a time. Files of confirmed puts are there, bit for bit.
// The name of any other put has the file before it, or the whole new one.
func TestPowerCutOfGroups(t *testing.T) {
	dir, files := t.TempDir(), burst()
	cuts, groups := 0, int64(0)
	for whole := false; !whole; cuts += 3 {
		t.Run(fmt.Sprint("after ", cuts), func(t *testing.T) {
			f := powertest.Mount(t, dir)
			g := newGrouped(t, f)
			g.prepare(t, files)
			if cuts%2 == 0 {
				g.together = int64(len(files))
			}
			f.CutAfter(cuts)
			errs := g.putAll(t, files)
			groups += g.groups.Load()
			whole = !slices.ContainsFunc(errs, func(err error) bool { return err != nil })
			f.Restart(0)
			for _, seed := range []uint64{0, 2, uint64(cuts) + powertest.Corners} {
				if seed > 0 {
					f.Instead(seed)
				}
				for i, one := range files {
					got, err := os.ReadFile(filepath.Join(dir, one.name))
					switch {
					case err == nil && slices.Equal(got, one.put):
					case errs[i] == nil:
						t.Errorf("seed %d: %s was put, and %d bytes are there, %v", seed, one.name, len(got), err)
					case one.before == nil && err != nil:
					case one.before != nil && slices.Equal(got, one.before):
					default:
						t.Errorf("seed %d: %s has %d bytes that nobody put whole, %v", seed, one.name, len(got), err)
					}
				}
			}
		})
	}
	if cuts < 60 || groups < 8 {
		t.Errorf("%d cuts, %d groups: the test does not test", cuts, groups)
	}
}

// A syncfs that fails proves nothing about any file. Each is synced by itself, and the put of one
// that cannot be fails.
func TestGroupThatFails(t *testing.T) {
	f := powertest.Mount(t, t.TempDir())
	g := newGrouped(t, f)
	g.err = syscall.EIO
	files := burst()
	g.together = int64(len(files))
	f.Inject(powertest.Fault{Call: "fsync 7", Errno: syscall.EIO})
	errs := g.putAll(t, files)
	f.Calls()
	var failed []string
	for i, one := range files {
		got, err := os.ReadFile(filepath.Join(f.Dir, one.name))
		if errs[i] == nil && !slices.Equal(got, one.put) {
			t.Errorf("%s was put, and %d bytes are there, %v", one.name, len(got), err)
		}
		if errs[i] == nil {
			continue
		}
		failed = append(failed, one.name)
		if bb.KindOf(errs[i]) != bb.Unavailable || !os.IsNotExist(err) {
			t.Errorf("%s: %v, and then %v", one.name, errs[i], err)
		}
	}
	if len(failed) != 1 || g.groups.Load() == 0 {
		t.Errorf("after %d groups that failed, the error of one file is that of %q", g.groups.Load(), failed)
	}
}
