package store

import (
	"fmt"
	"os"
	"path/filepath"

	"forebay/bbd/store/folder"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// memoryDir returns the folder of the memory tier. It is below a tmpfs with huge pages that is
// mounted in the state folder, now or by an earlier process, or ShmDir.
func memoryDir(o *Options) (dir string, mounted bool, err error) {
	target := filepath.Join(o.StateDir, "mem")
	if o.Mount != MountOff {
		err := folder.MountTmpfs(target, o.MemoryBytes+o.mostLog()+o.MemoryBytes/regionfile.JournalShare+8*Unit)
		if err == nil {
			return target, true, nil
		}
		if has, size, _ := folder.TmpfsRoot(target); has {
			return "", false, &bb.Error{
				Kind: bb.KindOf(err), Op: "mount", Path: target, Err: fmt.Errorf("it has %d bytes and cannot be made as large as memory.size: %w", size, err),
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
	return o.ShmDir, false, folder.Private(o.ShmDir)
}

// Mount mounts the tmpfs of the memory tier, where options require one, for a process that drops
// the right to mount before it calls Open. Where none can be had and none is required, it does
// nothing.
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
