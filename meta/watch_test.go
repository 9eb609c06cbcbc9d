package meta

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
)

// A daemon follows the buffers that another one makes, changes and destroys, also those that came
// and went while the server was away.
func TestWatchBuffers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startListening(t, dir, "127.0.0.1:0")
	o := Options{URLs: []string{s.URL()}}
	other, m := connectTo(t, o), connectTo(t, o)
	newBuffer(t, other, "before")
	newBuffer(t, other, "goes")

	changes := make(chan BufferChange, 100)
	ctx, cancel := context.WithCancel(testContext(t))
	watched := make(chan error, 1)
	go func() {
		watched <- m.WatchBuffers(ctx, []string{"before", "long-gone"}, func(c BufferChange) { changes <- c })
	}()
	seen := map[string]*bb.Buffer{}
	var destroyed []string
	until := func(what string, done func() bool) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for !done() {
			select {
			case c := <-changes:
				if old := seen[c.Name]; old != nil && c.Buffer != nil && c.Buffer.Revision <= old.Revision {
					t.Errorf("%s: revision %d after %d", c.Name, c.Buffer.Revision, old.Revision)
				}
				if seen[c.Name] = c.Buffer; c.Buffer == nil {
					delete(seen, c.Name)
					destroyed = append(destroyed, c.Name)
				}
			case <-timeout:
				t.Fatalf("%s was not seen: %v", what, seen)
			}
		}
	}
	until("the list", func() bool { return seen["before"] != nil && seen["goes"] != nil })
	until("one that is not there any more", func() bool { return slices.Equal(destroyed, []string{"long-gone"}) })
	newBuffer(t, other, "made")
	until("a new buffer", func() bool { return seen["made"] != nil })
	made := *seen["made"]
	made.Job = "7"
	if _, err := other.UpdateBuffer(ctx, made); err != nil {
		t.Fatal(err)
	}
	until("a change", func() bool { return seen["made"].Job == "7" })
	if err := other.DestroyBuffer(ctx, "goes"); err != nil {
		t.Fatal(err)
	}
	until("a destruction", func() bool { return seen["goes"] == nil })

	url := s.URL()
	s.Shutdown()
	startListening(t, dir, url[len("nats://"):])
	for i := range 3 {
		newBuffer(t, other, fmt.Sprint("after-", i))
	}
	if err := other.DestroyBuffer(ctx, "before"); err != nil {
		t.Fatal(err)
	}
	until("what changed around a restart", func() bool { return len(seen) == 4 && seen["after-2"] != nil && seen["before"] == nil })
	cancel()
	wantKind(t, "watch", <-watched, bb.Cancelled)
}

func TestWatchEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	m := connectTo(t, Options{InProcess: startServer(t, t.TempDir())})
	watched, listed := make(chan error, 1), make(chan bool, 9)
	newBuffer(t, m, "b")
	go func() { watched <- m.WatchBuffers(testContext(t), nil, func(BufferChange) { listed <- true }) }()
	<-listed
	m.Close()
	if err := <-watched; err == nil {
		t.Error("it ended well")
	}
}
