package posix

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// TestMakeDir makes directories, gives one that is there its attributes, and leaves those alone
// that are another user's or that are to be kept.
func TestMakeDir(t *testing.T) {
	dir, when := t.TempDir(), time.Unix(1_500_000_000, 123_456_789)
	before := time.Unix(1_400_000_000, 0)
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	s, err := Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"mine", "kept", "sticky", "target"} {
		for _, err := range []error{os.Mkdir(at(name), 0o755), os.Chmod(at(name), 0o755), os.Chtimes(at(name), before, before)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, err := range []error{
		os.Chmod(at("sticky"), fs.ModeSetgid|0o755), os.Chtimes(at("sticky"), before, before),
		os.Symlink("target", at("link")), os.Symlink("nothing", at("gone")),
		os.WriteFile(at("file"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	opts := backing.DirOptions{Attrs: backing.Attrs{Mode: 0o2710, UID: uid, GID: gid, MTime: when}}
	keep, other, timeless := opts, opts, opts
	keep.Keep, timeless.Attrs.MTime = true, time.Time{}
	if other.Attrs.UID++; uid != 0 {
		other.Keep = true // only root's process can have directories of others
	}
	for _, c := range []struct {
		name string
		opts backing.DirOptions
		want string
		time time.Time // zero: any
		err  error
	}{
		{"new", opts, "drwx--x---", when, nil},
		{"deep/er/new", opts, "drwx--x---", when, nil},
		{"new2", keep, "drwx--x---", when, nil},
		{"new3", timeless, "drwx--x---", time.Time{}, nil},
		{"mine", opts, "drwx--x---", when, nil},
		{"sticky", opts, "dgrwx--x---", when, nil},
		{"kept", keep, "drwxr-xr-x", before, nil},
		{"kept", other, "drwxr-xr-x", before, nil},
		{"target", timeless, "drwx--x---", before, nil},
		{"link", opts, "Lrwxrwxrwx", time.Time{}, nil},
		{"target", keep, "drwx--x---", before, nil}, // the link did not lead the change there
		{"file", opts, "-rw-------", time.Time{}, bb.Exists},
		{"gone", opts, "Lrwxrwxrwx", time.Time{}, bb.Exists},
		{"file/below", opts, "", time.Time{}, bb.NotDirectory},
	} {
		for range 2 {
			if err := s.MakeDir(t.Context(), c.name, c.opts); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%s: %v, want %v", c.name, err, c.err)
			}
		}
		info, err := os.Lstat(at(c.name))
		if c.want == "" {
			continue
		}
		if err != nil {
			t.Error(err)
		} else if info.Mode().String() != c.want || !c.time.IsZero() && !info.ModTime().Equal(c.time) {
			t.Errorf("%s: %v of %v, want %v of %v", c.name, info.Mode(), info.ModTime(), c.want, c.time)
		}
	}
	// A directory that the store itself has made is no other's to keep. That holds after it was
	// opened again, and for the same buffer alone.
	for _, c := range []struct{ mark, want string }{{"other.1", "drwx------"}, {"b.1", "drwx--x---"}} {
		for _, mark := range []string{"b.1", c.mark} {
			marked, err := Open(dir, Options{Mark: mark})
			if err != nil {
				t.Fatal(err)
			}
			of := keep
			if mark == "b.1" && c.mark != mark {
				of.Attrs.Mode = 0o700
			}
			if err := marked.MakeDir(t.Context(), "marked", of); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := os.Lstat(at("marked")); err != nil || info.Mode().String() != c.want {
			t.Errorf("a directory that is marked b.1, changed for %s: %v (%v), want %s", c.mark, info.Mode(), err, c.want)
		}
	}
	// A directory that another program removed is made again, though it was recorded.
	if err := os.RemoveAll(at("deep")); err != nil {
		t.Fatal(err)
	}
	if err := s.MakeDir(t.Context(), "deep/er/new", opts); err != nil {
		t.Fatal(err)
	}
	if uid != 0 {
		return
	}
	opts.Attrs.UID, opts.Attrs.GID = 4242, 4243
	if err := s.MakeDir(t.Context(), "theirs/below", opts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"theirs", "theirs/below"} {
		info, err := os.Stat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 4242 || stat.Gid != 4243 {
			t.Errorf("%s is owned by %d:%d", name, stat.Uid, stat.Gid)
		}
	}
}

// TestSetMode changes the mode of files that are the user's, and nothing else.
func TestSetMode(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600), os.WriteFile(filepath.Join(dir, "led"), nil, 0o600),
		os.Symlink("led", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "dir"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.Stat(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	attrs := backing.Attrs{Mode: 0o641, UID: uint32(os.Geteuid())}
	for _, name := range []string{"file", "link", "dir"} {
		if err := s.SetMode(t.Context(), name, attrs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if os.Geteuid() == 0 { // else there are no files of others
		if err := s.SetMode(t.Context(), "file", backing.Attrs{Mode: 0o777, UID: 4242}); err != nil {
			t.Error(err)
		}
	}
	if err := s.SetMode(t.Context(), "none", attrs); !errors.Is(err, bb.NotFound) {
		t.Errorf("of a file that is not there: %v", err)
	}
	for name, want := range map[string]fs.FileMode{"file": 0o641, "led": 0o600, "dir": fs.ModeDir | 0o700} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v (%v), want %v", name, info, err, want)
		}
	}
	if after, err := s.Stat(t.Context(), "file"); err != nil || after.ETag != before.ETag {
		t.Errorf("its entity tag was %q, is %q (%v)", before.ETag, after.ETag, err)
	}
}
