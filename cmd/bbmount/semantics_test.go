package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/internal/bb"
)

// TestSemantics is the table of docs/mount.md: guarantees to programs, and refused operations.
func TestSemantics(t *testing.T) {
	t.Parallel()
	semantics(t, newMount(t))
}

func semantics(t *testing.T, m *mounted) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *mounted, string){
		"written is seen at once":            seenAtOnce,
		"O_EXCL":                             exclusive,
		"O_APPEND":                           appends,
		"truncate":                           truncates,
		"overwrite in place":                 overwrites,
		"sparse":                             sparse,
		"fsync and close commit":             commits,
		"rename":                             renames,
		"exchange":                           exchanges,
		"rename of what is open":             renamesOpen,
		"unlink while open":                  unlinksOpen,
		"rename over what is open":           renamesOverOpen,
		"removal":                            removes,
		"readdir":                            reads,
		"readdir while it changes":           readsChanging,
		"attributes":                         changesAttributes,
		"times of what is open":              timesOfOpen,
		"symbolic links":                     linksSymbolic,
		"FIFOs and sockets":                  makesSpecial,
		"refused":                            refuses,
		"fallocate":                          allocates,
		"statfs":                             tellsRoom,
		"shared mapping":                     mapsShared,
		"locks":                              locks,
		"names":                              names,
		"close-to-open with other clients":   closeToOpen,
		"another client removes and renames": changedElsewhere,
		"other users":                        otherUsers,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(m.dir, strings.ReplaceAll(name, " ", "-"))
			check(t, os.Mkdir(dir, 0o755))
			test(t, m, dir)
		})
	}
}

func seenAtOnce(t *testing.T, _ *mounted, dir string) {
	path := filepath.Join(dir, "f")
	w := open(t, path, os.O_CREATE|os.O_WRONLY)
	put(t, w, "one")
	r := open(t, path, os.O_RDONLY)
	p := make([]byte, 10)
	if n, err := r.Read(p); string(p[:n]) != "one" {
		t.Errorf("%q, %v", p[:n], err)
	}
	put(t, w, "two")
	if n, err := r.Read(p); string(p[:n]) != "two" {
		t.Errorf("%q, %v", p[:n], err)
	}
	if size := stat(t, path).Size; size != 6 {
		t.Errorf("size %d", size)
	}
	check(t, w.Close())
	holds(t, path, "onetwo")
}

func exclusive(t *testing.T, _ *mounted, dir string) {
	path := filepath.Join(dir, "f")
	open(t, path, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	_, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	refused(t, "a second exclusive create", err, syscall.EEXIST)
}

func appends(t *testing.T, _ *mounted, dir string) {
	path := filepath.Join(dir, "f")
	a := open(t, path, os.O_CREATE|os.O_APPEND|os.O_WRONLY)
	b := open(t, path, os.O_APPEND|os.O_WRONLY)
	var want strings.Builder
	for i := range 20 {
		put(t, a, fmt.Sprintln("a", i))
		put(t, b, fmt.Sprintln("b", i))
		fmt.Fprintf(&want, "a %d\nb %d\n", i, i)
	}
	check(t, a.Close())
	put(t, b, "end")
	check(t, b.Close())
	holds(t, path, want.String()+"end")
}

func truncates(t *testing.T, m *mounted, dir string) {
	path := filepath.Join(dir, "f")
	write(t, path, "0123456789")
	check(t, os.Truncate(path, 4))
	holds(t, path, "0123")
	check(t, os.Truncate(path, 6))
	holds(t, path, "0123\x00\x00")
	f := open(t, path, os.O_RDWR)
	put(t, f, "abcdefgh")
	check(t, f.Truncate(3))
	if size := stat(t, path).Size; size != 3 {
		t.Errorf("size %d", size)
	}
	holds(t, path, "abc")
	put(t, f, "Z") // at 8
	check(t, f.Close())
	holds(t, path, "abc\x00\x00\x00\x00\x00Z")
	m.inBuffer(t, path, "abc\x00\x00\x00\x00\x00Z")
	open(t, path, os.O_WRONLY|os.O_TRUNC).Close()
	holds(t, path, "")
	m.inBuffer(t, path, "")
	write(t, path, "0123456789")
	f = open(t, path, os.O_RDWR|os.O_TRUNC)
	check(t, f.Truncate(4)) // shorter than the content that is given up, and not committed yet
	holds(t, path, "\x00\x00\x00\x00")
	check(t, f.Close())
	m.inBuffer(t, path, "\x00\x00\x00\x00")
	refused(t, "a size beyond all bounds", os.Truncate(path, 1<<62), syscall.EFBIG)

	// A file that begins anew is as long as its new bytes, though the daemon has the older content until they are committed.
	write(t, dir+"/anew", strings.Repeat("x", 10_000))
	f = open(t, dir+"/anew", os.O_WRONLY|os.O_TRUNC)
	put(t, f, "new")
	check(t, f.Truncate(5))
	check(t, f.Close())
	holds(t, dir+"/anew", "new\x00\x00")
}

func overwrites(t *testing.T, m *mounted, dir string) {
	path := filepath.Join(dir, "f")
	want := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	check(t, os.WriteFile(path, want, 0o644))
	f := open(t, path, os.O_RDWR)
	for _, off := range []int64{0, 5, 1<<20 - 3, 3_000_000} {
		p := bytes.Repeat([]byte{byte(off)}, 5000)
		_, err := f.WriteAt(p, off)
		check(t, err)
		copy(want[off:], p)
	}
	holds(t, path, string(want))
	check(t, f.Close())
	holds(t, path, string(want))
	m.inBuffer(t, path, string(want))
}

func sparse(t *testing.T, _ *mounted, dir string) {
	path := filepath.Join(dir, "f")
	f := open(t, path, os.O_CREATE|os.O_RDWR)
	_, err := f.WriteAt([]byte("end"), 10<<20)
	check(t, err)
	holds(t, path, strings.Repeat("\x00", 10<<20)+"end")
	check(t, f.Close())
	holds(t, path, strings.Repeat("\x00", 10<<20)+"end")
	f = open(t, path, os.O_RDONLY)
	if end, err := f.Seek(0, unix.SEEK_HOLE); end != 10<<20+3 || err != nil {
		t.Errorf("SEEK_HOLE: %d, %v", end, err)
	}
}

func commits(t *testing.T, m *mounted, dir string) {
	path := filepath.Join(dir, "f")
	f := open(t, path, os.O_CREATE|os.O_WRONLY)
	put(t, f, "synced")
	check(t, f.Sync())
	m.inBuffer(t, path, "synced")
	put(t, f, " closed")
	check(t, f.Close())
	m.inBuffer(t, path, "synced closed")
	e, err := m.b.Stat(context.Background(), strings.TrimPrefix(path, m.dir))
	if err != nil || e.State == client.StateOpen {
		t.Errorf("after the close: %v, %v", e.State, err)
	}
	d, err := os.Open(dir)
	check(t, err)
	defer d.Close()
	check(t, d.Sync())
}

func exchanges(t *testing.T, m *mounted, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	swap := func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, at(a), unix.AT_FDCWD, at(b), unix.RENAME_EXCHANGE)
	}
	write(t, at("a"), "A")
	write(t, at("b"), "B")
	inos := [2]uint64{stat(t, at("a")).Ino, stat(t, at("b")).Ino}
	fa, fb := open(t, at("a"), os.O_RDWR), open(t, at("b"), os.O_RDWR|os.O_APPEND)
	put(t, fa, "1")
	put(t, fb, "2") // neither is committed
	check(t, swap("a", "b"))
	if now := [2]uint64{stat(t, at("b")).Ino, stat(t, at("a")).Ino}; now != inos {
		t.Errorf("the inodes changed from %v to %v", inos, now)
	}
	m.inBuffer(t, at("a"), "B2")
	m.inBuffer(t, at("b"), "1")
	put(t, fa, "3")
	put(t, fb, "4")
	check(t, fa.Close())
	check(t, fb.Close())
	holds(t, at("a"), "B24")
	holds(t, at("b"), "13")
	m.inBuffer(t, at("b"), "13")

	check(t, os.MkdirAll(at("d/e"), 0o755))
	check(t, os.MkdirAll(at("x/y"), 0o755))
	write(t, at("d/e/f"), "F")
	write(t, at("x/y/g"), "G")
	below := open(t, at("d/e/f"), os.O_WRONLY|os.O_APPEND)
	put(t, below, "1")
	check(t, swap("d", "x"))
	put(t, below, "2")
	check(t, below.Close())
	holds(t, at("x/e/f"), "F12")
	holds(t, at("d/y/g"), "G")
	check(t, swap("a", "x/e"))
	holds(t, at("a/f"), "F12")
	holds(t, at("x/e"), "B24")
	m.inBuffer(t, at("a/f"), "F12")
	if names, err := os.ReadDir(at("a")); err != nil || len(names) != 1 || names[0].Name() != "f" {
		t.Errorf("the directory has %v (%v)", names, err)
	}
	refused(t, "what is not there", swap("a", "none"), syscall.ENOENT)
	refused(t, "below itself", swap("d", "d/y"), syscall.EINVAL)
	check(t, swap("b", "b"))
	check(t, os.Remove(at("b")))
	check(t, os.Remove(at("x/e")))
}

func renames(t *testing.T, m *mounted, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("a"), "A")
	write(t, at("b"), "B")
	refused(t, "RENAME_NOREPLACE", unix.Renameat2(unix.AT_FDCWD, at("a"), unix.AT_FDCWD, at("b"), unix.RENAME_NOREPLACE), syscall.EEXIST)
	check(t, unix.Renameat2(unix.AT_FDCWD, at("a"), unix.AT_FDCWD, at("c"), unix.RENAME_NOREPLACE))
	ino := stat(t, at("c")).Ino
	check(t, os.Rename(at("c"), at("b")))
	holds(t, at("b"), "A")
	if now := stat(t, at("b")).Ino; now != ino {
		t.Errorf("the inode changed from %d to %d", ino, now)
	}
	m.inBuffer(t, at("b"), "A")
	refused(t, "what is not there", os.Rename(at("none"), at("x")), syscall.ENOENT)

	check(t, os.MkdirAll(at("d/e"), 0o755))
	check(t, os.Mkdir(at("empty"), 0o755))
	write(t, at("d/e/f"), "F")
	refused(t, "into itself", unix.Rename(at("d"), at("d/e/g")), syscall.EINVAL)
	refused(t, "a file over a directory", unix.Rename(at("b"), at("empty")), syscall.EISDIR)
	refused(t, "a directory over a file", unix.Rename(at("empty"), at("b")), syscall.ENOTDIR)
	check(t, os.Rename(at("d"), at("moved")))
	holds(t, at("moved/e/f"), "F")
	write(t, at("moved/e/f"), "G")
	m.inBuffer(t, at("moved/e/f"), "G")
}

func renamesOpen(t *testing.T, m *mounted, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.Mkdir(at("d"), 0o755))
	f := open(t, at("d/f"), os.O_CREATE|os.O_RDWR)
	r := open(t, at("d/f"), os.O_RDONLY)
	put(t, f, "1")
	check(t, os.Rename(at("d/f"), at("d/g")))
	put(t, f, "2")
	check(t, os.Rename(at("d"), at("e")))
	put(t, f, "3")
	holds(t, at("e/g"), "123")
	check(t, f.Sync())
	m.inBuffer(t, at("e/g"), "123")
	put(t, f, "4")
	check(t, f.Close())
	m.inBuffer(t, at("e/g"), "1234")
	if got, err := io.ReadAll(r); string(got) != "1234" {
		t.Errorf("who had it open reads %q, %v", got, err)
	}
}

func unlinksOpen(t *testing.T, _ *mounted, dir string) {
	for _, first := range []string{"", "written before"} {
		path := filepath.Join(dir, "f")
		f := open(t, path, os.O_CREATE|os.O_RDWR)
		put(t, f, first)
		r := open(t, path, os.O_RDONLY)
		check(t, os.Remove(path))
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("stat of what was removed: %v", err)
		}
		if got, err := io.ReadAll(r); string(got) != first {
			t.Errorf("%q is left, %v", got, err)
		}
		var st unix.Stat_t
		check(t, unix.Fstat(int(f.Fd()), &st))
		if st.Nlink != 0 || st.Size != int64(len(first)) {
			t.Errorf("%d links, %d bytes", st.Nlink, st.Size)
		}
		put(t, f, " and after")
		check(t, f.Sync())
		if got, err := io.ReadAll(r); string(got) != " and after" {
			t.Errorf("%q was written since, %v", got, err)
		}
		check(t, f.Truncate(2))
		check(t, f.Chmod(0o600))
		check(t, unix.Fstat(int(f.Fd()), &st))
		if st.Size != 2 || st.Mode&0o777 != 0o600 {
			t.Errorf("size %d, mode %o", st.Size, st.Mode)
		}
		write(t, path, "another file")
		check(t, f.Close())
		holds(t, path, "another file")
	}
	check(t, os.RemoveAll(dir))
}

func renamesOverOpen(t *testing.T, _ *mounted, dir string) {
	from, to := filepath.Join(dir, "new"), filepath.Join(dir, "name")
	write(t, to, "old")
	old := open(t, to, os.O_RDWR)
	write(t, from, "new")
	check(t, os.Rename(from, to))
	put(t, old, "OLDER")
	holds(t, to, "new")
	p := make([]byte, 5)
	if _, err := old.ReadAt(p, 0); err != nil || string(p) != "OLDER" {
		t.Errorf("%q, %v", p, err)
	}
	check(t, old.Close())
	holds(t, to, "new")
}

func removes(t *testing.T, m *mounted, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.MkdirAll(at("d/e"), 0o755))
	write(t, at("f"), "f")
	refused(t, "rmdir of what is not empty", unix.Rmdir(at("d")), syscall.ENOTEMPTY)
	refused(t, "unlink of a directory", unix.Unlink(at("d")), syscall.EISDIR)
	refused(t, "rmdir of a file", unix.Rmdir(at("f")), syscall.ENOTDIR)
	refused(t, "unlink of nothing", unix.Unlink(at("g")), syscall.ENOENT)
	refused(t, "mkdir of what is there", unix.Mkdir(at("d"), 0o755), syscall.EEXIST)
	refused(t, "mkdir below nothing", unix.Mkdir(at("x/y"), 0o755), syscall.ENOENT)
	refused(t, "mkdir below a file", unix.Mkdir(at("f/y"), 0o755), syscall.ENOTDIR)
	opened, err := os.Open(at("d/e"))
	check(t, err)
	defer opened.Close()
	check(t, os.Remove(at("d/e")))
	if left, err := opened.ReadDir(-1); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed directory has %v, %v", left, err)
	}
	check(t, os.Remove(at("d")))
	check(t, os.Remove(at("f")))
	if _, err := m.b.Stat(context.Background(), strings.TrimPrefix(at("f"), m.dir)); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("in the buffer: %v", err)
	}
}

func reads(t *testing.T, _ *mounted, dir string) {
	const files = 1500
	want := map[string]bool{}
	for i := range files {
		name := fmt.Sprintf("file-with-a-name-of-some-length-%d", i*7919%files)
		want[name] = true
		if i%50 == 0 {
			check(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		} else {
			write(t, filepath.Join(dir, name), name)
		}
	}
	d, err := os.Open(dir)
	check(t, err)
	defer d.Close()
	for range 2 {
		got := map[string]bool{}
		entries, err := d.ReadDir(-1)
		check(t, err)
		for _, e := range entries {
			if got[e.Name()] {
				t.Errorf("%s comes twice", e.Name())
			}
			got[e.Name()] = true
			info, err := e.Info()
			check(t, err)
			if e.IsDir() != info.IsDir() || !e.IsDir() && info.Size() != int64(len(e.Name())) {
				t.Errorf("%s: %v, %d bytes", e.Name(), info.Mode(), info.Size())
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d entries, not %d", len(got), len(want))
		}
		_, err = d.Seek(0, io.SeekStart)
		check(t, err)
	}
}

// readsChanging reads a directory while entries are made and removed. Entries that stay are there
// once.
func readsChanging(t *testing.T, _ *mounted, dir string) {
	for i := range 400 {
		write(t, filepath.Join(dir, fmt.Sprintf("stay-%d", i)), "")
		write(t, filepath.Join(dir, fmt.Sprintf("go-%d", i)), "")
	}
	d, err := os.Open(dir)
	check(t, err)
	defer d.Close()
	seen := map[string]int{}
	for i := 0; ; i++ {
		names, err := d.Readdirnames(10)
		for _, name := range names {
			seen[name]++
		}
		if err == io.EOF {
			break
		}
		check(t, err)
		os.Remove(filepath.Join(dir, fmt.Sprintf("go-%d", i)))
		write(t, filepath.Join(dir, fmt.Sprintf("new-%d", i)), "")
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s comes %d times", name, n)
		}
	}
	for i := range 400 {
		if name := fmt.Sprintf("stay-%d", i); seen[name] == 0 {
			t.Errorf("%s is missing", name)
		}
	}
}

func changesAttributes(t *testing.T, m *mounted, dir string) {
	path := filepath.Join(dir, "f")
	write(t, path, "x")
	check(t, os.Chmod(path, 0o640))
	check(t, os.Chown(path, 12, 34))
	when := time.Unix(1_000_000_000, 123_456_789)
	check(t, os.Chtimes(path, time.Time{}, when))
	st := stat(t, path)
	if st.Mode != syscall.S_IFREG|0o640 || st.Uid != 12 || st.Gid != 34 || st.Mtim.Nano() != when.UnixNano() {
		t.Errorf("mode %o, owner %d:%d, time %v", st.Mode, st.Uid, st.Gid, st.Mtim)
	}
	e, err := m.b.Stat(context.Background(), strings.TrimPrefix(path, m.dir))
	if err != nil || e.Mode != 0o640 || e.UID != 12 || !e.ModTime.Equal(when) {
		t.Errorf("in the buffer: %+v, %v", e, err)
	}
	check(t, os.Chmod(dir, 0o700))
	check(t, os.Chtimes(dir, when, when))
	if st := stat(t, dir); st.Mode != syscall.S_IFDIR|0o700 || st.Mtim.Nano() != when.UnixNano() {
		t.Errorf("a directory: mode %o, time %v", st.Mode, st.Mtim)
	}
	f, err := os.OpenFile(filepath.Join(dir, "null"), os.O_CREATE|os.O_WRONLY, 0)
	check(t, err)
	check(t, f.Close())
	if st := stat(t, f.Name()); st.Mode != syscall.S_IFREG {
		t.Errorf("mode %o of a file without rights", st.Mode)
	}
}

// timesOfOpen: the commit of a close does not change times set before.
func timesOfOpen(t *testing.T, _ *mounted, dir string) {
	path := filepath.Join(dir, "f")
	when := time.Unix(1_100_000_000, 5)
	f := open(t, path, os.O_CREATE|os.O_WRONLY)
	put(t, f, "text")
	var opened unix.Stat_t
	check(t, unix.Fstat(int(f.Fd()), &opened))
	check(t, f.Close())
	if closed := stat(t, path); closed.Mtim != opened.Mtim {
		t.Errorf("the time changed with the close from %v to %v", opened.Mtim, closed.Mtim)
	}
	f = open(t, path, os.O_WRONLY)
	put(t, f, "more")
	check(t, f.Chmod(0o600))
	check(t, os.Chtimes(path, when, when))
	check(t, f.Close())
	if st := stat(t, path); st.Mtim.Nano() != when.UnixNano() || st.Mode&0o777 != 0o600 || st.Size != 4 {
		t.Errorf("time %v, mode %o, size %d", st.Mtim, st.Mode, st.Size)
	}
}

// allocates: fallocate grows files, zeroes ranges, leaves the rest, and refuses more than the buffer has room for.
func allocates(t *testing.T, m *mounted, dir string) {
	path := filepath.Join(dir, "f")
	f := open(t, path, os.O_CREATE|os.O_RDWR)
	put(t, f, "0123456789")
	fd := int(f.Fd())
	check(t, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	holds(t, path, "0123456789")
	check(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 2, 3))
	check(t, unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 8, 4))
	holds(t, path, "01\x00\x00\x00567\x00\x00\x00\x00")
	check(t, unix.Fallocate(fd, 0, 4, 10))
	want := "01\x00\x00\x00567\x00\x00\x00\x00\x00\x00"
	holds(t, path, want)
	refused(t, "more than there is", unix.Fallocate(fd, 0, 0, 1<<45), syscall.ENOSPC)
	refused(t, "more than any file has", unix.Fallocate(fd, 0, 0, 1<<55), syscall.EFBIG)
	refused(t, "of a file that is open for reading", unix.Fallocate(int(open(t, path, os.O_RDONLY).Fd()), 0, 0, 1), syscall.EBADF)
	check(t, os.Remove(path))
	check(t, unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 0, 2)) // of a file without a name
	p := make([]byte, len(want))
	if n, err := f.ReadAt(p, 0); string(p[:n]) != "\x00\x00"+want[2:] {
		t.Errorf("%q, %v", p[:n], err)
	}
	check(t, f.Close())
}

// linksSymbolic: links lead to their targets, also through directories and to nothing, and are
// themselves renamed, removed and changed.
func linksSymbolic(t *testing.T, m *mounted, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.Mkdir(at("d"), 0o755))
	write(t, at("d/f"), "hello")
	for link, target := range map[string]string{"l": "d/f", "dir": "d", "none": "no such file", "bytes": "\xff", "loop": "loop", "abs": at("d/f")} {
		check(t, os.Symlink(target, at(link)))
		if got, err := os.Readlink(at(link)); got != target || err != nil {
			t.Errorf("%s leads to %q, not %q: %v", link, got, target, err)
		}
		if got, err := m.b.Readlink(t.Context(), strings.TrimPrefix(at(link), m.dir)); got != target || err != nil {
			t.Errorf("%s leads to %q in the buffer, not %q: %v", link, got, target, err)
		}
	}
	refused(t, "a name that is taken", os.Symlink("d", at("l")), syscall.EEXIST)
	refused(t, "an empty target", os.Symlink("", at("new")), syscall.ENOENT)
	refused(t, "readlink of a file", second(os.Readlink(at("d/f"))), syscall.EINVAL)
	for _, path := range []string{"l", "dir/f", "abs"} {
		holds(t, at(path), "hello")
	}
	refused(t, "what leads to nothing", second(os.ReadFile(at("none"))), syscall.ENOENT)
	refused(t, "what leads to itself", second(os.ReadFile(at("loop"))), syscall.ELOOP)
	write(t, at("dir/g"), "through a link")
	holds(t, at("d/g"), "through a link")
	write(t, at("l"), "changed")
	holds(t, at("d/f"), "changed")
	var st unix.Stat_t
	check(t, unix.Lstat(at("l"), &st))
	if st.Mode != syscall.S_IFLNK|0o777 || st.Size != int64(len("d/f")) || st.Ino == stat(t, at("d/f")).Ino {
		t.Errorf("lstat of a link: mode %o, %d bytes, inode %d", st.Mode, st.Size, st.Ino)
	}
	when := unix.Timespec{Sec: 1_600_000_000, Nsec: 123}
	check(t, unix.UtimesNanoAt(unix.AT_FDCWD, at("l"), []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW))
	check(t, unix.Lchown(at("l"), 12, 34))
	check(t, unix.Lstat(at("l"), &st))
	if st.Mtim != when || st.Uid != 12 || st.Gid != 34 || stat(t, at("d/f")).Uid == 12 {
		t.Errorf("a link of %d:%d, changed at %v", st.Uid, st.Gid, st.Mtim)
	}
	check(t, os.Rename(at("l"), at("d/moved")))
	refused(t, "a link that has moved to a directory", second(os.ReadFile(at("d/moved"))), syscall.ENOENT) // d/d/f
	check(t, os.Rename(at("d/moved"), at("none")))
	holds(t, at("none"), "changed")
	check(t, os.Remove(at("dir")))
	check(t, os.Remove(at("none")))
	holds(t, at("d/f"), "changed")
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		if want := map[string]os.FileMode{"abs": os.ModeSymlink, "bytes": os.ModeSymlink, "loop": os.ModeSymlink, "d": os.ModeDir}[e.Name()]; e.Type() != want || want == 0 {
			t.Errorf("%s is of type %v", e.Name(), e.Type())
		}
	}
}

// second is the error of a call with a result.
func second[T any](_ T, err error) error { return err }

// makesSpecial: programs meet at FIFOs and sockets on the mount.
func makesSpecial(t *testing.T, m *mounted, dir string) {
	fifo, socket, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "s"), filepath.Join(dir, "file")
	check(t, unix.Mkfifo(fifo, 0o640))
	if st := stat(t, fifo); st.Mode != syscall.S_IFIFO|0o640 {
		t.Errorf("a FIFO of mode %o", st.Mode)
	}
	go os.WriteFile(fifo, []byte("through the FIFO"), 0)
	holds(t, fifo, "through the FIFO")
	l, err := net.Listen("unix", socket)
	check(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Write([]byte("through the socket"))
			c.Close()
		}
	}()
	c, err := net.Dial("unix", socket)
	check(t, err)
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != "through the socket" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if st := stat(t, socket); st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		t.Errorf("a socket of mode %o", st.Mode)
	}
	check(t, unix.Mknod(file, syscall.S_IFREG|0o600, 0))
	if st := stat(t, file); st.Mode != syscall.S_IFREG|0o600 || st.Size != 0 {
		t.Errorf("a file of mode %o, %d bytes", st.Mode, st.Size)
	}
	write(t, file, "a file")
	m.inBuffer(t, file, "a file")
	check(t, os.Remove(fifo))
	check(t, os.Remove(socket))
}

func refuses(t *testing.T, _ *mounted, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("f"), "f")
	refused(t, "a hard link", unix.Link(at("f"), at("l")), syscall.EPERM)
	refused(t, "a device", unix.Mknod(at("n"), syscall.S_IFCHR|0o644, 259), syscall.EPERM)
	refused(t, "setuid", unix.Chmod(at("f"), 0o4755), syscall.EPERM)
	refused(t, "an attribute that is not the user's", unix.Setxattr(at("f"), "trusted.a", []byte("v"), 0), syscall.EOPNOTSUPP)
	_, err := unix.Getxattr(at("f"), "trusted.a", nil)
	refused(t, "an attribute's value", err, syscall.EOPNOTSUPP)
	f := open(t, at("f"), os.O_RDWR)
	refused(t, "a file without a part", unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096), syscall.EOPNOTSUPP)
	_, err = os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	refused(t, "O_TMPFILE", err, syscall.EOPNOTSUPP)
	if names, err := os.ReadDir(dir); len(names) != 1 || err != nil {
		t.Errorf("what was refused left %v, %v", names, err)
	}
}

func tellsRoom(t *testing.T, _ *mounted, dir string) {
	var st unix.Statfs_t
	check(t, unix.Statfs(dir, &st))
	total, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	if total < 256<<20 || total > 1<<30 || free <= 0 || free > total || st.Namelen != 255 {
		t.Errorf("%d of %d bytes are free, names have up to %d", free, total, st.Namelen)
	}
}

func mapsShared(t *testing.T, m *mounted, dir string) {
	path := filepath.Join(dir, "f")
	write(t, path, strings.Repeat("x", 10_000))
	f := open(t, path, os.O_RDWR)
	mem, err := unix.Mmap(int(f.Fd()), 0, 10_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(t, err)
	copy(mem[5000:], "mapped")
	p := make([]byte, 6)
	if _, err := f.ReadAt(p, 5000); string(p) != "mapped" {
		t.Errorf("read beside the mapping: %q, %v", p, err)
	}
	check(t, unix.Msync(mem, unix.MS_SYNC))
	check(t, f.Close())
	copy(mem[9000:], "after the close")
	check(t, unix.Munmap(mem))
	want := strings.Repeat("x", 5000) + "mapped" + strings.Repeat("x", 3994) + "after the close" + strings.Repeat("x", 985)
	holds(t, path, want)
	// The mapping's last reference commits, and no call waits for that.
	waitFor(t, "what was written to the mapping", func() bool {
		got, err := m.b.ReadFile(context.Background(), strings.TrimPrefix(path, m.dir))
		return err == nil && string(got) == want
	})
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

func locks(t *testing.T, _ *mounted, dir string) {
	path := filepath.Join(dir, "f")
	write(t, path, "f")
	a, b := open(t, path, os.O_RDWR), open(t, path, os.O_RDWR)
	check(t, unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	refused(t, "flock", unix.Flock(int(b.Fd()), unix.LOCK_SH|unix.LOCK_NB), syscall.EAGAIN)
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	check(t, unix.FcntlFlock(a.Fd(), unix.F_OFD_SETLK, &lock))
	refused(t, "fcntl", unix.FcntlFlock(b.Fd(), unix.F_OFD_SETLK, &lock), syscall.EAGAIN)
}

func names(t *testing.T, m *mounted, dir string) {
	for _, name := range []string{strings.Repeat("n", 255), "spaces and 'quotes'", "ünïcödé", "new\nline", "-", "…", "%41", "*"} {
		path := filepath.Join(dir, name)
		write(t, path, name)
		holds(t, path, name)
		m.inBuffer(t, path, name)
	}
	long := filepath.Join(dir, strings.Repeat("n", 256))
	_, err := os.Stat(long)
	refused(t, "stat of a long name", err, syscall.ENAMETOOLONG)
	refused(t, "mkdir of a long name", os.Mkdir(long, 0o755), syscall.ENAMETOOLONG)
	deep := dir
	for range 30 {
		deep = filepath.Join(deep, "directory")
	}
	check(t, os.MkdirAll(deep, 0o755))
	write(t, filepath.Join(deep, "f"), "deep")
	refused(t, "a directory too deep", os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", bb.MaxDepth)), 0o755), syscall.ENAMETOOLONG)
}

// closeToOpen: later openers see another client's closed files, despite the kernel's caches.
func closeToOpen(t *testing.T, m *mounted, dir string) {
	ctx, path := context.Background(), filepath.Join(dir, "f")
	name := strings.TrimPrefix(path, m.dir)
	for i := range 30 {
		text := strings.Repeat(fmt.Sprint(i), 1+i*37%11*1000)
		check(t, m.b.WriteFile(ctx, name, []byte(text), 0))
		holds(t, path, text)
		if i%3 == 0 {
			f := open(t, path, os.O_APPEND|os.O_WRONLY) // at its present end, not at the kernel's old one
			put(t, f, "!")
			check(t, f.Close())
			m.inBuffer(t, path, text+"!")
		}
	}
	for i := range 10 { // of one size, so that nothing but the content is another
		text := strings.Repeat(fmt.Sprint(i), 5000)
		check(t, m.b.WriteFile(ctx, name, []byte(text), 0))
		holds(t, path, text)
	}
	check(t, m.b.Remove(ctx, name))
	if _, err := os.Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what another client removed: %v", err)
	}
	check(t, m.b.WriteFile(ctx, name, []byte("another file"), 0))
	holds(t, path, "another file")
	check(t, m.b.Remove(ctx, name))
	write(t, path, "made here") // O_CREAT of a name that the kernel has cached, and that is gone
	m.inBuffer(t, path, "made here")
}

func changedElsewhere(t *testing.T, m *mounted, dir string) {
	ctx := context.Background()
	name := strings.TrimPrefix(dir, m.dir)
	write(t, filepath.Join(dir, "f"), "f")
	f := open(t, filepath.Join(dir, "f"), os.O_RDWR)
	check(t, m.b.Rename(ctx, name+"/f", name+"/g"))
	holds(t, filepath.Join(dir, "g"), "f")
	put(t, f, "g") // it is the same file, and found where it is now
	check(t, f.Close())
	holds(t, filepath.Join(dir, "g"), "g")

	r := open(t, filepath.Join(dir, "g"), os.O_RDONLY)
	holds(t, filepath.Join(dir, "g"), "g")
	w := open(t, filepath.Join(dir, "g"), os.O_WRONLY)
	put(t, w, "lost")
	check(t, m.b.Remove(ctx, name+"/g"))
	refused(t, "closing what another client has removed", w.Close(), syscall.ENOENT)
	r.Close()
	names, err := os.ReadDir(dir)
	if len(names) != 0 || err != nil {
		t.Errorf("there are %v, %v", names, err)
	}
}

// otherUsers: files belong to their makers, and modes count.
func otherUsers(t *testing.T, _ *mounted, dir string) {
	check(t, os.Chmod(dir, 0o777))
	write(t, filepath.Join(dir, "private"), "secret")
	check(t, os.Chmod(filepath.Join(dir, "private"), 0o600))
	as := func(script string) (string, error) {
		cmd := inDir(dir, "sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 23456}}
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	if text, err := as("umask 027 && echo hello >mine && mkdir sub && cat mine && chmod 600 mine && mv mine sub/mine"); err != nil || text != "hello\n" {
		t.Errorf("%q, %v", text, err)
	}
	for name, mode := range map[string]uint32{"sub/mine": syscall.S_IFREG | 0o600, "sub": syscall.S_IFDIR | 0o750} {
		if st := stat(t, filepath.Join(dir, name)); st.Uid != 12345 || st.Gid != 23456 || st.Mode != mode {
			t.Errorf("%s: mode %o, owner %d:%d", name, st.Mode, st.Uid, st.Gid)
		}
	}
	for _, script := range []string{"cat private", "echo x >>private", "chmod 666 private", "chown 0 sub/mine"} {
		if text, err := as(script); err == nil {
			t.Errorf("%s: %s", script, text)
		}
	}
	check(t, os.Chmod(dir, 0o755))
	for _, script := range []string{"echo x >new", "rm private", "mv private other", "mkdir new"} {
		if text, err := as(script); err == nil {
			t.Errorf("%s: %s", script, text)
		}
	}
	left, err := os.ReadDir(dir)
	check(t, err)
	if !slices.EqualFunc(left, []string{"private", "sub"}, func(e os.DirEntry, name string) bool { return e.Name() == name }) {
		t.Errorf("there are %v", left)
	}
}
