package posix

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix/syncgroup"
	"forebay/internal/powertest"
)

// cuts puts bursts of small files on a file system whose device has a volatile write cache, and keeps images of the device as of losses of
// power during them.
type cuts struct {
	t      *testing.T
	kind   string // of the file system
	device *powertest.Device
	dir    string // of the images

	mu     sync.Mutex
	files  []small
	synced []bool // the bytes are durable, under any name
	put    []bool // the file is durable
	images []image
	errs   []error // of puts
	full   bool    // puts may fail, and remove what they have synced
}

// image is the device after a loss of power, and the files that were durable before.
type image struct {
	path        string
	synced, put []bool
}

// newCuts mounts a file system on a device.
func newCuts(t *testing.T, kind, options string) (c *cuts, dir string) {
	t.Helper()
	c, dir = &cuts{t: t, kind: kind, dir: t.TempDir(), files: burst()}, t.TempDir()
	image := filepath.Join(c.dir, "image")
	if kind == "xfs" {
		run(t, "truncate", "-s", "32M", image)
		run(t, "mkfs.xfs", "-q", "--unsupported", image) // so small a one
	} else {
		run(t, "mkfs.ext4", "-q", "-O", "has_journal", "-E", "lazy_itable_init=0,lazy_journal_init=0", image, "16M")
	}
	c.device = powertest.NewDevice(t, image)
	run(t, "mount", "-t", kind, "-o", options, c.device.Path, dir)
	unmountInTheEnd(t, dir)
	return c, dir
}

// note records the state of a file, and simulates a loss of power for some: once without all that
// the device has in its cache, and once with a part of it.
func (c *cuts) note(i int, of *[]bool, lost bool) {
	c.mu.Lock()
	(*of)[i] = true
	n := len(c.images)
	one := image{synced: slices.Clone(c.synced), put: slices.Clone(c.put)}
	if lost {
		c.images = append(c.images, one, one)
		for k := range 2 {
			c.images[n+k].path = filepath.Join(c.dir, fmt.Sprint(n+k))
		}
	}
	c.mu.Unlock()
	if !lost {
		return
	}
	for k, rng := range []*rand.Rand{nil, rand.New(rand.NewPCG(uint64(n), 0))} {
		if err := c.device.Survivors(filepath.Join(c.dir, fmt.Sprint(n+k)), rng); err != nil {
			c.t.Error(err)
		}
	}
}

// burst puts all files at a time.
func (c *cuts) burst(g *grouped) {
	c.synced, c.put = make([]bool, len(c.files)), make([]bool, len(c.files))
	g.asked.Store(0)
	g.ended.Store(0)
	g.held.Store(false) // the first one waits for the others again
	var all sync.WaitGroup
	for i, one := range c.files {
		all.Go(func() {
			defer g.ended.Add(1)
			_, err := g.Put(c.t.Context(), one.name, backing.NewBytes(one.put), backing.PutOptions{
				Attrs: &backing.Attrs{Mode: 0o644},
				Last: func(context.Context) error {
					c.note(i, &c.synced, i%4 == 0)
					return nil
				},
			})
			if err != nil {
				c.mu.Lock()
				c.errs = append(c.errs, err)
				c.mu.Unlock()
				return
			}
			c.note(i, &c.put, i%4 == 1)
		})
	}
	all.Wait()
}

// judge mounts the images made since the last call, and returns the faults.
func (c *cuts) judge() (faults []string) {
	c.t.Helper()
	dir := c.t.TempDir()
	for _, one := range c.images {
		options := "loop"
		if c.kind == "xfs" {
			options = "loop,nouuid" // another one with its UUID is mounted
		}
		run(c.t, "mount", "-t", c.kind, "-o", options, one.path, dir)
		faults = append(faults, c.faultsOf(&one, dir)...)
		if err := unix.Unmount(dir, 0); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Remove(one.path); err != nil {
			c.t.Error(err)
		}
	}
	c.images = nil
	return faults
}

func (c *cuts) faultsOf(one *image, dir string) (faults []string) {
	for i, f := range c.files {
		got, err := os.ReadFile(filepath.Join(dir, f.name))
		switch {
		case err == nil && bytes.Equal(got, f.put):
		case one.put[i]:
			faults = append(faults, fmt.Sprintf("%s was put, and %d bytes are there, %v", f.name, len(got), err))
		case f.before != nil && bytes.Equal(got, f.before) || f.before == nil && os.IsNotExist(err):
			if one.synced[i] && !c.full && !holds(filepath.Dir(filepath.Join(dir, f.name)), f.put) {
				faults = append(faults, fmt.Sprintf("%s was synced, and no file has its bytes", f.name))
			}
		default:
			faults = append(faults, fmt.Sprintf("%s has %d bytes that nobody put whole, %v", f.name, len(got), err))
		}
	}
	return faults
}

// holds reports whether a file of a directory has these bytes.
func holds(dir string, content []byte) bool {
	files, _ := os.ReadDir(dir)
	return slices.ContainsFunc(files, func(e os.DirEntry) bool {
		got, err := os.ReadFile(filepath.Join(dir, e.Name()))
		return err == nil && bytes.Equal(got, content)
	})
}

// twice puts two bursts, the second over the files of the first, and returns the faults of all images, and how many there were.
func (c *cuts) twice(g *grouped) (faults []string, images int) {
	for round := range uint64(2) {
		for i := range c.files {
			if f := &c.files[i]; round > 0 {
				f.before, f.put = f.put, backingtest.Data(int64(len(f.put)+i%3), 1000+uint64(i))
			}
		}
		c.burst(g)
		images += len(c.images)
		faults = append(faults, c.judge()...)
	}
	return faults, images
}

// Small files that shared a syncfs are durable on ext4. Each is whole in the image of the device as
// of a loss of power right after the sync, and after its put, in each mode of the journal.
func TestDeviceLosesPower(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts 150 file systems")
	}
	for _, mode := range []string{"data=ordered", "data=writeback", "data=journal"} {
		t.Run(mode, func(t *testing.T) {
			c, dir := newCuts(t, "ext4", mode)
			c.prepare(dir)
			g := sharing(t, dir, true)
			faults, images := c.twice(g)
			if len(faults) > 0 || images < 40 || g.groups.Load() < 2 || len(c.errs) > 0 {
				t.Errorf("%d images, %d shared syncs, %v, faults:\n%s", images, g.groups.Load(), c.errs, strings.Join(faults, "\n"))
			}
		})
	}
}

// These images show syncs that leave something out, which proves that the test above tests.
func TestDeviceShowsMissingSyncs(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts 100 file systems")
	}
	for name, change := range map[string]func(*syncgroup.Options){
		"no syncfs": func(o *syncgroup.Options) { o.Whole = func(*os.File) error { return nil } },
		"no sync": func(o *syncgroup.Options) {
			nothing := func(*os.File) error { return nil }
			o.Whole, o.Write, o.Written = nothing, nothing, nothing
		},
	} {
		t.Run(name, func(t *testing.T) {
			for tries := 0; ; tries++ { // another file's sync of the directory may come in between by chance
				c, dir := newCuts(t, "ext4", "data=ordered")
				c.prepare(dir)
				if faults, _ := c.twice(sharing(t, dir, true, change)); len(faults) > 0 {
					return
				}
				if tries == 9 {
					t.Fatal("no file is missing")
				}
			}
		})
	}
}

// prepare puts the files that are there before, each by itself.
func (c *cuts) prepare(dir string) {
	c.t.Helper()
	s := open(c.t, dir, options())
	for _, f := range c.files {
		if f.before == nil {
			continue
		}
		if _, err := s.Put(c.t.Context(), f.name, backing.NewBytes(f.before), backing.PutOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A device is full, or becomes so during the puts, as a thin one or a loop device may. Writes to
// blocks that it does not have yet fail, of files' bytes as of the journal. After a successful put,
// a file is whole all the same, on ext4 with shared syncs, on XFS with a sync of its own.
func TestFullDevice(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts 300 file systems")
	}
	for _, kind := range []string{"ext4", "xfs"} {
		for _, room := range []int{0, 3, 8, 14, 20} {
			t.Run(fmt.Sprint(kind, " ", room), func(t *testing.T) {
				c, dir := newCuts(t, kind, "rw")
				c.prepare(dir)
				g := sharing(t, dir, kind == "ext4")
				c.burst(g)
				if len(c.errs) > 0 {
					t.Fatal(c.errs)
				}
				c.images = nil
				c.full = true
				c.device.Fill(room)
				for round := range uint64(2) {
					for i := range c.files {
						name := fmt.Sprintf("d%d/r%d-%d", i%2, round, i)
						c.files[i] = small{name: name, put: backingtest.Data(int64(4000+i), 1000*(round+1)+uint64(i))}
					}
					c.burst(g)
					c.note(0, &[]bool{false}, true) // after all of them
					if faults := c.judge(); len(faults) > 0 {
						t.Errorf("round %d:\n%s", round, strings.Join(faults, "\n"))
					}
				}
				if len(c.errs) == 0 {
					t.Error("no put failed")
				}
			})
		}
	}
}
