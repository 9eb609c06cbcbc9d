package provider

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"forebay/rdma"
)

// ListenerConfig is the way in which a Listener turns sockets into connections.
type ListenerConfig struct {
	Raw net.Listener
	// Handshake turns a socket into a connection. It owns the socket from then on, and closes it
	// when it fails. A nil connection without an error means that the socket became part of
	// another handshake.
	Handshake func(ctx context.Context, socket net.Conn) (rdma.Conn, error)
	// Timeout bounds one handshake and the wait for Accept.
	Timeout time.Duration
	// Pending bounds how many sockets are between arrival and Accept. More are closed at once.
	Pending int
	Log     *slog.Logger
}

// Listener implements rdma.Listener over a socket. One goroutine accepts, one per pending socket shakes
// hands, at most ListenerConfig.Pending of them at once. Close waits for all.
type Listener struct {
	cfg    ListenerConfig
	ctx    context.Context
	cancel context.CancelFunc
	room   chan struct{}
	ready  chan rdma.Conn
	work   sync.WaitGroup
	closed func() // run once, after everything has stopped
}

// NewListener starts to accept. The function closed is called when the listener has stopped. Close
// does not return before.
func NewListener(ctx context.Context, cfg ListenerConfig, closed func()) *Listener {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Listener{
		cfg: cfg, ctx: ctx, cancel: cancel, closed: sync.OnceFunc(closed),
		room: make(chan struct{}, cfg.Pending), ready: make(chan rdma.Conn),
	}
	l.work.Go(l.loop)
	return l
}

func (l *Listener) loop() {
	for l.ctx.Err() == nil {
		socket, err := l.cfg.Raw.Accept()
		if err != nil {
			l.pause(err)
			continue
		}
		select {
		case l.room <- struct{}{}:
			l.work.Go(func() { l.admit(socket) })
		default:
			l.cfg.Log.Warn("too many handshakes at once, connection refused", "limit", l.cfg.Pending)
			_ = socket.Close()
		}
	}
}

// pause waits a little after an error of accept (such as out of descriptors), so as not to spin.
func (l *Listener) pause(err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.cfg.Log.Warn("accept failed", "err", err)
	select {
	case <-l.ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func (l *Listener) admit(socket net.Conn) {
	defer func() { <-l.room }()
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Timeout)
	defer cancel()
	conn, err := l.cfg.Handshake(ctx, socket)
	if err != nil {
		switch {
		case l.ctx.Err() != nil:
		case errors.Is(err, io.EOF): // no byte was sent: a check whether the port answers
			l.cfg.Log.Debug("connection closed before its handshake", "peer", socket.RemoteAddr())
		default:
			l.cfg.Log.Warn("handshake failed", "peer", socket.RemoteAddr(), "err", err)
		}
		return
	}
	if conn == nil {
		return
	}
	select {
	case l.ready <- conn:
	case <-ctx.Done():
		_ = conn.Close()
	}
}

// Accept implements rdma.Listener.
func (l *Listener) Accept(ctx context.Context) (rdma.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
		return nil, rdma.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Addr implements rdma.Listener.
func (l *Listener) Addr() string { return l.cfg.Raw.Addr().String() }

// Close implements rdma.Listener.
func (l *Listener) Close() error {
	l.cancel()
	_ = l.cfg.Raw.Close() // a second close returns an error, which means nothing
	l.work.Wait()
	l.closed()
	return nil
}
