package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// mounted is a real daemon with a buffer, and a mount of it by a process of its own.
type mounted struct {
	*bbdtest.Daemon
	dir  string // where the buffer is mounted
	user int    // who mounts it; 0: root
	exe  string // bbmount; "": the one that the tests build
	b    *client.Buffer
	log  *log
}

// log collects the lines that a mount logs.
type log struct {
	sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.Lock()
	defer l.Unlock()
	return l.text.String()
}

// patience bounds waits for events that should come soon.
const patience = 2 * time.Minute

// needRoot skips a test that mounts. In CI, where nothing may be missing, it fails the test.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const missing = "mounting a file system for all users needs root"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// newBuffer starts a daemon with a buffer that is not mounted.
func newBuffer(t *testing.T, args ...string) *mounted {
	t.Helper()
	if testing.Short() {
		t.Skip("what works here are processes of their own")
	}
	needRoot(t)
	d := bbdtest.New(t, args...)
	return newBufferOf(t, d, admin.BufferSpec{Name: "b", Mode: 0o777})
}

// newBufferOf starts a daemon and makes a buffer.
func newBufferOf(t *testing.T, d *bbdtest.Daemon, spec admin.BufferSpec) *mounted {
	t.Helper()
	dir, err := os.MkdirTemp("", "bbmount") // which all users may enter
	check(t, err)
	t.Cleanup(func() { os.Remove(dir) })
	check(t, os.Chmod(dir, 0o755))
	d.Start()
	m := &mounted{Daemon: d, dir: dir, log: &log{}}
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + m.Socket})
	check(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = admin.CreateBuffer(t.Context(), c, spec)
	check(t, err)
	m.b = c.Buffer("b")
	return m
}

func newMount(t *testing.T, args ...string) *mounted {
	t.Helper()
	m := newBuffer(t, args...)
	m.mount(t)
	return m
}

// mount mounts the buffer until the test ends, and returns the mount's process.
func (m *mounted) mount(t *testing.T, args ...string) *os.Process {
	t.Helper()
	r, w, err := os.Pipe()
	check(t, err)
	defer r.Close()
	start := func(program string, args ...string) *exec.Cmd {
		return as(m.user, append([]string{program}, args...)...)
	}
	if m.Host != nil {
		start = m.Host.Command
	}
	cmd := start(cmp.Or(m.exe, bbdtest.Bbmount(t)), append([]string{"--foreground", "--socket", "unix://" + m.Socket, "bb://b", m.dir}, args...)...)
	cmd.Env = append(os.Environ(), readyEnv+"=1")
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = m.log
	check(t, cmd.Start())
	w.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		unix.Unmount(m.dir, unix.MNT_DETACH)
		select {
		case <-ended:
		case <-time.After(patience):
			cmd.Process.Signal(syscall.SIGQUIT)
			<-ended
			t.Error("the mount did not end")
		}
		if t.Failed() {
			t.Logf("the mount's log:\n%s\nthe daemon's:\n%s", m.log, m.Log())
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "" {
		t.Fatalf("mounting: %q, %v\n%s", line, err, m.log)
	}
	return cmd.Process
}

// as is a program that a user runs; 0: root.
func as(user int, args ...string) *exec.Cmd {
	if user != 0 {
		id := strconv.Itoa(user)
		args = append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--"}, args...)
	}
	return exec.Command(args[0], args[1:]...)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails the test unless err is the errno.
func refused(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), want.Error()) {
		t.Errorf("%s: %v, not %v", what, err, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	return string(text)
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got := read(t, path); got != want {
		t.Errorf("%s holds %.60q (%d bytes), not %.60q (%d)", filepath.Base(path), got, len(got), want, len(want))
	}
}

// inBuffer checks the content by the client library.
func (m *mounted) inBuffer(t *testing.T, path, want string) {
	t.Helper()
	got, err := m.b.ReadFile(context.Background(), strings.TrimPrefix(path, m.dir))
	if err != nil || string(got) != want {
		t.Errorf("%s has %.60q in the buffer, not %.60q: %v", path, got, want, err)
	}
}

func open(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o644)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func put(t *testing.T, f io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(f, text)
	check(t, err)
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	check(t, unix.Stat(path, &st))
	return st
}

// TestLostToAnother: a program's close fails if the bytes could not be committed at the request of another one.
func TestLostToAnother(t *testing.T) {
	t.Parallel()
	m := newBuffer(t)
	m.mount(t)
	path := filepath.Join(m.dir, "f")
	w := open(t, path, os.O_CREATE|os.O_WRONLY)
	put(t, w, "text")
	check(t, w.Sync())
	other := open(t, path, os.O_RDONLY)
	put(t, w, " and more")
	check(t, m.b.Remove(t.Context(), "f"))
	if err := unix.Futimes(int(other.Fd()), make([]unix.Timeval, 2)); err == nil {
		t.Fatal("the time of a removed file changes")
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ESTALE) {
		t.Errorf("close: %v", err)
	}
}
