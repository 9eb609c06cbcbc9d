package link

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// TestReplacedLink: a file that the owner of a directory puts in the place of a new link keeps its owner and
// its time.
func TestReplacedLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir, when := t.TempDir(), time.Unix(1_600_000_000, 0)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := Begin("l", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	n := New{
		Target: target, Size: 1, Attrs: &backing.Attrs{Mode: fs.ModePerm | fs.ModeSymlink, UID: 1234, GID: 1234, MTime: when},
		made: func() {
			if err := os.Rename(secret, filepath.Join(dir, "temp")); err != nil {
				t.Error(err)
			}
		},
	}
	if info, err := n.Make(root, "temp"); bb.KindOf(err) != bb.Unavailable {
		t.Errorf("a link that was replaced: %v (%v)", info, err)
	}
	info, err := os.Lstat(filepath.Join(dir, "temp"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || info.ModTime().Equal(when) {
		t.Errorf("what replaced it: %+v (%v)", info, err)
	}
}

// TestMake: a link has its owner and time, with any target.
func TestMake(t *testing.T) {
	dir, when := t.TempDir(), time.Unix(1_600_000_000, 123_000)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if uid == 0 {
		uid, gid = 1234, 5678
	}
	for name, to := range map[string]string{"file": "/etc/passwd", "d/none": "nothing", "d/dir": ".", "d/self": "self"} {
		target, err := Begin(name, int64(len(to)))
		if err != nil {
			t.Fatal(err)
		}
		defer target.Close()
		if _, err := target.WriteAt([]byte(to), 0); err != nil {
			t.Fatal(err)
		}
		n := New{Target: target, Size: int64(len(to)), Attrs: &backing.Attrs{UID: uid, GID: gid, MTime: when}}
		info, err := n.Make(root, name)
		if err != nil {
			t.Fatal(err)
		}
		there, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		st := there.Sys().(*syscall.Stat_t)
		if got, err := os.Readlink(filepath.Join(dir, name)); err != nil || got != to || !os.SameFile(info, there) || st.Uid != uid || st.Gid != gid || !there.ModTime().Equal(when) || !info.ModTime().Equal(when) {
			t.Errorf("%s: leads to %q (%v), %+v, %+v", name, got, err, there, info)
		}
	}
}
