package bbd_test

import (
	"fmt"
	"testing"

	"forebay/client"
)

// TestClosingFileIsNotMissed looks at a buffer all the time while files are written in it:
// each is open or waits for its flush, also while it is being closed, so that a drain that
// looks at that moment counts it.
func TestClosingFileIsNotMissed(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	b, _ := n.buffer(n.dial(), client.BufferSpec{Name: "b"})
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
