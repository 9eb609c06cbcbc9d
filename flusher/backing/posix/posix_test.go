package posix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/opendir"
	"forebay/internal/bb"
)

const large = 5<<20 + 17

func TestMain(m *testing.M) {
	os.Exit(backingtest.Main(m, func(dir string) (backing.Store, error) { return Open(dir, options()) }))
}

func options() Options {
	return Options{Owner: backing.NewOwner(7), PartSize: 1 << 20}
}

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSuite(t *testing.T) {
	backingtest.Suite(t, backingtest.Harness{
		Open:  func(t *testing.T) backing.Store { return open(t, t.TempDir(), options()) },
		Large: large,
		Damage: func(t *testing.T, s backing.Store, name string) {
			flip(t, filepath.Join(s.(*Store).dir, name))
		},
		Crash: func(t *testing.T, name string) backing.Store {
			dir := t.TempDir()
			backingtest.Kill(t, dir, name, large)
			return open(t, dir, options())
		},
	})
}

func flip(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		b[len(b)/2] ^= 1
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "none"), options())
	if !errors.Is(err, bb.NotFound) || !strings.Contains(err.Error(), "(create the directory") {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(file, options()); !errors.Is(err, bb.NotDirectory) {
		t.Fatal(err)
	}
}

// TestUnmounted writes nothing below the mount point of a file system that is gone.
func TestUnmounted(t *testing.T) {
	dir := t.TempDir()
	kind := uint64(1)
	opts := options()
	opts.identify = func(*os.File) (identity.Identity, error) { return identity.Identity{Kind: kind}, nil }
	s := open(t, dir, opts)
	kind = 2
	_, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{})
	if !errors.Is(err, bb.Unavailable) || !backing.Passing(err) {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}

// TestNoEscape follows no link out of the root.
func TestNoEscape(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, options())
	if _, err := s.Put(t.Context(), "link/f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err == nil {
		t.Fatal("written through a link out of the root")
	}
	if err := s.RemoveTree(t.Context(), "link"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}

func TestAttrs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	attrs := &backing.Attrs{Mode: 0o640, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), MTime: when}
	if _, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{Attrs: attrs}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "f"))
	if err != nil || info.Mode() != 0o640 || !info.ModTime().Equal(when) {
		t.Fatal(info, err)
	}
}

// TestDirectoriesBelongToUsers shows that directories that a daemon of root's makes do not block
// the owner of the files.
func TestDirectoriesBelongToUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("without root, everything is this user's")
		return
	}
	dir := t.TempDir()
	s := open(t, dir, options())
	attrs := &backing.Attrs{Mode: 0o640, UID: 20001, GID: 20002}
	if _, err := s.Put(t.Context(), "a/b/f", backing.NewBytes([]byte("x")), backing.PutOptions{Attrs: attrs}); err != nil {
		t.Fatal(err)
	}
	if err := s.Rename(t.Context(), "a/b/f", "a/c/d/f"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "mine/f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]uint32{"a": 20001, "a/b": 20001, "a/c": 20001, "a/c/d": 20001, "a/c/d/f": 20001, "mine": 0} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
			t.Errorf("%s is of user %d, not %d", name, got, uid)
		}
	}
}

// TestSourceIsGone shows that a source that is missing is not taken for a directory that is. The
// second attempt would find the first one's temporary file.
func TestSourceIsGone(t *testing.T) {
	s := open(t, t.TempDir(), options())
	src := goneSource{backing.NewBytes([]byte("x"))}
	if _, err := s.Put(t.Context(), "a/f", src, backing.PutOptions{}); bb.KindOf(err) != bb.NotFound {
		t.Errorf("%v", err)
	}
}

type goneSource struct{ backing.Source }

func (goneSource) Slices(dst [][]byte, _, _ int64) ([][]byte, error) {
	return dst, bb.E(bb.NotFound, "read", "f", "it is gone")
}

func TestFileInTheWay(t *testing.T) {
	s := open(t, t.TempDir(), options())
	if _, err := s.Put(t.Context(), "a", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Put(t.Context(), "a/b", backing.NewBytes([]byte("x")), backing.PutOptions{})
	if !errors.Is(err, bb.NotDirectory) || backing.Passing(err) {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "d/e", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Put(t.Context(), "d", backing.NewBytes([]byte("x")), backing.PutOptions{}); err == nil || backing.Passing(err) {
		t.Fatal(err)
	}
}

// goneFor reports one instance as ended.
type goneFor struct{ bb.InstanceID }

func (g goneFor) Ended(id bb.InstanceID, _ uint64) bool { return id == g.InstanceID }

// Leftovers finds remains in one directory or in all below it, names them, and removes them only on
// request.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	ended, peer := backing.Owner{Instance: 7, Life: 1}, backing.Owner{Instance: 99, Life: 1}
	here, below, folder := ended.TempName(), "d/"+ended.TempName(), "d/"+ended.TempName()
	if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
		t.Fatal(err)
	}
	link := ended.TempName()
	if err := os.Symlink("else", filepath.Join(dir, link)); err != nil {
		t.Fatal(err)
	}
	theirs := "d/" + peer.TempName()
	for _, name := range []string{here, below, theirs, "d/f"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("1234"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(name string, of backing.Owner, removed bool) backing.Leftover {
		return backing.Leftover{Name: name, Size: 4, Instance: of.Instance, Ended: of.Instance == 7, Removed: removed}
	}
	for _, test := range []struct {
		in   backing.Within
		want []backing.Leftover
	}{
		{backing.Within{}, []backing.Leftover{is(link, ended, false), is(here, ended, false)}},
		{backing.Within{Dir: "not-there", Remove: true}, nil},
		{backing.Within{Deep: true}, []backing.Leftover{is(link, ended, false), is(here, ended, false), is(below, ended, false), is(theirs, peer, false)}},
		{backing.Within{Dir: "d", Remove: true}, []backing.Leftover{is(below, ended, true), is(theirs, peer, false)}},
		{backing.Within{Deep: true, Remove: true}, []backing.Leftover{is(link, ended, true), is(here, ended, true), is(theirs, peer, false)}},
	} {
		got, err := s.Leftovers(t.Context(), test.in)
		less := func(a, b backing.Leftover) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(got, less)
		slices.SortFunc(test.want, less)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%+v: %+v, %v; want %+v", test.in, got, err, test.want)
		}
	}
}

func TestSweepSparesOthers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	mine := options().Owner
	peer := backing.Owner{Instance: 99, Life: 1}
	gone := backing.Owner{Instance: 98, Life: 1}
	s.opts.Owner.Peers = goneFor{gone.Instance}
	names := map[string]bool{ // whether it is swept
		mine.TempName(): false,
		backing.Owner{Instance: 7, Life: 1}.TempName(): true,
		peer.TempName():                                        false,
		"old" + peer.TempName():                                false,
		fmt.Sprintf(".forebay-%016x-%016x.tmp", 7, 1):          false,
		strings.ToUpper(backing.Owner{Instance: 7}.TempName()): false,
	}
	names[gone.TempName()] = true
	old := peer.TempName() // its daemon may be another cluster's, or a user may have named it so
	names[old] = false
	for name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-backing.PeerAge - time.Hour)
	if err := os.Chtimes(filepath.Join(dir, old), long, long); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context()); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	for name, swept := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) != swept {
			t.Errorf("%s: %v, should be swept: %v", name, err, swept)
		}
	}
}

// A Put that fails again and again gives the same message each time. Nothing of its temporary
// file's name is in it.
func TestFailureIsStable(t *testing.T) {
	s := open(t, t.TempDir(), options())
	for _, name := range []string{"d/f", "f"} {
		if _, err := s.Put(t.Context(), name, backing.NewBytes([]byte("content")), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, what string }{
		{"d", "a directory has the name"},
		{"f/below", "a file is the parent"},
	} {
		var before string
		for range 2 {
			_, err := s.Put(t.Context(), c.name, backing.NewBytes([]byte("content")), backing.PutOptions{})
			if err == nil || strings.Contains(err.Error(), ".tmp") || before != "" && err.Error() != before {
				t.Fatalf("%s: %v, before: %s", c.what, err, before)
			}
			before = err.Error()
		}
	}
}

// A file system that is mounted for reading is no fault of Forebay's, and its error has the remedy.
func TestReadOnly(t *testing.T) {
	readOnly := &os.PathError{Op: "openat", Path: "x", Err: syscall.EROFS}
	for _, err := range []error{rootError("/store", readOnly), cause.Wrap("put", "f", readOnly), bb.Wrap("mkdir", "d", readOnly)} {
		if bb.KindOf(err) != bb.Permission {
			t.Errorf("%v is of kind %v", err, bb.KindOf(err))
		}
	}
	for _, err := range []error{rootError("/store", readOnly), cause.Wrap("put", "f", readOnly)} {
		if !strings.Contains(err.Error(), cause.MountForWriting) {
			t.Errorf("%v does not say how to mend it", err)
		}
	}
}

// A directory that another program moves while a file is put into it does not get the file under its new path. The put
// fails with a passing error, and the next one makes the directory again. Overlapping puts share open directories.
func TestDirectoryMovedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	put := func(last func() error) error {
		_, err := s.Put(t.Context(), "d/f", backing.NewBytes([]byte("x")), backing.PutOptions{Last: func(context.Context) error { return last() }})
		return err
	}
	err := put(func() error { return os.Rename(at("d"), at("e")) })
	if !errors.Is(err, bb.Unavailable) || !errors.Is(err, syscall.ESTALE) {
		t.Errorf("%v, of kind %v", err, bb.KindOf(err))
	}
	if left, err := os.ReadDir(at("e")); err != nil || len(left) != 0 {
		t.Errorf("in the moved directory: %v, %v", left, err)
	}
	var first *opendir.Dir
	err = put(func() error {
		p, err := s.Begin(t.Context(), "d/g", 0, backing.PutOptions{})
		if err != nil {
			return err
		}
		defer p.Abort()
		if first = p.dir; s.Rename(t.Context(), "d", "h") != nil {
			t.Error("the directory was not renamed")
		}
		q, err := s.Begin(t.Context(), "d/g", 0, backing.PutOptions{})
		if err != nil {
			return err
		}
		defer q.Abort()
		if q.dir == first {
			t.Error("a put that begins after the rename shares the directory")
		}
		return nil
	})
	if !errors.Is(err, syscall.ESTALE) {
		t.Error(err)
	}
	if err := put(func() error { return nil }); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(at("d", "f")); err != nil {
		t.Error(err)
	}
}
