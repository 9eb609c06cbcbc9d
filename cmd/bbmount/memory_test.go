package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limitedEnv, in the environment, makes the test the program of the job. It is the file that it works on.
const limitedEnv = "FOREBAY_TEST_LIMITED"

// Bytes. The mount's process has 64 requests of 1 MiB at most at a time.
const (
	limitOfJob   = 48 << 20
	beyond       = 2 * limitOfJob // of the file
	limitOfMount = 160 << 20      // less than is written
)

// TestMemoryLimit: a job's program writes, maps and reads a file twice as large as the memory that the job may have. The
// mount's process has a limit, too, as if a job had started it. Neither is killed for its memory: the daemon allocates its
// own, and the pages that the kernel keeps of the file are given up.
func TestMemoryLimit(t *testing.T) {
	if file := os.Getenv(limitedEnv); file != "" {
		beyondLimit(t, file)
		return
	}
	t.Parallel()
	m := newBuffer(t)
	job, mount := newMemoryGroup(t, limitOfJob), newMemoryGroup(t, limitOfMount)
	process := m.mount(t)
	check(t, os.WriteFile(mount.file("cgroup.procs"), []byte(strconv.Itoa(process.Pid)), 0))
	job.runBeyond(t, filepath.Join(m.dir, "f"))
	t.Logf("MiB at most: %d of the job, %d of the mount's process", job.peak(t)>>20, mount.peak(t)>>20)
	mount.killedNone(t, "mount")
}

// beyondLimit writes a file by calls, then by a mapping, and reads it both ways.
func beyondLimit(t *testing.T, name string) {
	f := open(t, name, os.O_RDWR|os.O_CREATE)
	part := func(round, i int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%07d\n", round*1_000_000+i), 1<<20/8)
	}
	verify := func(round int) {
		t.Helper()
		_, err := f.Seek(0, io.SeekStart)
		check(t, err)
		got := make([]byte, 1<<20)
		for i := range beyond >> 20 {
			if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, part(round, i)) {
				t.Fatalf("MiB %d of round %d is not as it was written: %v", i, round, err)
			}
		}
	}
	for i := range beyond >> 20 {
		_, err := f.Write(part(1, i))
		check(t, err)
	}
	verify(1)
	check(t, f.Sync())
	verify(1)
	at, err := unix.Mmap(int(f.Fd()), 0, beyond, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	for i := range beyond >> 20 {
		copy(at[i<<20:], part(2, i))
	}
	for i := range beyond >> 20 {
		if !bytes.Equal(at[i<<20:(i+1)<<20], part(2, i)) {
			t.Fatalf("MiB %d is not as it was written to the mapping", i)
		}
	}
	check(t, unix.Munmap(at))
	check(t, f.Sync())
	check(t, f.Close())
	f = open(t, name, os.O_RDONLY)
	verify(2)
}

// memoryGroup is the folder of a control group with a limit of memory.
type memoryGroup string

// newMemoryGroup makes a control group of version 2 where the machine limits memory so, else of version 1.
func newMemoryGroup(t *testing.T, limit int) memoryGroup {
	t.Helper()
	root, file := "/sys/fs/cgroup", "memory.max"
	if controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil && strings.Contains(string(controllers), "memory") {
		_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0) // or there is no limit to write below
	} else {
		root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	}
	dir, err := os.MkdirTemp(root, "forebay-test-")
	if err != nil {
		t.Skipf("no control group can be made: %v", err)
	}
	g := memoryGroup(dir)
	t.Cleanup(func() {
		waitFor(t, "the group is empty", func() bool { return !errors.Is(os.Remove(dir), unix.EBUSY) })
	})
	check(t, os.WriteFile(g.file(file), []byte(strconv.Itoa(limit)), 0))
	return g
}

// runBeyond runs beyondLimit in the group.
func (g memoryGroup) runBeyond(t *testing.T, file string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `echo $$ >"$0" && exec "$@"`, g.file("cgroup.procs"), os.Args[0], "-test.run", "^TestMemoryLimit$")
	cmd.Env = append(os.Environ(), limitedEnv+"="+file)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the program: %v\n%s", err, text)
	}
	g.killedNone(t, "job")
	if g.peak(t) < limitOfJob/2 {
		t.Error("the job came nowhere near its limit, so nothing is shown")
	}
}

// killedNone fails the test if the kernel has killed a process of the group for its memory.
func (g memoryGroup) killedNone(t *testing.T, name string) {
	t.Helper()
	if n := g.kills(t); n != 0 {
		t.Errorf("processes of the %s that were killed for its memory: %d", name, n)
	}
}

func (g memoryGroup) file(name string) string { return filepath.Join(string(g), name) }

// first returns the content of the first file that is there, as the versions have different ones.
func (g memoryGroup) first(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if text, err := os.ReadFile(g.file(name)); err == nil {
			return string(text)
		}
	}
	t.Fatalf("%s has none of %v", g, names)
	return ""
}

// kills returns how many of the group's processes the kernel has killed for their memory.
func (g memoryGroup) kills(t *testing.T) (n int) {
	t.Helper()
	_, text, found := strings.Cut(g.first(t, "memory.events", "memory.oom_control"), "oom_kill ")
	if _, err := fmt.Sscan(text, &n); err != nil || !found {
		t.Fatalf("%q has no number of kills", text)
	}
	return n
}

// peak returns the most bytes that the group had.
func (g memoryGroup) peak(t *testing.T) (n int64) {
	t.Helper()
	_, err := fmt.Sscan(g.first(t, "memory.peak", "memory.max_usage_in_bytes"), &n)
	check(t, err)
	return n
}
