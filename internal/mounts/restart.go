package mounts

import (
	"errors"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// RestartCall is the ioctl on a directory of a mount that restarts the mount's process. It returns when the new one serves.
const RestartCall = 'F'<<8 | 0x42

// Restart has the program of a mount's process started again, by the one that is installed now. Programs that work on the mount
// wait meanwhile. If it fails, the old process goes on.
func Restart(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return bb.Wrap("remount", dir, err)
	}
	defer unix.Close(fd)
	err = unix.IoctlSetInt(fd, RestartCall, 0)
	switch {
	case errors.Is(err, unix.ENOTTY):
		return bb.E(bb.Unsupported, "remount", dir, "the mount's process is of an older release").WithRemedy("bbctl umount " + dir + ", and mount again")
	case errors.Is(err, unix.EBUSY):
		return bb.E(bb.Busy, "remount", dir, "programs read files by passthrough, or requests do not end").WithRemedy("see the mount's log, and repeat it")
	case errors.Is(err, unix.EIO):
		return bb.E(bb.Internal, "remount", dir, "the new process could not go on, so the old one does").WithRemedy("see the mount's log")
	case errors.Is(err, unix.EPERM):
		return bb.E(bb.Permission, "remount", dir, "no permission: another user has mounted it").WithRemedy("run it as root, or as that user")
	}
	return bb.Wrap("remount", dir, err)
}
