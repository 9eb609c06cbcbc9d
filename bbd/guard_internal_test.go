package bbd

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix"
	"forebay/internal/bb"
)

// TestGuardedOthers lists what is no file with the rights of a user: whom a directory may not
// be listed by gets an error, not a tree with a part missing.
func TestGuardedOthers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "open/in"), 0o755),
		os.Symlink("nothing", filepath.Join(root, "open/link")),
		os.MkdirAll(filepath.Join(root, "shut/in"), 0o755),
		os.MkdirAll(filepath.Join(root, "passing/in"), 0o755),
		os.Chmod(filepath.Join(root, "shut"), 0o750), os.Chmod(filepath.Join(root, "passing"), 0o711),
		os.Chmod(filepath.Dir(root), 0o755), // the folder that the test's own folders are in
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := posix.Open(root, posix.Options{Owner: backing.NewOwner(1)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	user := cred{uid: uint32(os.Getuid()) + 1, gids: []uint32{uint32(os.Getgid()) + 1}}
	for _, c := range []struct {
		dir   string
		c     cred
		names []string
		want  error
	}{
		{"open", user, []string{"open", "open/in", "open/link"}, nil},
		{"shut", user, nil, bb.Permission},
		{"shut/in", user, nil, bb.Permission},
		{"passing", user, nil, bb.Permission},
		{"passing/in", user, []string{"passing/in"}, nil},
		{"", user, []string{".", "open", "open/in", "open/link"}, bb.Permission},
		{"shut", cred{system: true}, []string{"shut", "shut/in"}, nil},
	} {
		var got []string
		err := guardReads(store, c.c, "file://"+root).Others(t.Context(), c.dir, func(o backing.Other) error {
			if want := fs.ModeDir; path.Base(o.Name) != "link" && o.Mode.Type() != want {
				t.Errorf("%s is %v", o.Name, o.Mode)
			}
			got = append(got, o.Name)
			return nil
		})
		if !errors.Is(err, c.want) || !slices.Equal(got, c.names) {
			t.Errorf("%q, system %v: %q (%v), want %q (%v)", c.dir, c.c.system, got, err, c.names, c.want)
		}
	}
}
