package userfile

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"forebay/internal/bb"
)

// stranger owns nothing here.
var stranger = User{UID: 65534, Groups: []uint32{65534}}

// open makes a directory that all users can reach, unlike those of tests.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "userfile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func file(t *testing.T, name string, mode os.FileMode, uid, gid int) string {
	t.Helper()
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(name, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// TestWhatIsNoFile reads regular files of a bounded size, and touches nothing else.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	good := file(t, dir+"/good", 0o600, os.Geteuid(), 0)
	if text, err := Read(good); err != nil || string(text) != "text" {
		t.Errorf("got %q (%v)", text, err)
	}
	large := dir + "/large"
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1500<<20); err != nil {
		t.Fatal(err)
	}
	fifo := dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fifo, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		large: bb.Invalid, fifo: bb.Invalid, dir + "/link": bb.Invalid, dir: bb.Invalid, "/dev/zero": bb.Invalid, dir + "/none": bb.NotFound,
	} {
		if text, err := Read(name); bb.KindOf(err) != want || text != nil {
			t.Errorf("%s: got %d bytes (%v), want %v", name, len(text), err, want)
		}
	}
}

// TestReadAs leaves the decision about a user's reads to the kernel.
func TestReadAs(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := ReadAs("/etc/hostname", stranger); bb.KindOf(err) != bb.Unsupported {
			t.Errorf("a process of an ordinary user reads as another: %v", err)
		}
		return
	}
	dir := open(t)
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		as   User
		want error
	}{
		"own":                   {file(t, dir+"/own", 0o600, 65534, 0), stranger, nil},
		"root's":                {file(t, dir+"/roots", 0o600, 0, 0), stranger, bb.Permission},
		"everybody's":           {file(t, dir+"/all", 0o644, 0, 0), stranger, nil},
		"a group's":             {file(t, dir+"/group", 0o640, 0, 4242), stranger, bb.Permission},
		"a further group's":     {dir + "/group", User{65534, []uint32{65534, 4242}}, nil},
		"in a closed directory": {file(t, closed+"/in", 0o644, 0, 0), stranger, bb.Permission},
		// Existing and missing files cannot be distinguished by users without the right to.
		"none in a closed directory": {closed + "/none", stranger, bb.Permission},
		"none":                       {dir + "/none", stranger, bb.NotFound},
		"without groups":             {dir + "/all", User{UID: 65534}, bb.Invalid},
		"as root":                    {dir + "/roots", User{0, []uint32{0}}, nil},
	} {
		if _, err := ReadAs(c.path, c.as); (err != nil || c.want != nil) && bb.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// Nothing of it stays with the threads of this process.
	secret := dir + "/roots"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				if _, err := ReadAs(secret, stranger); bb.KindOf(err) != bb.Permission {
					t.Errorf("as a stranger: %v", err)
				}
				if _, err := os.ReadFile(secret); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
