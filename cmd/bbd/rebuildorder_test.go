package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/internal/clustertest"
	"forebay/meta/metatest"
)

// TestRebuildBeforeTheStoreFollows: the renames that the store was still to follow are lost with a damaged log. All the same a
// drain puts each file under its name, however little of the log can be read. A clean file could be evicted otherwise, and its
// readers would look for it under a name that the store does not have.
func TestRebuildBeforeTheStoreFollows(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	r := newRebuilding(t)
	ctx, c := t.Context(), dial(t, r.Daemon)
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + r.store, DirtyAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	if err := b.MkdirAll(ctx, "was", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"the-damaged-one", "stays", "moves", "was/in"} {
		r.write(b, path, 100_000)
	}
	r.write(b, "changes", 100_000)
	drain(t, c, "b", time.Minute)
	r.write(b, "changes", 200_000)
	away := r.store + ".away"
	if err := os.Rename(r.store, away); err != nil {
		t.Fatal(err)
	}
	r.move(b, "moves", "moved")
	r.move(b, "was", "is")
	r.move(b, "changes", "changed")
	c.Close()
	r.Stop()
	metatest.FlipText(t, filepath.Join(r.Dir, "nats"), "NS_forebay-b-", "the-damaged-one")
	if err := os.Rename(away, r.store); err != nil {
		t.Fatal(err)
	}
	r.Start()
	c = dial(t, r.Daemon)
	if was, err := admin.RebuildBuffer(ctx, c, "b"); err != nil || was.Served {
		t.Fatalf("%+v (%v)", was, err)
	}
	drain(t, c, "b", time.Minute)
	if strings.Contains(r.Log(), "removing unfinished uploads") {
		t.Error("the store was not open to the buffer while its files were restored")
	}
	on := tree(t, r.store)
	for path, want := range r.files {
		if string(on[path]) != string(want) {
			t.Errorf("after a drain, the store has %d bytes of %d of %s", len(on[path]), len(want), path)
		}
	}
}

// TestRebuildNewerOfOneName: where memory has two files of one path, the newer one gets it.
func TestRebuildNewerOfOneName(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	r := newRebuilding(t)
	ctx, c := t.Context(), dial(t, r.Daemon)
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + r.store, DirtyAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	old := map[string][]byte{}
	for _, moved := range []bool{true, false} {
		for _, name := range names {
			dir := "dir-" + name
			if err := b.MkdirAll(ctx, dir, 0o700); err != nil {
				t.Fatal(err)
			}
			size := 1000
			if moved {
				size = 2000
			}
			content := clustertest.Content(uint64(size)+uint64(name[0]), size)
			if err := b.WriteFile(ctx, dir+"/file", content, 0o640); err != nil {
				t.Fatal(err)
			}
			if moved {
				old[name] = content
				if err := b.Rename(ctx, dir, "old-"+name); err != nil {
					t.Fatal(err)
				}
			} else {
				r.files[dir+"/file"] = content
			}
		}
	}
	c.Close()
	r.Kill()
	if err := os.RemoveAll(metatest.StreamDir(t, filepath.Join(r.Dir, "nats"), "NS_forebay-b-")); err != nil {
		t.Fatal(err)
	}
	r.Start()
	c = dial(t, r.Daemon)
	was, err := admin.RebuildBuffer(ctx, c, "b")
	if err != nil || was.Served || was.Aside != int64(len(names)) || was.Files != int64(len(names)) {
		t.Errorf("%+v (%v)", was, err)
	}
	for path, want := range r.files {
		if got, err := c.Buffer("b").ReadFile(ctx, path); err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes of %d (%v)", path, len(got), len(want), err)
		}
	}
}
