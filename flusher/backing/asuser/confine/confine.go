// Package confine gives up, for good, the system calls, capabilities and folders that a store worker does not
// need. It must never depend on a store, nor the worker's requests.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Fence is the directory that a worker is confined to, or nil if it is not confined.
type Fence struct{ dev, ino uint64 }

// Moved reports whether another directory lies at the path by now. A file system was mounted again.
// The worker cannot reach it, a new one can.
func (f *Fence) Moved(dir string) bool {
	if f == nil {
		return false
	}
	var now unix.Stat_t
	if unix.Stat(dir, &now) != nil {
		return false // the call returns the error
	}
	return *f != Fence{now.Dev, now.Ino}
}

func (f *Fence) String() string {
	if f == nil {
		return "open"
	}
	return fmt.Sprintf("%x:%x", f.dev, f.ino)
}

func ParseFence(s string) *Fence {
	f := new(Fence)
	if _, err := fmt.Sscanf(s, "%x:%x", &f.dev, &f.ino); err != nil {
		return nil
	}
	return f
}

// rootKeeps are the capabilities of root's own worker, since root may give its files to their
// owners, and reach those that it made for them.
var rootKeeps = uint64(1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID)

// ToDirectory drops all rights that a worker does not need: in all threads of this process, or,
// where the runtime cannot reach them (cgo), in one that executes the binary again, with the
// arguments command, dir and the fence. It then returns only if that fails.
func ToDirectory(dir, command string) (*Fence, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	all := syscall.AllThreadsSyscall
	_, _, errno := all(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	again := errno == unix.ENOTSUP
	if again {
		all = syscall.Syscall
		_, _, errno = all(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	}
	if errno != 0 {
		return nil, os.NewSyscallError("prctl", errno)
	}
	if err := keepCapabilities(!again, rootKeeps); err != nil {
		return nil, err
	}
	f, err := landlock(all, dir)
	if err != nil || !again {
		return f, err
	}
	const exe = "/proc/self/exe"
	return nil, os.NewSyscallError("execve", syscall.Exec(exe, []string{os.Args[0], command, dir, f.String()}, os.Environ()))
}

// syscaller carries a system call out, in one thread or in all.
type syscaller func(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno)

// keepCapabilities drops all capabilities but some, of this thread or of all. A user's worker has none.
func keepCapabilities(all bool, keep uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	for i := range caps {
		mask := uint32(keep >> (32 * i))
		caps[i].Permitted &= mask
		caps[i].Effective &= mask
		caps[i].Inheritable = 0
	}
	var errno syscall.Errno
	if all {
		// Pointers become uintptrs in the call itself (unsafe.Pointer, rule 4).
		_, _, errno = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&caps[0])), 0)
	} else {
		// As above (unsafe.Pointer, rule 4).
		_, _, errno = syscall.Syscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&caps[0])), 0)
	}
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// Rights of landlock(7).
const (
	landlockRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockAll  = landlockRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	// referABI is the first version that lets a file be renamed into another directory.
	referABI, truncateABI, netABI, ioctlABI, scopeABI = 2, 3, 4, 5, 6
)

// systemDirs may be read. They have libraries, and the program that gives Lustre's files their
// layout.
var systemDirs = []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/dev"}

// errNoLandlock is the error of a kernel that confines no worker to a directory.
var errNoLandlock = errors.New("no Landlock")

// landlockABI returns the version of the kernel's Landlock.
func landlockABI() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno != 0:
		return 0, fmt.Errorf("%w: %w", errNoLandlock, errno)
	case abi < referABI:
		return 0, fmt.Errorf("%w: version %d lets no file be renamed into another directory", errNoLandlock, abi)
	}
	return int(abi), nil
}

// HasLandlock returns the reason why no process can be confined to a directory here, or nil if it
// can.
func HasLandlock() error {
	_, err := landlockABI()
	return err
}

// rightsOf returns the rights that a ruleset of a version handles, all denied unless rules grant them
// below paths, and the size of the version's structure. It is pure.
func rightsOf(abi int) (attr unix.LandlockRulesetAttr, size uintptr) {
	const field = 8 // each is a number of 64 bits
	attr.Handled_access_fs, size = landlockAll, field
	if abi >= truncateABI {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= netABI {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = 2 * field
	}
	if abi >= ioctlABI {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= scopeABI {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = 3 * field
	}
	return attr, size
}

// landlock confines a worker to a directory. It returns nil where the kernel cannot. It returns which directory that
// is.
func landlock(all syscaller, dir string) (*Fence, error) {
	abi, err := landlockABI()
	if err != nil {
		return nil, nil
	}
	attr, size := rightsOf(abi)
	// A pointer to a local variable becomes a uintptr in the call itself (unsafe.Pointer, rule 4).
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(ruleset))
	for _, system := range systemDirs {
		if _, err := allow(int(ruleset), system, landlockRead); err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
	}
	const exeRights = unix.LANDLOCK_ACCESS_FS_READ_FILE // to be executed again
	if _, err := allow(int(ruleset), "/proc/self/exe", exeRights); err != nil {
		return nil, err
	}
	// A root that cannot be reached now is none that the worker may reach later. moved finds out.
	f, err := allow(int(ruleset), dir, attr.Handled_access_fs)
	if err != nil {
		f = &Fence{}
	}
	if _, _, errno := all(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return nil, os.NewSyscallError("landlock_restrict_self", errno)
	}
	return f, nil
}

// allow grants rights below a path.
func allow(ruleset int, path string, rights uint64) (*Fence, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	// As above (unsafe.Pointer, rule 4).
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return nil, &os.PathError{Op: "landlock_add_rule", Path: path, Err: errno}
	}
	var at unix.Stat_t
	if err := unix.Fstat(fd, &at); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	return &Fence{at.Dev, at.Ino}, nil
}
