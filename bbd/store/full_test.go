package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// crowded is a tmpfs that a store shares with another application.
type crowded struct {
	t   testing.TB
	dir string
}

// newCrowded mounts a tmpfs of so many bytes. ok is false without the right to.
func newCrowded(t testing.TB, bytes string) (c crowded, ok bool) {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("crowded", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size="+bytes)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Logf("this user may not mount: %v", err)
		return c, false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return crowded{t, dir}, true
}

// fill has the other application take what is left.
func (c crowded) fill() {
	c.t.Helper()
	f, err := os.Create(filepath.Join(c.dir, "another-application"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	for {
		if _, err := f.Write(page); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			c.t.Fatal(err)
		}
	}
}

// empty has the other application give it back.
func (c crowded) empty() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, "another-application")); err != nil {
		c.t.Fatal(err)
	}
}

// createUntilFull makes empty files, from one on, until the store refuses one for lack of
// space, and returns the first that it refused.
func createUntilFull(t *testing.T, s *Store, f bb.FileID) bb.FileID {
	t.Helper()
	for ; f < 100_000; f++ {
		err := s.Commit(Commit{File: f, Generation: 1, Buffer: "b"})
		if err == nil {
			continue
		}
		var e *bb.Error
		if !errors.Is(err, bb.NoSpace) || !errors.As(err, &e) || !strings.Contains(err.Error(), "other applications") {
			t.Fatalf("file %v: %v", f, err)
		}
		return f
	}
	t.Fatal("a full file system has room for every record")
	return 0
}

// A store whose tmpfs others have filled refuses what it has no memory for, in this life
// and in the next, and goes on once there is room.
func TestFullTmpfsRefusesRecords(t *testing.T) {
	c, ok := newCrowded(t, "64m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), "", 0
	s := open(t, o)
	w := newWriter(t, s)
	want := content(1, 100_000)
	w.commit(200_000, 1, 0, 0, want)
	if err := s.Commit(Commit{File: 1, Generation: 1, Buffer: "b"}); err != nil {
		t.Fatal(err)
	}
	c.fill()
	next := bb.FileID(2)
	for range 3 {
		next = createUntilFull(t, s, next)
		w.commit(200_000, 1, 0, int64(len(want)), want[:1000]) // leased memory is there
		want = append(want, want[:1000]...)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
		check(t, s, 200_000, 1, want)
		for f := bb.FileID(1); f < next; f++ {
			if _, err := s.Size(f, 1); err != nil {
				t.Fatalf("file %v of %v that were acknowledged: %v", f, next, err)
			}
		}
		w = newWriter(t, s)
	}
	c.empty()
	if err := s.Commit(Commit{File: next, Generation: 1, Buffer: "b"}); err != nil {
		t.Errorf("once there is room again: %v", err)
	}
}

// A tmpfs that is full before the store's first start is an error with a remedy.
func TestFullTmpfsRefusesToOpen(t *testing.T) {
	c, ok := newCrowded(t, "24m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), "", 0
	c.fill()
	if s, err := Open(context.Background(), o); !errors.Is(err, bb.NoSpace) || !strings.Contains(err.Error(), "other applications") {
		if err == nil {
			s.Close()
		}
		t.Fatalf("a store was opened on a full tmpfs: %v", err)
	}
	c.empty()
	s := open(t, o) // with less memory than it wants
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Earlier releases left a region's slots without memory until the first segment. Such a
// region is adopted on a full tmpfs, too.
func TestSparseRegionIsAdoptedOnAFullTmpfs(t *testing.T) {
	c, ok := newCrowded(t, "64m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), "", 0
	s := open(t, o)
	want := content(1, 1000)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, want)
	used := w.lease.Region
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := findRegions(o.ShmDir, bb.TierMemory)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		if r.header.id == used {
			continue
		}
		f, err := os.OpenFile(r.path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, slotTable, r.header.size-slotTable); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	c.fill()
	s = open(t, o)
	check(t, s, 1, 1, want)
	if d := s.Damage(); len(d) > 0 {
		t.Errorf("reported %+v", d)
	}
}
