// Package folder is the folders of a store: their owners, the processes that have them, and the file systems
// that they lie on. It must never depend on their content.
package folder

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// MountTmpfs mounts a tmpfs with huge pages of a size at target, or makes the one that is there as large.
func MountTmpfs(target string, size int64) error {
	if err := os.MkdirAll(target, 0o711); err != nil {
		return err
	}
	options := fmt.Sprintf("huge=always,mode=0711,size=%d", size)
	has, total, err := TmpfsRoot(target)
	if err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	switch {
	case !has:
		return unix.Mount("forebay", target, "tmpfs", flags, options)
	case total < size:
		return unix.Mount("forebay", target, "tmpfs", flags|unix.MS_REMOUNT, options)
	default:
		return nil
	}
}

// TmpfsRoot reports whether a tmpfs is mounted at dir, and its size.
func TmpfsRoot(dir string) (bool, int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false, 0, err
	}
	var at, above unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return false, 0, err
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, 0, err
	}
	return fs.Type == unix.TMPFS_MAGIC && at.Dev != above.Dev, int64(fs.Blocks) * fs.Bsize, nil
}

// Private makes a missing folder, and makes sure that it is this user's. Every user can write to
// /dev/shm. bb.Permission if it is another user's.
func Private(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return bb.Wrap("open store", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return bb.Wrap("open store", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return bb.E(bb.Permission, "open store", dir, "is not a folder that belongs to this user and that only this user may write to")
	}
	return nil
}

// InShm names a folder of /dev/shm after a state folder and a user.
func InShm(state string) string {
	h := fnv.New64a()
	h.Write([]byte(state))
	return fmt.Sprintf("/dev/shm/forebay-%d-%016x", os.Geteuid(), h.Sum64())
}

// MachineMemory returns the bytes of memory that the machine has.
func MachineMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, bb.Wrap("open store", "", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// Full is the error of a store whose folder others have filled.
func Full(op, path, why string) error {
	return bb.E(bb.NoSpace, op, path, "the file system is full: "+why).
		WithRemedy("remove the files of other applications there (df, du), or give the store a file system of its own")
}
