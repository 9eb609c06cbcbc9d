package peer

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/wire"
)

// Silence is how long a peer may send nothing before a session with it breaks (longer than a busy
// peer is silent).
const Silence = 16 * time.Second

// looks is how often it is checked within that time.
const looks = 8

// watch detects that a peer sends nothing any more, though its machine acknowledges received bytes,
// as when it is stopped. A daemon sends a Pulse several times within the time that it may be
// silent. Every received byte counts. On a slow link a pulse may be behind an answer that takes
// long. Checks are counted, and not time, so that a daemon that was stopped itself does not count
// that as its peer's silence.
type watch struct {
	session  *Session // reads go to its connection
	received atomic.Int64
	handing  atomic.Bool // a received message waits for its receiver here

	mu      sync.Mutex // guards the fields below
	every   time.Duration
	timer   *time.Timer // nil: not started, or stopped
	seen    int64       // received, at the last check
	silent  int         // checks without anything
	held    int         // how much the peer has in the session, by its last pulse; -1: unknown
	lastUse time.Time
}

// Read reads from the connection.
func (w *watch) Read(p []byte) (int, error) {
	n, err := w.session.conn.Read(p)
	w.received.Add(int64(n))
	return n, err
}

var _ io.Reader = (*watch)(nil)

// start begins the checks, if the peer sends pulses.
func (w *watch) start(silence time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held, w.lastUse, w.every = -1, time.Now(), silence/looks
	if slices.Contains(w.session.welcome.Capabilities, wire.CapabilityPulse) {
		w.timer = time.AfterFunc(w.every, w.look)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

func (w *watch) look() {
	w.mu.Lock()
	if w.timer == nil {
		w.mu.Unlock()
		return
	}
	if received := w.received.Load(); received != w.seen || w.handing.Load() {
		w.seen, w.silent = received, 0
	} else {
		w.silent++
	}
	gone := w.silent >= looks
	if !gone {
		w.timer.Reset(w.every)
	}
	w.mu.Unlock()
	if gone {
		w.session.fail(fmt.Errorf("no message from node %s has arrived for %v", w.session.node, looks*w.every))
	}
}

// pulse records the content of a peer's pulse.
func (w *watch) pulse(message []byte) {
	var m wire.Pulse
	if proto.Unmarshal(message, &m) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = int(m.Held)
}

// used records that the session was in use until now.
func (w *watch) used() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastUse = time.Now()
}

// idle reports whether the session has been unused for a while, and the peer keeps
// nothing in it. That is in its last pulse, which came since then, or it would be silent.
func (w *watch) idle(long time.Duration) bool {
	calls := w.session.calls.InFlight()
	w.mu.Lock()
	defer w.mu.Unlock()
	return calls == 0 && w.held == 0 && time.Since(w.lastUse) > max(long, looks*w.every)
}
