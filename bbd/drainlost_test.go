package bbd_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// A file is lost with the node's memory. Drains name it and fail, and the buffer cannot be
// destroyed without discard, until the file is removed.
func TestDrainNamesLostFiles(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "lossy", Receipt: true})
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.Mkdir(t.Context(), "other", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, b, "other/saved", random(1000))
	drain(t, c, "lossy")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "d/unsaved", random(50_000))
	c.Close()
	n.stop()
	if err := os.RemoveAll(n.shm()); err != nil {
		t.Fatal(err)
	}
	n.faults.Set()
	n.start()
	c = n.dial()
	b = c.Buffer("lossy")
	for _, path := range []string{"", "d", "d/unsaved"} {
		wantLostInDrain(t, c, "lossy", path, "d/unsaved")
	}
	if report, err := admin.DrainBelow(t.Context(), c, "lossy", "other", 20*time.Second, nil); err != nil {
		t.Errorf("draining a directory without lost files: %v (%+v)", err, report)
	}
	if err := admin.DestroyBuffer(t.Context(), c, "lossy"); !errors.Is(err, client.ErrLost) {
		t.Errorf("destroying a buffer with a lost file: %v", err)
	}
	if err := b.Remove(t.Context(), "d/unsaved"); err != nil {
		t.Fatal(err)
	}
	drain(t, c, "lossy")
	if err := admin.DestroyBuffer(t.Context(), c, "lossy"); err != nil {
		t.Errorf("destroying the buffer once the lost file is removed: %v", err)
	}
}

// wantLostInDrain drains at a path and below it, and checks that one file is named as lost.
func wantLostInDrain(t *testing.T, c *client.Client, buffer, below, lost string) {
	t.Helper()
	report, err := admin.DrainBelow(t.Context(), c, buffer, below, 20*time.Second, nil)
	if !errors.Is(err, client.ErrLost) || report.FailedTotal != 1 || len(report.Failed) != 1 {
		t.Fatalf("drain of %q with a lost file: %v (%+v)", below, err, report)
	}
	if f := report.Failed[0]; f.Path != lost || f.Kind != client.ErrLost || f.Reason == "" {
		t.Errorf("drain of %q names %+v", below, f)
	}
}

// In a cluster, a drain from any node names a lost file once, by a job or below a path.
func TestClusterDrainNamesLostFiles(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	nodes[0].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	write(t, b, "unsaved", random(50_000))
	nodes[0].dead()
	there := nodes[1].dial()
	if f, err := admin.ForgetNode(t.Context(), there, "n1"); err != nil || f.LostTotal != 1 {
		t.Fatalf("%+v (%v)", f, err)
	}
	wantLostInDrain(t, there, "shared", "", "unsaved")
	wantLostInDrain(t, there, "shared", "unsaved", "unsaved")
	if err := admin.DestroyBuffer(t.Context(), there, "shared"); !errors.Is(err, client.ErrLost) {
		t.Errorf("destroying a buffer with a lost file: %v", err)
	}
	if err := admin.DiscardBuffer(t.Context(), there, "shared"); err != nil {
		t.Error(err)
	}
}
