package bbd_test

import (
	"fmt"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// TestClosingFileIsNotMissed reads a buffer all the time while files are written in it. Each is
// open or waits for its flush, also while it is being closed, so that a drain at that moment counts
// it.
func TestClosingFileIsNotMissed(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	defer n.daemon.PauseFlushes("b")()
	until, missed := make(chan struct{}), make(chan int)
	go func() { missed <- n.daemon.Missed("b", until) }()
	for i := range 200 {
		write(t, b, fmt.Sprint(i), []byte("content"))
	}
	close(until)
	if times := <-missed; times != 0 {
		t.Errorf("at %d looks a file that was being closed was neither open nor dirty", times)
	}
}

// TestFinishedAgain: a file whose writer is gone cannot be closed, since its checksum needs
// bytes that are on a store that does not answer. It is closed when the store does.
func TestFinishedAgain(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b"})
	contents := map[string][]byte{}
	name := n.evicted(c, b, contents)
	writer := n.dial()
	w, err := writer.Buffer("b").OpenFile(t.Context(), name, client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(100); off < int64(len(contents[name])); off += 1 << 20 { // some of it is evicted
		copy(contents[name][off:], "new")
		if _, err := w.WriteAt([]byte("new"), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	n.faults.Set(fault.Rule{Op: "get", Kind: fault.Refused})
	hits := n.faults.Hits()
	writer.Close()
	eventually(t, "the file cannot be closed", func() bool { return n.faults.Hits() > hits })
	if e, err := b.Stat(t.Context(), name); err != nil || e.State != client.StateOpen {
		t.Fatalf("%+v %v", e, err)
	}
	n.faults.Set()
	eventually(t, "the file is closed", func() bool {
		e, err := b.Stat(t.Context(), name)
		return err == nil && e.State != client.StateOpen
	})
	wantFile(t, b, name, contents[name])
}
