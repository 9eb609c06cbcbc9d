package bbd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/meta/metatest"
)

// The namespace loses a file while its daemon runs. A drain does not pass over a dirty file in no
// queue. The file has its entry again, and is on the store.
func TestDrainFindsForgottenFile(t *testing.T) {
	t.Parallel()
	n := startNode(t, withBuckets)
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	write(t, b, "old", random(1000))
	drain(t, c, "b")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	want := random(19 << 10)
	write(t, b, "new", want)
	if err := metatest.Forget(t.Context(), n.server, "b", "new"); err != nil {
		t.Fatal(err)
	}
	n.daemon.ForgetQueue("b", "new") // as if its flush had found no entry
	if s := n.status().Buffers[0]; s.Queued != 0 || s.Dirty == 0 {
		t.Fatalf("%d files are queued, %d bytes dirty", s.Queued, s.Dirty)
	}
	n.faults.Set()
	drain(t, c, "b")
	wantStored(t, dir, "new", want)
	wantFile(t, b, "new", want)
	if s := n.status().Buffers[0]; s.Dirty != 0 || len(s.Unexplained) != 0 {
		t.Errorf("%d bytes are dirty, unexplained: %+v", s.Dirty, s.Unexplained)
	}
}

// A drain whose time ends while it looks after a file that the namespace has forgotten is no
// success, and names that file.
func TestClusterDrainEndsBesideForgottenFile(t *testing.T) {
	t.Parallel()
	nodes := startClusterOnBuckets(t, 2)
	n, there := nodes[0], nodes[1].dial()
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "f", random(5000))
	if err := metatest.Forget(t.Context(), n.shared, "b", "f"); err != nil {
		t.Fatal(err)
	}
	n.daemon.ForgetQueue("b", "f")
	write(t, there.Buffer("b"), "f", []byte("another"))
	write(t, there.Buffer("b"), ".lost+found", []byte("in the way")) // so that the file is looked after again, after a second
	n.faults.Set()
	eventually(t, "the others are on the store", func() bool {
		report, err := admin.Drain(t.Context(), c, "b", 500*time.Millisecond, nil)
		if err == nil {
			t.Fatalf("the drain succeeds beside a file that is on no store: %+v", report)
		}
		return report.FailedTotal == 1 && report.Failed[0].Path == "f" && report.Failed[0].Bytes == 5000
	})
}

// Files whose entries the namespace has lost and that cannot be restored stay. Drains, status, an
// event and a metric name them. Once nothing is in the way of a file, it is flushed.
func TestClusterUnexplainedBytesAreNamed(t *testing.T) {
	t.Parallel()
	nodes := startClusterOnBuckets(t, 2)
	n, there := nodes[0], nodes[1].dial()
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
	var live, named atomic.Bool
	go func() {
		for e, err := range admin.Events(t.Context(), c, "b") {
			live.Store(true)
			named.Store(named.Load() || err == nil && e.Kind == admin.EventUnexplained && e.Bytes == 5000)
		}
	}()
	eventually(t, "events arrive", func() bool {
		write(t, there.Buffer("b"), "marker", nil)
		return live.Load()
	})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	want := random(5000)
	write(t, b, "f", want)
	if err := metatest.Forget(t.Context(), n.shared, "b", "f"); err != nil {
		t.Fatal(err)
	}
	n.daemon.ForgetQueue("b", "f")
	// The name is another file's by now, and so is that of the directory of forgotten files.
	write(t, there.Buffer("b"), "f", []byte("another"))
	write(t, there.Buffer("b"), ".lost+found", []byte("in the way"))
	n.faults.Set()
	for _, from := range []*client.Client{c, there} {
		eventually(t, "the drain names it", func() bool {
			report, err := admin.Drain(t.Context(), from, "b", 20*time.Second, nil)
			return errors.Is(err, client.ErrInternal) && report.FailedTotal == 1 &&
				report.Failed[0].Path == "f" && report.Failed[0].Bytes == 5000 && strings.Contains(report.Failed[0].Reason, "no entry explains")
		})
	}
	if s := n.status().Buffers[0]; len(s.Unexplained) != 1 || s.Unexplained[0].Path != "f" || s.Unexplained[0].Bytes != 5000 {
		t.Errorf("status: %+v", s.Unexplained)
	}
	if err := there.Buffer("b").Remove(t.Context(), ".lost+found"); err != nil {
		t.Fatal(err)
	}
	drain(t, there, "b")
	found, err := filepath.Glob(filepath.Join(dir, ".lost+found", "f~*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("on the store: %q (%v)", found, err)
	}
	if got, err := os.ReadFile(found[0]); err != nil || string(got) != string(want) {
		t.Errorf("on the store: %d bytes (%v)", len(got), err)
	}
	wantStored(t, dir, "f", []byte("another"))
	if s := n.status().Buffers[0]; len(s.Unexplained) != 0 {
		t.Errorf("status: %+v", s.Unexplained)
	}
	eventually(t, "an event tells of it", named.Load)
}
