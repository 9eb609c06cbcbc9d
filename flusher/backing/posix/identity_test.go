package posix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

func TestIdentityDiffers(t *testing.T) {
	was := identity{kind: 0xef53, id: 7, inode: 40, mount: "/scratch"}
	for what, x := range map[string]struct {
		now  identity
		want string
	}{
		"the same":                     {was, ""},
		"another kind":                 {identity{kind: lustreMagic, id: 7, inode: 40, mount: "/scratch"}, "another kind"},
		"another id":                   {identity{kind: 0xef53, id: 8, inode: 40, mount: "/scratch"}, "another file system"},
		"mounted elsewhere":            {identity{kind: 0xef53, id: 7, inode: 40, mount: "/other"}, ""},
		"made anew":                    {identity{kind: 0xef53, id: 7, inode: 41, mount: "/scratch"}, ""},
		"below the mount point":        {identity{kind: 0xef53, id: 7, inode: 41, mount: "/"}, "another directory"},
		"made anew, mounts not listed": {identity{kind: 0xef53, id: 7, inode: 41}, "another directory"},
	} {
		if got := was.differs(x.now); got != x.want && (x.want == "" || !strings.Contains(got, x.want)) {
			t.Errorf("%s: %q, want %q", what, got, x.want)
		}
	}
	unlisted := identity{kind: 0xef53, id: 7, inode: 40}
	if got := unlisted.differs(identity{kind: 0xef53, id: 7, inode: 41}); got == "" {
		t.Error("two directories of which no mount point is known are the same")
	}
}

func TestIdentityIsKept(t *testing.T) {
	for _, i := range []identity{{}, {kind: 1<<64 - 1, id: 1 << 63, inode: 9, mount: "/a:b c"}} {
		if got, ok := parseIdentity(i.String()); !ok || got != i {
			t.Errorf("%v came back as %v, %v", i, got, ok)
		}
	}
	for _, s := range []string{"", "posix1", "posix1:1:2", "posix2:1:2:3:/", "posix1:x:2:3:/", "posix1:1:-2:3:/"} {
		if i, ok := parseIdentity(s); ok {
			t.Errorf("%q was read as %v", s, i)
		}
	}
}

func TestMountPoint(t *testing.T) {
	const mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /lustre rw - lustre mds@tcp:/fs rw\n"
	for fdinfo, want := range map[string]string{
		"pos:\t0\nflags:\t02100000\nmnt_id:\t30\nino:\t4\n": "/lustre", "mnt_id:\t22\n": "/", "mnt_id:\t3\n": "", "": "",
	} {
		if got := mountPoint(fdinfo, mounts); got != want {
			t.Errorf("%q: %q, want %q", fdinfo, got, want)
		}
	}
}

// TestAnotherRoot opens a store by the identity of a directory whose place another one has taken.
func TestAnotherRoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	opts := options()
	now := identity{kind: 1, id: 2, inode: 3}
	opts.identify = func(*os.File) (identity, error) { return now, nil }
	opts.Root = now.String()
	s := open(t, dir, opts)
	if _, err := s.Put(t.Context(), "d/f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	now.id = 4
	if _, err := Open(dir, opts); !errors.Is(err, bb.Unavailable) || !backing.Passing(err) || !strings.Contains(err.Error(), "(mount the file system again") {
		t.Errorf("another directory is opened: %v", err)
	}
	for what, call := range map[string]func() error{
		"put": func() error {
			_, err := s.Put(t.Context(), "g", backing.NewBytes([]byte("x")), backing.PutOptions{})
			return err
		},
		"rename":      func() error { return s.Rename(t.Context(), "d/f", "d/g") },
		"remove":      func() error { return s.Remove(t.Context(), "d/f") },
		"remove tree": func() error { return s.RemoveTree(t.Context(), "d") },
		"stat":        func() error { _, err := s.Stat(t.Context(), "d/f"); return err },
		"get":         func() error { _, err := s.Get(t.Context(), "d/f", 0, -1); return err },
	} {
		if err := call(); !errors.Is(err, bb.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p, err := os.ReadFile(filepath.Join(dir, "d/f")); err != nil || string(p) != "x" {
		t.Errorf("the file is %q, %v", p, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, opts); !errors.Is(err, bb.Unavailable) {
		t.Errorf("a directory that was there and is not: %v", err)
	}
}

// TestRootReplacedDuringPut puts another directory in the place of the root while a file is
// on its way: it gets no name, neither here nor there.
func TestRootReplacedDuringPut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, options())
	_, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{Last: func(context.Context) error {
		if err := os.Rename(dir, dir+".away"); err != nil {
			return err
		}
		return os.Mkdir(dir, 0o755)
	}})
	if !errors.Is(err, bb.Unavailable) {
		t.Errorf("put: %v", err)
	}
	for _, d := range []string{dir, dir + ".away"} {
		if entries, err := os.ReadDir(d); err != nil || len(entries) != 0 {
			t.Errorf("%s has %v, %v", d, entries, err)
		}
	}
}
