package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// Configurations of a daemon that flushes next to nothing, and of one that flushes.
const (
	slowly  = quickly + "flush: {limit: 1KiB}\n"
	quickly = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
)

// copyOf copies a folder, as an operator's backup would.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

func putBack(t testing.TB, dir, copied string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
}

// An older copy of the namespace's files is restored while nothing runs. Files written since the
// copy are there again under their names and are flushed. The log reports them.
func TestNamespaceSetBack(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	store := t.TempDir()
	d := bbdtest.New(t)
	d.Config = slowly
	d.Start()
	c := dial(t, d)
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	old, fresh := clustertest.Content(1, 1<<20), clustertest.Content(2, 19<<20)
	if err := c.Buffer("b").WriteFile(ctx, "old", old, 0o644); err != nil {
		t.Fatal(err)
	}
	c.Close()
	d.Kill()
	nats := filepath.Join(d.Dir, "nats")
	copied := copyOf(t, nats)
	d.Start()
	c = dial(t, d)
	if err := c.Buffer("b").WriteFile(ctx, "new", fresh, 0o644); err != nil {
		t.Fatal(err)
	}
	c.Close()
	d.Kill()
	putBack(t, nats, copied)
	d.Config = quickly
	d.Start()
	c = dial(t, d)
	b := c.Buffer("b")
	for name, want := range map[string][]byte{"old": old, "new": fresh} {
		if got, err := b.ReadFile(ctx, name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
	}
	if !strings.Contains(d.Log(), "the entry of a file that the namespace had lost is restored") {
		t.Error("the log does not name the file")
	}
	if report, err := admin.Drain(ctx, c, "b", time.Minute, nil); err != nil {
		t.Fatalf("drain: %v (%+v)", err, report)
	}
	if got, err := os.ReadFile(filepath.Join(store, "new")); err != nil || !bytes.Equal(got, fresh) {
		t.Errorf("on the store: %d bytes, %v", len(got), err)
	}
}

// formatReleases are the last ones of each older format of regions, and their answers to memory of
// this release. The regions of version 1 do not name their owner, and its files have no identity.
// Version 2 has no journals.
var formatReleases = map[string]string{
	"5354c45": "format version 3 found, version 1 supported",
	"0decbbf": "format version 3 found, versions 1 and 2 supported",
}

// The memory of an older release is adopted: dirty files, an open one, and the namespace.
// From then on memory is this daemon's own, and the older release refuses it untouched.
func TestMemoryOfOlderRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	for release, refusal := range formatReleases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			memoryOfOlderRelease(t, release, refusal)
		})
	}
}

func memoryOfOlderRelease(t *testing.T, release, refusal string) {
	store := t.TempDir()
	d := bbdtest.New(t)
	d.Config = slowly
	d.Commit = release
	d.Start()
	c := dial(t, d)
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	want := map[string][]byte{"small": clustertest.Content(1, 100), "large": clustertest.Content(2, 9<<20), "open": clustertest.Content(3, 5000)}
	for _, name := range []string{"small", "large", "removed"} {
		if err := b.WriteFile(ctx, name, want[name], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Remove(ctx, "removed"); err != nil {
		t.Fatal(err)
	}
	f, err := b.Create(ctx, "open")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(want["open"]); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	c.Close()

	d.Commit = ""
	d.Start()
	c = dial(t, d)
	check := func(c *client.Client) {
		t.Helper()
		var names []string
		for e, err := range c.Buffer("b").ReadDir(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, e.Name)
			if got, err := c.Buffer("b").ReadFile(ctx, e.Name); err != nil || !bytes.Equal(got, want[e.Name]) {
				t.Errorf("%s: %d bytes of %d, %v", e.Name, len(got), len(want[e.Name]), err)
			}
		}
		if slices.Sort(names); !slices.Equal(names, []string{"large", "open", "small"}) {
			t.Errorf("the buffer has %q", names)
		}
	}
	check(c)
	c.Close()
	d.Kill()

	d.Commit = release
	if err := d.TryStart(); err == nil || !strings.Contains(d.Log(), refusal) {
		t.Errorf("the older release started on it: %v", err)
		d.Kill()
	}
	d.Commit = ""
	// Adopted memory belongs to this namespace from then on.
	nats := filepath.Join(d.Dir, "nats")
	empty := filepath.Join(t.TempDir(), "nats")
	if err := os.Rename(nats, empty); err != nil {
		t.Fatal(err)
	}
	d.Start()
	c = dial(t, d)
	if text, err := admin.Status(ctx, c, ""); err != nil || !bytes.Contains(text, []byte(`"foreign":[`)) {
		t.Errorf("with another namespace the status is %s (%v)", text, err)
	}
	c.Close()
	d.Kill()
	putBack(t, nats, empty)
	d.Config = quickly
	d.Start()
	c = dial(t, d)
	check(c)
	if report, err := admin.Drain(ctx, c, "b", time.Minute, nil); err != nil {
		t.Fatalf("drain: %v (%+v)", err, report)
	}
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(store, name)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s on the store: %d bytes, %v", name, len(got), err)
		}
	}
}
