package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program runs a program and fails the test if it fails.
func program(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := inDir(dir, args...)
	cmd.Env = slices.Concat(os.Environ(), gitEnv)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

// gitEnv is the environment of git, for which the machine's settings do not count.
var gitEnv = []string{
	"GIT_CONFIG_NOSYSTEM=1", "HOME=" + os.TempDir(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
	"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
}

// inDir is a program that goes to a directory of the mount by itself. With Cmd.Dir, this process
// would do that between fork and exec, in which Go's runtime keeps a processor. While the daemon is
// away, as many such programs as there are processors stop this process, and the daemon is not
// started again.
func inDir(dir string, args ...string) *exec.Cmd {
	return exec.Command("env", append([]string{"--chdir=" + dir}, args...)...)
}

// TestStartWithoutDaemon starts programs in directories of the mount while the daemon stands still.
// They wait, and this process continues.
func TestStartWithoutDaemon(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	m.Pause()
	waitFor(t, "the daemon stands still", func() bool { return stopped(m.Pid()) })
	// Continues without this process, if that is stopped as well.
	rescue := exec.Command("sh", "-c", `sleep "$1"; kill -CONT "$2"`, "sh", fmt.Sprint(patience.Seconds()/2), fmt.Sprint(m.Pid()))
	check(t, rescue.Start())
	t.Cleanup(func() {
		rescue.Process.Kill()
		rescue.Wait()
	})
	var started []*exec.Cmd
	for i := range 2 * runtime.GOMAXPROCS(0) {
		dir := filepath.Join(m.dir, fmt.Sprint("no-such-directory-", i)) // which the kernel looks up, despite its caches
		cmd := inDir(dir, "true")
		check(t, cmd.Start())
		started = append(started, cmd)
	}
	for _, cmd := range started {
		waitFor(t, "the program waits", func() bool { return waitsInKernel(cmd.Process.Pid) })
	}
	if !stopped(m.Pid()) {
		t.Error("the daemon went on before the programs were started")
	}
	m.Resume()
	for _, cmd := range started {
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 125 {
			t.Errorf("env ended with %d: the directory is not there", code)
		}
	}
}

// needPrograms skips a test of programs that are not there. In CI it fails the test.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: scripts/mount-tools.sh installs it", name)
		}
		t.Skipf("%s is missing", name)
	}
}

// tree makes files and directories of many sizes and modes, and returns their folder.
func tree(t *testing.T, dirs, files int) string {
	t.Helper()
	root := t.TempDir()
	for d := range dirs {
		dir := filepath.Join(root, fmt.Sprintf("d%d", d%7), fmt.Sprintf("sub-%d", d))
		check(t, os.MkdirAll(dir, 0o755))
		for f := range files {
			size := []int{0, 1, 100, 4096, 5000, 40_000, 300_000}[f%7]
			path := filepath.Join(dir, fmt.Sprintf("file %d", f))
			check(t, os.WriteFile(path, bytes.Repeat([]byte{byte(d), byte(f), 7}, size/3+1)[:size], 0o644))
			when := time.Unix(1_600_000_000+int64(d), int64(f))
			check(t, os.Chmod(path, []os.FileMode{0o644, 0o600, 0o755, 0o444}[f%4]))
			check(t, os.Chtimes(path, when, when))
		}
	}
	return root
}

// listing describes the entries below a directory, without their content.
func listing(t *testing.T, dir string) string {
	t.Helper()
	return program(t, dir, "find", ".", "-mindepth", "1", "(", "-type", "f", "-printf", "%P %m %U:%G %s %T@\\n", "-o", "-printf", "%P %m %U:%G %T@\\n", ")")
}

// TestTar unpacks a tree, compares it, copies and moves it, and removes it.
func TestTar(t *testing.T) {
	t.Parallel()
	needPrograms(t, "tar", "diff", "find")
	m := newMount(t)
	source := tree(t, 20, 20)
	archive := filepath.Join(t.TempDir(), "tree.tar")
	program(t, source, "tar", "--format=posix", "-cf", archive, ".")
	to := filepath.Join(m.dir, "tree")
	check(t, os.Mkdir(to, 0o755))
	program(t, to, "tar", "-xpf", archive)
	program(t, to, "diff", "-r", source, to)
	same := func(dir string) {
		t.Helper()
		if want, got := sorted(listing(t, source)), sorted(listing(t, dir)); got != want {
			t.Errorf("modes, sizes or times differ:\n%s", firstDifference(want, got))
		}
	}
	same(to)
	program(t, m.dir, "cp", "-a", "tree", "copy")
	program(t, m.dir, "mv", "copy", "moved")
	program(t, m.dir, "diff", "-r", "tree", "moved")
	same(filepath.Join(m.dir, "moved"))
	program(t, m.dir, "rm", "-r", "tree", "moved")
	if left, err := os.ReadDir(m.dir); len(left) != 0 || err != nil {
		t.Errorf("rm left %v, %v", left, err)
	}
}

func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("- %s\n+ %s", w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, not %d", len(g), len(w))
}

// TestGit clones a repository into the mount, works there, and clones that back.
func TestGit(t *testing.T) {
	t.Parallel()
	needPrograms(t, "git")
	m := newMount(t)
	source := tree(t, 5, 8)
	git := func(dir string, args ...string) string {
		t.Helper()
		return program(t, dir, append([]string{"git", "-c", "init.defaultBranch=main", "-c", "core.fsync=all", "-c", "safe.directory=*"}, args...)...)
	}
	git(source, "init", "-q")
	git(source, "add", "-A")
	git(source, "commit", "-qm", "one")
	git(m.dir, "clone", "-q", "--no-hardlinks", source, "clone")
	clone := filepath.Join(m.dir, "clone")
	if text := git(clone, "status", "--porcelain"); text != "" {
		t.Errorf("git status of a fresh clone:\n%s", text)
	}
	write(t, filepath.Join(clone, "d0", "new"), "new")
	git(clone, "checkout", "-qb", "branch")
	git(clone, "add", "-A")
	git(clone, "commit", "-qm", "two")
	git(clone, "checkout", "-q", "main")
	git(clone, "merge", "-q", "branch")
	git(clone, "gc", "-q")
	git(clone, "fsck", "--full", "--strict")
	back := filepath.Join(t.TempDir(), "back")
	git(os.TempDir(), "clone", "-q", "--no-hardlinks", clone, back)
	holds(t, filepath.Join(back, "d0", "new"), "new")
}

// TestSQLite keeps a database on the mount, in both of its journal modes.
func TestSQLite(t *testing.T) {
	t.Parallel()
	needPrograms(t, "sqlite3")
	m := newMount(t)
	for _, mode := range []string{"delete", "wal"} {
		file := filepath.Join(m.dir, mode+".db")
		sql := func(text string) string {
			t.Helper()
			return strings.TrimSpace(program(t, m.dir, "sqlite3", "-bail", file, text))
		}
		if got := sql("PRAGMA journal_mode=" + mode + "; CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB);"); got != mode {
			t.Errorf("the journal's mode is %s", got)
		}
		for i := range 10 {
			sql(fmt.Sprintf(`BEGIN; WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i+1 FROM n WHERE i < %d)
				INSERT INTO t SELECT i, randomblob(1 + i %% 500) FROM n; COMMIT;`, i*200, i*200+199))
		}
		sql("DELETE FROM t WHERE k % 3 = 0; VACUUM;")
		if got := sql("PRAGMA integrity_check; SELECT count(*), sum(length(v)=1+k%500) FROM t;"); got != "ok\n1333|1333" {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

// TestKilledProgram: a program that waits for a daemon that does not answer can be killed,
// and its written bytes stay whole.
func TestKilledProgram(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	write(t, filepath.Join(m.dir, "f"), "f")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		m.Pause()
		waitFor(t, "the daemon stands still", func() bool { return stopped(m.Pid()) })
		cmd := exec.Command("stat", filepath.Join(m.dir, "no-such-file"))
		check(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			cmd.Wait()
		}()
		waitFor(t, "the program waits", func() bool { return waitsInKernel(cmd.Process.Pid) })
		check(t, cmd.Process.Signal(signal))
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%v does not end a program that waits", signal)
		}
		m.Resume()
		<-ended
	}
	holds(t, filepath.Join(m.dir, "f"), "f")
}

// TestReaderCloses closes a file that was open for reading while the mount stands still. There is nothing to wait for.
func TestReaderCloses(t *testing.T) {
	t.Parallel()
	m := newBuffer(t)
	mount := m.mount(t)
	path := filepath.Join(m.dir, "f")
	write(t, path, "f")
	r := open(t, path, os.O_RDONLY)
	check(t, mount.Signal(syscall.SIGSTOP))
	defer mount.Signal(syscall.SIGCONT)
	waitFor(t, "the mount stands still", func() bool { return stopped(mount.Pid) })
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	select {
	case err := <-closed:
		check(t, err)
	case <-time.After(patience):
		t.Error("it waits for the mount")
	}
}

// stopped reports whether all threads of a process have stopped.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		_, state, _ := strings.Cut(string(text), ") ")
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// waitsInKernel reports whether a process waits for an answer from a file system.
func waitsInKernel(pid int) bool {
	where, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
	return err == nil && strings.Contains(string(where), "request_wait_answer")
}
