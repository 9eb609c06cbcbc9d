package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/client"
)

// xattrsOf reads the attributes of a file as programs do, sizes first.
func xattrsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	n, err := unix.Listxattr(path, nil)
	check(t, err)
	names := make([]byte, n)
	if n, err = unix.Listxattr(path, names); err != nil || n != len(names) {
		t.Fatalf("%s: the list has %d bytes, and then %d: %v", path, len(names), n, err)
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		n, err := unix.Getxattr(path, name, nil)
		check(t, err)
		value := make([]byte, n)
		n, err = unix.Getxattr(path, name, value)
		check(t, err)
		all[name] = string(value[:n])
	}
	return all
}

// TestWritesAskForNoCapabilities: a write is one request. Without the capability of that name, the
// kernel requests security.capability before each.
func TestWritesAskForNoCapabilities(t *testing.T) {
	t.Parallel()
	m := newBuffer(t)
	process := m.mount(t)
	f := open(t, filepath.Join(m.dir, "f"), os.O_CREATE|os.O_WRONLY)
	put(t, f, "the first write asks once")
	const writes = 2000
	const request = 40 + 40 + 1 // bytes: the header, the arguments, and the written byte (linux/fuse.h)
	before := bytesReadBy(t, process.Pid)
	for range writes {
		put(t, f, "x")
	}
	// Reads are not counted, since one that finds no request is repeated when there is one.
	if n := bytesReadBy(t, process.Pid) - before; n < writes*request || n > writes*request*3/2 {
		t.Errorf("the mount's process has read %d bytes for %d writes, of which each is a request of %d", n, writes, request)
	}
	check(t, f.Close())
}

// bytesReadBy returns how many bytes a process has read.
func bytesReadBy(t *testing.T, pid int) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	check(t, err)
	_, of, _ := strings.Cut(string(b), "rchar: ")
	if _, err := fmt.Sscan(of, &n); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return n
}

// TestXattrs: extended attributes have the errors of xattr(7), and belong to the file.
func TestXattrs(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	file, dir := filepath.Join(m.dir, "f"), filepath.Join(m.dir, "d")
	check(t, os.Mkdir(dir, 0o755))
	f := open(t, file, os.O_CREATE|os.O_RDWR)
	put(t, f, "unsaved")
	set := func(name, value string, flags int) error { return unix.Setxattr(file, name, []byte(value), flags) }
	odd := "user.\xff"
	for what, err := range map[string]error{
		"by descriptor": unix.Fsetxattr(int(f.Fd()), odd, []byte("\x00\xff"), 0), "by name": set("user.a", "1", unix.XATTR_CREATE),
		"empty": set("user.empty", "", 0), "of a directory": unix.Setxattr(dir, "user.d", []byte("d"), 0),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused(t, "creating one that is there", set("user.a", "2", unix.XATTR_CREATE), syscall.EEXIST)
	refused(t, "replacing none", set("user.none", "2", unix.XATTR_REPLACE), syscall.ENODATA)
	refused(t, "removing none", unix.Removexattr(file, "user.none"), syscall.ENODATA)
	refused(t, "of no file", unix.Setxattr(file+"x", "user.a", nil, 0), syscall.ENOENT)
	refused(t, "another namespace", set("trusted.a", "2", 0), syscall.EOPNOTSUPP)
	refused(t, "more than an entry takes", set("user.b", strings.Repeat("x", 9000), 0), syscall.ENOSPC)
	refused(t, "more than the kernel takes", set("user.b", strings.Repeat("x", 70_000), 0), syscall.E2BIG)
	refused(t, "a long name", set("user."+strings.Repeat("x", 251), "", 0), syscall.ERANGE)
	refused(t, "the root's", unix.Setxattr(m.dir, "user.a", nil, 0), syscall.EPERM)
	_, err := unix.Getxattr(file, "user.none", nil)
	refused(t, "reading none", err, syscall.ENODATA)
	_, err = unix.Getxattr(file, odd, make([]byte, 1))
	refused(t, "too little room", err, syscall.ERANGE)
	_, err = unix.Listxattr(file, make([]byte, 1))
	refused(t, "too little room for the list", err, syscall.ERANGE)
	check(t, os.Symlink("f", filepath.Join(m.dir, "l")))
	refused(t, "of a link", unix.Lsetxattr(filepath.Join(m.dir, "l"), "user.a", nil, 0), syscall.EPERM)
	check(t, unix.Mkfifo(filepath.Join(m.dir, "p"), 0o600))
	refused(t, "of a FIFO", unix.Setxattr(filepath.Join(m.dir, "p"), "user.a", nil, 0), syscall.EPERM)

	want := map[string]string{odd: "\x00\xff", "user.a": "1", "user.empty": ""}
	same := func(path string) {
		t.Helper()
		if got := xattrsOf(t, path); !equal(got, want) {
			t.Errorf("%s has %q, want %q", filepath.Base(path), got, want)
		}
	}
	same(file)
	check(t, f.Close())
	same(file)
	write(t, file, "truncated, and written again")
	other := filepath.Join(dir, "other")
	write(t, other, "replaced")
	check(t, unix.Setxattr(other, "user.other", nil, 0))
	check(t, os.Rename(file, other))
	same(other)
	check(t, unix.Removexattr(other, "user.empty"))
	delete(want, "user.empty")
	same(other)
	inBuffer, err := m.b.Xattrs(context.Background(), "d/other")
	if err != nil || !slices.EqualFunc(inBuffer, []client.Xattr{{Name: "user.a", Value: []byte("1")}, {Name: odd, Value: []byte("\x00\xff")}},
		func(a, b client.Xattr) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }) {
		t.Errorf("the client sees %+v (%v)", inBuffer, err)
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// TestXattrPrograms: programs that copy files keep their attributes, in a mount and out of it.
func TestXattrPrograms(t *testing.T) {
	t.Parallel()
	needPrograms(t, "cp", "tar")
	m := newMount(t)
	tree := filepath.Join(m.dir, "tree")
	want := map[string]string{"user.sum": "\x00\x01binary", "user.text": "a value"}
	check(t, os.MkdirAll(filepath.Join(tree, "d"), 0o755))
	for _, path := range []string{"f", "d/g", "d"} {
		at := filepath.Join(tree, path)
		if path != "d" {
			write(t, at, path)
		}
		for name, value := range want {
			check(t, unix.Setxattr(at, name, []byte(value), 0))
		}
	}
	same := func(dir string) {
		t.Helper()
		for _, path := range []string{"f", "d/g", "d"} {
			if got := xattrsOf(t, filepath.Join(dir, path)); !equal(got, want) {
				t.Errorf("%s of %s has %q, want %q", path, dir, got, want)
			}
		}
	}
	program(t, m.dir, "cp", "-a", "tree", "copy")
	same(filepath.Join(m.dir, "copy"))
	archive := filepath.Join(t.TempDir(), "tree.tar")
	program(t, tree, "tar", "--xattrs", "-cf", archive, ".")
	unpacked := filepath.Join(m.dir, "unpacked")
	check(t, os.Mkdir(unpacked, 0o755))
	program(t, unpacked, "tar", "--xattrs", "-xpf", archive)
	same(unpacked)
	outside := t.TempDir()
	if err := unix.Setxattr(outside, "user.a", nil, 0); err == nil {
		program(t, m.dir, "cp", "-a", "tree", outside+"/out")
		same(outside + "/out")
		program(t, m.dir, "cp", "-a", outside+"/out", "back")
		same(filepath.Join(m.dir, "back"))
	}
}
