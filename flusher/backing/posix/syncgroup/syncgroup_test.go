package syncgroup

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world counts syncs, and decides their results.
type world struct {
	t *testing.T
	*Files

	mu    sync.Mutex
	ones  []string // the files that had a sync of their own
	whole []string // the files whose file system was synced
	bad   string   // the file whose sync fails
	// Files with bytes that cannot be handed to the device, and with an error that was recorded
	// later.
	unwritten, failed string
	hold              chan struct{} // the first file's sync ends when it is closed
	held              chan struct{} // syncs of the file system end when it is closed; nil: at once
	err               error         // of all syncs of the file system
	took              time.Duration
	now               time.Time

	unproven atomic.Bool // the file system is one where nothing is shared
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, hold: make(chan struct{}), now: time.Now()}
	w.Files = NewFiles(Options{
		Proven: func(*os.File, uint64) bool { return !w.unproven.Load() },
		One: func(f *os.File) error {
			name := filepath.Base(f.Name())
			w.mu.Lock()
			w.ones = append(w.ones, name)
			w.mu.Unlock()
			if name == "first" {
				<-w.hold
			}
			if name == w.bad {
				return syscall.EIO
			}
			return nil
		},
		Write:   failing(&w.unwritten, syscall.EUCLEAN),
		Written: failing(&w.failed, syscall.ENOSPC),
		Whole: func(f *os.File) error {
			w.mu.Lock()
			w.whole, w.now = append(w.whole, filepath.Base(f.Name())), w.now.Add(w.took)
			w.mu.Unlock()
			if w.held != nil {
				<-w.held
			}
			_, err := f.Stat() // the descriptor is open
			return errors.Join(w.err, err)
		},
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
		Patience: time.Hour,
	})
	return w
}

// failing returns a call that fails for the file of a name.
func failing(name *string, err error) func(*os.File) error {
	return func(f *os.File) error {
		if filepath.Base(f.Name()) == *name {
			return err
		}
		return nil
	}
}

func (w *world) file(name string) *os.File {
	w.t.Helper()
	f, err := os.Create(filepath.Join(w.t.TempDir(), name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	return f
}

// sync begins to sync a file, and returns its error when it has one.
func (w *world) sync(f *os.File, opened uint64) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- w.Sync(f, 1, opened) }()
	return ended
}

// waiting waits until so many files wait for a file system, or until it is being synced.
func (w *world) waiting(f *os.File, members int) {
	w.t.Helper()
	fs, err := w.of(f)
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		w.Files.mu.Lock()
		there := fs.busy && (members == 0 || fs.next != nil && fs.next.members == members)
		w.Files.mu.Unlock()
		if there {
			return
		}
		runtime.Gosched()
	}
}

// others begins syncs of n files while another one is synced. The file opened first comes in the middle.
func (w *world) others(n int) (files []*os.File, ended []<-chan error) {
	for i := range n {
		f := w.file(strconv.Itoa(i))
		files = append(files, f)
		ended = append(ended, w.sync(f, uint64(100+(i+n/2)%n)))
		w.waiting(f, i+1)
	}
	return files, ended
}

func (w *world) begin() <-chan error {
	f := w.file("first")
	ended := w.sync(f, 1)
	w.waiting(f, 0)
	return ended
}

func TestGroupHasOneSync(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	_, ended := w.others(10)
	if len(w.whole) > 0 {
		t.Error("the group did not wait")
	}
	close(w.hold)
	for _, one := range append(ended, first) {
		if err := <-one; err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(w.whole, []string{"5"}) {
		t.Errorf("synced by %q, want once by the file that was opened first, 5", w.whole)
	}
	if !slices.Equal(w.ones, []string{"first"}) {
		t.Errorf("a sync of their own had %q", w.ones)
	}
	if err := w.Sync(w.file("later"), 1, 200); err != nil || len(w.ones) != 2 {
		t.Errorf("%v: a file that comes alone: %q", err, w.ones)
	}
}

func TestFailedGroupNamesTheFile(t *testing.T) {
	w := newWorld(t)
	w.err, w.bad = syscall.EIO, "3"
	first := w.begin()
	_, ended := w.others(6)
	close(w.hold)
	for i, one := range ended {
		if err := <-one; (err != nil) != (i == 3) {
			t.Errorf("file %d: %v", i, err)
		}
	}
	if err := <-first; err != nil || len(w.whole) != 1 || len(w.ones) != 7 {
		t.Errorf("%v; %d syncs of all, of their own %q", err, len(w.whole), w.ones)
	}
}

// A file is not durable if its bytes were dropped before the shared sync, or only its own
// descriptor has its error. No other file has that error.
func TestErrorsOfOneFileOfAGroup(t *testing.T) {
	w := newWorld(t)
	w.unwritten, w.failed = "unwritten", "2"
	first := w.begin()
	files, ended := w.others(6)
	if err := w.Sync(w.file("unwritten"), 1, 200); err != syscall.EUCLEAN {
		t.Errorf("bytes that were dropped: %v", err)
	}
	close(w.hold)
	for i, one := range ended {
		if err := <-one; (err == syscall.ENOSPC) != (i == 2) || i != 2 && err != nil {
			t.Errorf("%s: %v", files[i].Name(), err)
		}
	}
	if err := <-first; err != nil || len(w.whole) != 1 || len(w.ones) != 1 {
		t.Errorf("%v; %d syncs of all, of their own %q", err, len(w.whole), w.ones)
	}
}

func TestFewFilesHaveSyncsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	_, ended := w.others(fewest - 1)
	close(w.hold)
	for _, one := range append(ended, first) {
		if err := <-one; err != nil {
			t.Error(err)
		}
	}
	if len(w.whole) > 0 || len(w.ones) != fewest {
		t.Errorf("%d syncs of all, of their own %q", len(w.whole), w.ones)
	}
}

func TestNothingIsSharedAfterASlowSync(t *testing.T) {
	w := newWorld(t)
	w.took = 2 * time.Second
	first := w.begin()
	_, ended := w.others(5)
	close(w.hold)
	for _, one := range append(ended, first) {
		if err := <-one; err != nil {
			t.Error(err)
		}
	}
	f := w.file("alone")
	for _, after := range []struct {
		wait  time.Duration
		alone bool
	}{{0, true}, {17 * time.Second, true}, {2 * time.Second, false}} {
		w.mu.Lock()
		w.now = w.now.Add(after.wait)
		w.mu.Unlock()
		fs, err := w.of(f)
		if err != nil {
			t.Fatal(err)
		}
		g, first := w.join(fs, f, 300)
		if alone := g == nil && !first; alone != after.alone {
			t.Errorf("%v later: alone %v", after.wait, alone)
		}
	}
}

func TestPause(t *testing.T) {
	for _, c := range []struct{ took, want time.Duration }{
		{0, 0}, {patience - 1, 0}, {patience, 9 * patience}, {time.Second, 9 * time.Second}, {time.Hour, 10 * time.Minute},
	} {
		if got := pause(c.took); got != c.want {
			t.Errorf("after %v: %v, want %v", c.took, got, c.want)
		}
	}
}

// atOnce syncs a file that must not wait for others.
func (w *world) atOnce(name string) {
	w.t.Helper()
	began := time.Now()
	if err := w.Sync(w.file(name), 1, 500); err != nil || time.Since(began) > 0 {
		w.t.Errorf("%s: %v after %v", name, err, time.Since(began))
	}
}

// A sync of a file that does not end delays the others no longer than patience, and later ones not
// at all.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.Patience = patience
		first := w.begin()
		began := time.Now()
		_, ended := w.others(5)
		for i, one := range ended {
			if err := <-one; err != nil {
				t.Errorf("file %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != patience || len(w.whole) > 0 || len(w.ones) != 6 {
			t.Errorf("after %v: %d syncs of all, of their own %q", took, len(w.whole), w.ones)
		}
		w.atOnce("newcomer")
		close(w.hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
		w.idle()
	})
}

// idle fails if a file is waited for, or nothing would be shared.
func (w *world) idle() {
	w.t.Helper()
	fs, err := w.of(w.file("idle"))
	if err != nil || fs.busy || fs.slow || fs.now != nil || fs.next != nil {
		w.t.Errorf("%v; somebody is still waited for: %+v", err, fs)
	}
}

// A syncfs that has the bytes of others to write delays no file longer than patience, not even the
// file that began it. The kernel's call continues when all files of its group are closed.
func TestPatienceWithAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.opts.Patience, w.held, w.took = patience, make(chan struct{}), time.Minute
		first := w.begin()
		files, ended := w.others(5)
		began := time.Now()
		close(w.hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		_, later := w.others(4) // the next group
		for i, one := range append(ended, later...) {
			if err := <-one; err != nil {
				t.Errorf("file %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != patience || len(w.whole) != 1 || len(w.ones) != 10 {
			t.Errorf("after %v: %d syncs of all, of their own %q", took, len(w.whole), w.ones)
		}
		for _, f := range files {
			f.Close()
		}
		time.Sleep(time.Hour)
		w.atOnce("newcomer")
		close(w.held)
		w.Wait()
		w.idle()
		if fs, _ := w.of(w.file("later")); !fs.alone.Equal(w.now.Add(9 * time.Minute)) {
			t.Errorf("nothing is shared until %v, want nine minutes after %v", fs.alone, w.now)
		}
	})
}

// If a member's patience ends when its group's turn has come, it leaves the group, and the group's
// sync begins all the same.
func TestPatienceEndsAsTheGroupBegins(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	fs, err := w.of(w.file("f"))
	if err != nil {
		t.Fatal(err)
	}
	eldest := w.file("eldest")
	g := (*group)(nil)
	for i := range uint64(fewest) {
		g, _ = w.join(fs, eldest, i)
	}
	close(w.hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if !w.late(fs, g) {
		t.Fatal("the group was disbanded")
	}
	w.lead(fs, g)
	<-g.done
	if w.Wait(); !g.durable || w.late(fs, g) {
		t.Errorf("durable %v, or its turn has not ended", g.durable)
	}
	w.idle()
}

// The group of a file that is closed, as its patience has ended, has no sync.
func TestEldestIsClosed(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	files, ended := w.others(5)
	files[3].Close() // the one that was opened first
	close(w.hold)
	for _, one := range append(ended, first) {
		if err := <-one; err != nil {
			t.Error(err)
		}
	}
	if len(w.whole) > 0 || len(w.ones) != 6 {
		t.Errorf("%d syncs of all, of their own %q", len(w.whole), w.ones)
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	fs, err := w.of(w.file("f"))
	if err != nil {
		t.Fatal(err)
	}
	group := (*group)(nil)
	for i := range most {
		group, _ = w.join(fs, nil, uint64(1000-i))
	}
	if g, first := w.join(fs, nil, 1); g != nil || first || group.members != most || group.opened != 1000-most+1 {
		t.Errorf("a group of %d files, of which the first was opened as %d, has one more", group.members, group.opened)
	}
	if err := w.Sync(w.file("large"), Small+1, 7); err != nil {
		t.Error(err)
	}
	w.Files.mu.Lock()
	fs.next = nil
	w.Files.mu.Unlock()
	close(w.hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// Below one root, another file system may be mounted. A sync of one is none of the other.
func TestFileSystemsAreApart(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	other, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := w.Sync(other, 1, 2); err != nil || !slices.Equal(w.ones, []string{"first", "status"}) {
		t.Errorf("%v; of their own %q", err, w.ones)
	}
	close(w.hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestWhole(t *testing.T) {
	f := newWorld(t).file("f")
	own, err := duplicate(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := whole(own); err != nil {
		t.Error(err)
	}
	own.Close()
	if err := whole(own); err == nil {
		t.Error("a file that is closed was synced")
	}
	if _, err := duplicate(f); err == nil {
		t.Error("a file that is closed has another descriptor")
	}
}

func TestProven(t *testing.T) {
	disk, network := unix.Mkdev(7, 3), unix.Mkdev(0, 61)
	for _, c := range []struct {
		dev     uint64
		kind    int64
		release string
		want    bool
	}{
		{disk, unix.EXT4_SUPER_MAGIC, "6.1.0-18-amd64", true}, // if it has a journal
		{disk, unix.EXT4_SUPER_MAGIC, "5.17.0", true},
		{disk, unix.EXT4_SUPER_MAGIC, "5.14.0-427.el9.x86_64", false},
		{disk, unix.EXT4_SUPER_MAGIC, "4.18.0", false},
		{disk, unix.EXT4_SUPER_MAGIC, "", false},
		{network, unix.EXT4_SUPER_MAGIC, "6.1.0", false}, // 9P of a server's ext4
		{disk, unix.XFS_SUPER_MAGIC, "6.18.0", false},
		{network, 0x0bd00bd0, "6.1.0", false}, // Lustre
		{network, unix.NFS_SUPER_MAGIC, "6.1.0", false},
		{disk, unix.FUSE_SUPER_MAGIC, "6.1.0", false},
		{network, unix.BTRFS_SUPER_MAGIC, "6.1.0", false},
		{network, unix.TMPFS_MAGIC, "6.1.0", false},
		{network, unix.OVERLAYFS_SUPER_MAGIC, "6.1.0", false},
	} {
		if got := provenOn(c.dev, c.kind, c.release); got != c.want {
			t.Errorf("device %x, type %x on Linux %q: %v", c.dev, c.kind, c.release, got)
		}
	}
}

// A file system that is mounted over another one may have its device, and is another type.
func TestTypeOfFileSystemIsNotRemembered(t *testing.T) {
	w := newWorld(t)
	first := w.begin()
	w.unproven.Store(true)
	if err := w.Sync(w.file("another"), 1, 2); err != nil || !slices.Equal(w.ones, []string{"first", "another"}) {
		t.Errorf("%v; of their own %q", err, w.ones)
	}
	close(w.hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// A caller that comes while a directory is synced shares a sync that begins afterwards.
func TestDirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Dirs
		one, others := id{1, 2, "a"}, []id{{1, 3, "a"}, {2, 2, "a"}, {1, 2, "b"}}
		hold, first, joined := make(chan struct{}), make(chan error, 1), make(chan error, 5)
		go func() {
			first <- d.share(one, 9, func() error {
				<-hold
				return nil
			})
		}()
		synctest.Wait()
		for _, other := range others {
			if err := d.share(other, 10, func() error { return syscall.ENOSPC }); err != syscall.ENOSPC {
				t.Errorf("another directory, %v: %v", other, err)
			}
		}
		failed, calls := errors.New("the second sync"), []uint64(nil)
		for i := range uint64(5) {
			opened := 20 + (i+3)%5 // the third that comes was opened first
			go func() {
				joined <- d.share(one, opened, func() error {
					calls = append(calls, opened)
					return failed
				})
			}()
			synctest.Wait()
		}
		if len(calls) > 0 {
			t.Error("it was synced twice at a time")
		}
		close(hold)
		if err := <-first; err != nil {
			t.Error(err)
		}
		for range 5 {
			if err := <-joined; err != failed {
				t.Error(err)
			}
		}
		synctest.Wait()
		if !slices.Equal(calls, []uint64{20}) || len(d.dirs) > 0 {
			t.Errorf("of five callers, the descriptors opened as %v were synced, want the first, 20; %d directories are remembered", calls, len(d.dirs))
		}
	})
}

func TestDirSync(t *testing.T) {
	var d Dirs
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(dir, ".", d.Opened()); err != nil {
		t.Error(err)
	}
	dir.Close()
	if err := d.Sync(dir, ".", d.Opened()); err == nil {
		t.Error("a directory that is closed was synced")
	}
}
