package posix

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"forebay/flusher/backing"
)

// TestOthers lists a tree. List has its files and links, Others the other entries.
func TestOthers(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "a/empty"), 0o750))
	must(os.WriteFile(filepath.Join(dir, "a/file"), []byte("x"), 0o600))
	must(os.Symlink("file", filepath.Join(dir, "a/link")))
	must(os.Symlink("nothing", filepath.Join(dir, "a/gone")))
	must(os.Symlink("/etc/passwd", filepath.Join(dir, "a/out")))
	must(syscall.Mkfifo(filepath.Join(dir, "a/pipe"), 0o600))
	must(os.Chmod(filepath.Join(dir, "a/empty"), 0o700))
	s, err := Open(dir, options())
	must(err)
	defer s.Close()
	var got []string
	must(s.Others(t.Context(), "a", func(o backing.Other) error {
		got = append(got, o.Name+" "+o.Mode.Type().String())
		return nil
	}))
	want := []string{"a d---------", "a/empty d---------", "a/pipe p---------"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = nil
	must(s.List(t.Context(), "a/", func(o backing.Object) error {
		got = append(got, o.Name)
		return nil
	}))
	if want := []string{"a/file", "a/gone", "a/link", "a/out"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, name := range []string{"a/file", "missing"} {
		must(s.Others(t.Context(), name, func(o backing.Other) error {
			t.Errorf("%s: found %v", name, o)
			return nil
		}))
	}
}

// TestOthersOfOne names the pipe, or the directory that a link leads to, itself.
func TestOthersOfOne(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Mkdir(filepath.Join(dir, "real"), 0o750), os.Chmod(filepath.Join(dir, "real"), 0o710),
		os.Symlink("real", filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, want := range map[string]string{"pipe": "pipe prw-------", "link": "link drwx--x---", "real": "real drwx--x---"} {
		var got []string
		if err := s.Others(t.Context(), name, func(o backing.Other) error {
			got = append(got, o.Name+" "+o.Mode.String())
			return nil
		}); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, want)
		}
	}
}
