package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Request is one frame that was read, on its way to a reply. A handler has it until it returns.
type Request struct {
	session *Session
	head    wire.Header
	data    []byte

	counted  bool // among the user's requests in flight
	followed bool // another reply will follow soon, with which this one's may leave
}

// Session returns the session that the request came in.
func (r *Request) Session() *Session { return r.session }

// Caller returns the caller that the session acts for.
func (r *Request) Caller() *access.Caller { return &r.session.caller }

// Token returns the token to which the session is restricted, or nil if it may do all that its caller may.
func (r *Request) Token() *wire.TokenClaims { return r.session.token }

// SessionID returns the number of the request's session.
func (r *Request) SessionID() uint64 { return r.session.id }

// SessionEnded reports whether the session is over.
func (r *Request) SessionEnded() bool { return r.session.ctx.Err() != nil }

// Data returns the bytes behind the message. They are the handler's.
func (r *Request) Data() []byte { return r.data }

// ID returns the request's number, which its session has not had before.
func (r *Request) ID() uint64 { return r.head.Request }

// Reply answers the request for good. It does not report failures (see send).
func (r *Request) Reply(m proto.Message) { r.send(wire.FlagReply, m, nil) }

// ReplyData answers with bytes behind the message.
func (r *Request) ReplyData(m proto.Message, data []byte) { r.send(wire.FlagReply, m, data) }

// More sends one of several replies. An error means that the client is gone.
func (r *Request) More(m proto.Message, data []byte) error {
	return r.session.out.Send(r.head.Type, wire.FlagReply|wire.FlagMore, r.head.Request, fitted(m), data)
}

// Fail answers the request with an error.
func (r *Request) Fail(err error) {
	r.session.server.o.Events.Failed(r.head.Type, bb.KindOf(err))
	r.send(wire.FlagReply|wire.FlagError, wire.FailedReply(r.head.Type, err), nil)
}

// Answer replies with a message or fails. Neither means that the handler has replied itself.
func (r *Request) Answer(m proto.Message, err error) {
	switch {
	case err != nil:
		r.Fail(err)
	case m != nil:
		r.Reply(m)
	}
}

// send hands the reply to the connection. When that fails the session is over. The reading side
// detects that and cleans up. An answer that no frame can hold is an error of that request alone.
func (r *Request) send(flags uint16, m proto.Message, data []byte) {
	send := r.session.out.Send
	if r.followed {
		send = r.session.out.Queue
	}
	err := send(r.head.Type, flags, r.head.Request, fitted(m), data)
	var tooLarge *wire.FrameError
	if errors.As(err, &tooLarge) {
		m := wire.FromError(bb.E(bb.Unsupported, "reply", r.head.Type.String(), tooLarge.Reason))
		err = r.session.out.Send(r.head.Type, wire.FlagReply|wire.FlagError, r.head.Request, m, nil)
	}
	if err != nil {
		r.session.conn.Close()
	}
}

// done ends the accounting that start began.
func (r *Request) done() {
	s := r.session
	s.requests.Add(-1)
	s.inline.Release(int64(r.head.DataLength))
	s.Give(s.server.bytes, int64(r.head.DataLength))
	if r.counted {
		s.Give(s.server.requests, 1)
	}
}

// track makes a request that may wait one that Cancel can stop, until finish is called.
func (r *Request) track() (ctx context.Context, finish func()) {
	s, id := r.session, r.head.Request
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.mu.Lock()
	s.mu.running[id] = cancel
	s.mu.Unlock()
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		delete(s.mu.running, id)
		s.mu.Unlock()
		r.done()
	}
}

func (r *Request) greeted() {
	r.Fail(bb.E(bb.Invalid, "request", r.head.Type.String(), "the session has begun already"))
}

// cancel stops another request of the session.
func (r *Request) cancel(m *wire.Cancel) {
	s := r.session
	s.mu.Lock()
	cancel := s.mu.running[m.Request]
	s.mu.Unlock()
	switch {
	case cancel == nil:
	case m.Overdue:
		cancel(context.DeadlineExceeded)
	default:
		cancel(context.Canceled)
	}
	r.Reply(&wire.Empty{})
}
