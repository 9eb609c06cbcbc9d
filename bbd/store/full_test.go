package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
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

// fill makes the other application use the rest.
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

// If others have filled a store's tmpfs, the store refuses leases without memory, in this run and
// in the next. It continues once there is room.
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
	s := open(t, o) // with less memory than configured
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Regions of an older release on a full tmpfs are adopted. Units without a segment give their memory for journals.
func TestOlderRegionsOnAFullTmpfs(t *testing.T) {
	c, ok := newCrowded(t, "64m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), "", 0
	s := open(t, o)
	w := newWriter(t, s)
	const files = 12
	want := func(i int) []byte { return content(uint64(i), 1<<19) }
	for i := 1; i <= files; i++ {
		w.commit(bb.FileID(i), 1, 0, 0, want(i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	makeOlder(t, o, format.PagesOnly)
	c.fill()
	s = open(t, o)
	for i := 1; i <= files; i++ {
		check(t, s, bb.FileID(i), 1, want(i))
	}
	if d := s.Damage(); len(d) > 0 {
		t.Errorf("reported %+v", d)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.empty()
	s = open(t, o)
	w = newWriter(t, s)
	w.commit(files+1, 1, 0, 0, want(files+1))
	for i := 1; i <= files+1; i++ {
		check(t, s, bb.FileID(i), 1, want(i))
	}
}

// If no unit is free either, the space behind the tables of older regions is enough for journals. Without that,
// too, the files are served from journals that end with the process, the pages stay as they are, and the first
// start with room makes journals that stay.
func TestFullOlderRegionsOnAFullTmpfs(t *testing.T) {
	for _, behind := range []bool{true, false} {
		t.Run(fmt.Sprintf("memory behind the tables: %v", behind), func(t *testing.T) { testFullOlderRegions(t, behind) })
	}
}

func testFullOlderRegions(t *testing.T, behind bool) {
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
	files := bb.FileID(1)
	for ; ; files++ { // a segment each
		w.done()
		l, err := s.Lease(LeaseRequest{Buffer: w.buffer, UID: w.uid, Bytes: Unit})
		if errors.Is(err, ErrNoRoom) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		w.lease, w.next, w.floor = l, l.DataStart, l.RecordFloor
		w.commit(files+1, 1, 0, 0, want)
	}
	instance := s.Instance()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	makeOlder(t, o, format.PagesOnly)
	if !behind {
		found, err := findRegions(o.ShmDir, bb.TierMemory)
		if err != nil {
			t.Fatal(err)
		}
		for i := range found { // and no unit without a segment, as in that of the store's own records
			giveFree(found[i:i+1], bb.TierMemory, 1<<40)
		}
	}
	before := folderSums(t, o.ShmDir)
	c.fill()
	all := func() {
		t.Helper()
		if s.Instance() != instance {
			t.Errorf("the memory is instance %v, was %v", s.Instance(), instance)
		}
		for f := bb.FileID(1); f <= files; f++ {
			check(t, s, f, 1, want)
		}
		if d := s.Damage(); len(d) > 0 {
			t.Errorf("reported %+v", d)
		}
	}
	journals := func() (n int) {
		t.Helper()
		paths, err := filepath.Glob(filepath.Join(o.ShmDir, "*"+regionfile.JournalSuffix))
		if err != nil {
			t.Fatal(err)
		}
		return len(paths)
	}
	for range 2 {
		s = open(t, o)
		all()
		if (journals() > 0) != behind {
			t.Errorf("%d regions have journals that stay", journals())
		}
		if !behind {
			if l, err := s.Lease(LeaseRequest{Buffer: w.buffer, UID: w.uid, Bytes: Unit}); err == nil {
				t.Errorf("%+v is leased where nothing can be recorded for good", l)
			}
			s.Drop(1) // of this run alone, since the namespace has recorded its removal
			if _, err := s.Size(1, 1); !errors.Is(err, bb.NotFound) {
				t.Errorf("a file that was dropped: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for path, sum := range folderSums(t, o.ShmDir) {
		if old, ok := before[path]; ok && old != sum && !behind {
			t.Errorf("%s has changed", path)
		}
	}
	c.empty()
	s = open(t, o)
	all()
	if journals() == 0 {
		t.Error("no journals were made when there was room")
	}
	for f := bb.FileID(2); f <= files; f++ {
		s.Drop(f)
	}
	w = newWriter(t, s)
	w.commit(files+1, 1, 0, 0, want)
	check(t, s, files+1, 1, want)
}

// Records that there is no memory for are an error and no signal, under any lease. A segment that
// is freed gives back its records' space.
func TestJournalOnAFullTmpfs(t *testing.T) {
	c, ok := newCrowded(t, "64m")
	if !ok {
		return
	}
	o := folders(t)
	o.ShmDir, o.DiskDir, o.DiskBytes = filepath.Join(c.dir, "shm"), "", 0
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, []byte("x"))
	e := w.put(0, []byte("y"))
	again := func() error { return s.Commit(Commit{File: 1, Generation: 1, Buffer: "b", Extents: []NewExtent{e}}) }
	c.fill()
	n := 0
	for ; n < 100_000; n++ {
		err := again()
		if errors.Is(err, bb.NoSpace) && strings.Contains(err.Error(), "other applications") {
			break
		}
		if err != nil {
			t.Fatalf("commit %d: %v", n, err)
		}
	}
	if least := int(regionfile.JournalTail/format.RecordCost(1)) - 3; n < least || n == 100_000 {
		t.Errorf("%d commits found memory, at least %d should", n, least)
	}
	check(t, s, 1, 1, []byte("y"))
	c.empty()
	for range 3000 {
		if err := again(); err != nil {
			t.Fatalf("once there is room again: %v", err)
		}
	}
	info, _, err := s.Region(w.lease.Region)
	if err != nil {
		t.Fatal(err)
	}
	grown := blocks(t, regionfile.JournalOf(info.Path))
	w.done()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	check(t, s, 1, 1, []byte("y"))
	s.Drop(1)
	if now := blocks(t, regionfile.JournalOf(info.Path)); now > grown-3000*format.RecordCost(1)+regionfile.JournalStep {
		t.Errorf("the journal takes %d bytes, and took %d with 3000 records", now, grown)
	}
	for _, r := range s.mu.regions { // the punched part is the start of a segment, no more
		if r.Path == info.Path && blocks(t, regionfile.JournalOf(r.Path)) < regionfile.JournalLeast(int64(len(r.Mem)))-format.SlotTable {
			t.Errorf("the journal takes %d bytes, and at least %d are due", blocks(t, regionfile.JournalOf(r.Path)), regionfile.JournalLeast(int64(len(r.Mem))))
		}
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
