package bbd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// A drain below a path ends though others' files cannot be saved, and only when all that lies
// there is on the store, under the names that it has.
func TestDrainBelow(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "part", NoFlush: []string{"*.tmp"}})
	for _, d := range []string{"out/d", "other"} {
		if err := b.MkdirAll(t.Context(), d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.faults.Set(fault.Rule{Op: "put", Name: "other/x", Kind: fault.Refused}, fault.Rule{Op: "rename", Name: "out/b", Kind: fault.Refused, Count: 3})
	for _, name := range []string{"other/x", "out/a", "out/d/b"} {
		write(t, b, name, []byte(name))
	}
	below := func(path string) (admin.Report, error) {
		t.Helper()
		return admin.DrainBelow(t.Context(), c, "part", path, time.Minute, nil)
	}
	wantStored := func(name, content string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("the store has %q of %s (%v)", got, name, err)
		}
	}
	if r, err := below("out"); err != nil || r.FilesDone != r.FilesTotal { // fewer than two, if one was sooner
		t.Errorf("%+v %v", r, err)
	}
	wantStored("out/a", "out/a")
	wantStored("out/d/b", "out/d/b")
	if e, err := b.Stat(t.Context(), "other/x"); err != nil || e.State != client.StateDirty {
		t.Errorf("beside it: %+v %v", e, err)
	}

	if err := b.Rename(t.Context(), "out/a", "out/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := below("out/b"); err != nil { // one file, whose object has to be renamed
		t.Error(err)
	}
	wantStored("out/b", "out/a")

	write(t, b, "out/passing.tmp", []byte("x"))
	f := openWriter(t, b, "out/open")
	addTo(t, f, []byte("x"))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	r, err := below("out")
	if !errors.Is(err, client.ErrBusy) || fmt.Sprint(r.Excluded, r.Open) != "[out/passing.tmp] [out/open]" {
		t.Errorf("with a file that is open and one that is kept back: %+v %v", r, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := below("nowhere"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("what is not there: %v", err)
	}

	// Permanent errors, and too long waits, are reported.
	r, err = admin.DrainBelow(t.Context(), c, "part", "other", 300*time.Millisecond, nil)
	if err == nil || len(r.Failed) != 1 || r.Failed[0].Path != "other/x" {
		t.Errorf("what the store refuses: %+v %v", r, err)
	}
	n.faults.Set()
	if err := os.MkdirAll(filepath.Join(dir, "other/dir/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, b, "other/dir", []byte("x"))
	r, err = below("other")
	if err == nil || len(r.Failed) != 1 || !strings.Contains(r.Failed[0].Reason, "exists") {
		t.Errorf("what the store has a directory for: %+v %v", r, err)
	}
	if _, err := below("other/x"); err != nil {
		t.Error(err)
	}
	wantStored("other/x", "other/x")
}

// Files of all nodes are drained, and those of one that does not answer are named.
func TestClusterDrainBelow(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	b, dir := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "part"})
	if err := b.MkdirAll(t.Context(), "out", 0o755); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		n.faults.Set(fault.Rule{Op: "put", Name: "beside", Kind: fault.Refused})
		write(t, n.dial().Buffer("part"), fmt.Sprint("out/", i), []byte{byte(i)})
	}
	write(t, b, "beside", []byte("x"))
	c := nodes[0].dial()
	if r, err := admin.DrainBelow(t.Context(), c, "part", "out", time.Minute, nil); err != nil {
		t.Errorf("%+v %v", r, err)
	}
	for i := range nodes {
		if got, err := os.ReadFile(filepath.Join(dir, "out", fmt.Sprint(i))); err != nil || string(got) != string([]byte{byte(i)}) {
			t.Errorf("the store has %q of %d (%v)", got, i, err)
		}
	}

	// One that hangs is named, however often another node reports progress.
	nodes[1].faults.Set(fault.Rule{Op: "put", Name: "out/hangs", Kind: fault.Slow, Delay: time.Hour})
	write(t, nodes[1].dial().Buffer("part"), "out/hangs", []byte("x"))
	for _, timeout := range []time.Duration{100 * time.Millisecond, time.Second} {
		r, err := admin.DrainBelow(t.Context(), c, "part", "out", timeout, nil)
		if err == nil || len(r.Failed) != 1 || r.Failed[0].Path != "out/hangs" || !errors.Is(err, client.ErrBusy) {
			t.Errorf("with a store that hangs: %+v %v", r, err)
		}
	}
	if err := b.Remove(t.Context(), "out/hangs"); err != nil {
		t.Fatal(err)
	}

	nodes[2].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, nodes[2].dial().Buffer("part"), "out/away", []byte("x"))
	nodes[2].dead()
	r, err := admin.DrainBelow(t.Context(), c, "part", "out", time.Minute, nil)
	if err == nil || len(r.Failed) != 1 || r.Failed[0].Path != "out/away" {
		t.Errorf("with an owner that does not answer: %+v %v", r, err)
	}
}
