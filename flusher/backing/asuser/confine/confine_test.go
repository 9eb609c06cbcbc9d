package confine

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// alice is a user without an entry in the user database.
const alice = 50001

// command is the argument with which this binary is a process to confine.
const command = "confined"

func TestMain(m *testing.M) {
	if outside := os.Getenv(probeOutside); outside != "" {
		var f *Fence
		var err error
		if len(os.Args) == 4 { // ToDirectory has executed the binary again
			f = ParseFence(os.Args[3])
		} else {
			f, err = ToDirectory(os.Args[2], command)
		}
		if err == nil {
			err = probe(os.Args[2], f, outside)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if how := os.Getenv(probeCalls); how != "" {
		if err := probeAll(os.Args[2], how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// home makes a directory that a user owns, below one that all may pass.
func home(t *testing.T, uid int) string {
	t.Helper()
	top, err := os.MkdirTemp("", "confine")
	if err == nil {
		err = os.Chmod(top, 0o755)
	}
	dir := filepath.Join(top, "home")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.Chown(dir, uid, uid)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	return dir
}

// users are the users of tests: as root several, else this one alone.
func users() []uint32 {
	if os.Geteuid() == 0 {
		return []uint32{0, alice}
	}
	return []uint32{uint32(os.Geteuid())}
}

// A process cannot leave its directory where the kernel has Landlock, with any rights of its user.
func TestConfined(t *testing.T) {
	uid := users()[len(users())-1]
	dir, outside := home(t, int(uid)), home(t, int(uid))
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	abstract, err := net.Listen("unix", "@confine-"+filepath.Base(filepath.Dir(outside)))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	cmd := exec.Command("/proc/self/exe", command, dir)
	cmd.Env = []string{probeOutside + "=" + outside, probePort + "=" + port.Addr().String(), probeAbstract + "=" + abstract.Addr().String()}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const (
	probeOutside  = "FOREBAY_TEST_PROBE_OUTSIDE"
	probePort     = "FOREBAY_TEST_PROBE_PORT"
	probeAbstract = "FOREBAY_TEST_PROBE_ABSTRACT"
)

// probe tries each forbidden step of a confined worker. It runs in place of one.
func probe(dir string, f *Fence, outside string) error {
	if err := os.WriteFile(filepath.Join(dir, "inside"), nil, 0o600); err != nil {
		return err
	}
	if f == nil {
		return nil // this kernel has no Landlock
	}
	if _, err := os.ReadDir(outside); !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("reading outside: %v", err)
	}
	if err := os.WriteFile(filepath.Join(outside, "f"), nil, 0o600); !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("writing outside: %v", err)
	}
	abi, err := landlockABI()
	if err != nil {
		return err
	}
	if _, err := net.Dial("tcp", os.Getenv(probePort)); abi >= netABI && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("connecting to a port: %v", err)
	}
	if _, err := net.Dial("unix", os.Getenv(probeAbstract)); abi >= scopeABI && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("connecting to an abstract socket: %v", err)
	}
	return nil
}

// denied are calls that no worker may make, besides those of the lists.
var denied = map[string]uint32{
	"ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "chroot": unix.SYS_CHROOT, "fsopen": unix.SYS_FSOPEN, "fsconfig": unix.SYS_FSCONFIG,
	"fsmount": unix.SYS_FSMOUNT, "fspick": unix.SYS_FSPICK, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
	"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "keyctl": unix.SYS_KEYCTL,
	"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS, "execve": unix.SYS_EXECVE, "execveat": unix.SYS_EXECVEAT,
	"socket": unix.SYS_SOCKET, "socketpair": unix.SYS_SOCKETPAIR, "connect": unix.SYS_CONNECT, "bind": unix.SYS_BIND,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "userfaultfd": unix.SYS_USERFAULTFD,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER,
	"kill": unix.SYS_KILL, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "setuid": unix.SYS_SETUID, "setgroups": unix.SYS_SETGROUPS, "capset": unix.SYS_CAPSET,
}

// deadly are calls that end the worker.
var deadly = map[string]uint32{
	"init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE,
	"kexec_load": unix.SYS_KEXEC_LOAD, "reboot": unix.SYS_REBOOT, "swapon": unix.SYS_SWAPON, "pivot_root": unix.SYS_PIVOT_ROOT, "clock_settime": unix.SYS_CLOCK_SETTIME,
}

// made is a system call as a filter gets it.
type made struct {
	number, arch uint32
	first        uint64 // argument
}

// verdict runs a program, of the instructions that this package uses.
func verdict(t *testing.T, p []unix.SockFilter, c made) uint32 {
	t.Helper()
	words := map[uint32]uint32{atNumber: c.number, atArch: c.arch, atFirstArgument: uint32(c.first)}
	var a uint32
	for at := 0; at < len(p); at++ {
		i := p[at]
		holds := false
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = words[i.K]
			continue
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ:
			holds = a == i.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JGT:
			holds = a > i.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET:
			holds = a&i.K != 0
		default:
			t.Fatalf("instruction %d: %+v", at, i)
		}
		if holds {
			at += int(i.Jt)
		} else {
			at += int(i.Jf)
		}
	}
	t.Fatal("the program has no end")
	return 0
}

// The program decides by the call's number, its machine, and the flags of clone.
func TestProgram(t *testing.T) {
	const allow, thread = unix.SECCOMP_RET_ALLOW, unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	p := program()
	check := func(about string, c made, want uint32) {
		t.Helper()
		if got := verdict(t, p, c); got != want {
			t.Errorf("%s: %x, want %x", about, got, want)
		}
	}
	for name, number := range denied {
		check(name, made{number, arch, 0}, refuse)
	}
	for name, number := range deadly {
		check(name, made{number, arch, 0}, endProcess)
	}
	for name, number := range map[string]uint32{
		"read": unix.SYS_READ, "write": unix.SYS_WRITE, "openat2": unix.SYS_OPENAT2, "statx": unix.SYS_STATX, "renameat2": unix.SYS_RENAMEAT2,
		"fsync": unix.SYS_FSYNC, "fsetxattr": unix.SYS_FSETXATTR, "fallocate": unix.SYS_FALLOCATE, "ioctl": unix.SYS_IOCTL, "flock": unix.SYS_FLOCK,
		"mmap": unix.SYS_MMAP, "futex": unix.SYS_FUTEX, "tgkill": unix.SYS_TGKILL, "epoll_pwait": unix.SYS_EPOLL_PWAIT, "the last known": lastKnown,
		"sendmsg": unix.SYS_SENDMSG, "exit_group": unix.SYS_EXIT_GROUP, "fchown": unix.SYS_FCHOWN,
	} {
		check(name, made{number, arch, ^uint64(0)}, allow)
	}
	check("a thread", made{unix.SYS_CLONE, arch, thread}, allow)
	check("a thread, with other bits above", made{unix.SYS_CLONE, arch, 1<<40 | thread}, allow)
	check("a process", made{unix.SYS_CLONE, arch, uint64(unix.SIGCHLD)}, refuse)
	check("a process that shares memory", made{unix.SYS_CLONE, arch, unix.CLONE_VM | unix.CLONE_VFORK}, refuse)
	check("a thread in a namespace", made{unix.SYS_CLONE, arch, thread | unix.CLONE_NEWNET}, refuse)
	check("a user namespace", made{unix.SYS_CLONE, arch, unix.CLONE_NEWUSER}, refuse)
	check("clone3", made{unix.SYS_CLONE3, arch, 0}, doNotHave)
	check("a newer one", made{lastKnown + 1, arch, 0}, doNotHave)
	check("execve of x32", made{0x40000000 | 520, arch, 0}, doNotHave)
	check("none", made{^uint32(0), arch, 0}, doNotHave)
	check("read of another machine", made{unix.SYS_READ, unix.AUDIT_ARCH_I386, 0}, endProcess)
}

const (
	probeCalls = "FOREBAY_TEST_PROBE_CALLS" // which of the three below to do
	unfiltered = "unfiltered"
	filtered   = "filtered"
	// Else: the number of the one call to make.
)

// probeAll makes the calls that a filter refuses, in place of a worker, and prints how each ends. The
// arguments fit none of them.
func probeAll(dir, how string) error {
	var err error
	if len(os.Args) == 3 { // else ToDirectory has executed the binary again
		_, err = ToDirectory(dir, command)
	}
	if err == nil && how != unfiltered {
		err = FilterCalls()
	}
	if err != nil {
		return err
	}
	const no = ^uintptr(0)
	if n, err := strconv.Atoi(how); err == nil {
		_, _, errno := syscall.RawSyscall6(uintptr(n), no, no, no, no, no, no)
		return fmt.Errorf("call %d: %w", n, errno)
	}
	for _, n := range refused {
		if how == unfiltered && slices.Contains(refusedHere, n) {
			continue // fork
		}
		_, _, errno := syscall.RawSyscall6(uintptr(n), no, no, no, no, no, no)
		fmt.Println(n, int(errno))
	}
	return nil
}

// asWorker runs this binary as a store worker is run, and returns its output.
func asWorker(t *testing.T, uid uint32, how string) (string, error) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", command, home(t, int(uid)))
	cmd.Env = []string{probeCalls + "=" + how}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, &stderr)
	}
	return string(out), err
}

// errnos runs all calls, and returns the error of each.
func errnos(t *testing.T, uid uint32, how string) map[uint32]syscall.Errno {
	t.Helper()
	out, err := asWorker(t, uid, how)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[uint32]syscall.Errno)
	for line := range strings.Lines(out) {
		var number uint32
		var errno int
		if _, err := fmt.Sscan(line, &number, &errno); err != nil {
			t.Fatal(line, err)
		}
		got[number] = syscall.Errno(errno)
	}
	return got
}

// In a worker each call that the filter has fails with EPERM because of the filter, for root's too.
// Without it most fail with something else, as the arguments are wrong.
func TestCallsRefused(t *testing.T) {
	for _, uid := range users() {
		with, without := errnos(t, uid, filtered), errnos(t, uid, unfiltered)
		if len(with) != len(refused) {
			t.Errorf("uid %d: %d calls of %d", uid, len(with), len(refused))
		}
		byFilter := 0
		for number, errno := range with {
			if errno != unix.EPERM {
				t.Errorf("uid %d: call %d: %v", uid, number, errno)
			}
			if other, ok := without[number]; ok && other != unix.EPERM {
				byFilter++
			}
		}
		for _, name := range []string{"ptrace", "process_vm_readv", "unshare", "setns", "socket", "socketpair", "execve", "execveat", "kill", "pidfd_getfd"} {
			if without[denied[name]] == unix.EPERM {
				t.Errorf("uid %d: %s fails with EPERM without the filter, too", uid, name)
			}
		}
		if byFilter < len(refused)/2 {
			t.Errorf("uid %d: of %d calls, %d are refused by the filter alone", uid, len(refused), byFilter)
		}
		t.Logf("uid %d: %d calls refused, %d of them by the filter alone", uid, len(with), byFilter)
	}
}

// Calls that cannot be made by mistake end a worker.
func TestCallsThatEnd(t *testing.T) {
	uid := users()[len(users())-1]
	for name, number := range deadly {
		_, err := asWorker(t, uid, fmt.Sprint(number))
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
			t.Errorf("%s: %v, want %v", name, err, unix.SIGSYS)
		}
	}
}

// Which rights a version of Landlock handles, and how long its structure is.
func TestRights(t *testing.T) {
	for _, c := range []struct {
		abi  int
		size uintptr
		net  bool
		own  bool // signals and abstract sockets
	}{{2, 8, false, false}, {3, 8, false, false}, {4, 16, true, false}, {5, 16, true, false}, {6, 24, true, true}, {9, 24, true, true}} {
		attr, size := rightsOf(c.abi)
		if size != c.size || (attr.Handled_access_net != 0) != c.net || (attr.Scoped != 0) != c.own {
			t.Errorf("version %d: %+v of %d bytes", c.abi, attr, size)
		}
		if got := attr.Handled_access_fs&unix.LANDLOCK_ACCESS_FS_TRUNCATE != 0; got != (c.abi >= 3) {
			t.Errorf("version %d: truncation is handled: %v", c.abi, got)
		}
		if got := attr.Handled_access_fs&unix.LANDLOCK_ACCESS_FS_IOCTL_DEV != 0; got != (c.abi >= 5) {
			t.Errorf("version %d: ioctl of devices is handled: %v", c.abi, got)
		}
	}
}
