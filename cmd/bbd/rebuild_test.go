package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
	"forebay/meta/metatest"
)

// rebuilding is a daemon with a buffer whose log is damaged, and the expected files afterwards.
type rebuilding struct {
	*bbdtest.Daemon
	t     *testing.T
	store string
	files map[string][]byte // that were acknowledged
	moved map[string]string // the former paths of files of a renamed directory
	gone  []string          // names that were removed
}

// TestRebuild follows "The log of a namespace is damaged" of docs/operations.md: files that are dirty, flushed, spilled,
// renamed, removed, of transactions; the log's files cut off, with bits flipped, unreadable, removed.
func TestRebuild(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(t *testing.T, nats string)
		dirs   bool // directories can be read from the remains
	}{
		"a record is damaged": {func(t *testing.T, nats string) { metatest.FlipText(t, nats, "NS_forebay-b-", "the-damaged-one") }, true},
		"cut off": {func(t *testing.T, nats string) {
			eachBlock(t, nats, func(block string, _ int64) error { return os.Truncate(block, 10) })
		}, false},
		"a block is removed": {func(t *testing.T, nats string) {
			eachBlock(t, nats, func(block string, _ int64) error { return os.Remove(block) })
		}, false},
		"all files with messages are removed": {func(t *testing.T, nats string) {
			if err := os.RemoveAll(filepath.Join(metatest.StreamDir(t, nats, "NS_forebay-b-"), "msgs")); err != nil {
				t.Fatal(err)
			}
		}, false},
		"a block cannot be read": {func(t *testing.T, nats string) { metatest.HideBlock(t, nats, "NS_forebay-b-", 1) }, false},
		"the stream is removed": {func(t *testing.T, nats string) {
			if err := os.RemoveAll(metatest.StreamDir(t, nats, "NS_forebay-b-")); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRebuilding(t)
			r.fill()
			r.Stop()
			c.damage(t, filepath.Join(r.Dir, "nats"))
			r.Start()
			ctl := dial(t, r.Daemon)
			r.wantAside(ctl)
			r.rebuild(ctl, c.dirs)
			r.wantAll(ctl, c.dirs)
			r.Kill()
			r.Start()
			ctl = dial(t, r.Daemon)
			r.wantAll(ctl, c.dirs)
			r.drain(ctl, c.dirs)
		})
	}
}

// TestLogWithoutItsEnd: a log whose end is missing is served without it. Nothing that was acknowledged is lost. It is
// under its name, or one that it had. The daemon logs that names may be old.
func TestLogWithoutItsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	r := newRebuilding(t)
	r.fill()
	r.Stop()
	eachBlock(t, filepath.Join(r.Dir, "nats"), func(block string, size int64) error { return os.Truncate(block, size/2) })
	r.Start()
	b := dial(t, r.Daemon).Buffer("b")
	var there [][]byte
	for e, err := range b.Walk(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == bb.TypeFile {
			content, err := b.ReadFile(t.Context(), e.Path)
			if err != nil {
				t.Errorf("%s: %v", e.Path, err)
			}
			there = append(there, content)
		}
	}
	for path, content := range r.files {
		if !slices.ContainsFunc(there, func(p []byte) bool { return bytes.Equal(p, content) }) {
			t.Errorf("the bytes of %s are nowhere", path)
		}
	}
	if !strings.Contains(r.Log(), "ends before revisions that are on record") {
		t.Errorf("the daemon does not say so:\n%s", r.Log())
	}
}

func eachBlock(t *testing.T, nats string, change func(block string, size int64) error) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(metatest.StreamDir(t, nats, "NS_forebay-b-"), "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("the blocks are %q (%v)", blocks, err)
	}
	for _, block := range blocks {
		info, err := os.Stat(block)
		if err == nil {
			err = change(block, info.Size())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func newRebuilding(t *testing.T) *rebuilding {
	store := t.TempDir() // is removed after the daemon has ended
	r := &rebuilding{Daemon: bbdtest.New(t), t: t, store: store, files: map[string][]byte{}, moved: map[string]string{}}
	r.Env = []string{"FOREBAY_NAMESPACE_ENGINE=log"}
	r.Config = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\ndisk: {dir: " + filepath.Join(r.Dir, "disk") + ", size: 256MiB}\n"
	r.Start()
	return r
}

// write writes a file of some size.
func (r *rebuilding) write(b *client.Buffer, path string, size int) {
	r.t.Helper()
	content := clustertest.Content(uint64(len(r.files)+1), size)
	if err := b.WriteFile(r.t.Context(), path, content, 0o640); err != nil {
		r.t.Fatal(err)
	}
	r.files[path] = content
}

// move renames a file, or a directory with one.
func (r *rebuilding) move(b *client.Buffer, from, to string) {
	r.t.Helper()
	if err := b.Rename(r.t.Context(), from, to); err != nil {
		r.t.Fatal(err)
	}
	for path, content := range r.files {
		if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == '/') {
			delete(r.files, path)
			r.files[to+rest] = content
			if rest != "" {
				r.moved[to+rest] = path
			}
		}
	}
	r.gone = append(r.gone, from)
}

func (r *rebuilding) remove(b *client.Buffer, path string) {
	r.t.Helper()
	if err := b.Remove(r.t.Context(), path); err != nil {
		r.t.Fatal(err)
	}
	delete(r.files, path)
	r.gone = append(r.gone, path)
}

// fill makes a buffer and does each kind of change to files in it.
func (r *rebuilding) fill() {
	t, c := r.t, dial(r.t, r.Daemon)
	ctx := t.Context()
	spec := admin.BufferSpec{
		Name: "b", Backing: "file://" + r.store, DirtyAge: time.Hour, Tiers: []admin.TierRule{{Pattern: "spilled*", Tier: admin.TierDisk}},
	}
	if _, err := admin.CreateBuffer(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("b")
	for _, dir := range []string{"deep/er", "private", "was", "emptied"} {
		if err := b.MkdirAll(ctx, dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.write(b, "flushed", 3<<20)
	r.write(b, "the-damaged-one", 1<<20)
	for _, path := range []string{"changed", "removed-flushed", "renamed-flushed", "replaced", "deep/er/flushed", "spilled-flushed", "was/flushed"} {
		r.write(b, path, 100_000)
	}
	drain(t, c, "b", time.Minute)
	r.write(b, "changed", 200_000)
	for _, path := range []string{"dirty", "removed-dirty", "renamed-dirty", "over", "deep/er/dirty", "spilled-dirty", "private/dirty", "was/dirty", "emptied/dirty"} {
		r.write(b, path, 300_000)
	}
	r.write(b, "empty", 0)
	if err := b.Symlink(ctx, "../elsewhere", "deep/link"); err != nil {
		t.Fatal(err)
	}
	if err := b.Mknod(ctx, "fifo", bb.TypeFIFO, 0o600); err != nil {
		t.Fatal(err)
	}
	r.remove(b, "removed-flushed")
	r.remove(b, "removed-dirty")
	r.remove(b, "emptied/dirty")
	r.remove(b, "emptied")
	r.move(b, "renamed-flushed", "new-flushed")
	r.move(b, "renamed-dirty", "deep/new-dirty")
	r.move(b, "over", "replaced")
	r.move(b, "was", "is")
	r.transact(b)
	// A rename and a removal follow on the store at once. The log's remaining part of them would be lost with
	// it.
	waitFor(t, "the store has followed", func() bool {
		_, left := os.Stat(filepath.Join(r.store, "removed-flushed"))
		_, moved := os.Stat(filepath.Join(r.store, "new-flushed"))
		_, dir := os.Stat(filepath.Join(r.store, "is", "flushed"))
		return errors.Is(left, fs.ErrNotExist) && moved == nil && dir == nil
	})
	c.Close()
}

// transact commits one transaction, and leaves another one open.
func (r *rebuilding) transact(b *client.Buffer) {
	r.t.Helper()
	ctx := r.t.Context()
	for _, key := range []string{"committed", "open"} {
		x, err := b.Begin(ctx, client.TxnSpec{Destination: "out-" + key, Key: key, Lease: time.Hour})
		if err != nil {
			r.t.Fatal(err)
		}
		dir := x.Path("1", "1")
		if err := b.MkdirAll(ctx, dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
		content := clustertest.Content(77, 50_000)
		if err := b.WriteFile(ctx, dir+"/part", content, 0o644); err != nil {
			r.t.Fatal(err)
		}
		if key == "open" {
			continue
		}
		// Of a directory that the commit moves whole memory would have the paths in the transaction's tree.
		if err := b.MkdirAll(ctx, dir+"/whole/below", 0o755); err != nil {
			r.t.Fatal(err)
		}
		for i, path := range []string{"whole/part", "whole/below/part"} {
			content := clustertest.Content(uint64(78+i), 60_000+i)
			if err := b.WriteFile(ctx, dir+"/"+path, content, 0o644); err != nil {
				r.t.Fatal(err)
			}
			r.files["out-committed/"+path] = content
		}
		if _, err := x.Adopt(ctx, "1", "1"); err != nil {
			r.t.Fatal(err)
		}
		if _, err := x.Commit(ctx, client.CommitOptions{Wait: true}); err != nil {
			r.t.Fatal(err)
		}
		r.files["out-committed/part"] = content
	}
}

// wantAside checks the errors of calls to a buffer that was set aside, and its status.
func (r *rebuilding) wantAside(c *client.Client) {
	r.t.Helper()
	_, err := c.Buffer("b").Stat(r.t.Context(), "dirty")
	if kind := bb.KindOf(err); kind != bb.Lost && kind != bb.Checksum || !strings.Contains(err.Error(), "bbctl buffer rebuild b") {
		r.t.Fatalf("a look at a buffer whose log is damaged: %v, want the remedy\n%s", err, r.Log())
	}
	text, err := admin.Status(r.t.Context(), c, "")
	var s struct {
		SetAside []struct{ Remedy string } `json:"set_aside"`
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil || len(s.SetAside) != 1 || !strings.Contains(s.SetAside[0].Remedy, "bbctl buffer rebuild b") {
		r.t.Errorf("the status has %+v (%v)", s, err)
	}
}

func (r *rebuilding) rebuild(c *client.Client, dirs bool) {
	r.t.Helper()
	was, err := admin.RebuildBuffer(r.t.Context(), c, "b")
	// No record has the destination of the open transaction.
	want := int64(len(r.files))
	bad := was.Served || was.Files > want || was.Read > want || was.Files+was.Read < want || (was.Read > 0) != dirs || (was.Directories > 1) != dirs || (was.Links == 2) != dirs
	if err != nil || bad || was.Aside != 1 || was.Kept+was.OnStore+was.Lost != 0 {
		r.t.Fatalf("%+v (%v), want %d files and one aside\n%s", was, err, want, r.Log())
	}
	if len(was.Found) != 1 || !strings.HasPrefix(was.Found[0].Path, ".lost+found/part~") {
		r.t.Errorf("found %+v", was.Found)
	}
	if again, err := admin.RebuildBuffer(r.t.Context(), c, "b"); err != nil || !again.Served {
		r.t.Errorf("a second time: %+v (%v)", again, err)
	}
}

// at returns the path of a file. Memory has the names of a renamed directory as of the writes of
// its files.
func (r *rebuilding) at(path string, dirs bool) string {
	if was, ok := r.moved[path]; ok && !dirs {
		return was
	}
	return path
}

func (r *rebuilding) wantAll(c *client.Client, dirs bool) {
	r.t.Helper()
	b := c.Buffer("b")
	for path, want := range r.files {
		path = r.at(path, dirs)
		got, err := b.ReadFile(r.t.Context(), path)
		if err != nil || !bytes.Equal(got, want) {
			r.t.Errorf("%s: %d bytes of %d (%v)", path, len(got), len(want), err)
		}
		e, err := b.Stat(r.t.Context(), path)
		if mode := fs.FileMode(0o640); err != nil || e.Mode.Perm() != mode && !strings.HasPrefix(path, "out-") {
			r.t.Errorf("%s: %+v (%v)", path, e, err)
		}
	}
	// The log alone has links.
	for path, want := range map[string]bb.EntryType{"deep/link": bb.TypeSymlink, "fifo": bb.TypeFIFO} {
		e, err := b.Stat(r.t.Context(), path)
		if dirs && (err != nil || e.Type != want) || !dirs && client.KindOf(err) != client.ErrNotFound {
			r.t.Errorf("%s: %+v (%v)", path, e, err)
		}
	}
	for _, path := range r.gone {
		if path == "was" && !dirs || path == "emptied" && dirs {
			continue // no record shows that it was renamed, or removed
		}
		if e, err := b.Stat(r.t.Context(), path); client.KindOf(err) != client.ErrNotFound {
			r.t.Errorf("%s is there again: %+v (%v)", path, e, err)
		}
	}
	if e, err := b.Stat(r.t.Context(), "private"); err != nil || dirs && e.Mode.Perm() != 0o700 {
		r.t.Errorf("private: %+v (%v)", e, err)
	}
}

// drain drains the buffer and compares the store with it.
func (r *rebuilding) drain(c *client.Client, dirs bool) {
	r.t.Helper()
	drain := func(below string) error {
		_, err := admin.DrainBelow(r.t.Context(), c, "b", below, 2*time.Minute, nil)
		return err
	}
	err := drain("")
	if !dirs && client.KindOf(err) == client.ErrExists {
		// No record proves that the store's file there is the buffer's own, from before its change.
		for _, path := range []string{"changed", "replaced"} {
			if _, err := admin.Overwrite(r.t.Context(), c, "b", path, 2*time.Minute, nil); err != nil {
				r.t.Errorf("drain %s over what is on the store: %v", path, err)
			}
		}
		err = drain("")
	}
	if err != nil && client.KindOf(err) != client.ErrLost { // .lost+found
		r.t.Errorf("drain: %v", err)
	}
	on := tree(r.t, r.store)
	for path, want := range r.files {
		path = r.at(path, dirs)
		if !bytes.Equal(on[path], want) {
			r.t.Errorf("the store has %d bytes of %d of %s", len(on[path]), len(want), path)
		}
		delete(on, path)
	}
	for path := range on {
		if !strings.HasPrefix(path, ".lost+found/") && !slices.Contains([]string{"is/flushed"}, path) {
			r.t.Errorf("the store has %s, too", path)
		}
	}
}

// TestRebuildKilled: a daemon that is killed while it rebuilds continues when it starts again, or sets the buffer aside
// again.
func TestRebuildKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	// The state of the daemon's log at the kill, and whether the new log is recorded by then.
	for after, recorded := range map[string]bool{"": false, "is begun anew": true, "the namespace had lost its entry": true} {
		r := newRebuilding(t)
		c := dial(t, r.Daemon)
		if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + r.store, DirtyAge: time.Hour}); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			r.write(c.Buffer("b"), fmt.Sprintf("f%03d", i), 1000)
		}
		r.Stop()
		if err := os.RemoveAll(metatest.StreamDir(t, filepath.Join(r.Dir, "nats"), "NS_forebay-b-")); err != nil {
			t.Fatal(err)
		}
		r.Start()
		c = dial(t, r.Daemon)
		done := make(chan error, 1)
		go func() {
			_, err := admin.RebuildBuffer(t.Context(), c, "b")
			done <- err
		}()
		waitFor(t, "the log has "+after, func() bool { return strings.Contains(r.Log(), after) })
		r.Kill()
		t.Logf("killed when the log has %q: %v", after, <-done)
		r.Start()
		c = dial(t, r.Daemon)
		was, err := admin.RebuildBuffer(t.Context(), c, "b")
		if err != nil || recorded && !was.Served {
			t.Fatalf("killed when the log has %q, and again: %+v (%v)", after, was, err)
		}
		for path, want := range r.files {
			if got, err := c.Buffer("b").ReadFile(t.Context(), path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("killed when the log has %q: %s: %d bytes of %d (%v)", after, path, len(got), len(want), err)
			}
		}
		c.Close()
		r.Stop()
	}
}
