package s3

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// net/http reads a body in goroutines of its own. A fault there is an error of the request.
func TestBodyCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(path, make([]byte, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 9000, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	b := newBody([][]byte{mem})
	p := make([]byte, 100)
	if n, err := b.Read(p); n != 100 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(p); !errors.Is(err, bb.Lost) {
		t.Errorf("a body that was cut short gives %v", err)
	}
	b.close()
}
