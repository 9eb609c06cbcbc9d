// Package session keeps the connection to one daemon. It dials it and proves the client's identity,
// keeps many requests in flight, detects the daemon's end, and dials again. Over TCP the one-sided
// way to the daemon's memory belongs to it. It must never depend on files and buffers.
package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/internal/wire/mux"
)

// Session is one connection to a daemon, with many requests in flight. It has no goroutine of its
// own. A call that waits for a reply, while no other reads, reads the connection itself and hands
// replies to the other calls, until its own reply is there. Then the next waiting call reads. So a
// lone request costs no switch between goroutines.
//
// A session that broke stays broken. Everything that the daemon granted in it
// (handles, leases, pins) is void then.
type Session struct {
	conn    net.Conn
	calls   *mux.Mux[*Call]
	Welcome *wire.Welcome
	limit   int     // of requests in flight
	Remote  *Remote // nil: regions are mapped, or bytes travel in messages

	reading chan struct{} // holds one token; its holder may use the fields below. A caller selects between it and its own answer
	src     *resumable
	in      *wire.Reader

	liveness liveness
	handle   atomic.Uint64 // the last one chosen
	ending   sync.Mutex    // guards how calls end
}

// Call is one request in flight. Reply, data and err may be read when done is closed.
type Call struct {
	ID    uint64
	reply proto.Message // nil: not needed
	Data  []byte
	Err   error
	done  chan struct{}
	late  func(*Call) // called with the outcome when the call has no waiter any more. Guarded by session.ending
}

// BrokenError is the error of a session that ended before a reply came.
type BrokenError = mux.BrokenError

// IsBroken reports whether err came from a session that broke.
func IsBroken(err error) bool {
	if err == nil {
		return false // without an allocation
	}
	var b *BrokenError
	return errors.As(err, &b)
}

func WasSent(err error) bool {
	var b *BrokenError
	return errors.As(err, &b) && b.Sent
}

// SpareRequests is the part of the daemon's bound that is kept free for requests that end something:
// cancellations, unpinning, closing.
const SpareRequests = 64

// newSession makes a session of a connection on which the handshake is done.
func newSession(conn net.Conn, src *resumable, in *wire.Reader, welcome *wire.Welcome) *Session {
	s := &Session{conn: conn, Welcome: welcome, reading: make(chan struct{}, 1), src: src, in: in}
	s.calls = mux.New[*Call](wire.NewWriter(conn), welcome, s.fail)
	s.limit = max(int(welcome.MaxInFlight)-SpareRequests, 1)
	s.reading <- struct{}{}
	s.liveness.init(conn)
	return s
}

// Ask sends a request, waits for its reply, and returns the reply's data. When ctx ends first, the
// request is cancelled. If it has succeeded nevertheless, late is called, if there is one.
func (s *Session) Ask(ctx context.Context, typ wire.Type, m proto.Message, data []byte, reply proto.Message, late func(*Call)) ([]byte, error) {
	c, err := s.Start(ctx, typ, m, data, reply)
	if err != nil {
		return nil, err
	}
	if err := s.Await(ctx, c); err != nil && !s.overdue(ctx, c) {
		if !c.Finished() {
			err = bb.MaybeDone(err)
		}
		s.Abandon(c, late)
		return nil, err
	}
	if c.Err != nil {
		return nil, c.Err
	}
	return c.Data, nil
}

// lastWord is the time for which an overdue request waits for the daemon's
// reason.
const lastWord = 250 * time.Millisecond

// overdue requests the reason why a call is overdue, and reports whether the answer is more than
// that the call was cancelled.
func (s *Session) overdue(ctx context.Context, c *Call) bool {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	s.Post(wire.Type_TYPE_CANCEL, &wire.Cancel{Request: c.ID, Overdue: true}, nil)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	_ = s.Await(last, c) // c has its outcome
	return c.Finished() && bb.KindOf(c.Err) != bb.Cancelled
}

// Start sends a request. Its reply is decoded into reply. await waits for it. Ctx bounds only the
// waiting for fewer requests to be in flight.
func (s *Session) Start(ctx context.Context, typ wire.Type, m proto.Message, data []byte, reply proto.Message) (*Call, error) {
	return s.Begin(ctx, mux.Frame{Type: typ, Message: m, Data: data}, reply)
}

func (s *Session) Begin(ctx context.Context, f mux.Frame, reply proto.Message) (*Call, error) {
	if err := s.calls.Supports(f.Type, f.Message); err != nil {
		return nil, err
	}
	c := &Call{reply: reply, done: make(chan struct{})}
	for {
		err := s.enter(ctx, c, s.limit, f)
		switch {
		case c.ID != 0:
			return c, err
		case !errors.Is(err, mux.ErrFull):
			return nil, err
		}
		if err := s.readOne(ctx); err != nil {
			return nil, err
		}
	}
}

// enter sends the request of a call.
func (s *Session) enter(ctx context.Context, c *Call, limit int, f mux.Frame) (err error) {
	defer s.boundWrite(ctx, f.Data)()
	c.ID, err = s.calls.Start(c, limit, f)
	if tooLarge := (*wire.FrameError)(nil); errors.As(err, &tooLarge) {
		return &bb.Error{Kind: bb.Invalid, Op: "request", Path: f.Type.String(), Err: err}
	}
	return err
}

// Post sends a request without waiting, beyond the limit if need be. If there is a late function,
// the call that reads the outcome calls it (see Heed).
func (s *Session) Post(typ wire.Type, m proto.Message, late func(*Call)) *Call {
	c := &Call{done: make(chan struct{}), late: late}
	err := s.enter(context.Background(), c, s.limit+SpareRequests, mux.Frame{Type: typ, Message: m})
	if c.ID != 0 || err == nil || late == nil {
		return c // a session that breaks here calls late, and the daemon has ended everything of it
	}
	if c.Err = err; errors.Is(err, mux.ErrFull) {
		c.Err = bb.E(bb.Busy, "request", typ.String(), err.Error())
	}
	late(c)
	return c
}

// heedFor is how long heed waits.
const heedFor = time.Second

// Heed reads until the outcome of a posted request has come, but not for long, since replies are
// read by waiting calls, and after this request there may be none for hours.
func (s *Session) Heed(c *Call) {
	ctx, cancel := context.WithTimeout(context.Background(), heedFor)
	defer cancel()
	_ = s.Await(ctx, c)
}

// Await waits for a call's reply. Several may await one call. When ctx ends, the call
// is still in flight (see abandon).
func (s *Session) Await(ctx context.Context, c *Call) error {
	for {
		select {
		case <-c.done:
			return c.Err
		default:
		}
		s.calls.Flush()
		select {
		case <-c.done:
			return c.Err
		case <-s.reading:
			err := s.read(ctx, func() bool { return c.Finished() })
			s.reading <- struct{}{}
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return Cancelled(ctx)
		}
	}
}

func (c *Call) Finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// readOne waits until one reply has come, for whomever.
func (s *Session) readOne(ctx context.Context) error {
	s.calls.Flush()
	select {
	case <-s.reading:
	case <-ctx.Done():
		return Cancelled(ctx)
	}
	defer func() { s.reading <- struct{}{} }()
	before := s.calls.InFlight()
	return s.read(ctx, func() bool { return s.Broken() || s.calls.InFlight() < before })
}

// read reads replies until enough reports true. The caller has the token. A session that breaks is
// no error. All calls are finished then.
func (s *Session) read(ctx context.Context, enough func() bool) error {
	defer s.interrupt(ctx)()
	for !enough() {
		head, message, err := s.in.Next()
		if err == nil {
			err = s.dispatch(head, message)
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
			return Cancelled(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.conn.SetReadDeadline(time.Time{})
		default:
			s.fail(err)
		}
	}
	return nil
}

var longAgo = time.Unix(1, 0)

// interrupt has the end of ctx wake up a blocked read, until stop is called.
func (s *Session) interrupt(ctx context.Context) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		s.conn.SetReadDeadline(longAgo)
		close(fired)
	})
	return func() {
		if !cancel() {
			<-fired
			s.conn.SetReadDeadline(time.Time{})
		}
	}
}

// A large request to a daemon that hangs blocks its sender. When its context ends, it gets
// writeGrace for the rest. After that the session breaks, for a request that is partly sent cannot
// be withdrawn.
const (
	muchData   = 64 << 10
	writeGrace = time.Second
)

func (s *Session) boundWrite(ctx context.Context, data []byte) (stop func()) {
	if len(data) < muchData || ctx.Done() == nil {
		return func() {}
	}
	fired := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		s.conn.SetWriteDeadline(time.Now().Add(writeGrace))
		close(fired)
	})
	return func() {
		if !cancel() {
			<-fired
			s.conn.SetWriteDeadline(time.Time{})
		}
	}
}

// dispatch hands a reply to its call.
func (s *Session) dispatch(head wire.Header, message []byte) error {
	c, _ := s.calls.Answered(head)
	if c == nil || !head.Has(wire.FlagReply) || head.Has(wire.FlagMore) {
		s.calls.Forget(head.Request)
		return s.broke(c, &wire.FrameError{Reason: fmt.Sprintf("a reply of type %v to request %d, which is not in flight", head.Type, head.Request)})
	}
	if err := wire.DecodeReply(head, message, c.reply); head.DataLength == 0 {
		s.finish(c, err)
		return nil
	} else if err != nil {
		return s.broke(c, &wire.FrameError{Reason: "an error that comes with data"})
	}
	c.Data = make([]byte, head.DataLength)
	if err := s.src.whole(func() error { return s.in.ReadData(c.Data) }); err != nil {
		return s.broke(c, err)
	}
	s.finish(c, nil)
	return nil
}

// broke finishes a call whose reply did not come whole.
func (s *Session) broke(c *Call, err error) error {
	s.finish(c, &BrokenError{Reason: err, Sent: true})
	return err
}

// finish hands the result of a call to its caller. It is not in flight any more.
func (s *Session) finish(c *Call, err error) {
	if c == nil {
		return
	}
	s.ending.Lock()
	c.Err = err
	late := c.late
	close(c.done)
	s.ending.Unlock()
	if late != nil {
		late(c)
	}
}

// Abandon cancels a call that has no waiter any more. late is called with the outcome, once, by the call that reads it.
// Late must not wait.
func (s *Session) Abandon(c *Call, late func(*Call)) {
	s.ending.Lock()
	finished := c.Finished()
	if !finished {
		c.late = late
	}
	s.ending.Unlock()
	switch {
	case !finished:
		s.Post(wire.Type_TYPE_CANCEL, &wire.Cancel{Request: c.ID}, nil)
	case late != nil:
		late(c)
	}
}

// NewHandle returns a handle that is free in this session.
func (s *Session) NewHandle() uint64 { return s.handle.Add(1) }

// CloseHandle closes a handle without waiting for the answer.
func (s *Session) CloseHandle(handle uint64) {
	s.Post(wire.Type_TYPE_CLOSE, &wire.Close{Handle: handle}, nil)
}

// InFlight is how many requests are.
func (s *Session) InFlight() int { return s.calls.InFlight() }

// Broken reports whether the session has ended.
func (s *Session) Broken() bool { return s.calls.Broken() }

// fail ends the session. Every call in flight fails, and so does every later one.
func (s *Session) fail(err error) {
	calls := s.calls.Break(err)
	s.conn.Close()
	s.Remote.Close()
	for _, c := range calls {
		s.finish(c, &BrokenError{Reason: err, Sent: true})
	}
}

// Cancelled is the error of a wait that its context ended.
func Cancelled(ctx context.Context) error {
	return &bb.Error{Kind: bb.Cancelled, Op: "wait", Err: context.Cause(ctx)}
}

// resumable is a connection whose blocked read may be interrupted by a deadline
// without losing bytes that have arrived, except in whole.
type resumable struct {
	net.Conn
	uninterrupted bool
}

// Read reads from the connection.
func (r *resumable) Read(p []byte) (int, error) {
	for {
		n, err := r.Conn.Read(p)
		if n == 0 && r.uninterrupted && errors.Is(err, os.ErrDeadlineExceeded) {
			// The rest of a frame whose beginning has come.
			r.SetReadDeadline(time.Time{})
			continue
		}
		return n, err
	}
}

// whole runs a read that must not be left half way.
func (r *resumable) whole(read func() error) error {
	r.uninterrupted = true
	defer func() { r.uninterrupted = false }()
	return read()
}
