package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter of a worker's system calls (seccomp(2)) lets a worker work on files, and run threads. All other
// system calls are refused, among them most of those that have made users root. None of them is needed, and a
// worker whose adaptor has a fault that its user exploits is no way into the kernel. It is a list of refused
// calls, as a list of allowed ones would have to follow each release of Go. No call newer than this file is
// allowed.

// lastKnown is the newest system call in the lists below. A newer one fails as on a kernel without it, as
// Go and the C library expect of older ones.
const lastKnown = unix.SYS_MSEAL

// refused are calls that fail with EPERM.
var refused = append([]uint32{
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_KCMP, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// Programs. Threads are made by clone, which the filter looks into.
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// Files by anything but names below the root.
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	// Sockets: the worker has the one to its daemon.
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	// Parts of the kernel that a worker does without.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_MEMFD_SECRET, unix.SYS_REMAP_FILE_PAGES, unix.SYS_VMSPLICE,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMCTL, unix.SYS_SEMTIMEDOP,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	unix.SYS_PERSONALITY, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_VHANGUP, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	// The worker's identity.
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID,
	unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_SETGROUPS, unix.SYS_CAPSET,
}, refusedHere...)

// never are calls that no program makes by mistake, and only root may. The process ends (SIGSYS).
var never = append([]uint32{
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_PIVOT_ROOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
}, neverHere...)

// absent are calls whose arguments a filter cannot read. Callers then use older ones.
var absent = []uint32{unix.SYS_CLONE3}

const (
	refuse     = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	doNotHave  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	endProcess = unix.SECCOMP_RET_KILL_PROCESS

	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// Offsets in struct seccomp_data, on machines with the low half of a number first.
const (
	atNumber, atArch, atFirstArgument = 0, 4, 16
)

// program returns the filter. It is pure.
func program() []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	end := func(verdict uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
	}
	// test skips so many instructions if it holds, or if it does not.
	test := func(how uint16, k uint32, holds, fails uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | how, K: k, Jt: holds, Jf: fails}
	}
	p := []unix.SockFilter{
		load(atArch), test(unix.BPF_JEQ, arch, 1, 0), end(endProcess),
		load(atNumber), test(unix.BPF_JGT, lastKnown, 0, 1), end(doNotHave),
	}
	for _, list := range []struct {
		calls   []uint32
		verdict uint32
	}{{refused, refuse}, {never, endProcess}, {absent, doNotHave}} {
		for _, call := range list.calls {
			p = append(p, test(unix.BPF_JEQ, call, 0, 1), end(list.verdict))
		}
	}
	return append(p,
		test(unix.BPF_JEQ, unix.SYS_CLONE, 0, 5),
		load(atFirstArgument),
		test(unix.BPF_JSET, namespaces, 0, 1), end(refuse),
		test(unix.BPF_JSET, unix.CLONE_THREAD, 1, 0), end(refuse),
		end(unix.SECCOMP_RET_ALLOW))
}

// ErrNoFilter is the error of a machine without a filter of system calls.
var ErrNoFilter = errors.New("no seccomp")

// HasFilter returns the reason why no system calls can be filtered here, or nil if they can.
func HasFilter() error {
	if arch == 0 {
		return fmt.Errorf("%w: this release has no filter for the machine", ErrNoFilter)
	}
	verdict := uint32(endProcess)
	// A pointer to a local variable becomes a uintptr in the call itself (unsafe.Pointer, rule 4).
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&verdict)))
	if errno != 0 {
		return fmt.Errorf("%w: %w", ErrNoFilter, errno)
	}
	return nil
}

// FilterCalls applies the filter to all threads of this process, from now on.
func FilterCalls() error {
	if err := HasFilter(); err != nil {
		return err
	}
	return Install(program())
}

// Install applies a program to all threads of this process.
func Install(p []unix.SockFilter) error {
	fprog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// Without SPEC_ALLOW, which came with the verdict that hasFilter tests, older kernels run a thread with a filter slower.
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	// As above (unsafe.Pointer, rule 4).
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	switch {
	case errno != 0:
		return os.NewSyscallError("seccomp", errno)
	case thread != 0:
		return fmt.Errorf("seccomp: thread %d has a filter of its own", thread)
	}
	return nil
}
