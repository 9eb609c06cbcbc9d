package bbd_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
)

// crowd writes files of other clients, more than memory holds, and checks them.
func crowd(t *testing.T, n *node, name string) {
	t.Helper()
	b := n.dial().Buffer("b")
	for i := range 6 {
		write(t, b, fmt.Sprint(name, i), bytes.Repeat([]byte{byte(i + 1)}, 4<<20))
	}
	for i := range 6 {
		wantFile(t, b, fmt.Sprint(name, i), bytes.Repeat([]byte{byte(i + 1)}, 4<<20))
	}
}

// briefGrace makes files wait so briefly for their writers that the grace is over before a writer
// comes back. The locks of the writers alone protect their memory.
func briefGrace(c *bbd.Config) {
	littleMemory(c)
	c.ResumeGrace = time.Millisecond
}

// endlessGrace is for tests in which memory has to become free without the end of the grace.
func endlessGrace(c *bbd.Config) {
	littleMemory(c)
	c.ResumeGrace = time.Hour
}

func littleMemory(c *bbd.Config) { c.Store.MemoryBytes, c.Store.RegionBytes = 16<<20, 8<<20 }

// keepWriting copies p into memory again and again until the test calls end.
func keepWriting(t *testing.T, mem, p []byte) (end func()) {
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			copy(mem, p)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	end = sync.OnceFunc(func() { close(stop); writer.Wait() })
	t.Cleanup(end)
	return end
}

// TestReservationOutlivesTheDaemon: a program fills memory that it has reserved, while the
// daemon ends, starts again, and gives all memory that it can to others.
func TestReservationOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	n := startNode(t, briefGrace)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	content := random(512 << 10)
	w := openNew(t, b, "w")
	mem := reserve(t, w, len(content))
	end := keepWriting(t, mem, content)
	n.stop()
	n.start()
	crowd(t, n, "other")
	end()
	if err := w.Publish(len(content)); err != nil {
		t.Fatal(err)
	}
	closed(t, w)
	wantFile(t, b, "w", content)
}

// TestReservationOutlivesTheSession: the same while the connection is broken, and the daemon
// has taken the lease back.
func TestReservationOutlivesTheSession(t *testing.T) {
	t.Parallel()
	n := startNode(t, littleMemory)
	n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	way := proxyOn(t, "unix", n.socket+".way", func() string { return n.socket })
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + way.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	w := openNew(t, c.Buffer("b"), "w")
	content := random(512 << 10)
	mem := reserve(t, w, len(content))
	end := keepWriting(t, mem, content)
	way.cut()
	crowd(t, n, "other")
	end()
	if n.daemon.Status().Memory.Occupied == 0 {
		t.Error("the memory is not occupied while it is reserved")
	}
	if err := w.Publish(len(content)); err != nil {
		t.Fatal(err)
	}
	closed(t, w)
	wantFile(t, c.Buffer("b"), "w", content)
	for deadline := time.Now().Add(time.Minute); n.daemon.Status().Memory.Occupied != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the memory is occupied when nobody uses it")
		}
	}
}

func reserve(t *testing.T, w *client.File, n int) []byte {
	t.Helper()
	mem, err := w.Reserve(n)
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

// TestUncommittedMemoryOutlivesTheGrace: a writer's uncommitted bytes stay as they are until the
// writer has copied it, however long that takes.
func TestUncommittedMemoryOutlivesTheGrace(t *testing.T) {
	t.Parallel()
	n := startNode(t, briefGrace)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	content := random(4 << 20)
	w := openNew(t, b, "w")
	put(t, w, content)
	n.stop()
	n.start()
	crowd(t, n, "other")
	closed(t, w)
	wantFile(t, b, "w", content)
	crowd(t, n, "again") // the memory is free again
}

// TestAllMemoryUncommitted: two writers have all memory, and have committed nothing, when the
// daemon starts again. Each copies its bytes out of a segment before it waits for the next one,
// which can only be that.
func TestAllMemoryUncommitted(t *testing.T) {
	t.Parallel()
	n := startNode(t, endlessGrace)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	contents := [][]byte{random(4 << 20), random(4 << 20)}
	var writers []*client.File
	for i, content := range contents {
		w := openNew(t, n.dial().Buffer("b"), fmt.Sprint(i))
		put(t, w, content)
		writers = append(writers, w)
	}
	// The rest goes to a third one, as long as there is any.
	rest := openNew(t, n.dial().Buffer("b"), "rest")
	size := 0
	for n.daemon.Status().Memory.Free >= 1<<20 {
		put(t, rest, make([]byte, 512<<10))
		size += 512 << 10
	}
	n.stop()
	n.start()
	var all sync.WaitGroup
	for _, w := range append(writers, rest) {
		all.Go(func() { closed(t, w) })
	}
	all.Wait()
	for i, content := range contents {
		wantFile(t, b, fmt.Sprint(i), content)
	}
	wantFile(t, b, "rest", make([]byte, size))
}

// openNew opens a file whose writing ends with the test.
func openNew(t *testing.T, b *client.Buffer, name string) *client.File {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w, err := b.OpenFile(ctx, name, client.OpenOptions{Write: true, Create: true, Mode: fs.FileMode(0o644)})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func put(t *testing.T, w *client.File, p []byte) {
	t.Helper()
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, w *client.File) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
