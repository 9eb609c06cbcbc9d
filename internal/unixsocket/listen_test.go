package unixsocket

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A socket has its mode once it is there, despite the umask, and the process keeps its umask.
func TestBind(t *testing.T) {
	before := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(before) })
	for _, mode := range []fs.FileMode{0o666, 0o600} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := bind(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%v: %v, want %v", err, info.Mode().Perm(), mode)
		}
		l.Close()
	}
	if now := unix.Umask(0o077); now != 0o077 {
		t.Errorf("the umask of the process is %o now", now)
	}
}
