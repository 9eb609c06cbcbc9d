package bbd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"forebay/client"
	"forebay/client/admin"
)

// tree makes a tree of files in nested directories, and returns how many of both there are.
func tree(t *testing.T, b *client.Buffer, top string) client.Removed {
	t.Helper()
	want := client.Removed{Directories: 1}
	if err := b.Mkdir(t.Context(), top, 0o755); err != nil {
		t.Fatal(err)
	}
	for d, files := range []int{1100, 0, 1700, 3} {
		dir := fmt.Sprintf("%s/d%d", top, d)
		if err := b.Mkdir(t.Context(), dir, 0o755); err != nil {
			t.Fatal(err)
		}
		want.Directories++
		for i := range files {
			if err := b.WriteFile(t.Context(), fmt.Sprintf("%s/f%d", dir, i), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			want.Files++
		}
	}
	return want
}

// count returns the number of entries left in a tree.
func count(t *testing.T, b *client.Buffer, dir string) (left client.Removed) {
	t.Helper()
	left.Directories++
	for e, err := range b.ReadDir(t.Context(), dir) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.IsDir():
			below := count(t, b, dir+"/"+e.Name)
			left.Files, left.Directories = left.Files+below.Files, left.Directories+below.Directories
		default:
			left.Files++
		}
	}
	return left
}

// TestRemoveTree removes a tree page by page. The reported counts grow to the size of the tree. A
// cancelled removal stops after its present page, and has reported all removed entries.
func TestRemoveTree(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	want := tree(t, b, "x")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	gone, err := b.RemoveTree(ctx, "x", func(now client.Removed) {
		if calls++; now.Files+now.Directories < 900 || now.Files >= want.Files {
			t.Errorf("the first page has %+v", now)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("cancelled after %d pages: %v", calls, err)
	}
	left := count(t, b, "x")
	if left.Files+gone.Files != want.Files || left.Directories+gone.Directories != want.Directories {
		t.Errorf("of %+v, %+v are gone and %+v are left", want, gone, left)
	}
	last := client.Removed{}
	again, err := b.RemoveTree(t.Context(), "x", func(now client.Removed) {
		if calls++; now.Files < last.Files || now.Directories < last.Directories {
			t.Errorf("told %+v after %+v", now, last)
		}
		last = now
	})
	if err != nil || again != left || last != left || calls < 3 {
		t.Errorf("removed %+v of %+v in %d pages (%v)", again, left, calls, err)
	}
	if _, err := b.Stat(t.Context(), "x"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("the tree: %v", err)
	}
	// A file, nothing, and a buffer's root, which stays.
	write(t, b, "f", random(1))
	write(t, b, "g", random(1))
	for _, c := range []struct {
		path string
		want client.Removed
	}{{"f", client.Removed{Files: 1}}, {"f", client.Removed{}}, {"", client.Removed{Files: 1}}, {"", client.Removed{}}} {
		if gone, err := b.RemoveTree(t.Context(), c.path, nil); err != nil || gone != c.want {
			t.Errorf("%q: %+v (%v), want %+v", c.path, gone, err, c.want)
		}
	}
	if _, err := n.dial().Buffer("none").RemoveTree(t.Context(), "x", nil); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("of a buffer that is not there: %v", err)
	}
}
