package store

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// memoryDir returns the folder of the memory tier: below a tmpfs with huge pages
// that is mounted in the state folder, now or by an earlier process, or ShmDir.
func memoryDir(o *Options) (dir string, mounted bool, err error) {
	target := filepath.Join(o.StateDir, "mem")
	if o.Mount != MountOff {
		err := mountTmpfs(target, o.MemoryBytes+o.mostLog()+o.MemoryBytes/journalShare+8*Unit)
		if err == nil {
			return target, true, nil
		}
		if has, size, _ := isTmpfsRoot(target); has {
			return "", false, &bb.Error{
				Kind: bb.KindOf(err), Op: "mount", Path: target, Err: fmt.Errorf("it has %d bytes and cannot be made as large as memory.size asks for: %w", size, err),
				Remedy: "run bbd mount with the daemon's configuration and flags, as root",
			}
		}
		if o.Mount == MountRequire {
			return "", false, &bb.Error{
				Kind: bb.KindOf(err), Op: "mount", Path: target, Err: err,
				Remedy: "run with the right to mount (CAP_SYS_ADMIN), or set the mount policy to auto",
			}
		}
		o.Log.Info("no tmpfs of its own, so no huge pages", "folder", o.ShmDir, "reason", err)
	}
	return o.ShmDir, false, PrivateDir(o.ShmDir)
}

// Mount mounts the tmpfs of the memory tier, where options ask for one, for a process that gives
// the right to mount up before it calls Open. Where none can be had and need not, it does nothing.
func Mount(o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.Mount == MountOff {
		return nil
	}
	if err := os.MkdirAll(o.StateDir, 0o711); err != nil {
		return bb.Wrap("open store", o.StateDir, err)
	}
	_, _, err := memoryDir(&o)
	return err
}

func mountTmpfs(target string, size int64) error {
	if err := os.MkdirAll(target, 0o711); err != nil {
		return err
	}
	options := fmt.Sprintf("huge=always,mode=0711,size=%d", size)
	has, total, err := isTmpfsRoot(target)
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

// isTmpfsRoot reports whether a tmpfs is mounted at dir, and its size.
func isTmpfsRoot(dir string) (bool, int64, error) {
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

// PrivateDir makes a folder if it is not there, and makes sure that it is this user's:
// /dev/shm is everybody's. bb.Permission if it is not.
func PrivateDir(dir string) error {
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

// ShmDir names a folder of /dev/shm after a state folder and a user.
func ShmDir(state string) string {
	h := fnv.New64a()
	h.Write([]byte(state))
	return fmt.Sprintf("/dev/shm/forebay-%d-%016x", os.Geteuid(), h.Sum64())
}

// machineMemory returns the bytes of memory that the machine has.
func machineMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, bb.Wrap("open store", "", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}
