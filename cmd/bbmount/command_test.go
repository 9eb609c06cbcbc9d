package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bbdtest"
	"forebay/internal/mounts"
)

// bbctl runs bbctl, which has to exit with a code, and returns its output.
func (m *mounted) bbctl(t *testing.T, code int, args ...string) string {
	t.Helper()
	return exits(t, code, bbdtest.Bbctl(t), append([]string{"--socket", m.Socket}, args...)...)
}

func exits(t *testing.T, code int, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	text, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: exit code %d, not %d (%v): %s", strings.Join(args, " "), got, code, err, text)
	}
	return string(text)
}

func says(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q does not say %q", text, want)
	}
}

// TestHelper mounts as mount(8) does for a line of /etc/fstab, and as systemd does.
func TestHelper(t *testing.T) {
	t.Parallel()
	needPrograms(t, "umount")
	m := newBuffer(t)
	helper := filepath.Join(t.TempDir(), "mount.forebay")
	check(t, os.Symlink(bbdtest.Bbmount(t), helper))
	t.Cleanup(func() { unix.Unmount(m.dir, unix.MNT_DETACH) })
	socket := "socket=" + m.Socket
	says(t, exits(t, 2, helper, "forebay", m.dir, "-o", "rw,"+socket), "names no buffer")
	says(t, exits(t, 2, helper, "forebay", m.dir, "-o", "rw,buffer=b,ro,"+socket), "for reading and writing")
	exits(t, 0, helper, "forebay", m.dir, "-f", "-o", "buffer=b") // a fake mount
	exits(t, 0, helper, "forebay", m.dir, "-n", "-o", "rw,_netdev,x-systemd.automount,buffer=b,"+socket)
	file := filepath.Join(m.dir, "f")
	write(t, file, "hello")
	if text, err := m.b.ReadFile(t.Context(), "f"); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	exits(t, 0, "umount", m.dir)
	exits(t, 0, helper, "forebay", m.dir, "-o", "coherent,buffer=b,"+socket)
	m.coherent(t)
	exits(t, 0, "umount", m.dir)

	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(t.TempDir(), "notify")})
	check(t, err)
	defer notify.Close()
	cmd := exec.Command(bbdtest.Bbmount(t), "--foreground", "--socket", m.Socket, "bb://b", m.dir)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	check(t, cmd.Start())
	p := make([]byte, 100)
	check(t, notify.SetReadDeadline(time.Now().Add(2*time.Minute)))
	n, err := notify.Read(p)
	if string(p[:n]) != "READY=1" || err != nil {
		t.Errorf("systemd is notified of %q, %v", p[:n], err)
	}
	if text, err := os.ReadFile(file); string(text) != "hello" || err != nil { // it serves by then
		t.Errorf("%q, %v", text, err)
	}
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	check(t, cmd.Wait())
}

// TestCommands mounts and unmounts with bbctl.
func TestCommands(t *testing.T) {
	t.Parallel()
	needPrograms(t, "findmnt")
	m := newBuffer(t)
	bbdtest.Bbmount(t) // which bbctl finds beside itself
	t.Cleanup(func() { unix.Unmount(m.dir, unix.MNT_DETACH) })
	file := filepath.Join(m.dir, "f")
	write(t, file, "below the mount")

	says(t, m.bbctl(t, 3, "mount", "bb://none", m.dir), "none")
	says(t, m.bbctl(t, 3, "mount", "bb://b", m.dir+"/none"), "not found")
	says(t, m.bbctl(t, 9, "mount", "bb://b", file), "not a directory")
	says(t, m.bbctl(t, 2, "mount", "bb://b/path", m.dir), "a whole buffer is mounted")
	says(t, m.bbctl(t, 2, "mount", "bb://b"), "one argument")
	says(t, m.bbctl(t, 3, "umount", m.dir), "no buffer is mounted there")
	says(t, m.bbctl(t, 3, "remount", m.dir), "no buffer is mounted there")
	says(t, exits(t, 5, bbdtest.Bbctl(t), "--socket", "/nowhere", "mount", "bb://b", m.dir), "no daemon answers")
	check(t, os.Remove(file))

	if text := m.bbctl(t, 0, "mount", "bb://b", m.dir); text != "" {
		t.Errorf("mounting printed %q", text)
	}
	says(t, m.bbctl(t, 9, "mount", "bb://b", m.dir), "bbctl umount "+m.dir)
	says(t, exits(t, 0, "findmnt", "-n", "-o", "SOURCE,FSTYPE", m.dir), "bb://b?socket=unix://"+m.Socket+" fuse.forebay")
	write(t, file, "on the mount")
	m.inBuffer(t, file, "on the mount")
	f := open(t, file, os.O_WRONLY|os.O_APPEND)
	if text := m.bbctl(t, 0, "remount", m.dir); text != "" {
		t.Errorf("remount printed %q", text)
	}
	put(t, f, "!")
	says(t, m.bbctl(t, 9, "umount", m.dir), "--lazy")
	m.bbctl(t, 0, "umount", "--lazy", m.dir)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the lazy umount: %v", err)
	}
	check(t, f.Close())
	m.inBuffer(t, file, "on the mount!")
	m.bbctl(t, 0, "mount", "--log", filepath.Join(t.TempDir(), "log"), "bb://b", m.dir)
	holds(t, file, "on the mount!")
	m.inBuffer(t, file, "on the mount!")

	if m.pagesLeft(t) == 0 {
		t.Error("usual writes leave no pages")
	}
	m.bbctl(t, 0, "umount", m.dir)
	m.bbctl(t, 0, "mount", "--direct-writes", "bb://b", m.dir)
	if n := m.pagesLeft(t); n != 0 {
		t.Errorf("direct writes leave %d pages", n)
	}
	m.bbctl(t, 0, "umount", m.dir)

	m.bbctl(t, 0, "mount", "--coherent", "bb://b", m.dir)
	m.coherent(t)
	m.bbctl(t, 0, "umount", m.dir)
}

// pagesLeft writes a file on the mount, and returns how many pages of it the kernel has.
func (m *mounted) pagesLeft(t *testing.T) uint64 {
	t.Helper()
	file := filepath.Join(m.dir, "pages")
	write(t, file, strings.Repeat("x", 100_000))
	var there unix.Cachestat_t
	f := open(t, file, os.O_RDONLY)
	check(t, unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &there, 0))
	check(t, f.Close())
	return there.Cache
}

// coherent fails the test unless each write on the mount is a commit.
func (m *mounted) coherent(t *testing.T) {
	t.Helper()
	file := filepath.Join(m.dir, "open")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	check(t, err)
	put(t, f, "not closed")
	m.inBuffer(t, file, "not closed")
	check(t, f.Close())
}

// TestMountKilled kills the mount's process. Closed and synced bytes are there, and the remedy is
// named.
func TestMountKilled(t *testing.T) {
	t.Parallel()
	m := newBuffer(t)
	process := m.mount(t)
	file, synced := filepath.Join(m.dir, "closed"), filepath.Join(m.dir, "synced")
	write(t, file, "closed")
	f := open(t, synced, os.O_CREATE|os.O_WRONLY)
	put(t, f, "synced")
	check(t, f.Sync())
	put(t, f, " and not")
	check(t, process.Kill())
	waitFor(t, "the end of the mount's process", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, syscall.ENOTCONN)
	})
	refused(t, "closing what was not synced", f.Close(), syscall.ENOTCONN)
	busy := open(t, m.dir, unix.O_PATH)
	says(t, m.bbctl(t, 9, "mount", "bb://b", m.dir), "bbctl umount "+m.dir)
	says(t, m.bbctl(t, 0, "doctor"), "mounted bb://b on "+m.dir+" has ended")
	m.bbctl(t, 0, "umount", m.dir)
	check(t, busy.Close())
	if _, there, err := mounts.At(m.dir); there || err != nil {
		t.Errorf("it is still mounted, %v", err)
	}
	m.mount(t)
	holds(t, file, "closed")
	holds(t, synced, "synced")
}

// TestTerminated: SIGTERM unmounts, and open files are served until they are closed.
func TestTerminated(t *testing.T) {
	t.Parallel()
	m := newBuffer(t)
	process := m.mount(t)
	file := filepath.Join(m.dir, "f")
	f := open(t, file, os.O_CREATE|os.O_WRONLY)
	put(t, f, "before")
	check(t, process.Signal(syscall.SIGTERM))
	waitFor(t, "unmounting", func() bool {
		_, there, err := mounts.At(m.dir)
		return !there && err == nil
	})
	put(t, f, " and after")
	check(t, f.Close())
	m.inBuffer(t, file, "before and after")
}
