package posix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// TestAnotherRoot opens a store by the identity of a directory after another one has taken its
// place.
func TestAnotherRoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	opts := options()
	now := identity.Identity{Kind: 1, ID: 2, Inode: 3}
	opts.identify = func(*os.File) (identity.Identity, error) { return now, nil }
	opts.Root = now.String()
	s := open(t, dir, opts)
	if _, err := s.Put(t.Context(), "d/f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	now.ID = 4
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

// TestRootReplacedDuringPut puts another directory in the place of the root while a file is on its
// way. It gets no name, neither here nor there.
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

func TestOnLustre(t *testing.T) {
	for id, want := range map[string]bool{
		identity.Identity{Kind: lustre.Magic, ID: 1, Inode: 2, Mount: "/scratch"}.String(): true,
		identity.Identity{Kind: 0xef53, ID: 1, Inode: 2, Mount: "/"}.String():              false,
		"s3:abc": false,
		"":       false,
	} {
		if OnLustre(id) != want {
			t.Errorf("%q on Lustre: %v", id, !want)
		}
	}
}
