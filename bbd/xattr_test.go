package bbd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/receipt"
)

// TestXattrsAreFlushed: a flush brings extended attributes along, also of a file that its user may
// only read. Those that the store does not have are in the receipt.
func TestXattrsAreFlushed(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, store := n.buffer(c, admin.BufferSpec{Name: "b"})
	supported := unix.Setxattr(store, "user.a", nil, 0) == nil
	if err := b.WriteFile(t.Context(), "f", []byte("f"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if err := b.SetXattr(t.Context(), "f", name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	set("user.a", "\x00\xff")
	set("user.b", "before the flush")
	readOnly := fs.FileMode(0o444)
	if _, err := b.SetAttr(t.Context(), "f", client.Attr{Mode: &readOnly}); err != nil {
		t.Fatal(err)
	}
	// The first content may be on the store by now, without attributes. The flush of the next one brings them.
	if err := b.WriteFile(t.Context(), "f", []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	notKept := func() []string {
		t.Helper()
		var text bytes.Buffer
		if err := admin.Receipt(t.Context(), c, "b", &text); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text.Bytes()) {
			if r, err := receipt.Parse(bytes.TrimSpace(line)); err == nil && r.Path == "f" {
				return r.NotKept
			}
		}
		t.Fatalf("no receipt of the file in %s", &text)
		return nil
	}
	drain(t, c, "b")
	var want []string
	if !supported {
		want = []string{"user.a", "user.b"}
	}
	if got := notKept(); !slices.Equal(got, want) {
		t.Errorf("the receipt says that %q are not kept, want %q", got, want)
	}
	value := make([]byte, 100)
	if size, err := unix.Getxattr(filepath.Join(store, "f"), "user.a", value); supported && (err != nil || string(value[:size]) != "\x00\xff") {
		t.Errorf("the store has %q (%v)", value[:max(size, 0)], err)
	}
	set("user.a", "after the flush")
	if got := notKept(); !slices.Contains(got, "user.a") {
		t.Errorf("the receipt says that %q are not kept after a change", got)
	}
}

// xattrTree makes a tree whose files and directory have extended attributes. It skips the test where the file system
// keeps none.
func xattrTree(t *testing.T, from string) (content map[string][]byte, paths []string) {
	t.Helper()
	content = map[string][]byte{"empty": nil, "small": []byte("small"), "d/large": random(5 << 20), "d/read only": []byte("x")}
	for name, bytes := range content {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, bytes, 0o600)); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, name)
	}
	paths = append(paths, "d")
	for _, name := range paths {
		setXattr(t, filepath.Join(from, name), "user.name", name)
		setXattr(t, filepath.Join(from, name), "user.\xff", "\x00\xff")
	}
	if err := os.Chmod(filepath.Join(from, "d/read only"), 0o444); err != nil {
		t.Fatal(err)
	}
	return content, paths
}

func setXattr(t *testing.T, path, name, value string) {
	t.Helper()
	if err := unix.Setxattr(path, name, []byte(value), 0); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the file system of temporary files keeps no attributes of users")
	} else if err != nil {
		t.Fatal(err)
	}
}

// wantXattrs compares the attributes of a file or directory, and whether its store has all of them or none.
func wantXattrs(t *testing.T, b *client.Buffer, path string, want map[string]string, stored ...bool) {
	t.Helper()
	all, err := b.Xattrs(t.Context(), path)
	if err != nil || len(all) != len(want) {
		t.Errorf("%s has the attributes %+v (%v), want %q", path, all, err, want)
		return
	}
	for _, x := range all {
		if value, ok := want[x.Name]; !ok || string(x.Value) != value || len(stored) > 0 && x.Stored != stored[0] {
			t.Errorf("%s has the attribute %+v, want %q and stored %v", path, x, value, stored)
		}
	}
}

// TestXattrsAreStagedIn: a stage-in brings extended attributes along, in one process and as a job, also to files that are
// there, and a stage-out and a drain bring them to other stores, those of directories too.
func TestXattrsAreStagedIn(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{1, 2} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			t.Parallel()
			n := startCluster(t, hosts)[0]
			c := n.dial()
			b, store := n.buffer(c, admin.BufferSpec{Name: "in"})
			from, to := t.TempDir(), t.TempDir()
			content, paths := xattrTree(t, from)
			stage := func(skipped int64) {
				t.Helper()
				r, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + from}, nil)
				if err != nil || r.FailedTotal != 0 || r.FilesDone != int64(len(content)) || r.FilesSkipped != skipped {
					t.Fatalf("stage-in: %+v (%v)", r, err)
				}
			}
			stage(0)
			for name, want := range content {
				wantFile(t, b, "x/"+name, want)
			}
			for _, name := range paths {
				wantXattrs(t, b, "x/"+name, map[string]string{"user.name": name, "user.\xff": "\x00\xff"})
			}
			// Others in their places, and one that the store does not have.
			for _, name := range paths {
				setXattr(t, filepath.Join(from, name), "user.name", "other")
				if err := b.SetXattr(t.Context(), "x/"+name, "user.own", nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(from, "small"), []byte("other"), 0o600); err != nil {
				t.Fatal(err)
			}
			stage(int64(len(content)) - 1)
			if r, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "in", Path: "x", URL: "file://" + to + "/x"}, nil); err != nil || r.FailedTotal != 0 {
				t.Fatalf("stage-out: %+v (%v)", r, err)
			}
			drain(t, c, "in")
			want := map[string]string{"user.name": "other", "user.\xff": "\x00\xff", "user.own": ""}
			for _, name := range paths {
				wantXattrs(t, b, "x/"+name, want)
				wantStoreXattrs(t, filepath.Join(to, "x", name), want)
			}
			wantStoreXattrs(t, filepath.Join(store, "x/d"), want)
		})
	}
}

func wantStoreXattrs(t *testing.T, path string, want map[string]string) {
	t.Helper()
	for attr, value := range want {
		got := make([]byte, 100)
		if n, err := unix.Getxattr(path, attr, got); err != nil || string(got[:max(n, 0)]) != value {
			t.Errorf("the store's %s has %q as %q (%v), want %q", path, got[:max(n, 0)], attr, err, value)
		}
	}
}

// TestXattrsOfOwnStore: a file that is staged in from its place on the buffer's own store is clean, and its attributes
// count as stored. One that the store does not have does not.
func TestXattrsOfOwnStore(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, store := n.buffer(c, admin.BufferSpec{Name: "b"})
	_, paths := xattrTree(t, store)
	stage := func() {
		t.Helper()
		if r, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "b", URL: "file://" + store}, nil); err != nil || r.FailedTotal != 0 {
			t.Fatalf("stage-in: %+v (%v)", r, err)
		}
	}
	stage()
	for _, name := range paths {
		if name == "d" {
			continue
		}
		wantXattrs(t, b, name, map[string]string{"user.name": name, "user.\xff": "\x00\xff"}, true)
		if state := stateOf(t, b, name); state != client.StateClean {
			t.Errorf("%s is %v, want clean", name, state)
		}
	}
	if err := b.SetXattr(t.Context(), "small", "user.own", []byte("own")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(store, "small"), []byte("others wrote it"), 0o600); err != nil {
		t.Fatal(err)
	}
	stage()
	all, err := b.Xattrs(t.Context(), "small")
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v (%v)", all, err)
	}
	for _, x := range all {
		if x.Stored != (x.Name != "user.own") {
			t.Errorf("%+v", x)
		}
	}
}
