package bbd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// TestStageInOperationOthers stages in a tree with other entries than files, as a job of two nodes.
func TestStageInOperationOthers(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "in"})
	from, when := t.TempDir(), time.Unix(1_600_000_000, 0)
	content := source(t, from, 20)
	for _, err := range []error{
		os.Mkdir(filepath.Join(from, "empty"), 0o750), os.Chmod(filepath.Join(from, "empty"), 0o750),
		os.Symlink("nothing", filepath.Join(from, "gone")),
		os.Symlink("/", filepath.Join(from, "out")),
		syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600),
		os.Chtimes(filepath.Join(from, "d0"), when, when), os.Chmod(filepath.Join(from, "d0"), 0o550),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(from, "d0"), 0o700) })
	r, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}, nil)
	if err == nil || r.FilesDone != 22 || r.FailedTotal != 1 || len(r.Failed) != 1 || r.Failed[0].Kind != client.ErrUnsupported {
		t.Fatalf("stage-in: %+v (%v)", r, err)
	}
	for name, want := range content {
		wantFile(t, b, "x/"+name, want)
	}
	for name, want := range map[string]string{"x/gone": "nothing", "x/out": "/"} {
		if got, err := b.Readlink(t.Context(), name); got != want || err != nil {
			t.Errorf("%s leads to %q (%v), want %q", name, got, err, want)
		}
	}
	if e, err := b.Stat(t.Context(), "x/empty"); err != nil || !e.IsDir() || e.Mode.Perm() != 0o750 {
		t.Errorf("the empty directory: %+v (%v)", e, err)
	}
	if e, err := b.Stat(t.Context(), "x/d0"); err != nil || e.Mode.Perm() != 0o550 || !e.ModTime.Equal(when) {
		t.Errorf("the directory: %+v (%v)", e, err)
	}
	// A tree of nothing but an empty directory.
	r, err = admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "y", URL: "file://" + from + "/empty"}, nil)
	if err != nil || r.FailedTotal != 0 {
		t.Fatalf("of an empty directory: %+v (%v)", r, err)
	}
	if e, err := b.Stat(t.Context(), "y"); err != nil || !e.IsDir() {
		t.Errorf("the only directory: %+v (%v)", e, err)
	}
}

// TestStageOutDirectories stages a tree out as a job of two nodes, and drains it at both.
func TestStageOutDirectories(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	_, store := nodes[0].buffer(c, admin.BufferSpec{Name: "out"})
	from, to, when := t.TempDir(), t.TempDir(), time.Unix(1_600_000_000, 987_654_321)
	content := source(t, from, 20)
	for _, err := range []error{
		os.Mkdir(filepath.Join(from, "empty"), 0o750), os.Chmod(filepath.Join(from, "empty"), 0o750),
		os.Chtimes(filepath.Join(from, "d0"), when, when), os.Chmod(filepath.Join(from, "d0"), 0o750),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "out", Path: "x", URL: "file://" + from}, nil); err != nil {
		t.Fatal(err)
	}
	if r, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "out", Path: "x", URL: "file://" + to + "/y"}, nil); err != nil || r.FilesDone != 20 {
		t.Fatalf("stage-out: %+v (%v)", r, err)
	}
	if r, err := admin.Drain(t.Context(), c, "out", 0, nil); err != nil || r.FailedTotal != 0 {
		t.Fatalf("drain: %+v (%v)", r, err)
	}
	for _, root := range []string{to + "/y", store + "/x"} {
		for name, want := range content {
			if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != string(want) {
				t.Errorf("%s: %d bytes (%v), want %d", name, len(got), err, len(want))
			}
		}
		if info, err := os.Stat(root + "/empty"); err != nil || info.Mode() != os.ModeDir|0o750 {
			t.Errorf("the empty directory: %v (%v)", info, err)
		}
		if info, err := os.Stat(root + "/d0"); err != nil || info.Mode() != os.ModeDir|0o750 || !info.ModTime().Equal(when) {
			t.Errorf("the directory: %v (%v)", info, err)
		}
	}
	// Of nothing but an empty directory.
	if r, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "out", Path: "x/empty", URL: "file://" + to + "/alone"}, nil); err != nil || r.FailedTotal != 0 {
		t.Fatalf("of an empty directory: %+v (%v)", r, err)
	}
	if info, err := os.Stat(to + "/alone"); err != nil || info.Mode() != os.ModeDir|0o750 {
		t.Errorf("the only directory: %v (%v)", info, err)
	}
}

// TestStageInNames stages in a tree that has names which a buffer cannot hold. Each is named as failed, of a
// directory with all below it the directory alone, and everything else is there.
func TestStageInNames(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{1, 2} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t, hosts)
			c := nodes[0].dial()
			b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "in"})
			from := t.TempDir()
			content := source(t, from, 20)
			for _, err := range []error{
				os.WriteFile(filepath.Join(from, "caf\xe9"), []byte("1"), 0o600),
				os.Symlink("there", filepath.Join(from, "link\xe9")),
				syscall.Mkfifo(filepath.Join(from, "pipe\xe9"), 0o600),
				os.Mkdir(filepath.Join(from, "dir\xe9"), 0o700),
				os.WriteFile(filepath.Join(from, "dir\xe9", "f"), []byte("1"), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			r, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}, nil)
			if err == nil || r.FailedTotal != 4 || len(r.Failed) != 4 {
				t.Fatalf("stage-in: %+v (%v)", r, err)
			}
			for _, f := range r.Failed {
				if !strings.Contains(f.Path, "\uFFFD") || f.Kind != client.ErrInvalid && f.Kind != client.ErrUnsupported {
					t.Errorf("%+v", f)
				}
			}
			for name, want := range content {
				wantFile(t, b, "x/"+name, want)
			}
		})
	}
}
