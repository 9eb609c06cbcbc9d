package posix

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing/posix/syncgroup"
)

// run runs a program of the system, which needs root.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		const missing = "mounting a file system needs root"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func unmountInTheEnd(t *testing.T, dir string) {
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// damagedExt4 mounts an ext4 on a loop device. None of its blocks can be allocated. The directories of burst are there.
func damagedExt4(t *testing.T) (dir string) {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	const block, groups = 1024, 8
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(groups * 8 * block * block); err != nil {
		t.Fatal(err)
	}
	// A bitmap without the blocks of its group's own metadata is damaged (EUCLEAN). With flex_bg some groups have none, and with
	// checksums the error is EFSBADCRC.
	run(t, "mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum,^flex_bg,^64bit", image) // of e2fsprogs
	run(t, "mount", "-o", "loop", image, dir)
	for _, name := range []string{"d0", "d1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	table := make([]byte, 32*groups) // descriptors of groups, after a block without use and the superblock
	if _, err := f.ReadAt(table, 2*block); err != nil {
		t.Fatal(err)
	}
	for i := range groups {
		bitmap := binary.LittleEndian.Uint32(table[32*i:])
		if _, err := f.WriteAt(make([]byte, block), int64(bitmap)*block); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mount", "-o", "loop,errors=continue", image, dir)
	unmountInTheEnd(t, dir)
	return dir
}

// sharing opens a store on a real file system. If its small files share syncs, the first one of a burst waits for the others,
// which so are a group. change, if there is one, replaces calls.
func sharing(t *testing.T, dir string, shared bool, change ...func(*syncgroup.Options)) *grouped {
	t.Helper()
	g, opts := &grouped{}, options()
	opts.sync.Patience = time.Hour
	opts.sync.Now = func() time.Time { // called once for each file that is to be synced
		g.asked.Add(1)
		return time.Now()
	}
	opts.sync.One = func(f *os.File) error {
		others := int64(len(burst()) - 1)
		for first := shared && g.held.CompareAndSwap(false, true); first && g.asked.Load()+g.ended.Load() < others; {
			time.Sleep(time.Millisecond)
		}
		return f.Sync()
	}
	opts.sync.Whole = func(f *os.File) error {
		g.groups.Add(1)
		conn, err := f.SyscallConn()
		if err != nil {
			return err
		}
		inner := error(nil)
		return errors.Join(conn.Control(func(fd uintptr) { inner = unix.Syncfs(int(fd)) }), inner)
	}
	for _, f := range change {
		f(&opts.sync)
	}
	g.Store = open(t, dir, opts)
	return g
}

// Small files share a sync on an ext4 that has a journal, and on no other.
func TestSharedSyncsOfExt4(t *testing.T) {
	for features, shared := range map[string]bool{"has_journal": true, "^has_journal": false} {
		t.Run(features, func(t *testing.T) {
			image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
			run(t, "mkfs.ext4", "-q", "-O", features, image, "32M")
			run(t, "mount", "-o", "loop", image, dir)
			unmountInTheEnd(t, dir)
			g, files := sharing(t, dir, shared), burst()
			for i, err := range g.putAll(t, files) {
				got, readErr := os.ReadFile(filepath.Join(dir, files[i].name))
				if err != nil || readErr != nil || !slices.Equal(got, files[i].put) {
					t.Errorf("%s: %v, %v", files[i].name, err, readErr)
				}
			}
			if n := g.groups.Load(); (n > 0) != shared {
				t.Errorf("%d shared syncs", n)
			}
		})
	}
}

// ext4 allocates blocks at writeback, and under syncfs an error of that is lost. When many small
// files are put together, no put of a file with dropped bytes succeeds.
func TestDamagedExt4(t *testing.T) {
	dir := damagedExt4(t)
	g, files := sharing(t, dir, true), burst()
	for i, err := range g.putAll(t, files) {
		if !errors.Is(err, syscall.EUCLEAN) {
			t.Errorf("%s: %v, want %v", files[i].name, err, syscall.EUCLEAN)
		}
		if _, err := os.Lstat(filepath.Join(dir, files[i].name)); !os.IsNotExist(err) {
			t.Errorf("%s is there, %v", files[i].name, err)
		}
	}
}
