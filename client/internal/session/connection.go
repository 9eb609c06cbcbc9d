package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/internal/wire/mux"
)

// Connection keeps a session with a daemon, and replaces it when it breaks. It may be used
// concurrently. Close ends blocked calls.
type Connection struct {
	dialer   *dialer
	retryFor time.Duration
	changed  func() // called after the session was replaced

	current  atomic.Pointer[Session]
	dialling *semaphore.Weighted // of one: the caller that may replace current
	sessions *succession         // the same holder's

	mu struct {
		sync.Mutex
		closed  bool
		address string
	}
}

// Connect dials a daemon. Changed is called after a session that broke was replaced.
func Connect(ctx context.Context, o *Options, changed func()) (*Connection, error) {
	d, err := newDialer(o)
	if err != nil {
		return nil, err
	}
	c := &Connection{dialer: d, retryFor: o.RetryFor, changed: changed, dialling: semaphore.NewWeighted(1), sessions: newSuccession()}
	if c.retryFor == 0 {
		c.retryFor = defaultRetry
	}
	s, address, err := d.dial(ctx, c.sessions)
	if err != nil {
		return nil, err
	}
	c.mu.address = address
	c.current.Store(s)
	return c, nil
}

// Close ends the session, and every later operation. It may be called twice.
func (c *Connection) Close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.current.Load().fail(ErrClosed)
}

// Now returns the session that is used, or was last.
func (c *Connection) Now() *Session { return c.current.Load() }

// Address is where the daemon of the session was dialled.
func (c *Connection) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.address
}

var ErrClosed = &bb.Error{Kind: bb.Invalid, Op: "client", Err: errors.New("it is closed")}

// Session returns a live session, connecting again if need be.
func (c *Connection) Session(ctx context.Context) (*Session, error) {
	if s := c.current.Load(); !s.Broken() {
		return s, nil
	}
	if c.dialling.Acquire(ctx, 1) != nil {
		return nil, Cancelled(ctx)
	}
	defer c.dialling.Release(1)
	old := c.current.Load()
	if !old.Broken() {
		return old, nil
	}
	if c.isClosed() {
		return nil, ErrClosed
	}
	s, address, err := c.dialer.redial(ctx, time.Now().Add(c.retryFor), c.sessions)
	if err != nil {
		return nil, err
	}
	if err := c.adopt(s, address); err != nil {
		s.fail(err)
		return nil, err
	}
	c.dialer.log.Info("connected again", "address", address, "node", s.Welcome.Node,
		"restarted", s.Welcome.Epoch != old.Welcome.Epoch, "memory lost", s.Welcome.Instance != old.Welcome.Instance)
	c.changed()
	return s, nil
}

func (c *Connection) adopt(s *Session, address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return ErrClosed
	}
	c.mu.address = address
	c.current.Store(s)
	return nil
}

func (c *Connection) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.closed
}

// Retry runs op on a live session, and again on a new one as long as sessions break under it, for
// at most retryFor. Op must be safe to do twice.
func (c *Connection) Retry(ctx context.Context, op func(*Session) error) error {
	var deadline time.Time
	for {
		s, err := c.Session(ctx)
		if err != nil {
			return err
		}
		err = op(s)
		if !IsBroken(err) || c.isClosed() {
			return err
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(c.retryFor)
		}
		if !now.Before(deadline) {
			return err
		}
	}
}

// Repeat is retry of operations without a session of their own.
func (c *Connection) Repeat(ctx context.Context, op func() error) error {
	return c.Retry(ctx, func(*Session) error { return op() })
}

// Ask sends a request and waits for the reply. If the connection breaks meanwhile, it sends the
// request again. If it may have been sent before and must not be carried out twice, the error's
// outcome is unknown instead.
func (c *Connection) Ask(ctx context.Context, typ wire.Type, m, reply proto.Message) error {
	if !wire.MayRepeat(typ, m) {
		return c.change(ctx, typ, m, reply)
	}
	return c.Retry(ctx, func(s *Session) error {
		_, err := s.Ask(ctx, typ, m, nil, reply, nil)
		return err
	})
}

// change makes a request that is carried out at most once.
func (c *Connection) change(ctx context.Context, typ wire.Type, m, reply proto.Message) error {
	return c.Retry(ctx, func(s *Session) error {
		if !s.Alive() { // the daemon ended while no request was in flight
			return &BrokenError{Reason: net.ErrClosed}
		}
		_, err := s.Ask(ctx, typ, m, nil, reply, nil)
		return unknown(err)
	})
}

// unknown returns the error of a change. If the change may have been carried out, the error is
// marked as of unknown outcome.
func unknown(err error) error {
	if !errors.Is(err, bb.ErrUnknownOutcome) {
		return err
	}
	e := &bb.Error{Kind: bb.KindOf(err), Err: fmt.Errorf("outcome unknown: it may have been carried out: %w", err), Remedy: "check whether it was done", Unknown: true}
	if b := (*BrokenError)(nil); errors.As(err, &b) {
		// The session is not broken, so the request is not sent again.
		e.Err = fmt.Errorf("outcome unknown: it may have been carried out: %s before the answer came", b.Error())
	}
	return e
}

// Stream carries out one request that has many replies, or is long, on a connection of its own. So
// a consumer that is slow, or leaves, delays no other request, and the daemon detects that at once.
// Each is called for every reply, on this goroutine. Its error ends the request. A connection that
// ends before the last reply has broken.
func (c *Connection) Stream(ctx context.Context, typ wire.Type, m proto.Message, data []byte, each func(message, data []byte) error) error {
	s, _, err := c.dialer.redial(ctx, time.Now().Add(c.retryFor), nil)
	if err != nil {
		return err
	}
	defer s.fail(net.ErrClosed)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	err = s.follow(typ, m, data, each)
	if err != nil && ctx.Err() != nil {
		return Cancelled(ctx)
	}
	return err
}

// follow sends a request on a session of its own and reads its replies.
func (s *Session) follow(typ wire.Type, m proto.Message, data []byte, each func(message, data []byte) error) error {
	c := &Call{done: make(chan struct{})}
	err := s.enter(context.Background(), c, 0, mux.Frame{Type: typ, Message: m, Data: data})
	if b := (*BrokenError)(nil); errors.As(err, &b) {
		return &BrokenError{Reason: b.Reason, Sent: true}
	}
	if err != nil {
		return err
	}
	for {
		head, message, err := s.in.Next()
		if err != nil {
			return &BrokenError{Reason: err, Sent: true}
		}
		if head.Has(wire.FlagError) {
			return wire.DecodeReply(head, message, nil)
		}
		if head.DataLength > 0 {
			message = append([]byte(nil), message...) // ReadData may use the buffer that it lies in
			data = make([]byte, head.DataLength)
			if err := s.in.ReadData(data); err != nil {
				return &BrokenError{Reason: err, Sent: true}
			}
		} else {
			data = nil
		}
		if err := each(message, data); err != nil || !head.Has(wire.FlagMore) {
			return err
		}
	}
}
