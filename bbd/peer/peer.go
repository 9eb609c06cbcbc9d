// Package peer keeps sessions with other daemons. It sends requests, and returns answers. It must
// never depend on the subject of a request.
package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
	"forebay/internal/wire/mux"
	"forebay/rdma"
)

// silence is how long a peer may leave sent bytes unacknowledged before its
// connection counts as broken (TCP_USER_TIMEOUT, tcp(7); RFC 5482).
const silence = 8 * time.Second

// spareRequests are kept free of the peer's bound for cancellations.
const spareRequests = 64

// Who is the user that a session acts for.
type Who struct {
	UID, GID uint32
	System   bool // the system's user, or the daemon itself
}

// Identity is this daemon, as its peers see it.
type Identity struct {
	Node     bb.NodeID
	Instance bb.InstanceID
	Version  string
	Keys     *wire.Keyring            // both sides prove that they hold one; nil: none
	TLS      *clustercert.Credentials // nil: no TLS
	Log      *slog.Logger
	Silence  time.Duration // of a peer, after which a session with it breaks; 0: Silence
	Idle     time.Duration // after which the Pool closes an unused session; 0: Idle
	// Met receives the instance of a node that has answered, when a session of the Pool begins. It may be called
	// concurrently. Nil: it is not reported.
	Met func(bb.NodeID, bb.InstanceID)
}

// Session is a connection to another daemon on which requests are made for one user. One goroutine
// reads the answers. It ends when the connection does. Everything that the peer granted in a
// session is void when that breaks.
type Session struct {
	node    bb.NodeID
	address string
	conn    net.Conn
	calls   *mux.Mux[*call]
	welcome *wire.Welcome
	handles atomic.Uint64
	done    chan struct{} // closed when the session is broken and nothing reads any more

	fabric   *way                // nil: neither side has any
	inFlight *semaphore.Weighted // requests that the peer takes at a time
	watch    watch
}

// DialFabric connects to the one-sided fabric of a peer's session.
type DialFabric func(ctx context.Context, w *wire.Welcome, address string) (rdma.Conn, error)

// call is one request that waits for answers.
type call struct {
	answers chan answer // room for one. More wait in the reader's goroutine
	gone    chan struct{}
}

type answer struct {
	head    wire.Header
	message []byte
	data    []byte
	err     error
}

// Dial opens a session with the daemon of a node, for a user. bb.Unavailable if it
// does not answer.
func Dial(ctx context.Context, node bb.NodeID, address string, self *Identity, who Who, fabric DialFabric) (*Session, error) {
	d := net.Dialer{
		Timeout:         silence,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 8, Count: 4},
		Control:         Impatient,
	}
	plain, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, unreachable(node, address, err)
	}
	stop := context.AfterFunc(ctx, func() { plain.Close() })
	plain.SetDeadline(time.Now().Add(silence))
	conn, err := self.TLS.Secure(ctx, plain)
	if err != nil {
		stop()
		plain.Close()
		return nil, refusal(node, address, err)
	}
	s := &Session{node: node, address: address, conn: conn, done: make(chan struct{})}
	s.watch.session = s
	in := wire.NewReader(&s.watch)
	hello := &wire.Hello{ // Handshake adds the versions
		Client: "bbd " + self.Version + " of node " + string(self.Node),
		Uid:    who.UID, Gid: who.GID, System: who.System, Node: string(self.Node), Instance: uint64(self.Instance),
		Capabilities: []string{wire.CapabilityPulse},
	}
	welcome, err := wire.Handshake(conn, in, hello, self.Keys.Keys()...)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && bb.NodeID(welcome.Node) != node {
		err = fmt.Errorf("node %s answers there", welcome.Node)
	}
	if err != nil {
		conn.Close()
		return nil, refusal(node, address, err)
	}
	conn.SetDeadline(time.Time{})
	s.welcome, s.inFlight = welcome, semaphore.NewWeighted(max(int64(welcome.MaxInFlight)-spareRequests, 1))
	s.calls = mux.New[*call](wire.NewWriter(conn), welcome, s.fail)
	if welcome.DataAddress != "" && fabric != nil {
		s.fabric = newWay(func(ctx context.Context) (rdma.Conn, error) { return fabric(ctx, welcome, welcome.DataAddress) })
	}
	s.watch.start(cmp.Or(self.Silence, Silence))
	go s.read(in)
	return s, nil
}

// Impatient has a connection break when its peer acknowledges nothing for a while.
// It is a Control of net.Dialer and net.ListenConfig.
func Impatient(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// refusal is the error of a handshake. It is the peer's reason, or an absent peer.
func refusal(node bb.NodeID, address string, err error) error {
	var e *bb.Error
	if errors.As(err, &e) && e.Kind != bb.Internal {
		if e.Node == "" {
			e.Node = node
		}
		return err
	}
	return unreachable(node, address, err)
}

func unreachable(node bb.NodeID, address string, err error) error {
	return &bb.Error{Kind: bb.Unavailable, Op: "reach", Path: address, Node: node, Err: err, Remedy: "see bbctl nodes; it may come back"}
}

// uncertain is the error of a request that may have been carried out.
func uncertain(node bb.NodeID, address string, err error) error {
	return &bb.Error{
		Kind: bb.Unavailable, Op: "ask", Path: address, Node: node, Err: fmt.Errorf("the connection broke before the answer came: %w", err),
		Remedy: "see bbctl nodes; it may come back", Unknown: true,
	}
}

// Node returns the peer's name.
func (s *Session) Node() bb.NodeID { return s.node }

// Welcome returns the peer's description of itself.
func (s *Session) Welcome() *wire.Welcome { return s.welcome }

// NewHandle returns a handle that is free in this session.
func (s *Session) NewHandle() uint64 { return s.handles.Add(1) }

// Broken reports whether the connection has ended.
func (s *Session) Broken() bool { return s.calls.Broken() }

// Close ends the session and waits for its goroutine.
func (s *Session) Close() {
	s.fail(net.ErrClosed)
	<-s.done
}

// Break ends the session because of an error. Everything granted in it is void.
func (s *Session) Break(err error) { s.fail(err) }

// Ask makes a request and waits for its answer, which is decoded into reply (nil: not
// needed) and whose data are returned. An answer with a reason of failure is an error
// that names the node. When ctx ends, the request is cancelled.
func (s *Session) Ask(ctx context.Context, typ wire.Type, m proto.Message, data []byte, reply proto.Message) ([]byte, error) {
	var got []byte
	err := s.Stream(ctx, typ, m, data, func(a Answer) error {
		got = a.Data
		if reply == nil {
			return nil
		}
		return proto.Unmarshal(a.message, reply)
	})
	return got, err
}

// Answer is one of the answers to a request.
type Answer struct {
	More    bool // others follow
	Data    []byte
	message []byte
}

// Decode reads the answer's message.
func (a *Answer) Decode(m proto.Message) error { return proto.Unmarshal(a.message, m) }

// Stream makes a request that has several answers and calls each with every one. An
// error of each ends it and cancels the request.
func (s *Session) Stream(ctx context.Context, typ wire.Type, m proto.Message, data []byte, each func(Answer) error) error {
	if err := s.calls.Supports(typ, m); err != nil {
		return err
	}
	if err := s.inFlight.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.inFlight.Release(1)
	defer s.watch.used()
	c := newCall()
	defer close(c.gone)
	id, err := s.calls.Start(c, 0, mux.Frame{Type: typ, Message: m, Data: data})
	if err != nil && id == 0 {
		return s.unsent(typ, err)
	}
	for {
		select {
		case a := <-c.answers:
			if a.err != nil {
				return a.err
			}
			if err := s.failure(&a); err != nil {
				return err
			}
			more := a.head.Has(wire.FlagMore)
			err := each(Answer{More: more, Data: a.data, message: a.message})
			if err != nil && more {
				s.cancel(id)
			}
			if err != nil || !more {
				return err
			}
		case <-ctx.Done():
			s.cancel(id)
			return bb.MaybeDone(context.Cause(ctx))
		}
	}
}

// failure is the error that an answer is, or nil if there is none.
func (s *Session) failure(a *answer) error {
	if !a.head.Has(wire.FlagError) {
		return nil
	}
	var m wire.Error
	if err := proto.Unmarshal(a.message, &m); err != nil {
		return &bb.Error{Kind: bb.Internal, Op: "ask", Path: a.head.Type.String(), Node: s.node, Err: err}
	}
	if m.Node == "" {
		m.Node = string(s.node)
	}
	return m.AsErrorOf(a.head.Type)
}

// unsent is the error of a request that was not sent.
func (s *Session) unsent(typ wire.Type, err error) error {
	if broken := (*mux.BrokenError)(nil); errors.As(err, &broken) {
		return unreachable(s.node, s.address, broken.Reason)
	}
	return &bb.Error{Kind: bb.Invalid, Op: "ask", Path: typ.String(), Node: s.node, Err: err}
}

// cancel notifies the peer that a request has no waiter any more.
func (s *Session) cancel(id uint64) {
	s.calls.Forget(id)
	c := newCall()
	close(c.gone)
	// If it cannot be sent, the session breaks, which cancels everything.
	_, _ = s.calls.Start(c, 0, mux.Frame{Type: wire.Type_TYPE_CANCEL, Message: &wire.Cancel{Request: id}})
}

func newCall() *call { return &call{answers: make(chan answer, 1), gone: make(chan struct{})} }

// read hands answers out until the connection ends.
func (s *Session) read(in *wire.Reader) {
	defer close(s.done)
	for {
		head, message, err := in.Next()
		if err != nil {
			s.fail(err)
			return
		}
		a := answer{head: head, message: append([]byte(nil), message...)}
		if head.DataLength > 0 {
			a.data = make([]byte, head.DataLength)
			if err := in.ReadData(a.data); err != nil {
				s.fail(err)
				return
			}
		}
		if head.Type == wire.Type_TYPE_PULSE {
			s.watch.pulse(a.message)
			continue
		}
		c, ok := s.calls.Answered(head)
		if !ok {
			continue // cancelled
		}
		s.watch.handing.Store(true)
		select {
		case c.answers <- a:
		case <-c.gone:
		}
		s.watch.handing.Store(false)
	}
}

// fail ends the session. Every request in flight fails, and so does every later one.
func (s *Session) fail(err error) {
	calls := s.calls.Break(err)
	s.watch.stop()
	s.conn.Close()
	if s.fabric != nil {
		s.fabric.close()
	}
	for _, c := range calls {
		go func() { // an answer may be there still, and is taken first
			select {
			case c.answers <- answer{err: uncertain(s.node, s.address, err)}:
			case <-c.gone:
			}
		}()
	}
}

// Fabric returns the session's connection for one-sided reads and writes, which is made anew in
// the background when it ends. errors.ErrUnsupported if the peer has none.
func (s *Session) Fabric(ctx context.Context) (rdma.Conn, error) {
	if s.fabric == nil {
		return nil, fmt.Errorf("node %s has no one-sided fabric: %w", s.node, errors.ErrUnsupported)
	}
	conn, err := s.fabric.get(ctx)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, bb.Wrap("reach", s.welcome.DataAddress, ctx.Err())
	}
	return nil, unreachable(s.node, s.welcome.DataAddress, err)
}

// LoseFabric closes a one-sided connection of the session that failed.
func (s *Session) LoseFabric(failed rdma.Conn) { s.fabric.lose(failed) }
