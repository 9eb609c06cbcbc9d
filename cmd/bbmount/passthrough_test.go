package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// passing is a mount that passes reads on.
type passing struct {
	*mounted
	process *os.Process // the mount's
}

func newPassing(t *testing.T, args ...string) *passing {
	t.Helper()
	m := &passing{mounted: newBuffer(t, append(args, "--memory-size", "512MiB", "--memory-region-size", "64MiB")...)}
	m.process = m.mount(t, "--passthrough", "read")
	for deadline := time.Now().Add(patience); !strings.Contains(m.log.String(), "passthrough"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the mount does not say which way files are read")
		}
	}
	if !strings.Contains(m.log.String(), "by passthrough") {
		t.Fatalf("reads are not passed on:\n%s", m.log)
	}
	return m
}

func bytesOf(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(p)
	return p
}

// passes reports whether reads of an open file pass the mount's process by.
func (m *passing) passes(t *testing.T, f *os.File) bool {
	t.Helper()
	check(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	p := make([]byte, 1<<20)
	before := m.wrote(t)
	_, err := f.ReadAt(p, 3<<20)
	check(t, err)
	return m.wrote(t)-before < int64(len(p))
}

// wrote returns how many bytes the mount's process has written so far, answers to the kernel among them.
func (m *passing) wrote(t *testing.T) int64 {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/io", m.process.Pid))) {
		if count, ok := strings.CutPrefix(line, "wchar: "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
			check(t, err)
			return n
		}
	}
	t.Fatal("the kernel does not count what a process writes")
	return 0
}

func same(t *testing.T, what string, f io.ReaderAt, want []byte) {
	t.Helper()
	got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, which differ from the file's %d: %v", what, len(got), len(want), err)
	}
}

// TestPassthrough checks which files are read by passthrough, and that programs read the right bytes: beside changes, after the
// name is gone, while room is needed, and while the daemon is killed.
func TestPassthrough(t *testing.T) {
	t.Parallel()
	m := newPassing(t)
	data := bytesOf(1, 20<<20+77)
	path := filepath.Join(m.dir, "large")
	check(t, os.WriteFile(path, data, 0o644))

	r := open(t, path, os.O_RDONLY)
	same(t, "passthrough", r, data)
	if !m.passes(t, r) {
		t.Fatal("a large file is not read by passthrough")
	}
	again := open(t, path, os.O_RDONLY)
	same(t, "a second opener", again, data)
	if !m.passes(t, again) {
		t.Error("a second opener does not read by passthrough")
	}
	for what, flags := range map[string]int{"O_WRONLY": os.O_WRONLY, "O_RDWR": os.O_RDWR, "O_APPEND": os.O_WRONLY | os.O_APPEND, "O_TRUNC": os.O_WRONLY | os.O_TRUNC} {
		_, err := os.OpenFile(path, flags, 0)
		refused(t, what, err, syscall.ETXTBSY)
	}
	refused(t, "truncate", os.Truncate(path, 5), syscall.ETXTBSY)
	same(t, "after writers were refused", r, data)
	check(t, again.Close())
	check(t, r.Close())

	// Whoever opens the file after a change reads what changed, by whichever way.
	for round := range 5 {
		f := open(t, path, os.O_WRONLY|os.O_APPEND)
		more := bytesOf(uint64(round+2), 1000)
		put(t, f, string(more))
		data = append(data, more...)
		seen := open(t, path, os.O_RDONLY)
		same(t, "beside a writer", seen, data)
		if m.passes(t, seen) {
			t.Error("a reader beside a writer reads by passthrough")
		}
		put(t, f, "x")
		data = append(data, 'x')
		same(t, "after an append", seen, data)
		check(t, seen.Close())
		check(t, f.Close())
		f = open(t, path, os.O_RDWR)
		_, err := f.WriteAt(more, int64(round)<<20)
		check(t, err)
		copy(data[round<<20:], more)
		check(t, f.Close())
		r = open(t, path, os.O_RDONLY)
		same(t, "after a change", r, data)
		check(t, r.Close())
	}

	r = open(t, path, os.O_RDONLY)
	if !m.passes(t, r) {
		t.Fatal("the changed file is not read by passthrough")
	}
	check(t, os.Rename(path, path+"2"))
	same(t, "renamed", r, data)
	check(t, os.Remove(path+"2"))
	same(t, "removed", r, data)
	check(t, os.WriteFile(path, []byte("other"), 0o644))
	same(t, "replaced", r, data)
	holds(t, path, "other")
	if st := size(t, r); st != int64(len(data)) {
		t.Errorf("it has %d bytes, not %d", st, len(data))
	}
	check(t, r.Close())
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	check(t, err)
	return info.Size()
}

// TestPassthroughElsewhere checks that bytes which another client writes are read after an open, and are not mixed with those
// that a program reads by passthrough.
func TestPassthroughElsewhere(t *testing.T) {
	t.Parallel()
	m := newPassing(t)
	old, fresh := bytesOf(1, 9<<20), bytesOf(2, 10<<20)
	path := filepath.Join(m.dir, "f")
	check(t, os.WriteFile(path, old, 0o644))
	r := open(t, path, os.O_RDONLY)
	if !m.passes(t, r) {
		t.Fatal("it is not read by passthrough")
	}
	check(t, m.b.WriteFile(t.Context(), "f", fresh, 0))
	same(t, "while another client has replaced it", r, old)
	_, err := os.Open(path)
	refused(t, "newer bytes beside older ones", err, syscall.ESTALE)
	check(t, r.Close())
	r = open(t, path, os.O_RDONLY)
	same(t, "afterwards", r, fresh)
}

// TestPassthroughPressed checks readers by passthrough while memory is full and spilled, and while the daemon is killed.
func TestPassthroughPressed(t *testing.T) {
	t.Parallel()
	m := newPassing(t, "--disk-dir", t.TempDir(), "--disk-size", "1GiB")
	data := bytesOf(1, 20<<20)
	path := filepath.Join(m.dir, "f")
	check(t, os.WriteFile(path, data, 0o644))
	r := open(t, path, os.O_RDONLY)
	if !m.passes(t, r) {
		t.Fatal("it is not read by passthrough")
	}
	for i := range 12 {
		check(t, m.b.WriteFile(t.Context(), fmt.Sprint("more", i), bytesOf(uint64(i), 64<<20), 0))
		same(t, "under pressure", r, data)
	}
	same(t, "while memory is full", r, data)
	m.Kill()
	same(t, "while the daemon is dead", r, data)
	m.Start()
	same(t, "when it is back", r, data)
	check(t, r.Close())
	same(t, "opened again", open(t, path, os.O_RDONLY), data)
}
