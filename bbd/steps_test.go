package bbd_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/meta"
)

// startLog is a log in which a text is looked for.
type startLog struct {
	text string
	yes  func()

	mu  sync.Mutex
	log bytes.Buffer
}

func (h *startLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log.Write(p)
	for line := range strings.Lines(h.log.String()) {
		if strings.Contains(line, "the start waits") && strings.Contains(line, h.text) {
			h.yes()
		}
	}
	return len(p), nil
}

// tryStartHearing starts the node until its log reports that the start waits for something.
func (n *node) tryStartHearing(text string) (log string, err error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	h := &startLog{text: text, yes: cancel}
	change := n.change
	n.change = func(c *bbd.Config) {
		if change != nil {
			change(c)
		}
		c.Log = slog.New(slog.NewTextHandler(h, nil))
	}
	defer func() { n.change = change }()
	err = n.tryStart(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if log = h.log.String(); ctx.Err() == nil || n.t.Context().Err() != nil || context.Cause(ctx) == context.DeadlineExceeded {
		n.t.Errorf("the log never says that the start waits for %s: %s", text, log)
	}
	return log, err
}

// TestStartSaysWhatItWaitsFor starts a daemon whose namespace's server is not there. The log has
// that and the reason, while the start waits.
func TestStartSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	n.stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	n.change = func(c *bbd.Config) {
		c.Meta = meta.Options{URLs: []string{"nats://" + l.Addr().String()}}
	}
	if log, err := n.tryStartHearing("the namespace to answer"); err == nil || !strings.Contains(log, "no connection to nats://") {
		t.Errorf("%v: %s", err, log)
	}
	n.change = nil
	n.start()
}
