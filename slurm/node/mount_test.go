package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
)

// TestMountFolder: a job's directory lies in a folder that no other user can change, and a prolog removes those of runs
// without a note, and nothing else there.
func TestMountFolder(t *testing.T) {
	c := DefaultConfig()
	c.Dir, c.Mounts = t.TempDir(), filepath.Join(t.TempDir(), "bb")
	var mounted []string
	c.Mount = func(_ context.Context, buffer, dir string) error {
		mounted = append(mounted, buffer+" "+dir)
		return nil
	}
	dir := filepath.Join(c.Mounts, "job-1-a")
	env, err := c.mount(t.Context(), "job-1-a", "job-1-a")
	if err != nil || !slices.Equal(env, []string{"FOREBAY_DIR=" + dir}) || !slices.Equal(mounted, []string{"job-1-a " + dir}) {
		t.Errorf("the variables are %q, mounted is %q (%v)", env, mounted, err)
	}
	if err := writeNote(c.file("1", noteSuffix), &note{Key: "job-1-a", Job: "1", Since: time.Now(), Dir: dir}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"job-2-b", "scratch"} {
		if err := os.Mkdir(filepath.Join(c.Mounts, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.unmountLost()
	var left []string
	list, err := os.ReadDir(c.Mounts)
	for _, d := range list {
		left = append(left, d.Name())
	}
	if err != nil || !slices.Equal(left, []string{"job-1-a", "scratch"}) {
		t.Errorf("left are %q (%v)", left, err)
	}

	if err := os.Chmod(c.Mounts, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := c.mount(t.Context(), "job-3-c", "job-3-c"); !errors.Is(err, bb.Permission) || len(mounted) != 1 {
		t.Errorf("in a folder that all users may change: %v, mounted is %q", err, mounted)
	}
	c.Mounts = ""
	if env, err := c.mount(t.Context(), "job-4-d", "job-4-d"); err != nil || env != nil {
		t.Errorf("without a folder: %q (%v)", env, err)
	}
}
