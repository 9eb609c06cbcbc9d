package client

import (
	"bytes"
	"context"
	"testing"
)

// TestDaemonKilledAfterSync: a file of which something was committed goes on after
// the daemon was killed, in the same generation.
func TestDaemonKilledAfterSync(t *testing.T) {
	ctx := context.Background()
	d, c, _ := daemonClient(t)
	b := c.Buffer("b")
	data := random(6 << 20)
	w := must[*File](t)(b.Create(ctx, "k"))
	must[int](t)(w.Write(data[:2<<20]))
	check(t, w.Sync())
	generation := w.w.generation
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
	if e := must[Entry](t)(b.Stat(ctx, "k")); e.Generation != generation {
		t.Errorf("generation is %d, was %d", e.Generation, generation)
	}
}

// TestDaemonKilledWhileGrowing: the same of a generation that started from another.
func TestDaemonKilledWhileGrowing(t *testing.T) {
	ctx := context.Background()
	d, c, _ := daemonClient(t)
	b := c.Buffer("b")
	data := random(6 << 20)
	check(t, b.WriteFile(ctx, "k", data[:2<<20], 0))
	w := must[*File](t)(b.OpenFile(ctx, "k", OpenOptions{Write: true, Append: true}))
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
