package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/clustertest"
	"forebay/meta/metatest"
)

// TestRebuildEvicted: files that the store alone has and that were renamed before the store followed. The renames that
// can be read are carried out after a rebuild. A file of which the store has nothing under its name counts as lost.
func TestRebuildEvicted(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	for name, readable := range map[string]bool{"one record is damaged": true, "the stream is removed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRebuilding(t)
			r.Stop()
			r.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"
			r.Start()
			ctx, c := t.Context(), dial(t, r.Daemon)
			if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "b", Backing: "file://" + r.store, DirtyAge: time.Hour}); err != nil {
				t.Fatal(err)
			}
			b := c.Buffer("b")
			if err := b.MkdirAll(ctx, "was", 0o700); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"the-damaged-one", "stays", "moves", "was/in", "goes"} {
				r.write(b, path, 1<<20)
			}
			if err := drain(t, c, "b", time.Minute); err != nil {
				t.Fatal(err)
			}
			evicted := []string{"stays", "moves", "was/in", "goes"}
			for i := 0; slices.ContainsFunc(evicted, func(path string) bool { return resident(t, b, path) }); i++ {
				if i == 30 {
					t.Fatal("nothing is evicted")
				}
				if err := b.WriteFile(ctx, fmt.Sprint("filler", i%4), clustertest.Content(9, 30<<20), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := drain(t, c, "b", time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			away := r.store + ".away"
			if err := os.Rename(r.store, away); err != nil {
				t.Fatal(err)
			}
			r.move(b, "moves", "moved")
			r.move(b, "was", "is")
			c.Close()
			r.Stop()
			nats := filepath.Join(r.Dir, "nats")
			if readable {
				metatest.FlipText(t, nats, "NS_forebay-b-", "the-damaged-one")
			} else if err := os.RemoveAll(metatest.StreamDir(t, nats, "NS_forebay-b-")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(away, r.store); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(r.store, "goes")); err != nil {
				t.Fatal(err)
			}
			r.Start()
			c = dial(t, r.Daemon)
			b = c.Buffer("b")
			was, err := admin.RebuildBuffer(ctx, c, "b")
			if err != nil || was.Served {
				t.Fatalf("%+v (%v)", was, err)
			}
			lost := map[string]bool{}
			for _, f := range was.Found {
				lost[f.Path] = f.Became == "lost"
			}
			t.Logf("%+v", was)
			// Memory has the name of a directory as of the writes of its files.
			in := "is/in"
			if !readable {
				in = "was/in"
			}
			for _, path := range []string{"goes", "stays", "moved", in} {
				_, err := b.Stat(ctx, path)
				if _, listed := lost[path]; client.KindOf(err) == client.ErrNotFound && !listed {
					t.Errorf("nothing names %s any more: %+v", path, was)
				}
			}
			if !lost["goes"] {
				t.Errorf("goes is on no store, and is not lost: %+v\n%s", was, r.Log())
			}
			if !readable {
				if !lost["moved"] || lost["stays"] || was.Lost != 2 {
					t.Errorf("the store has moved under its old name alone: %+v\n%s", was, r.Log())
				}
				return
			}
			if was.Lost != 1 {
				t.Errorf("%+v", was)
			}
			if _, err := b.ReadFile(ctx, "goes"); client.KindOf(err) != client.ErrLost {
				t.Errorf("goes: %v", err)
			}
			for _, path := range []string{"stays", "moved", "is/in"} {
				if got, err := b.ReadFile(ctx, path); err != nil || string(got) != string(r.files[path]) {
					t.Errorf("%s: %d bytes (%v)\n%s", path, len(got), err, r.Log())
				}
			}
			on := tree(t, r.store)
			for path := range on {
				if path == "moves" || strings.HasPrefix(path, "was/") {
					t.Errorf("the store has %s still", path)
				}
			}
		})
	}
}

// resident reports whether memory has something of a file.
func resident(t *testing.T, b *client.Buffer, path string) bool {
	t.Helper()
	e, err := b.Stat(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return e.State != client.StateEvicted
}
