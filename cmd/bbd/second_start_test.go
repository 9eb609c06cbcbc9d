package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// TestSecondStart: a daemon that is started on the folder of a running one ends at once, and has
// opened nothing of it, nor a namespace.
func TestSecondStart(t *testing.T) {
	d := bbdtest.Start(t)
	c := dial(t, d)
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	d.Pause()
	before := listed(t, filepath.Join(d.Dir, "nats"))
	for range 3 {
		out, err := exec.Command(bbdtest.Binary(t), "--dev", "--dir", d.Dir, "--listen-admin", "127.0.0.1:0").CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 9 || !bytes.Contains(out, []byte("has it (stop that process")) {
			t.Errorf("the second daemon: %v: %s", err, out)
		}
	}
	if after := listed(t, filepath.Join(d.Dir, "nats")); !slices.Equal(before, after) {
		t.Errorf("the namespace's files have changed from %q to %q", before, after)
	}
	d.Resume()
	if err := c.Buffer("b").WriteFile(t.Context(), "f", []byte("content"), 0o644); err != nil {
		t.Error(err)
	}
}

// listed returns names, sizes and times of the files below a folder.
func listed(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			all = append(all, fmt.Sprint(path, " ", info.Size(), " ", info.ModTime().UnixNano()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
