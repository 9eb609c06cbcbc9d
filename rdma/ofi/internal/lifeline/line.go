package lifeline

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

const (
	// asksAtOnce bounds the unanswered questions for regions of one side.
	asksAtOnce = 16
	// queuedFrames bounds the frames that a peer can make this side queue for it.
	queuedFrames = 1 << 16
)

// Handler is a connection, which receives its peer's frames. Its methods run in the reader's thread, but
// Fail. They must not wait for the peer.
type Handler interface {
	// Open answers the peer, which requests a region, with Tell.
	Open(ask Frame)
	// Opened takes in that the peer has opened a region of its own for this side.
	Opened(f Frame)
	// Revoke ends this side's use of the peer's region, and then reports that to the peer.
	Revoke(id uint64)
	// Revoked records that the peer does not use this side's region any more.
	Revoked(id uint64)
	// Fail ends the connection.
	Fail(cause error)
}

// Line is a lifeline after the handshake. One thread reads frames and never waits for the peer, one writes
// the queued frames, and pings. Its methods may be called concurrently.
type Line struct {
	handler Handler
	silence time.Duration   // a peer that sends nothing for so long ends it
	dying   <-chan struct{} // closed when the connection ends
	socket  net.Conn
	wake    chan struct{}
	asks    *provider.Credits

	mu struct {
		sync.Mutex
		outbox []Frame
		last   uint32
		asked  map[uint32]chan Frame // capacity 1
	}
}

// New returns a lifeline that does nothing before Start.
func New(h Handler, silence time.Duration, dying <-chan struct{}) *Line {
	l := &Line{handler: h, silence: silence, dying: dying, wake: make(chan struct{}, 1), asks: provider.NewCredits(asksAtOnce)}
	l.mu.asked = make(map[uint32]chan Frame)
	return l
}

// Start starts the threads, which end when the connection does and its socket is closed.
func (l *Line) Start(socket net.Conn, threads *sync.WaitGroup) {
	l.socket = socket
	threads.Go(l.read)
	threads.Go(l.write)
}

// Tell queues a frame. It does not wait.
func (l *Line) Tell(f Frame) {
	l.mu.Lock()
	full := len(l.mu.outbox) >= queuedFrames
	if !full {
		l.mu.outbox = append(l.mu.outbox, f)
	}
	l.mu.Unlock()
	if full {
		// Not from here, since the caller may hold the connection's lock.
		go l.handler.Fail(fmt.Errorf("it reads nothing: %w", rdma.ErrProtocol))
		return
	}
	provider.Wake(l.wake)
}

// Ask requests a region of the peer's. refused is the peer's answer. If both are nil,
// Handler.Opened has had the region. The error is that of the context, or provider.ErrDone when the
// connection ends.
func (l *Line) Ask(ctx context.Context, key rdma.RemoteKey) (refused, err error) {
	if _, err := l.asks.Take(ctx, l.dying, 1); err != nil {
		return nil, err
	}
	answer := make(chan Frame, 1)
	l.mu.Lock()
	l.mu.last++
	id := l.mu.last
	l.mu.asked[id] = answer
	l.mu.Unlock()
	l.Tell(Frame{Kind: KindOpen, Request: id, Key: key})
	select {
	case f := <-answer:
		return f.Status.Err(), nil
	case <-ctx.Done():
		return nil, ctx.Err() // the answer will still be taken in, for the next operation
	case <-l.dying:
		return nil, provider.ErrDone
	}
}

// write is the writer's thread. It ticks three times within the peer's time limit.
func (l *Line) write() {
	tick := time.NewTicker(l.silence / 3)
	defer tick.Stop()
	var batch []Frame
	var b []byte
	for {
		b = b[:0]
		select {
		case <-l.wake:
		case <-tick.C:
			b = (&Frame{Kind: KindPing}).Append(b)
		case <-l.dying:
			return
		}
		l.mu.Lock()
		batch, l.mu.outbox = l.mu.outbox, batch[:0]
		l.mu.Unlock()
		for i := range batch {
			b = batch[i].Append(b)
		}
		if len(b) == 0 {
			continue
		}
		_ = l.socket.SetWriteDeadline(time.Now().Add(l.silence)) // fails only on a closed socket
		if _, err := l.socket.Write(b); err != nil {
			l.handler.Fail(err)
			return
		}
	}
}

// read is the reader's thread.
func (l *Line) read() {
	for {
		_ = l.socket.SetReadDeadline(time.Now().Add(l.silence)) // as above
		f, err := ReadFrame(l.socket)
		if err == nil {
			err = l.handle(f)
		}
		if err != nil {
			l.handler.Fail(err)
			return
		}
	}
}

func (l *Line) handle(f Frame) error {
	switch f.Kind {
	case KindPing:
		return nil
	case KindOpen:
		l.handler.Open(f)
		return nil
	case KindOpened:
		return l.opened(f)
	case KindRevoke:
		l.handler.Revoke(f.Key.ID())
		return nil
	case KindRevoked:
		l.handler.Revoked(f.Key.ID())
		return nil
	}
	return rdma.ErrProtocol
}

// opened takes the answer to a question in.
func (l *Line) opened(f Frame) error {
	l.mu.Lock()
	answer := l.mu.asked[f.Request]
	delete(l.mu.asked, f.Request)
	l.mu.Unlock()
	if answer == nil || f.Status == target.OK && f.Size > 1<<62 {
		return fmt.Errorf("an unsolicited answer, or one out of range: %w", rdma.ErrProtocol)
	}
	if f.Status == target.OK {
		l.handler.Opened(f)
	}
	l.asks.Give(1)
	answer <- f // has room
	return nil
}
