package bbd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// wantLinks compares symbolic links below a directory with their targets. "" means that there is no such name.
func wantLinks(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for name, target := range want {
		got, err := os.Readlink(filepath.Join(dir, name))
		if gone := errors.Is(err, os.ErrNotExist); got != target || gone != (target == "") {
			t.Errorf("the store's %s leads to %q (%v), want %q", name, got, err, target)
		}
	}
}

func stateOf(t *testing.T, b *client.Buffer, path string) client.State {
	t.Helper()
	e, err := b.Stat(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return e.State
}

// TestLinksReachTheStore flushes symbolic links as links, and has the store follow their renames and removals.
func TestLinksReachTheStore(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"", "zstd"} {
		n := startNode(t, nil)
		c, ctx := n.dial(), t.Context()
		b, dir := n.buffer(c, admin.BufferSpec{Name: "b", Codec: codec})
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(b.Mkdir(ctx, "d", 0o755))
		must(b.Mknod(ctx, "d/fifo", client.TypeFIFO, 0o600))
		must(b.Mknod(ctx, "socket", client.TypeSocket, 0o600))
		for path, target := range map[string]string{"d/out": "/etc/passwd", "d/none": "\xff", "l": "d", "over": "a file comes", "gone": "x"} {
			must(b.Symlink(ctx, target, path))
		}
		write(t, b, "f", []byte("a link comes"))
		drain(t, c, "b")
		wantLinks(t, dir, map[string]string{"d/out": "/etc/passwd", "d/none": "\xff", "l": "d", "over": "a file comes", "gone": "x"})
		if state := stateOf(t, b, "l"); state != client.StateClean {
			t.Errorf("after its flush, a link is %v", state)
		}
		e, err := b.Stat(ctx, "d/out")
		must(err)
		if info, err := os.Lstat(filepath.Join(dir, "d/out")); err != nil || !info.ModTime().Equal(e.ModTime) {
			t.Errorf("the store's link: %v (%v), want the time %v", info, err, e.ModTime)
		}
		var receipt bytes.Buffer
		must(admin.Receipt(ctx, c, "b", &receipt))
		head, _, _ := bytes.Cut(receipt.Bytes(), []byte("\n"))
		if !bytes.Contains(head, []byte(`d/fifo`)) || !bytes.Contains(head, []byte(`"socket"`)) || !bytes.Contains(head, []byte(`"node_local_total":2`)) {
			t.Errorf("the receipt begins with %s", head)
		}

		must(b.Rename(ctx, "d", "e"))
		must(b.Rename(ctx, "l", "e/l"))
		must(b.Remove(ctx, "gone"))
		write(t, b, "new", []byte("new"))
		must(b.Rename(ctx, "new", "over"))
		must(b.Symlink(ctx, "e", "new"))
		must(b.Rename(ctx, "new", "f"))
		drain(t, c, "b")
		wantLinks(t, dir, map[string]string{"e/out": "/etc/passwd", "e/none": "\xff", "e/l": "d", "f": "e", "d/out": "", "l": "", "gone": "", "new": ""})
		name := "over"
		if codec != "" {
			name = "over.zst"
			wantLinks(t, dir, map[string]string{"over": ""})
			if _, err := os.Lstat(filepath.Join(dir, "f.zst")); err == nil {
				t.Error("the object of the file that a link replaced is still there")
			}
		}
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the file that replaced a link: %v (%v)", info, err)
		}

		report, err := admin.Verify(ctx, c, bytes.NewReader(receipt.Bytes()), admin.VerifyOptions{Deep: true})
		if err == nil && report.FailedTotal == 0 || report.FilesDone != 0 {
			t.Errorf("verify of names that have changed: %+v (%v)", report, err)
		}
		receipt.Reset()
		must(admin.Receipt(ctx, c, "b", &receipt))
		for _, deep := range []bool{false, true} {
			if report, err = admin.Verify(ctx, c, bytes.NewReader(receipt.Bytes()), admin.VerifyOptions{Deep: deep}); err != nil || report.FilesDone != 5 || report.FailedTotal != 0 {
				t.Errorf("verify, deep %v: %+v (%v)", deep, report, err)
			}
		}
		must(os.Remove(filepath.Join(dir, "e/l")))
		must(os.WriteFile(filepath.Join(dir, "e/l"), []byte("d"), 0o644))
		if report, _ = admin.Verify(ctx, c, bytes.NewReader(receipt.Bytes()), admin.VerifyOptions{Deep: true}); report.FailedTotal != 1 || report.Failed[0].Path != "e/l" {
			t.Errorf("verify of a file in the place of a link, with its content: %+v", report)
		}
	}
}

// TestLinksOutliveTheDaemon: a link that was not flushed is flushed by the next life, also if the last one had put it
// without a record, and one that lost its name meanwhile leaves nothing.
func TestLinksOutliveTheDaemon(t *testing.T) { eachEngine(t, linksOutliveTheDaemon) }

func linksOutliveTheDaemon(t *testing.T, n *node) {
	c, ctx := n.dial(), t.Context()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	for _, path := range []string{"a", "renamed", "removed"} {
		if err := b.Symlink(ctx, "to "+path, path); err != nil {
			t.Fatal(err)
		}
	}
	if state := stateOf(t, b, "a"); state != client.StateDirty {
		t.Errorf("before its flush, a link is %v", state)
	}
	if err := admin.DestroyBuffer(ctx, c, "b"); !errors.Is(err, client.ErrBusy) {
		t.Errorf("destroying a buffer with a link that is not flushed: %v", err)
	}
	c.Close()
	n.stop()
	// As if the flush had ended without its record.
	for _, path := range []string{"a", "renamed"} {
		if err := os.Symlink("to "+path, filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	n.faults.Set()
	n.start()
	c = n.dial()
	b = c.Buffer("b")
	if err := errors.Join(b.Rename(ctx, "renamed", "new"), b.Remove(ctx, "removed")); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "b")
	wantLinks(t, dir, map[string]string{"a": "to a", "new": "to renamed", "renamed": "", "removed": ""})
	n.loseMemory()
	c = n.dial()
	for path, want := range map[string]string{"a": "to a", "new": "to renamed"} {
		if got, err := c.Buffer("b").Readlink(ctx, path); got != want || err != nil {
			t.Errorf("after the memory is lost, %s leads to %q (%v)", path, got, err)
		}
	}
}

// TestLinkInDurableBuffer: in a buffer that waits for its store, a link is there when it is made.
func TestLinkInDurableBuffer(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, dir := n.buffer(n.dial(), admin.BufferSpec{Name: "b", Durability: "flushed"})
	if err := b.Symlink(t.Context(), "target", "l"); err != nil {
		t.Fatal(err)
	}
	wantLinks(t, dir, map[string]string{"l": "target"})
}

// TestLinksKeepTheStoresFiles: an object of others under a link's name on the store stays.
func TestLinksKeepTheStoresFiles(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, []byte("outside"), 0o644),
		os.Symlink(outside, filepath.Join(dir, "l")), os.Symlink(outside, filepath.Join(dir, "f")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Symlink(t.Context(), "mine", "l"); err != nil {
		t.Fatal(err)
	}
	write(t, b, "f", []byte("mine"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	report, err := admin.Drain(ctx, c, "b", 5*time.Second, nil)
	if err == nil && report.FailedTotal == 0 || len(report.Failed) != 2 {
		t.Errorf("the drain: %+v (%v)", report, err)
	}
	wantLinks(t, dir, map[string]string{"l": outside, "f": outside})
	if text, err := os.ReadFile(outside); string(text) != "outside" || err != nil {
		t.Errorf("a file outside holds %q (%v)", text, err)
	}
}

// TestClusterLinks: links of a node that died are another node's to flush, and none is lost. Those of a node that is
// drained move.
func TestClusterLinks(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c, ctx := nodes[0].dial(), t.Context()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "b", Replicas: 2})
	for _, node := range nodes {
		node.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	}
	there := nodes[1].dial()
	for path, at := range map[string]*client.Buffer{"dead": b, "drained": there.Buffer("b")} {
		if err := at.Symlink(ctx, "of the "+path, path); err != nil {
			t.Fatal(err)
		}
	}
	if n := nodes[0].lacking(); n != 0 {
		t.Errorf("%d links lack a second copy", n)
	}
	c.Close()
	nodes[0].away()
	left := nodes[2].dial()
	forgotten, err := admin.ForgetNode(ctx, left, "n1")
	if err != nil || len(forgotten.Lost) != 0 || forgotten.Kept != 1 {
		t.Errorf("forgotten: %+v (%v)", forgotten, err)
	}
	for _, node := range nodes[1:] {
		node.faults.Set()
	}
	if _, err := admin.DrainNode(ctx, there, "n2", nil); err != nil {
		t.Errorf("draining a node: %v", err)
	}
	drain(t, left, "b")
	wantLinks(t, dir, map[string]string{"dead": "of the dead", "drained": "of the drained"})
}

// TestLinksOnS3: a link is an object that is staged in as a link again, and a file with the same bytes is none.
func TestLinksOnS3(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c, ctx := n.dial(), t.Context()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", Backing: server.URL(bucket, "run")})
	if err := errors.Join(b.Mkdir(ctx, "d", 0o755), b.Symlink(ctx, "../f", "d/l"), b.Symlink(ctx, "x", "moves")); err != nil {
		t.Fatal(err)
	}
	write(t, b, "f", []byte("../f"))
	drain(t, c, "b")
	if err := b.Rename(ctx, "moves", "d/moved"); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "b")
	wantObjects(t, objects(t, server, bucket, "run"), map[string][]byte{"d/l": []byte("../f"), "f": []byte("../f"), "d/moved": []byte("x")})
	when := func(b *client.Buffer, path string) time.Time {
		e, err := b.Stat(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		return e.ModTime
	}
	other, _ := n.buffer(c, admin.BufferSpec{Name: "other"})
	for _, skipped := range []int64{0, 3} {
		r, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: "other", Path: "x", URL: server.URL(bucket, "run/")}, nil)
		if err != nil || r.FilesDone != 3 || r.FilesSkipped != skipped {
			t.Errorf("stage-in: %+v (%v)", r, err)
		}
		for path, want := range map[string]string{"d/l": "../f", "d/moved": "x"} {
			if got, err := other.Readlink(ctx, "x/"+path); got != want || err != nil {
				t.Errorf("%s leads to %q (%v), want %q", path, got, err, want)
			}
			if was, is := when(b, path), when(other, "x/"+path); !is.Equal(was) {
				t.Errorf("%s has the time %v, had %v", path, is, was)
			}
		}
		wantFile(t, other, "x/f", []byte("../f"))
	}
	var receipt bytes.Buffer
	if err := admin.Receipt(ctx, c, "b", &receipt); err != nil {
		t.Fatal(err)
	}
	for _, deep := range []bool{false, true} {
		report, err := admin.Verify(ctx, c, bytes.NewReader(receipt.Bytes()), admin.VerifyOptions{Deep: deep})
		if err != nil || report.FilesDone != 3 || report.FailedTotal != 0 {
			t.Errorf("verify, deep %v: %+v (%v)", deep, report, err)
		}
	}
	// From its own store it is clean from the start.
	if err := admin.DiscardBuffer(ctx, c, "b"); err != nil {
		t.Fatal(err)
	}
	b, _ = n.buffer(c, admin.BufferSpec{Name: "b", Backing: server.URL(bucket, "run")})
	if _, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: "b", URL: server.URL(bucket, "run/")}, nil); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, b, "d/l"); state != client.StateClean {
		t.Errorf("staged in from its own store, a link is %v", state)
	}
}

// TestLinksOfSteps: a flush rule holds the links of a step back with its files, and flushes them with these. A FIFO is no
// part of a step.
func TestLinksOfSteps(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 5")
	for i := 4; i <= 6; i++ {
		step := fmt.Sprint("step-", i)
		r.begin(step, random(1000))
		if err := errors.Join(r.b.Symlink(t.Context(), "part-0", step+"/latest"), r.b.Mknod(t.Context(), step+"/fifo", client.TypeFIFO, 0o600)); err != nil {
			t.Fatal(err)
		}
		write(t, r.b, step+"/.metadata", []byte(step))
	}
	r.want([]string{"step-4"}, "map[step-5:4 step-6:4]")
	wantLinks(t, r.store, map[string]string{"step-4/latest": "", "step-5/latest": "part-0", "step-6/latest": "part-0"})
}

// TestStageInLinkToDirectory: a source that is a link to a directory is staged in as the directory would be, also into
// a directory that is there, and a link to anything else goes into that as a file does.
func TestStageInLinkToDirectory(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c, ctx := n.dial(), t.Context()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	from := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(from, "v1"), 0o755), os.WriteFile(filepath.Join(from, "v1/f"), []byte("x"), 0o644),
		os.Symlink("v1", filepath.Join(from, "current")), os.Symlink("/", filepath.Join(from, "out")), b.Mkdir(ctx, "in", 0o755),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"current", "out"} {
		if _, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: "b", Path: "in", URL: "file://" + from + "/" + name}, nil); err != nil {
			t.Error(err)
		}
	}
	wantFiles(t, b, "in", "f", "out")
}
