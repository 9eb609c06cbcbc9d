// Package privilege drops the capabilities that a daemon of root's does not need. It has their numbers and the
// words below, and must never depend on the work that a capability is kept for.
package privilege

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// kept are the capabilities of a daemon that runs (capabilities(7)). The unit's
// CapabilityBoundingSet names the same.
const kept = uint64(1<<unix.CAP_CHOWN | // regions belong to the users who map them
	1<<unix.CAP_DAC_OVERRIDE | // and are opened again at the next start
	1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | // root's own store worker gives files their owner and mode
	1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | // store workers are the users they work for
	1<<unix.CAP_KILL | // and are killed when they hang
	1<<unix.CAP_IPC_LOCK | // a fabric pins the memory of regions
	1<<unix.CAP_NET_BIND_SERVICE) // ports below 1024

// Shed drops all other capabilities, and the right to gain any, and executes the binary again. A
// property of the thread is then one of the process, before it opens anything. A device (RDMA)
// refuses requests with other capabilities than those that opened it. Prepare runs before that,
// with all rights. In a process that has shed, or is not root's, Shed does nothing.
func Shed(prepare func() error) error {
	if os.Geteuid() != 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	has, err := capabilities()
	if err != nil {
		return bb.Wrap("start", "capabilities", err)
	}
	confined, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return bb.Wrap("start", "capabilities", os.NewSyscallError("prctl", err))
	}
	if has&^kept == 0 && confined == 1 {
		return nil
	}
	if err := prepare(); err != nil {
		return err
	}
	return bb.Wrap("start", "capabilities", drop(has&kept))
}

// drop changes this thread, which the caller has locked, and executes the binary again.
func drop(keep uint64) error {
	for c := range uint(64) {
		if keep&(1<<c) == 0 {
			// Without the right to (CAP_SETPCAP), no_new_privs has the same effect. EINVAL: no such capability.
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	for i := range caps {
		mask := uint32(keep >> (32 * i))
		caps[i] = unix.CapUserData{Effective: mask, Permitted: mask}
	}
	if err := unix.Capset(&head, &caps[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	// The inherited capabilities are of no use to it, or to a store worker.
	if err := unix.CloseRange(3, 1<<31, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return os.NewSyscallError("close_range", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	if err = syscall.Exec(binary, os.Args, os.Environ()); os.IsNotExist(err) {
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ()) // it was replaced meanwhile
	}
	return &os.PathError{Op: "execve", Path: filepath.Clean(binary), Err: err}
}

// capabilities returns those that this thread is permitted.
func capabilities() (uint64, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return 0, os.NewSyscallError("capget", err)
	}
	return uint64(caps[0].Permitted) | uint64(caps[1].Permitted)<<32, nil
}
