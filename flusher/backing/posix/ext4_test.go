package posix

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// damagedExt4 mounts an ext4 on a loop device. None of its blocks can be allocated; the directories of burst are there.
func damagedExt4(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		const missing = "mounting a file system needs root"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
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
	run("mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum,^flex_bg,^64bit", image) // of e2fsprogs
	run("mount", "-o", "loop", image, dir)
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
	run("mount", "-o", "loop,errors=continue", image, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ext4 allocates blocks at writeback, and under syncfs an error of that is lost. Of many small files that are put together, none
// whose bytes were dropped is called put.
func TestDamagedExt4(t *testing.T) {
	dir := damagedExt4(t)
	g, files := &grouped{Store: open(t, dir, options())}, burst()
	for i, err := range g.putAll(t, files) {
		if !errors.Is(err, syscall.EUCLEAN) {
			t.Errorf("%s: %v, want %v", files[i].name, err, syscall.EUCLEAN)
		}
		if _, err := os.Lstat(filepath.Join(dir, files[i].name)); !os.IsNotExist(err) {
			t.Errorf("%s is there, %v", files[i].name, err)
		}
	}
}
