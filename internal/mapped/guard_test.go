package mapped_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/mapped"
)

// mapping maps a file of two pages, and cuts the second one off.
func mapping(t *testing.T) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	if err := f.Truncate(int64(2 * page)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	return mem
}

func TestGuard(t *testing.T) {
	mem := mapping(t)
	for name, touch := range map[string]func(){
		"read":  func() { _ = string(mem[len(mem)-1:]) },
		"write": func() { mem[len(mem)-1] = 1 },
	} {
		deferred := false
		err := mapped.Guard("put", "p", func() error {
			defer func() { deferred = true }()
			touch()
			return nil
		})
		var e *bb.Error
		if !errors.Is(err, bb.Lost) || !errors.As(err, &e) || e.Op != "put" || e.Path != "p" || !deferred {
			t.Errorf("%s: %v, deferred calls ran: %v", name, err, deferred)
		}
	}
	mine := errors.New("mine")
	if err := mapped.Guard("put", "", func() error { mem[0] = 1; return mine }); err != mine {
		t.Errorf("an error of f came back as %v", err)
	}
}

// A panic that is no fault stays one.
func TestGuardPassesPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = mapped.Guard("put", "", func() error { panic("mine") })
	t.Error("a panic was swallowed")
}
