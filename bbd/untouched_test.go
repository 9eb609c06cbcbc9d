package bbd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
)

// storeSide is a test's view of a backing store, past the daemon.
type storeSide struct {
	url   string
	put   func(t *testing.T, name, content string)
	files func(t *testing.T) map[string]string
}

// onEachStore runs a test on a POSIX and on a real S3 store, each with a daemon in front.
func onEachStore(t *testing.T, test func(t *testing.T, n *node, s storeSide, c *client.Client)) {
	t.Helper()
	for kind, open := range map[string]func(t *testing.T) (*node, storeSide){
		"posix": func(t *testing.T) (*node, storeSide) {
			n := startNode(t, nil)
			dir := filepath.Join(n.base, "shared")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return n, storeSide{"file://" + dir, func(t *testing.T, name, content string) {
				putFile(t, filepath.Join(dir, name), content)
			}, func(t *testing.T) map[string]string { return filesBelow(t, dir) }}
		},
		"s3": func(t *testing.T) (*node, storeSide) {
			n, server, bucket := s3Node(t, nil)
			return n, storeSide{server.URL(bucket, "run"), func(t *testing.T, name, content string) {
				putFile(t, server.File(bucket, "run/"+name), content)
			}, func(t *testing.T) map[string]string { return objects(t, server, bucket, "run") }}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			n, s := open(t)
			test(t, n, s, n.dial())
		})
	}
}

func putFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// filesBelow returns the files below a directory, by their names there.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		all[strings.TrimPrefix(p, dir+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s storeSide) want(t *testing.T, want map[string]string) {
	t.Helper()
	bytes := map[string][]byte{}
	for name, content := range want {
		bytes[name] = []byte(content)
	}
	wantObjects(t, s.files(t), bytes)
}

func mkdirs(t *testing.T, b *client.Buffer, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		if err := b.MkdirAll(t.Context(), d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemovedTreeLeavesFilesOfOthers: drained files of a job stay when a later job on the same
// backing removes a directory of the same name.
func TestRemovedTreeLeavesFilesOfOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, n *node, s storeSide, c *client.Client) {
		first, _ := n.buffer(c, admin.BufferSpec{Name: "job1", Backing: s.url})
		mkdirs(t, first, "out")
		write(t, first, "out/epoch1.pt", []byte("one"))
		drain(t, c, "job1")
		if err := admin.DestroyBuffer(t.Context(), c, "job1"); err != nil {
			t.Fatal(err)
		}
		s.put(t, "data/deep/theirs", "theirs")

		b, _ := n.buffer(c, admin.BufferSpec{Name: "job2", Backing: s.url})
		mkdirs(t, b, "out/deep", "data")
		write(t, b, "out/epoch2.pt", []byte("two"))
		write(t, b, "out/deep/epoch3.pt", []byte("three"))
		drain(t, c, "job2")
		for _, dir := range []string{"out", "data"} {
			if err := b.RemoveAll(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, c, "job2")
		s.want(t, map[string]string{"out/epoch1.pt": "one", "data/deep/theirs": "theirs"})
	})
}

// TestRemovedTreeLeavesNoEmptyDirectories: on a store that has directories, those that a removal
// leaves empty go with it.
func TestRemovedTreeLeavesNoEmptyDirectories(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "empty"})
	mkdirs(t, b, "out/a/b")
	write(t, b, "out/a/b/f", []byte("f"))
	write(t, b, "out/a/g", []byte("g"))
	drain(t, c, "empty")
	if err := b.RemoveAll(t.Context(), "out"); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "empty")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the store still has %v (%v)", left, err)
	}
}

// TestRemovedTreeAfterRestart: a daemon that ends before the store has followed a removal
// removes, once it runs again, exactly the files that the buffer had flushed.
func TestRemovedTreeAfterRestart(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "again"})
	mkdirs(t, b, "out", "moved")
	write(t, b, "out/mine", []byte("mine"))
	write(t, b, "moved/mine", []byte("mine"))
	drain(t, c, "again")
	putFile(t, filepath.Join(dir, "out/theirs"), "theirs")
	putFile(t, filepath.Join(dir, "moved/theirs"), "theirs")
	n.faults.Set(fault.Rule{Op: "remove", Kind: fault.Refused}, fault.Rule{Op: "rename", Kind: fault.Refused})
	if err := b.RemoveAll(t.Context(), "out"); err != nil {
		t.Fatal(err)
	}
	if err := b.Rename(t.Context(), "moved", "there"); err != nil {
		t.Fatal(err)
	}
	if have := filesBelow(t, dir); len(have) != 4 {
		t.Fatalf("the store followed a removal although it refuses: %v", have)
	}
	c.Close()
	n.stop()
	n.faults.Set()
	n.start()
	c = n.dial()
	drain(t, c, "again")
	storeSide{files: func(t *testing.T) map[string]string { return filesBelow(t, dir) }}.want(t, map[string]string{
		"out/theirs": "theirs", "moved/theirs": "theirs", "there/mine": "mine",
	})
}

// TestRenamedTreeLeavesFilesOfOthers: a directory's rename moves the buffer's flushed objects on
// the store, under the names of later changes, and nothing else.
func TestRenamedTreeLeavesFilesOfOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, n *node, s storeSide, c *client.Client) {
		b, _ := n.buffer(c, admin.BufferSpec{Name: "moves", Backing: s.url})
		mkdirs(t, b, "a/sub")
		for _, name := range []string{"a/1", "a/2", "a/3", "a/sub/4"} {
			write(t, b, name, []byte(name))
		}
		drain(t, c, "moves")
		s.put(t, "a/theirs", "theirs")
		s.put(t, "b/sub/before", "before")
		n.faults.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
		for _, move := range [][2]string{{"a", "b"}, {"b/1", "one"}, {"b/sub", "c"}} {
			if err := b.Rename(t.Context(), move[0], move[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Remove(t.Context(), "b/2"); err != nil {
			t.Fatal(err)
		}
		n.faults.Set()
		drain(t, c, "moves")
		s.want(t, map[string]string{
			"a/theirs": "theirs", "b/sub/before": "before", "one": "a/1", "b/3": "a/3", "c/4": "a/sub/4",
		})
	})
}

// TestRenamedTreeReplacesNothingOfOthers: a file that another put under the new name on the store
// stays, and a drain fails for as long as it does.
func TestRenamedTreeReplacesNothingOfOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, n *node, s storeSide, c *client.Client) {
		b, _ := n.buffer(c, admin.BufferSpec{Name: "taken", Backing: s.url})
		mkdirs(t, b, "a")
		write(t, b, "a/f", []byte("mine"))
		write(t, b, "a/g", []byte("g"))
		drain(t, c, "taken")
		s.put(t, "b/f", "theirs")
		if err := b.Rename(t.Context(), "a", "b"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rename fails on the store", func() bool {
			last := n.status().Buffers[0].LastError
			return last != nil && last.Kind == bb.Exists.String()
		})
		s.want(t, map[string]string{"a/f": "mine", "b/f": "theirs", "b/g": "g"})
		got, err := b.ReadFile(t.Context(), "b/f")
		if err != nil || string(got) != "mine" {
			t.Errorf("the buffer has %q (%v)", got, err)
		}
	})
}
