package folder

import (
	"fmt"
	"log/slog"

	"forebay/internal/bb"
)

// MountPolicy decides whether the memory tier is a tmpfs of its own.
type MountPolicy string

// The mount policies. Auto mounts where it may.
const (
	MountAuto    MountPolicy = "auto"
	MountOff     MountPolicy = "off"
	MountRequire MountPolicy = "require"
)

// Memory returns the folder of the memory tier. It is below a tmpfs with huge pages of a size in bytes that is mounted
// at target, now or by an earlier process, or shm.
func Memory(target string, size int64, policy MountPolicy, shm string, log *slog.Logger) (dir string, mounted bool, err error) {
	if policy == MountOff {
		return shm, false, Private(shm)
	}
	err = MountTmpfs(target, size)
	if err == nil {
		return target, true, nil
	}
	if has, size, _ := TmpfsRoot(target); has {
		return "", false, &bb.Error{
			Kind: bb.KindOf(err), Op: "mount", Path: target, Err: fmt.Errorf("it has %d bytes and cannot be made as large as memory.size: %w", size, err),
			Remedy: "run bbd mount with the daemon's configuration and flags, as root",
		}
	}
	if policy == MountRequire {
		return "", false, &bb.Error{
			Kind: bb.KindOf(err), Op: "mount", Path: target, Err: err,
			Remedy: "run with the right to mount (CAP_SYS_ADMIN), or set the mount policy to auto",
		}
	}
	log.Info("no tmpfs of its own, so no huge pages", "folder", shm, "reason", err)
	return shm, false, Private(shm)
}
