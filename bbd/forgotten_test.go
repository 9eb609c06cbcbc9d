package bbd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/meta"
	"forebay/meta/metatest"
)

// setBack stops the node, if it runs, and puts a copy of the namespace's files back.
func (n *node) setBack(copied string) {
	n.t.Helper()
	n.stop()
	nats := filepath.Join(n.dir, "nats")
	if err := os.RemoveAll(nats); err != nil {
		n.t.Fatal(err)
	}
	if err := os.CopyFS(nats, os.DirFS(copied)); err != nil {
		n.t.Fatal(err)
	}
}

// copyNamespace restarts the node and returns a copy of the namespace's files of between.
func (n *node) copyNamespace() string {
	n.t.Helper()
	n.stop()
	copied := filepath.Join(n.t.TempDir(), "nats")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(n.dir, "nats"))); err != nil {
		n.t.Fatal(err)
	}
	n.start()
	return copied
}

// A namespace that is set back has lost the changes acknowledged since. All of them are back when
// the daemon has started: new files, those in directories that are lost too, those that were
// renamed, those that are open, and replacements of flushed ones.
func TestForgottenFilesComeBack(t *testing.T) { eachEngine(t, forgottenFilesComeBack) }

func forgottenFilesComeBack(t *testing.T, n *node) {
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	if err := b.MkdirAll(t.Context(), "was", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, b, "old", random(1000))
	write(t, b, "rewritten", random(2000))
	drain(t, c, "b")
	c.Close()
	copied := n.copyNamespace()
	c = n.dial()
	b = c.Buffer("b")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	if err := b.MkdirAll(t.Context(), "new/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for _, path := range []string{"new", "empty"} {
		want["was/"+path] = nil
	}
	want["was/new"], want["new/dir/f"], want["rewritten"], want["renamed"] = random(1<<20), random(100), random(3000), random(500)
	for path, content := range want {
		if path != "renamed" {
			write(t, b, path, content)
		}
	}
	write(t, b, "before", want["renamed"])
	if err := b.Rename(t.Context(), "before", "renamed"); err != nil {
		t.Fatal(err)
	}
	write(t, b, "removed", random(700))
	if err := b.Remove(t.Context(), "removed"); err != nil {
		t.Fatal(err)
	}
	f := openWriter(t, b, "open")
	want["open"] = random(4000)
	if _, err := f.Write(want["open"]); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	n.setBack(copied)
	n.start()
	c = n.dial()
	b = c.Buffer("b")
	for path, content := range want {
		wantFile(t, b, path, content)
	}
	for _, path := range []string{"before", "removed", ".lost+found"} {
		if e, err := b.Stat(t.Context(), path); err == nil {
			t.Errorf("%s is there: %+v", path, e)
		}
	}
	n.faults.Set()
	drain(t, c, "b")
	for path, content := range want {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s on the store: %d bytes of %d (%v)", path, len(got), len(content), err)
		}
	}
	write(t, b, "next", random(10)) // with ids that nothing has
	for path, content := range want {
		wantFile(t, b, path, content)
	}
}

// A file had come back and was removed then. If the daemon dies before it drops the bytes, the file
// stays removed.
func TestForgottenFileIsRemoved(t *testing.T) { eachEngine(t, forgottenFileIsRemoved) }

func forgottenFileIsRemoved(t *testing.T, n *node) {
	c := n.dial()
	n.buffer(c, admin.BufferSpec{Name: "b"})
	c.Close()
	copied := n.copyNamespace()
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	b := n.dial().Buffer("b")
	write(t, b, "f", random(1000))
	write(t, b, "other", random(100)) // so that the log has been further than it will be
	n.setBack(copied)
	n.start()
	wantFileThere(t, n.dial().Buffer("b"), "f", true)
	if err := n.daemon.RemoveEntryAlone(t.Context(), "b", "f"); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	b = n.dial().Buffer("b")
	wantFileThere(t, b, "f", false)
	wantFileThere(t, b, ".lost+found", false)
	wantFileThere(t, b, "other", true)
}

func wantFileThere(t *testing.T, b *client.Buffer, path string, want bool) {
	t.Helper()
	if e, err := b.Stat(t.Context(), path); (err == nil) != want {
		t.Errorf("%s: %+v, %v, want it there: %v", path, e, err, want)
	}
}

// A file whose entry was lost and whose name another file has since is set aside. It is listed as
// lost, and flushed. Removed files stay removed.
func TestForgottenFileIsSetAside(t *testing.T) { eachEngine(t, forgottenFileIsSetAside) }

func forgottenFileIsSetAside(t *testing.T, n *node) {
	c := n.dial()
	_, dir := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"f"}})
	c.Close()
	copied := n.copyNamespace()
	b := n.dial().Buffer("b")
	first, second := random(1<<20), random(1000)
	write(t, b, "f", first)
	n.setBack(copied)
	change := n.change
	shm := n.shm() + ".other"
	t.Cleanup(func() { os.RemoveAll(shm) })
	n.change = func(cfg *bbd.Config) { cfg.Store.ShmDir = shm }
	n.start()
	n.stop()
	n.start() // with other ids than the lost file's, so nothing here has it
	write(t, n.dial().Buffer("b"), "f", second)
	n.stop()
	n.change = change
	n.start()
	c = n.dial()
	lost, err := c.Buffer("b").Lost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(lost, func(e client.Entry) bool { return strings.HasPrefix(e.Path, ".lost+found/f~") })
	if i < 0 || !strings.Contains(lost[i].Reason, "the namespace had lost its entry") {
		t.Fatalf("what is lost: %+v", lost)
	}
	path := lost[i].Path
	wantFile(t, c.Buffer("b"), path, first)
	eventually(t, "it is flushed", func() bool {
		got, err := os.ReadFile(filepath.Join(dir, path))
		return err == nil && bytes.Equal(got, first)
	})
}

// TestKeptSinceTheStart: a file that could not be set aside when the daemon started is, once the
// obstacle is gone and it is drained, and the flusher treats it as whole.
func TestKeptSinceTheStart(t *testing.T) { eachEngine(t, keptSinceTheStart) }

func keptSinceTheStart(t *testing.T, n *node) {
	c := n.dial()
	_, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	c.Close()
	copied := n.copyNamespace()
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	forgotten := random(1 << 20)
	write(t, n.dial().Buffer("b"), "f", forgotten)
	n.setBack(copied)
	change := n.change
	shm := n.shm() + ".other"
	t.Cleanup(func() { os.RemoveAll(shm) })
	n.change = func(cfg *bbd.Config) { cfg.Store.ShmDir = shm }
	n.start()
	n.stop()
	n.start() // as in TestForgottenFileIsSetAside
	b := n.dial().Buffer("b")
	write(t, b, "f", random(10))
	write(t, b, ".lost+found", random(10))
	n.stop()
	n.change = change
	n.start()
	c = n.dial()
	b = c.Buffer("b")
	if len(n.status().Buffers[0].Unexplained) == 0 {
		t.Fatalf("nothing is unexplained: %+v", n.status().Buffers[0])
	}
	n.faults.Set()
	if err := b.Remove(t.Context(), ".lost+found"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Drain(t.Context(), c, "b", 2*time.Minute, nil); err != nil && client.KindOf(err) != client.ErrLost {
		t.Errorf("drain: %v", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, ".lost+found", "f~*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the store has %q (%v)", found, err)
	}
	if got, err := os.ReadFile(found[0]); err != nil || !bytes.Equal(got, forgotten) {
		t.Errorf("%d bytes of it (%v)", len(got), err)
	}
	for _, e := range n.status().Buffers {
		if e.Dirty != 0 {
			t.Errorf("%d bytes stay dirty", e.Dirty)
		}
	}
}

// A removal counts although the daemon is killed before it drops the bytes. So does the replacement
// of one file by another.
func TestRemovedStaysRemovedAfterRestart(t *testing.T) {
	eachEngine(t, removedStaysRemovedAfterRestart)
}

func removedStaysRemovedAfterRestart(t *testing.T, n *node) {
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	for _, path := range []string{"kept", "cut short", "removed", "over", "replaced"} {
		write(t, b, path, random(1000))
	}
	if err := b.Remove(t.Context(), "removed"); err != nil {
		t.Fatal(err)
	}
	if err := b.Rename(t.Context(), "over", "replaced"); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.RemoveEntryAlone(t.Context(), "b", "cut short"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range 2 {
		n.stop()
		n.start()
		var names []string
		for e, err := range n.dial().Buffer("b").ReadDir(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, e.Name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"kept", "replaced"}) {
			t.Errorf("the buffer has %q", names)
		}
	}
}

// A daemon that runs while the namespace loses entries restores them from memory.
func TestReassert(t *testing.T) {
	t.Parallel()
	n := startNode(t, withBuckets)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	contents := map[string][]byte{"f": random(1 << 20), "empty": nil, "open": random(300)}
	write(t, b, "f", contents["f"])
	write(t, b, "empty", nil)
	f := openWriter(t, b, "open")
	if _, err := f.Write(contents["open"]); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if remade, aside, left, err := n.daemon.Reassert(t.Context(), "b"); err != nil || len(remade)+len(aside)+left > 0 {
		t.Fatalf("nothing was forgotten: %q, %q, %d, %v", remade, aside, left, err)
	}
	if err := metatest.Forget(t.Context(), n.server, "b", "f", "empty", "open"); err != nil {
		t.Fatal(err)
	}
	remade, aside, left, err := n.daemon.Reassert(t.Context(), "b")
	if slices.Sort(remade); err != nil || !slices.Equal(remade, []string{"empty", "f", "open"}) || len(aside)+left > 0 {
		t.Fatalf("%q, %q, %d, %v", remade, aside, left, err)
	}
	if _, err := f.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	contents["open"] = append(contents["open"], "more"...)
	n.faults.Set()
	drain(t, c, "b")
	for path, content := range contents {
		wantFile(t, b, path, content)
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s on the store: %d bytes (%v)", path, len(got), err)
		}
	}
}

// The namespace carries the repair of an entry out, and its answer is lost. The second attempt
// finds the entry as it should be, and the daemon starts.
func TestRepairWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	content := random(1 << 20)
	write(t, b, "f", random(1000))
	write(t, b, "f", content)
	if err := n.daemon.AgeEntry(t.Context(), "b", "f"); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.RecoverStale(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "f", content)
	n.faults.Set()
	drain(t, c, "b")
	wantFile(t, b, "f", content)
}

// Files in memory of a buffer that the namespace has lost are kept and named.
func TestForgottenBuffer(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	copied := n.copyNamespace()
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	write(t, b, "f", random(1000))
	full := n.copyNamespace()
	n.setBack(copied)
	n.start()
	if list := n.daemon.Status().WithoutBuffer; len(list) != 1 || list[0].Buffer != "b" || list[0].Files != 1 || list[0].Bytes != 1000 {
		t.Errorf("buffers that the namespace does not have: %+v", list)
	}
	n.setBack(full)
	n.start()
	if _, err := n.dial().Buffer("b").ReadFile(t.Context(), "f"); err != nil {
		t.Error(err)
	}
}

// The namespace of a cluster loses a file that is being written and was not removed. Synced bytes
// are kept, and are there again. A file that another node has removed is gone.
func TestClusterForgottenOpenFile(t *testing.T) {
	t.Parallel()
	nodes := startClusterOnBuckets(t, 2)
	n, other := nodes[0], nodes[1].dial().Buffer("b")
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	synced := random(100_000)
	files := map[string]*client.File{}
	for _, name := range []string{"kept", "removed"} {
		f := openWriter(t, b, name)
		if _, err := f.Write(synced); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	if err := metatest.Forget(t.Context(), n.shared, "b", "kept"); err != nil {
		t.Fatal(err)
	}
	if err := other.Remove(t.Context(), "removed"); err != nil {
		t.Fatal(err)
	}
	if err := files["kept"].Close(); client.KindOf(err) != client.ErrUnavailable || !strings.Contains(err.Error(), "has lost the file's entry") {
		t.Errorf("close of what was forgotten: %v", err)
	}
	if err := files["removed"].Close(); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("close of what was removed: %v", err)
	}
	if _, _, _, err := n.daemon.Reassert(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	wantFile(t, b, "kept", synced)
	wantFile(t, other, "kept", synced)
	eventually(t, "the file is closed", func() bool {
		e, err := other.Stat(t.Context(), "kept")
		return err == nil && e.State != client.StateOpen
	})
	if _, err := b.Stat(t.Context(), "removed"); client.KindOf(err) != client.ErrNotFound {
		t.Errorf("what was removed: %v", err)
	}
}

// TestReadOfForgottenVersion: while the namespace has an earlier version of a file as the newest, a
// reader of that one gets it or a true error, and the newer one in memory stays. It comes back, and
// is flushed.
func TestReadOfForgottenVersion(t *testing.T) {
	t.Parallel()
	for name, read := range map[string][]fault.Rule{
		"the store has the earlier one": nil,
		"the store does not answer":     {{Op: "get", Kind: fault.Refused}},
		"the store has something else":  {{Op: "get", Kind: fault.WrongChecksum}},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nil)
			c := n.dial()
			b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
			write(t, b, "f", random(1000))
			drain(t, c, "b")
			was, err := n.daemon.EntryOf(t.Context(), "b", "f")
			if err != nil {
				t.Fatal(err)
			}
			put := fault.Rule{Op: "put", Kind: fault.Refused}
			n.faults.Set(put)
			newer := random(2000)
			write(t, b, "f", newer)
			if err := n.daemon.SetEntryBack(t.Context(), "b", "f", was); err != nil {
				t.Fatal(err)
			}
			n.faults.Set(append(read, put)...)
			if got, err := b.ReadFile(t.Context(), "f"); err == nil && len(got) != 1000 {
				t.Errorf("a read of the earlier version returns %d bytes", len(got))
			}
			n.faults.Set()
			drain(t, c, "b")
			wantFile(t, b, "f", newer)
			if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, newer) {
				t.Errorf("the store has %d bytes (%v)", len(got), err)
			}
		})
	}
}

// Revisions of a log are above those that identities in memory name, though the clock went back.
func TestRevisionsAboveIdentities(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Meta.Engine = meta.EngineLog })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "f", random(1000))
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro()) * 2
	if err := n.daemon.SetRevision(t.Context(), "b", "f", ahead); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	b = n.dial().Buffer("b")
	write(t, b, "g", random(10))
	if revision, err := n.daemon.RevisionOf(t.Context(), "b", "g"); err != nil || revision <= ahead {
		t.Errorf("revision %d, want one above %d (%v)", revision, ahead, err)
	}
	wantFileThere(t, b, "f", true)
}
