package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
)

// pendingHandshakes bounds the sockets between arrival and Accept.
const pendingHandshakes = 1024

// listener implements rdma.Listener. A connection's streams arrive one by one. The control stream
// opens a session, and its handshake waits for the data streams that quote the session.
type listener struct {
	*provider.Listener
	fabric *Fabric

	mu struct {
		sync.Mutex
		sessions map[[sessionBytes]byte]*session
	}
}

// session is a connection whose streams are arriving.
type session struct {
	hello  hello
	by     *Admission
	joined chan joined
	taken  []bool // stream indexes seen; guarded by the listener's lock
}

type joined struct {
	index  uint16
	socket socket
}

// Listen implements rdma.Fabric. The address is "host:port". Port 0 picks a free one.
func (f *Fabric) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	var lc net.ListenConfig
	raw, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("tcp listen on %s: %w", addr, err)
	}
	l := &listener{fabric: f}
	l.mu.sessions = make(map[[sessionBytes]byte]*session)
	l.Listener = provider.NewListener(ctx, provider.ListenerConfig{
		Raw: raw, Handshake: l.handshake, Timeout: f.opts.HandshakeTimeout,
		Pending: pendingHandshakes, Log: f.opts.Log,
	}, func() { f.listeners.Remove(l) })
	if err := f.listeners.Add(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *listener) handshake(ctx context.Context, raw net.Conn) (rdma.Conn, error) {
	s, theirs, err := l.greet(ctx, raw)
	if err == nil && theirs.index > 0 {
		err = l.join(s, theirs)
		if err == nil {
			return nil, nil
		}
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return l.gather(ctx, s, theirs)
}

// greet does the first exchange of a stream.
func (l *listener) greet(ctx context.Context, raw net.Conn) (socket, hello, error) {
	defer provider.CloseOnEnd(ctx, raw)()
	opts := &l.fabric.opts
	stream, err := provider.Server(ctx, raw, opts.PeerTimeout, opts.TLS)
	if err != nil {
		return socket{}, hello{}, err
	}
	s := socket{Conn: stream, raw: raw}
	theirs, err := readHello(s)
	if err != nil {
		return s, hello{}, err
	}
	s.by, err = provider.Admit(ctx, stream, opts.Admit)
	return s, theirs, err
}

// join hands a data stream to the handshake of its session.
func (l *listener) join(s socket, theirs hello) error {
	if err := s.SetDeadline(time.Time{}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sess := l.mu.sessions[theirs.session]
	if sess == nil || int(theirs.index) >= len(sess.taken) || sess.taken[theirs.index] {
		return fmt.Errorf("stream %d of an unknown session: %w", theirs.index, rdma.ErrProtocol)
	}
	if s.by != sess.by {
		return fmt.Errorf("stream %d was admitted otherwise than its session: %w", theirs.index, rdma.ErrAccess)
	}
	sess.taken[theirs.index] = true
	sess.joined <- joined{theirs.index, s} // has room for every index
	return nil
}

// gather answers on the control stream, waits for the data streams, and reports on each to the
// dialer that it is complete.
func (l *listener) gather(ctx context.Context, ctl socket, theirs hello) (rdma.Conn, error) {
	sess := &session{
		hello: theirs, by: ctl.by, joined: make(chan joined, theirs.streams), taken: make([]bool, theirs.streams+1),
	}
	mine := l.fabric.hello(theirs.streams)
	_, _ = rand.Read(mine.session[:])
	l.open(mine.session, sess)
	sockets := make([]socket, theirs.streams+1)
	sockets[0] = ctl
	stop := provider.CloseOnEnd(ctx, ctl.raw)
	_, err := ctl.Write(mine.encode())
	for range theirs.streams {
		if err != nil {
			break
		}
		select {
		case j := <-sess.joined:
			sockets[j.index] = j.socket
		case <-ctx.Done():
			err = fmt.Errorf("waiting for data streams: %w", context.Cause(ctx))
		}
	}
	l.close(mine.session, sess, sockets)
	if err == nil {
		err = answerAll(sockets[1:], mine)
	}
	stop()
	if err == nil {
		err = ctl.SetDeadline(time.Time{})
	}
	if err != nil {
		closeAll(sockets)
		return nil, err
	}
	c, err := newConn(l.fabric, sockets, theirs)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	return c, nil
}

func (l *listener) open(id [sessionBytes]byte, s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.sessions[id] = s
}

// close removes the session and collects the streams that came too late.
func (l *listener) close(id [sessionBytes]byte, s *session, sockets []socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.sessions, id)
	for {
		select {
		case j := <-s.joined:
			sockets[j.index] = j.socket
		default:
			return
		}
	}
}

// answerAll writes the hello that ends the handshake of each data stream. It fits any socket
// buffer, so it does not wait.
func answerAll(data []socket, mine hello) error {
	for i, s := range data {
		mine.index = uint16(i + 1)
		if _, err := s.Write(mine.encode()); err != nil {
			return err
		}
	}
	return nil
}

// Dial implements rdma.Fabric. The address is "host:port".
func (f *Fabric) Dial(ctx context.Context, addr string) (rdma.Conn, error) {
	ctx, cancel := f.within(ctx, f.opts.HandshakeTimeout)
	defer cancel()
	sockets := make([]socket, f.opts.Streams+1)
	theirs, err := f.dialAll(ctx, addr, sockets)
	if err != nil {
		closeAll(sockets)
		return nil, f.dialError(ctx, addr, err)
	}
	c, err := newConn(f, sockets, theirs)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	return c, nil
}

func (f *Fabric) dialError(ctx context.Context, addr string, err error) error {
	switch {
	case f.ctx.Err() != nil:
		return fmt.Errorf("tcp dial %s: %w", addr, rdma.ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("tcp dial %s: %w: %w", addr, ctx.Err(), err)
	}
	return fmt.Errorf("tcp dial %s: %w: %w", addr, rdma.ErrPeerGone, err)
}

// dialAll opens the control stream, then the data streams, then reads the answers.
func (f *Fabric) dialAll(ctx context.Context, addr string, sockets []socket) (hello, error) {
	mine := f.hello(uint16(f.opts.Streams))
	var theirs hello
	for i := range sockets {
		mine.index = uint16(i)
		s, err := f.dialStream(ctx, addr, &mine)
		if err != nil {
			return hello{}, err
		}
		sockets[i] = s
		defer provider.CloseOnEnd(ctx, s.raw)() // one per stream, until all are through
		if i == 0 {
			if theirs, err = readHello(s); err != nil {
				return hello{}, err
			}
			mine.session = theirs.session
		}
	}
	for _, s := range sockets[1:] {
		if _, err := readHello(s); err != nil {
			return hello{}, err
		}
	}
	for _, s := range sockets {
		if err := s.SetDeadline(time.Time{}); err != nil {
			return hello{}, err
		}
	}
	return theirs, nil
}

func (f *Fabric) dialStream(ctx context.Context, addr string, mine *hello) (socket, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return socket{}, err
	}
	defer provider.CloseOnEnd(ctx, raw)()
	s := socket{raw: raw}
	s.Conn, err = provider.Client(ctx, raw, f.opts.PeerTimeout, f.opts.TLS)
	if err == nil {
		_, err = s.Write(mine.encode())
	}
	if err == nil {
		err = provider.Authenticate(ctx, s.Conn, f.opts.Authenticate)
	}
	if err != nil {
		_ = raw.Close()
		return socket{}, err
	}
	return s, nil
}

func (f *Fabric) hello(streams uint16) hello {
	return hello{streams: streams, chunk: uint32(f.opts.Chunk), window: uint32(f.opts.Window)}
}

func readHello(r io.Reader) (hello, error) {
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	return decodeHello(b)
}
