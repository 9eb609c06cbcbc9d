package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Handler is the way to carry out requests of a type. Quick, Waiting, InOrder and Opening make one.
//
// The context of a request ends with its session, and when the client cancels the request, which
// requests on the reading goroutine do not detect.
type Handler struct {
	message func() proto.Message
	start   func(*Request, proto.Message)
	token   bool
}

// WithToken returns the handler for sessions with a token too. They may make no other requests. If
// a message names a subject, it must be the token's.
func (h Handler) WithToken() Handler {
	h.token = true
	return h
}

// ofSessions are the requests that the package itself serves.
var ofSessions = map[wire.Type]Handler{
	wire.Type_TYPE_HELLO:  Quick(func(_ context.Context, r *Request, _ *wire.Empty) { r.greeted() }),
	wire.Type_TYPE_PROVE:  Quick(func(_ context.Context, r *Request, _ *wire.Empty) { r.greeted() }),
	wire.Type_TYPE_CANCEL: Quick(func(_ context.Context, r *Request, m *wire.Cancel) { r.cancel(m) }).WithToken(),
}

// Message is the constraint of P, a pointer to M.
type Message[M any] interface {
	*M
	proto.Message
}

// Quick makes a handler of a function that never waits and runs on the reading goroutine. It replies itself.
func Quick[M any, P Message[M]](run func(context.Context, *Request, P)) Handler {
	return Handler{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *Request, m proto.Message) {
			run(r.session.ctx, r, m.(P))
			r.done()
		},
	}
}

// Waiting makes a handler of a function that may wait and has a worker of its own. Its result is the
// answer, as with Request.Answer.
func Waiting[M any, P Message[M]](run func(context.Context, *Request, P) (proto.Message, error)) Handler {
	return Handler{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *Request, m proto.Message) {
			ctx, finish := r.track()
			r.session.work(func() {
				defer finish()
				if err := r.inTurn(ctx, m); err != nil {
					r.Fail(err)
					return
				}
				r.Answer(run(ctx, r, m.(P)))
			})
		},
	}
}

// Ordered is a resource whose requests are carried out one after the other.
type Ordered interface {
	Resource
	Order() *Queue
}

// InOrder makes a handler of requests on resources of a kind that the message names. Each waits for
// those that were sent before. If quick reports that the request will not wait, and none is before it,
// it runs on the reading goroutine. run replies itself. Both are method expressions of Q, most often.
func InOrder[Q Ordered, M any, P interface {
	Message[M]
	GetHandle() uint64
}](kind Kind, quick func(Q, P) bool, run func(Q, context.Context, *Request, P)) Handler {
	return Handler{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *Request, m proto.Message) {
			p := m.(P)
			q, ok := r.session.Resource(Key{kind, p.GetHandle()}).(Q)
			if !ok {
				r.Fail(bb.E(bb.Invalid, "request", r.head.Type.String(), "the handle is not open in this session"))
				r.done()
				return
			}
			q.Order().enqueue(r, func() bool { return quick(q, p) }, func(ctx context.Context) { run(q, ctx, r, p) })
		},
	}
}

// Opening makes a handler that makes a resource with a queue. Open runs on the reading goroutine, does
// not wait, and has the session hold the resource, so that the client's requests behind this one find it.
// The function that open returns runs on the queue, before all that, and returns the answer.
func Opening[M any, P Message[M]](open func(*Request, P) (of Ordered, run func(context.Context) (proto.Message, []byte, error), err error)) Handler {
	return Handler{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *Request, m proto.Message) {
			of, run, err := open(r, m.(P))
			if err != nil {
				r.Fail(err)
				r.done()
				return
			}
			q := of.Order()
			q.enqueue(r, func() bool { return false }, func(ctx context.Context) {
				var answer proto.Message
				var data []byte
				err := r.inTurn(ctx, m)
				if err == nil {
					answer, data, err = run(ctx)
				}
				if err != nil {
					r.Fail(err)
					return
				}
				r.followed = q.queued()
				r.ReplyData(answer, data)
			})
		},
	}
}
