package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bbdtest"
)

// TestPaths gives bbctl paths below a mount in place of addresses. The mount records its daemon, which no option names.
func TestPaths(t *testing.T) {
	t.Parallel()
	needPrograms(t, "mount")
	m := newMount(t)
	elsewhere := t.TempDir()
	bbctl := bbdtest.Bbctl(t)
	in := func(t *testing.T, dir string, code int, args ...string) string {
		t.Helper()
		cmd := exec.Command(bbctl, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "FOREBAY_SOCKET=/nowhere.sock") // of no daemon: the mount's counts
		text, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s in %s: exit code %d, not %d (%v): %s", strings.Join(args, " "), dir, got, code, err, text)
		}
		return string(text)
	}
	at := func(name string) string { return filepath.Join(m.dir, name) }

	in(t, "/", 0, "mkdir", "-p", at("run1/out"))
	write(t, at("run1/out/f"), "hello")
	says(t, in(t, "/", 0, "ls", at("run1")), "out/")
	says(t, in(t, at("run1"), 0, "cat", "out/f"), "hello")
	says(t, in(t, at("run1/out"), 0, "stat", "../out/./f"), "bb://b/run1/out/f")
	in(t, at("run1"), 0, "cp", "out/f", "bb://b/copy")
	in(t, at("run1"), 0, "cp", "-r", "out", at("tree"))
	in(t, "/", 0, "mv", at("copy"), at("moved"))
	in(t, at("tree"), 0, "rm", "f")
	says(t, in(t, m.dir, 0, "find", "."), "bb://b/moved")
	says(t, in(t, m.dir, 0, "tree", at("run*")), "f") // a pattern
	write(t, filepath.Join(elsewhere, "local"), "from a local file")
	in(t, elsewhere, 0, "put", "local", m.dir+"/")
	in(t, elsewhere, 0, "get", at("moved"), ".")
	in(t, elsewhere, 0, "sync", ".", at("synced"))
	in(t, elsewhere, 0, "sync", at("run1"), "run1")
	m.inBuffer(t, at("local"), "from a local file")
	m.inBuffer(t, at("synced/moved"), "hello")
	holds(t, filepath.Join(elsewhere, "moved"), "hello")
	holds(t, filepath.Join(elsewhere, "run1/out/f"), "hello")
	says(t, in(t, "/", 0, "status", m.dir), "b")
	says(t, in(t, "/", 2, "status", at("run1")), "name the buffer, b")
	in(t, "/", 0, "stage-in", elsewhere, at("staged"))
	in(t, "/", 0, "stage-out", at("staged"), filepath.Join(elsewhere, "out"))
	holds(t, filepath.Join(elsewhere, "out/local"), "from a local file")

	check(t, os.Symlink("run1/out", at("link")))
	says(t, in(t, "/", 0, "cat", at("link/f")), "hello")
	says(t, in(t, "/", 0, "address", at("link"), m.dir+"/link/", m.dir+"/link/../f", at("new/x"), "file://"+at("a%20b")), "bb://b/link\nbb://b/run1/out\nbb://b/run1/f\nbb://b/new/x\nbb://b/a b\n")
	says(t, in(t, "/", 0, "--socket", m.Socket, "path", "bb://b/run1/f"), at("run1/f")+"\n")
	in(t, "/", 0, "rm", at("link")) // not its target
	holds(t, at("run1/out/f"), "hello")
	check(t, os.Symlink(m.dir, filepath.Join(elsewhere, "link")))
	says(t, in(t, elsewhere, 2, "ls", "link"), "symbolic link to "+m.dir)
	says(t, in(t, elsewhere, 0, "ls", "link/"), "moved")

	says(t, in(t, elsewhere, 2, "ls", "local"), "does not begin with bb://, and no buffer is mounted there")
	says(t, in(t, elsewhere, 2, "cp", "local", at("x")), "bbctl put and get copy local files")
	says(t, in(t, "/", 3, "path", "bb://mounted-nowhere"), "no mount shows it")

	bound := t.TempDir() // a bind mount of a directory in the buffer
	check(t, unix.Mount(at("run1"), bound, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(bound, unix.MNT_DETACH) })
	says(t, in(t, "/", 0, "address", filepath.Join(bound, "out/f")), "bb://b/run1/out/f\n")
	says(t, in(t, bound, 0, "cat", "out/f"), "hello")
}

// TestPathsOfTwoDaemons: a command whose paths are of two daemons is refused, and one that names its daemon is not asked.
// A daemon that is away makes bbctl fail, and not wait for the kernel.
func TestPathsOfTwoDaemons(t *testing.T) {
	t.Parallel()
	m, other := newMount(t), newMount(t)
	bbctl := bbdtest.Bbctl(t)
	check(t, os.Mkdir(filepath.Join(m.dir, "d"), 0o755))
	write(t, filepath.Join(m.dir, "d/f"), "hello")
	from, to := filepath.Join(m.dir, "d/f"), filepath.Join(other.dir, "f")
	says(t, exits(t, 2, bbctl, "cp", from, to), to+": invalid: it is mounted from another daemon, at unix://"+other.Socket)
	exits(t, 0, bbctl, "--socket", m.Socket, "cp", from, to) // bb://b at that one
	m.inBuffer(t, filepath.Join(m.dir, "f"), "hello")
	if _, err := other.b.Stat(t.Context(), "f"); err == nil {
		t.Error("it was copied to the other daemon")
	}
	says(t, exits(t, 0, bbctl, "--socket", m.Socket, "path", "bb://b"), m.dir)
	says(t, exits(t, 0, bbctl, "--socket", other.Socket, "path", "bb://b"), other.dir)

	m.Pause()
	t.Cleanup(m.Resume)
	says(t, exits(t, 5, bbctl, "ls", filepath.Join(m.dir, "unknown/name/f")), "the mount does not answer")
}
