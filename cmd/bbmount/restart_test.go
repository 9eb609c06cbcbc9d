package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/mounts"
)

// newRestarted is a mount whose program lies in a file of its own.
func newRestarted(t *testing.T) (*mounted, *os.Process) {
	t.Helper()
	m := newBuffer(t)
	m.exe = filepath.Join(t.TempDir(), "bbmount")
	install(t, m.exe, bbdtest.Bbmount(t))
	return m, m.mount(t)
}

// install puts a program in another's place, as a package manager does.
func install(t *testing.T, to, from string) {
	t.Helper()
	program, err := os.ReadFile(from)
	check(t, err)
	check(t, os.WriteFile(to+".new", program, 0o755))
	check(t, os.Rename(to+".new", to))
}

func (m *mounted) restart(t *testing.T) {
	t.Helper()
	if err := mounts.Restart(m.dir); err != nil {
		t.Fatalf("restarting: %v\n%s", err, m.log)
	}
}

// TestRestart restarts a mount's process while programs have files and directories open, in many states. None of them gets
// an error or a wrong byte.
func TestRestart(t *testing.T) {
	t.Parallel()
	m, process := newRestarted(t)
	path := func(name string) string { return filepath.Join(m.dir, name) }
	const restarts = 3
	check(t, os.MkdirAll(path("d/deep"), 0o755))
	check(t, os.Mkdir(path("removed"), 0o755))
	big := bytesOf(1, 3<<20)
	check(t, os.WriteFile(path("d/read"), big, 0o644))
	write(t, path("removed-open"), "bytes of the daemon")
	var want []string
	for i := range 150 {
		name := fmt.Sprintf("a-name-that-takes-some-room-%03d", i)
		want = append(want, name)
		check(t, os.Symlink("x", path("d/deep/"+name)))
	}

	reading := open(t, path("d/read"), os.O_RDONLY)
	writing := open(t, path("d/write"), os.O_CREATE|os.O_RDWR)
	appending := open(t, path("append"), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	nameless := open(t, path("nameless"), os.O_CREATE|os.O_RDWR)
	put(t, nameless, "begin")
	check(t, os.Remove(nameless.Name()))
	removed := open(t, path("removed-open"), os.O_RDONLY)
	check(t, os.Remove(removed.Name()))
	locked, other := open(t, path("lock"), os.O_CREATE|os.O_RDWR), open(t, path("lock"), os.O_RDWR)
	check(t, unix.Flock(int(locked.Fd()), unix.LOCK_EX))
	mapped := open(t, path("mapped"), os.O_CREATE|os.O_RDWR)
	check(t, mapped.Truncate(8192))
	pages, err := unix.Mmap(int(mapped.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	t.Cleanup(func() { unix.Munmap(pages) })
	closed := open(t, path("d"), os.O_RDONLY) // its number is free at the restart
	listing := open(t, path("d/deep"), os.O_RDONLY)
	check(t, closed.Close())
	inside, gone := shellIn(t, path("d/deep")), shellIn(t, path("removed"))
	check(t, os.Remove(path("removed")))
	before := stat(t, path("d/deep"))

	var seen []string
	var expected strings.Builder
	for i := range restarts {
		text := fmt.Sprintf("text %d;", i)
		put(t, writing, text)
		put(t, appending, text)
		put(t, nameless, text)
		expected.WriteString(text)
		pages[i] = byte('a' + i)
		seen = append(seen, listed(t, listing, i+1)...)
		part := make([]byte, 1<<20)
		_, err := io.ReadFull(reading, part)
		check(t, err)
		if !bytes.Equal(part, big[i<<20:(i+1)<<20]) {
			t.Errorf("after %d restarts, the wrong bytes were read", i)
		}
		install(t, m.exe, m.exe)
		m.restart(t)
	}
	seen = append(seen, listed(t, listing, 1<<20)...)
	want = append(want, ".", "..")
	slices.Sort(want)
	slices.Sort(seen)
	if !slices.Equal(seen, want) {
		t.Errorf("listed: %d names, not %d", len(seen), len(want))
	}
	if after := stat(t, path("d/deep")); after.Ino != before.Ino {
		t.Errorf("the directory's inode is %d, it was %d", after.Ino, before.Ino)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("a lock that is held: %v", err)
	}
	if got := inside("cat ../write"); got != expected.String() {
		t.Errorf("a program in the directory reads %q, not %q", got, expected.String())
	}
	if got := gone("ls | wc -l"); strings.TrimSpace(got) != "0" {
		t.Errorf("a program in a removed directory lists %q names", got)
	}
	same(t, "the file without a name", nameless, []byte("begin"+expected.String()))
	same(t, "the removed file", removed, []byte("bytes of the daemon"))
	check(t, unix.Msync(pages, unix.MS_SYNC))
	check(t, writing.Close())
	check(t, appending.Close())
	check(t, mapped.Close())
	m.inBuffer(t, path("d/write"), expected.String())
	m.inBuffer(t, path("append"), expected.String())
	m.inBuffer(t, path("mapped"), "abc"+strings.Repeat("\x00", 8192-restarts))

	put(t, nameless, "; SIGHUP")
	check(t, process.Signal(syscall.SIGHUP))
	m.logs(t, "msg=restarted", restarts+1)
	same(t, "the file without a name", nameless, []byte("begin"+expected.String()+"; SIGHUP"))
	m.leaves(t)
}

// logs waits until the mount has logged a text some times.
func (m *mounted) logs(t *testing.T, text string, times int) {
	t.Helper()
	for deadline := time.Now().Add(patience); strings.Count(m.log.String(), text) < times; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the mount does not log %q %d times:\n%s", text, times, m.log)
		}
	}
}

// leaves checks that the kernel and the mount's process agree on what has been looked up: they are forgotten together.
func (m *mounted) leaves(t *testing.T) {
	t.Helper()
	check(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0))
	write(t, filepath.Join(m.dir, "last"), "x")
	if text := m.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the mount logs errors:\n%s", text)
	}
}

// shellIn starts a shell in a directory. The returned function has it carry out a command, and ends it.
func shellIn(t *testing.T, dir string) func(command string) string {
	t.Helper()
	cmd := exec.Command("sh")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewReader(out)
	put(t, in, "echo there\n")
	_, err = lines.ReadString('\n')
	check(t, err)
	return func(command string) string {
		put(t, in, command+"\n")
		check(t, in.Close())
		text, err := io.ReadAll(lines)
		check(t, err)
		return string(text)
	}
}

// listed returns the names that some calls of getdents pass.
func listed(t *testing.T, dir *os.File, calls int) (names []string) {
	t.Helper()
	for range calls {
		p := make([]byte, 512)
		n, err := unix.Getdents(int(dir.Fd()), p)
		check(t, err)
		if n == 0 {
			return names
		}
		for p = p[:n]; len(p) > 0; {
			size := int(p[16]) | int(p[17])<<8
			names = append(names, unix.ByteSliceToString(p[19:size]))
			p = p[size:]
		}
	}
	return names
}

// TestRestartFails restarts a mount with a program that cannot go on. The old one does, and no program gets an error.
func TestRestartFails(t *testing.T) {
	t.Parallel()
	m, _ := newRestarted(t)
	f := open(t, filepath.Join(m.dir, "f"), os.O_CREATE|os.O_RDWR)
	put(t, f, "one")
	for name, text := range map[string]string{"fails": "#!/bin/sh\necho it cannot >&2\nexit 1\n", "is none": "no program", "of another format": "\x7fELF"} {
		check(t, os.Remove(m.exe))
		check(t, os.WriteFile(m.exe, []byte(text), 0o755))
		if err := mounts.Restart(m.dir); bb.KindOf(err) != bb.Internal {
			t.Errorf("a program that %s: %v", name, err)
		}
		put(t, f, "+")
	}
	m.logs(t, "it cannot", 1)
	install(t, m.exe, bbdtest.Bbmount(t))
	m.restart(t)
	put(t, f, "two")
	check(t, f.Close())
	m.inBuffer(t, f.Name(), "one+++two")
}

// TestRestartBesideLoad restarts a mount's process again and again while programs create, write, read, rename, list and
// remove.
func TestRestartBesideLoad(t *testing.T) {
	t.Parallel()
	m, _ := newRestarted(t)
	const restarts = 20
	var done atomic.Bool
	var rounds atomic.Int64
	var work sync.WaitGroup
	for i := range 4 {
		dir := filepath.Join(m.dir, fmt.Sprint("worker", i))
		check(t, os.Mkdir(dir, 0o755))
		work.Go(func() {
			for k := 0; !done.Load() && !t.Failed(); k++ {
				if err := round(dir, k); err != nil {
					t.Errorf("worker %d: %v", i, err)
				}
				rounds.Add(1)
			}
		})
	}
	for i := range restarts {
		for was := rounds.Load(); rounds.Load() < was+2 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		if err := mounts.Restart(m.dir); err != nil {
			t.Errorf("restart %d: %v", i, err)
			break
		}
	}
	done.Store(true)
	work.Wait()
	m.leaves(t)
}

// round is what a program does, and the first difference from what it should see.
func round(dir string, k int) error {
	sub := filepath.Join(dir, fmt.Sprint("sub", k))
	if err := os.Mkdir(sub, 0o755); err != nil {
		return err
	}
	want := bytesOf(uint64(k), 100_000)
	f, err := os.OpenFile(filepath.Join(sub, "new"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for p := range slices.Chunk(want, 7000) {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "current")); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("read beside writing: wrong bytes, or %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if got, err = os.ReadFile(filepath.Join(dir, "current")); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("read: %d bytes, wrong ones, or %w", len(got), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		return fmt.Errorf("%v in the directory, %w", entries, err)
	}
	if entries, err := os.ReadDir(sub); err != nil || len(entries) != 0 {
		return fmt.Errorf("%v in a directory that something was moved out of, %w", entries, err)
	}
	return os.Remove(sub)
}
