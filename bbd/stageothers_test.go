package bbd_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
)

// TestStageInJobOthers stages in a tree with what is no file, as a job of two nodes.
func TestStageInJobOthers(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, client.BufferSpec{Name: "in"})
	from, when := t.TempDir(), time.Unix(1_600_000_000, 0)
	content := source(t, from, 20)
	for _, err := range []error{
		os.Mkdir(filepath.Join(from, "empty"), 0o750), os.Chmod(filepath.Join(from, "empty"), 0o750),
		os.Symlink("nothing", filepath.Join(from, "gone")),
		os.Symlink("/", filepath.Join(from, "out")),
		os.Chtimes(filepath.Join(from, "d0"), when, when), os.Chmod(filepath.Join(from, "d0"), 0o550),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(from, "d0"), 0o700) })
	r, err := c.StageIn(t.Context(), client.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}, nil)
	if err == nil || r.FilesDone != 20 || r.FailedTotal != 2 || len(r.Failed) != 2 || r.Failed[0].Kind != client.ErrUnsupported {
		t.Fatalf("stage-in: %+v (%v)", r, err)
	}
	for name, want := range content {
		wantFile(t, b, "x/"+name, want)
	}
	if e, err := b.Stat(t.Context(), "x/empty"); err != nil || !e.IsDir() || e.Mode.Perm() != 0o750 {
		t.Errorf("the empty directory: %+v (%v)", e, err)
	}
	if e, err := b.Stat(t.Context(), "x/d0"); err != nil || e.Mode.Perm() != 0o550 || !e.ModTime.Equal(when) {
		t.Errorf("the directory: %+v (%v)", e, err)
	}
	// A tree of nothing but an empty directory.
	r, err = c.StageIn(t.Context(), client.StageRequest{Buffer: "in", Path: "y", URL: "file://" + from + "/empty"}, nil)
	if err != nil || r.FailedTotal != 0 {
		t.Fatalf("of an empty directory: %+v (%v)", r, err)
	}
	if e, err := b.Stat(t.Context(), "y"); err != nil || !e.IsDir() {
		t.Errorf("the only directory: %+v (%v)", e, err)
	}
}
