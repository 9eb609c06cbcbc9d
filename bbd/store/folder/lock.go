package folder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// LockName is the file that is locked (flock) in every folder of a store and holds the
// process id of the lock's holder.
const LockName = "lock"

// LockState locks a state folder, which it makes, before the store is opened on it, for a
// daemon that opens other things there first. The store's options pass the lock on to it.
// The error is Busy if another process has the folder. It is free when the file is closed.
func LockState(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, bb.Wrap("lock", dir, err)
	}
	return Lock(dir)
}

// Lock takes a folder for this process for as long as the file is open.
func Lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, LockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, bb.Wrap("lock", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, bb.Wrap("lock", path, err)
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32)) // empty for an instant after the holder's start
		return nil, bb.E(bb.Busy, "open store", dir, fmt.Sprintf("process %s has it", strings.TrimSpace(string(pid)))).
			WithRemedy("stop that process, or give this one folders of its own")
	}
	// The number is written over the old content, which is cut then. A page freed on a full tmpfs
	// may not come back.
	pid := fmt.Appendf(nil, "%d\n", os.Getpid())
	if _, err = f.WriteAt(pid, 0); err == nil {
		err = f.Truncate(int64(len(pid)))
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.ENOSPC) {
		return nil, Full("lock", path, "the process id cannot be written")
	}
	return nil, bb.Wrap("lock", path, fmt.Errorf("write the process id: %w", err))
}
