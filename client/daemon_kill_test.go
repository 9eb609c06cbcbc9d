package client_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// TestDaemonKilledAfterSync: a file of which something was committed continues after
// the daemon was killed, in the same generation.
func TestDaemonKilledAfterSync(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, c, _ := daemonClient(t)
	b := c.Buffer("b")
	data := random(6 << 20)
	w := must[*client.File](t)(b.Create(ctx, "k"))
	must[int](t)(w.Write(data[:2<<20]))
	check(t, w.Sync())
	generation := w.Writer().Generation()
	must[int](t)(w.Write(data[2<<20 : 4<<20]))
	d.Kill()
	d.Start()
	if got := readAll(t, b, "k"); !bytes.Equal(got, data[:2<<20]) {
		t.Error("after the restart, the file does not hold what was synced, and that alone")
	}
	must[int](t)(w.Write(data[4<<20:]))
	check(t, w.Close())
	if got := readAll(t, b, "k"); !bytes.Equal(got, data) {
		t.Error("content differs")
	}
	if e := must[client.Entry](t)(b.Stat(ctx, "k")); e.Generation != generation {
		t.Errorf("generation is %d, was %d", e.Generation, generation)
	}
}

// TestDaemonKilledWhileGrowing: the same of a generation that started from another.
func TestDaemonKilledWhileGrowing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, c, _ := daemonClient(t)
	b := c.Buffer("b")
	data := random(6 << 20)
	check(t, b.WriteFile(ctx, "k", data[:2<<20], 0))
	w := must[*client.File](t)(b.OpenFile(ctx, "k", client.OpenOptions{Write: true, Append: true}))
	must[int](t)(w.Write(data[2<<20 : 4<<20]))
	check(t, w.Sync())
	d.Kill()
	d.Start()
	must[int](t)(w.Write(data[4<<20:]))
	check(t, w.Close())
	if got := readAll(t, b, "k"); !bytes.Equal(got, data) {
		t.Error("content differs")
	}
}

// TestDaemonKilledDuringDrain: if its daemon dies, a drain has not succeeded. It begins again when
// the daemon is back, and then everything is on the store.
func TestDaemonKilledDuringDrain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d, c, _ := daemonClient(t)
	store := t.TempDir()
	must[admin.BufferSpec](t)(admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "slow", Backing: "file://" + store, FlushLimit: 4 << 20}))
	data := random(24 << 20)
	check(t, c.Buffer("slow").WriteFile(ctx, "k", data, 0))
	type end struct {
		report admin.Report
		err    error
	}
	ended, began := make(chan end, 1), make(chan struct{}, 1000)
	go func() {
		r, err := admin.Drain(ctx, c, "slow", 0, func(admin.Progress) { began <- struct{}{} })
		ended <- end{r, err}
	}()
	<-began
	d.Kill()
	select {
	case e := <-ended:
		t.Fatalf("without a daemon, the drain ended: %+v (%v)", e.report, e.err)
	case <-time.After(300 * time.Millisecond):
	}
	d.Start()
	e := <-ended
	if got, err := os.ReadFile(filepath.Join(store, "k")); e.err != nil || !bytes.Equal(got, data) {
		t.Errorf("the drain ended with %v, and the store has %d bytes (%v)", e.err, len(got), err)
	}
}
