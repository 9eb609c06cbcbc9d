package bbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/fabric"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// session is one client's connection: its credentials, open files, leases and pins.
// All of them go when it ends.
//
// One goroutine reads requests and starts them; each request that may wait runs in a
// goroutine of its own, all of which end before the session does.
type session struct {
	d      *Daemon
	id     uint64
	conn   net.Conn
	out    *wire.Writer
	cred   access.Caller
	token  *wire.TokenClaims // it may do only what this allows; nil: all that cred may
	client string
	speaks uint32 // the version of the protocol
	pid    int32
	mapped bool              // the client may map region files
	local  bool              // it came over the unix socket
	reach  *fabric.Admission // the client's way to region memory over the network; nil: none
	peer   bb.NodeID         // the daemon that is the client; "": none
	pulse  bool              // it wants to hear that this one lives
	since  time.Time

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ended  chan struct{} // closed when everything is released

	requests atomic.Int64        // in flight
	inline   *semaphore.Weighted // bytes that came with them
	open     atomic.Bool         // the handshake is done: client and cred are set
	place    placeKind           // of the goroutine that serves, once the session is in the daemon's list
	messages int64               // bytes that the reader's buffer has beyond its usual size
	refused  error               // why it is turned away; nil: it is not

	mu struct {
		sync.Mutex
		running map[uint64]context.CancelCauseFunc // by request id: requests that may wait
		handles map[uint64]*handle
		pins    map[uint64]pin
		lastPin uint64
		leases  map[bb.LeaseID]*buffer
		parts   map[bb.FileID]commitParts // of second copies that come in parts
	}
}

// pin is a range of an open file that the client reads in place.
type pin struct {
	handle *handle
	held   *store.Pinned
	bytes  int64 // of the segments that it keeps
}

// request is one frame that was read, on its way to a reply.
type request struct {
	s    *session
	head wire.Header
	data []byte

	counted  bool // among the user's requests in flight
	followed bool // another reply will follow soon, with which this one's may leave
}

// reply answers the request for good.
func (r *request) reply(m proto.Message) { r.send(wire.FlagReply, m, nil) }

// replyData answers with bytes behind the message.
func (r *request) replyData(m proto.Message, data []byte) { r.send(wire.FlagReply, m, data) }

// more sends one of several replies.
func (r *request) more(m proto.Message, data []byte) error {
	return r.s.out.Send(r.head.Type, wire.FlagReply|wire.FlagMore, r.head.Request, fitted(m), data)
}

func (r *request) fail(err error) {
	r.s.d.observe.failed(r.head.Type, bb.KindOf(err))
	r.send(wire.FlagReply|wire.FlagError, wire.FailedReply(r.head.Type, err), nil)
}

// answer replies with a message or fails; neither means that run has replied itself.
func (r *request) answer(m proto.Message, err error) {
	switch {
	case err != nil:
		r.fail(err)
	case m != nil:
		r.reply(m)
	}
}

// send hands the reply to the connection. When that fails the session is over: the
// reading side finds out and cleans up. An answer that no frame can hold is an error
// of that request alone.
func (r *request) send(flags uint16, m proto.Message, data []byte) {
	send := r.s.out.Send
	if r.followed {
		send = r.s.out.Queue
	}
	err := send(r.head.Type, flags, r.head.Request, fitted(m), data)
	var tooLarge *wire.FrameError
	if errors.As(err, &tooLarge) {
		m := wire.FromError(bb.E(bb.Unsupported, "reply", r.head.Type.String(), tooLarge.Reason))
		err = r.s.out.Send(r.head.Type, wire.FlagReply|wire.FlagError, r.head.Request, m, nil)
	}
	if err != nil {
		r.s.conn.Close()
	}
}

// serve runs the session until the client goes, misbehaves or ctx ends.
func (s *session) serve(ctx context.Context) error {
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.end()
	stop := context.AfterFunc(s.ctx, func() { s.conn.Close() })
	defer stop()
	in := wire.NewReader(s.conn)
	in.Resize = s.resize
	if err := s.handshake(in); err != nil {
		return err
	}
	s.conn.SetDeadline(time.Time{})
	s.open.Store(true)
	defer s.expire()()
	if s.pulse {
		s.wg.Go(s.beat)
	}
	for {
		head, message, err := in.Next()
		if err != nil {
			return ending(err)
		}
		if err := s.start(in, head, message); err != nil {
			return err
		}
	}
}

// beat tells another daemon that this one lives, and what it has in this session, until
// that ends.
func (s *session) beat() {
	tick := time.NewTicker(s.d.cfg.silence() / beats)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		held := len(s.mu.handles) + len(s.mu.leases) + len(s.mu.pins) + len(s.mu.running)
		s.mu.Unlock()
		if s.out.Send(wire.Type_TYPE_PULSE, wire.FlagReply|wire.FlagMore, 0, &wire.Pulse{Held: uint32(held)}, nil) != nil {
			return // the reading side finds out
		}
	}
}

// beats is how many pulses have to stay away before another daemon counts as silent.
const beats = 8

// ending turns the ways in which a client may leave into nil.
func ending(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// end releases everything that the session held, after its requests have ended.
func (s *session) end() {
	defer close(s.ended)
	s.cancel()
	s.conn.Close()
	s.wg.Wait()
	s.reach.End()
	s.giveMessages()
	s.mu.Lock()
	handles, pins, leases := s.mu.handles, s.mu.pins, s.mu.leases
	s.mu.handles, s.mu.pins, s.mu.leases = nil, nil, nil
	s.mu.Unlock()
	for _, p := range pins {
		s.release(p)
	}
	for _, h := range handles {
		h.abandon()
		s.give(s.d.shares.files, 1)
	}
	if s.d.isStopping() {
		return // their writers copy out of the leases when the daemon is there again
	}
	for id := range leases {
		s.d.abandonLease(id)
	}
}

// start carries a request out, or starts to. An error ends the session.
func (s *session) start(in *wire.Reader, head wire.Header, message []byte) error {
	op, known := s.d.sessions.operations[head.Type]
	r := &request{s: s, head: head}
	if err := s.inline.Acquire(s.ctx, int64(head.DataLength)); err != nil {
		return nil // the session is over
	}
	if err := s.wait(s.d.shares.bytes, int64(head.DataLength)); err != nil {
		return nil
	}
	if head.DataLength > 0 {
		r.data = make([]byte, head.DataLength)
		if err := in.ReadData(r.data); err != nil {
			s.give(s.d.shares.bytes, int64(head.DataLength))
			return err
		}
	}
	s.requests.Add(1)
	r.counted = s.take(s.d.shares.requests, 1)
	if !known {
		r.fail(bb.E(bb.Unsupported, "request", head.Type.String(), "this daemon does not know it").WithRemedy("upgrade it; see bbctl nodes"))
		r.done()
		return nil
	}
	m := op.message()
	if err := proto.Unmarshal(message, m); err != nil {
		r.done()
		return &wire.FrameError{Reason: fmt.Sprintf("%v holds no such message: %v", head.Type, err)}
	}
	s.d.observe.request(head.Type)
	err := wire.Speakable(s.speaks, s.client, head.Type, m)
	if err == nil {
		err = s.permits(head.Type, m)
	}
	if err != nil {
		r.fail(err)
		r.done()
		return nil
	}
	if !r.counted && head.Type != wire.Type_TYPE_CANCEL {
		defer r.done()
		r.fail(bb.E(bb.Busy, "request", head.Type.String(), "too many requests of this user are in flight, and what is left is for others").
			WithRemedy("wait for replies, in this and other programs"))
		return nil
	}
	if s.requests.Load() > int64(s.d.cfg.Limits.InFlight) {
		defer r.done()
		r.fail(bb.E(bb.Busy, "request", head.Type.String(), "too many requests are in flight").
			WithRemedy("wait for replies; Welcome.max_in_flight says how many may be sent"))
		return nil
	}
	op.start(r, m)
	return nil
}

// done ends the accounting that start began.
func (r *request) done() {
	r.s.requests.Add(-1)
	r.s.inline.Release(int64(r.head.DataLength))
	r.s.give(r.s.d.shares.bytes, int64(r.head.DataLength))
	if r.counted {
		r.s.give(r.s.d.shares.requests, 1)
	}
}

// maxInline bounds the bytes that a session's requests carry and that are not in
// segments yet. Beyond it the session is not read from, until some are.
const maxInline = 32 << 20

// track makes a request that may wait one that Cancel can stop, until finish is called.
func (r *request) track() (ctx context.Context, finish func()) {
	s, id := r.s, r.head.Request
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

// operation says how requests of a type are carried out.
type operation struct {
	message func() proto.Message
	start   func(*request, proto.Message)
}

// quick makes an operation that never waits and runs on the reading goroutine.
func quick[M any, P interface {
	*M
	proto.Message
}](run func(context.Context, *request, P)) operation {
	return operation{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *request, m proto.Message) {
			run(r.s.ctx, r, m.(P))
			r.done()
		},
	}
}

// waiting makes an operation that may wait and has a goroutine of its own.
func waiting[M any, P interface {
	*M
	proto.Message
}](run func(context.Context, *request, P) (proto.Message, error)) operation {
	return operation{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *request, m proto.Message) {
			ctx, finish := r.track()
			r.s.wg.Go(func() {
				defer finish()
				r.answer(run(ctx, r, m.(P)))
			})
		},
	}
}

// openOperation makes the operation that makes a handle.
func openOperation(run func(*request, *wire.Open)) operation {
	return operation{
		message: func() proto.Message { return new(wire.Open) },
		start:   func(r *request, m proto.Message) { run(r, m.(*wire.Open)) },
	}
}

// inOrder makes an operation on a handle: it waits for those that were sent before.
func inOrder[M any, P interface {
	*M
	proto.Message
	GetHandle() uint64
}](quick func(*handle, P) bool, run func(*handle, context.Context, *request, P)) operation {
	return operation{
		message: func() proto.Message { return P(new(M)) },
		start: func(r *request, m proto.Message) {
			p := m.(P)
			h := r.s.handle(p.GetHandle())
			if h == nil {
				r.fail(bb.E(bb.Invalid, "request", r.head.Type.String(), "the handle is not open in this session"))
				r.done()
				return
			}
			h.enqueue(r, func() bool { return quick(h, p) }, func(ctx context.Context) { run(h, ctx, r, p) })
		},
	}
}

func (s *session) handle(id uint64) *handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.handles[id]
}

// handshake reads Hello and answers Welcome, or refuses.
func (s *session) handshake(in *wire.Reader) error {
	patience := s.d.cfg.Limits.Handshake
	if s.refused != nil {
		patience = min(patience, time.Second)
	}
	s.conn.SetDeadline(time.Now().Add(patience))
	if err := s.secure(); err != nil {
		return err
	}
	head, message, err := in.Next()
	if err != nil {
		return s.notAClient(err)
	}
	r := &request{s: s, head: head}
	var hello wire.Hello
	if head.Type != wire.Type_TYPE_HELLO || proto.Unmarshal(message, &hello) != nil || head.DataLength != 0 {
		err := bb.E(bb.Invalid, "handshake", "", "a session begins with Hello")
		r.fail(err)
		return err
	}
	if s.refused != nil {
		r.fail(s.refused)
		return s.refused
	}
	theirs, common := wire.Side{Name: hello.Client, Versions: wire.Versions{Min: hello.MinVersion, Max: hello.MaxVersion}}, false
	if s.speaks, common = wire.Own().Common(theirs.Versions); !common {
		err := wire.NoCommon("handshake", hello.Client, theirs, cluster.Side(s.d.cfg.Version, s.d.cfg.Node))
		r.fail(err)
		return err
	}
	if err = s.identify(in, r, &hello); err == nil {
		err = s.d.places.proven(s)
	}
	if err != nil {
		r.fail(err)
		return err
	}
	s.client = hello.Client
	s.pulse = s.peer != "" && slices.Contains(hello.Capabilities, wire.CapabilityPulse)
	r.reply(s.welcome())
	return nil
}

// greeted refuses what belongs to the handshake once that is over.
func greeted(_ context.Context, r *request, _ *wire.Empty) {
	r.fail(bb.E(bb.Invalid, "request", r.head.Type.String(), "the session has begun already"))
}

func (s *session) welcome() *wire.Welcome {
	limits := s.d.cfg.Limits
	m := &wire.Welcome{
		Version: s.speaks, Node: string(s.d.cfg.Node), Instance: uint64(s.d.store.Instance()),
		Epoch: s.d.epoch, Server: "bbd " + s.d.cfg.Version, MapRegions: s.mapped,
		MaxMessage: wire.MaxMessage, MaxData: wire.MaxData, MaxInFlight: uint32(limits.InFlight),
		InlineThreshold: uint32(limits.Inline), Uid: s.cred.UID, Gid: s.cred.GIDs[0],
	}
	if s.pulse {
		m.Capabilities = append(m.Capabilities, wire.CapabilityPulse)
	}
	if s.peer != "" {
		m.Capabilities = append(m.Capabilities, wire.CapabilityParts)
	}
	if !s.local && s.token == nil {
		s.reach = s.d.fabric.Admit(s.id)
		s.reach.Describe(m, s.conn.LocalAddr())
	}
	return m
}

func (s *session) logger() *slog.Logger {
	return s.d.log.With("session", s.id, "client", s.client, "uid", s.cred.UID)
}
