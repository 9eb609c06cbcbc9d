package rpc

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
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Session is one client's connection: its credentials and resources, which are
// released when it ends.
//
// One goroutine reads requests and starts them. Each request that may wait runs on a worker, a goroutine
// that has no other meanwhile. All workers end before the session does.
type Session struct {
	server *Server
	id     uint64
	conn   net.Conn
	out    *wire.Writer
	identity
	succession
	since time.Time
	state Resource // of Options.Welcome; nil: none

	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	workers *workers
	ended   chan struct{} // closed when everything is released

	requests atomic.Int64        // in flight
	inline   *semaphore.Weighted // bytes that came with them
	open     atomic.Bool         // the handshake is done; client and caller are set
	place    placeKind           // of the goroutine that serves, once the session is in the server's list
	messages int64               // bytes that the reader's buffer has beyond its usual size
	refused  error               // why it is turned away; nil: it is not

	mu struct {
		sync.Mutex
		running   map[uint64]context.CancelCauseFunc // by request id: requests that may wait
		resources map[Key]Resource
		held      map[Kind]int // how many of each kind
		last      uint64       // key of HoldNew
	}
}

// identity is the client's identity, from the handshake on.
type identity struct {
	caller  access.Caller
	token   *wire.TokenClaims // it may do only the operations of the token; nil: all that caller may
	client  string
	version uint32 // the version of the protocol
	pid     int32
	local   bool      // it came over the unix socket
	peer    bb.NodeID // the daemon that is the client; "": none
	pulse   bool      // it requests pulses of this daemon
}

// ID returns the session's number, which no other session of this server has had.
func (s *Session) ID() uint64 { return s.id }

// Context ends with the session.
func (s *Session) Context() context.Context { return s.ctx }

// Caller returns the caller that the session acts for.
func (s *Session) Caller() *access.Caller { return &s.caller }

// Token returns the token to which the session is restricted, or nil if it may do all that its caller may.
func (s *Session) Token() *wire.TokenClaims { return s.token }

// Peer returns the node of the daemon that is the client, or "" if the client is no daemon.
func (s *Session) Peer() bb.NodeID { return s.peer }

// Client returns the name and version that the client sent.
func (s *Session) Client() string { return s.client }

// PID returns the client's process, 0 if it is on another node.
func (s *Session) PID() int32 { return s.pid }

// Local reports whether the client is on this node, and came over the unix socket.
func (s *Session) Local() bool { return s.local }

// LocalAddr returns the address at which the client has reached this daemon.
func (s *Session) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// Since returns when the session began.
func (s *Session) Since() time.Time { return s.since }

// InFlight returns how many requests have no reply yet.
func (s *Session) InFlight() int64 { return s.requests.Load() }

// State returns the result of Options.Welcome.
func (s *Session) State() Resource { return s.state }

// serve runs the session until the client goes, misbehaves or ctx ends.
func (s *Session) serve(ctx context.Context) error {
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.end()
	stop := context.AfterFunc(s.ctx, func() { s.conn.Close() })
	defer stop()
	in := wire.NewReader(s.conn)
	in.Resize = s.resize
	if err := s.handshake(in); err != nil {
		return ending(err)
	}
	s.conn.SetDeadline(time.Time{})
	s.open.Store(true)
	defer s.expire()()
	if s.pulse {
		s.wg.Go(s.beat)
	}
	for {
		head, message, err := in.Next()
		if err != nil || s.ctx.Err() != nil { // bytes read ahead do not count when the session is over
			return ending(err)
		}
		if err := s.start(in, head, message); err != nil {
			return err
		}
	}
}

// beat reports to another daemon that this one is alive, and how much it has in its session, until
// that ends.
func (s *Session) beat() {
	tick := time.NewTicker(s.server.o.Silence / silentPulses)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		held := len(s.mu.resources) + len(s.mu.running)
		s.mu.Unlock()
		if s.out.Send(wire.Type_TYPE_PULSE, wire.FlagReply|wire.FlagMore, 0, &wire.Pulse{Held: uint32(held)}, nil) != nil {
			return // the reading side detects it
		}
	}
}

// silentPulses is how many pulses have to stay away before another daemon counts as silent.
const silentPulses = 8

// ending turns the ways in which a client may leave into nil.
func ending(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// end releases everything that the session held, after its requests have ended.
func (s *Session) end() {
	defer close(s.ended)
	s.cancel()
	s.conn.Close()
	s.workers.end()
	s.wg.Wait()
	s.releaseAll()
}

// start carries a request out, or starts to. An error ends the session.
func (s *Session) start(in *wire.Reader, head wire.Header, message []byte) error {
	h, known := ofSessions[head.Type]
	if !known {
		h, known = s.server.o.Handlers[head.Type]
	}
	r := &Request{session: s, head: head}
	if err := s.inline.Acquire(s.ctx, int64(head.DataLength)); err != nil {
		return nil // the session is over
	}
	if err := s.Wait(s.server.bytes, int64(head.DataLength)); err != nil {
		return nil
	}
	if head.DataLength > 0 {
		r.data = make([]byte, head.DataLength)
		if err := in.ReadData(r.data); err != nil {
			s.Give(s.server.bytes, int64(head.DataLength))
			return err
		}
	}
	s.requests.Add(1)
	r.counted = s.Take(s.server.requests, 1)
	if !known {
		r.Fail(bb.E(bb.Unsupported, "request", head.Type.String(), "this daemon does not support it").WithRemedy("upgrade it; see bbctl nodes"))
		r.done()
		return nil
	}
	m := h.message()
	if err := proto.Unmarshal(message, m); err != nil {
		r.done()
		return &wire.FrameError{Reason: fmt.Sprintf("%v holds no such message: %v", head.Type, err)}
	}
	s.server.o.Events.Request(head.Type)
	err := wire.Speakable(s.version, s.client, head.Type, m)
	if err == nil {
		err = s.permits(h, head.Type, m)
	}
	if err != nil {
		r.Fail(err)
		r.done()
		return nil
	}
	if !r.counted && head.Type != wire.Type_TYPE_CANCEL {
		defer r.done()
		r.Fail(bb.E(bb.Busy, "request", head.Type.String(), "too many requests of this user are in flight, and the rest is reserved for others").
			WithRemedy("wait for replies, in this and other programs"))
		return nil
	}
	if s.requests.Load() > int64(s.server.o.Limits.InFlight) {
		defer r.done()
		r.Fail(bb.E(bb.Busy, "request", head.Type.String(), "too many requests are in flight").
			WithRemedy("wait for replies; Welcome.max_in_flight is the limit"))
		return nil
	}
	h.start(r, m)
	return nil
}

// maxInline bounds the bytes that a session's requests carry and that are not in
// segments yet. Beyond it the session is not read from, until some are.
const maxInline = 32 << 20

// handshake reads Hello and answers Welcome, or refuses. It has an error, too, where the client leaves before.
// The session has no state then, and is not open.
func (s *Session) handshake(in *wire.Reader) error {
	patience := s.server.o.Limits.Handshake
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
	r := &Request{session: s, head: head}
	var hello wire.Hello
	if head.Type != wire.Type_TYPE_HELLO || proto.Unmarshal(message, &hello) != nil || head.DataLength != 0 {
		err := bb.E(bb.Invalid, "handshake", "", "a session begins with Hello")
		r.Fail(err)
		return err
	}
	if s.refused != nil {
		r.Fail(s.refused)
		return s.refused
	}
	theirs, common := wire.Side{Name: hello.Client, Versions: wire.Versions{Min: hello.MinVersion, Max: hello.MaxVersion}}, false
	if s.version, common = wire.Own().Common(theirs.Versions); !common {
		err := wire.NoCommon("handshake", hello.Client, theirs, s.server.side())
		r.Fail(err)
		return err
	}
	if err = s.identify(in, r, &hello); err == nil {
		err = s.server.places.proven(s)
	}
	if err == nil {
		err = s.server.succeed(s, &hello)
	}
	if err != nil {
		r.Fail(err)
		return err
	}
	s.client = hello.Client
	s.pulse = s.peer != "" && slices.Contains(hello.Capabilities, wire.CapabilityPulse)
	r.Reply(s.welcome())
	return nil
}

func (s *Session) welcome() *wire.Welcome {
	o := &s.server.o
	m := &wire.Welcome{
		Version: s.version, Node: string(o.Node), Server: "bbd " + o.Version,
		MaxMessage: wire.MaxMessage, MaxData: wire.MaxData, MaxInFlight: uint32(o.Limits.InFlight),
		Uid: s.caller.UID, Gid: s.caller.GIDs[0],
	}
	if s.pulse {
		m.Capabilities = append(m.Capabilities, wire.CapabilityPulse)
	}
	s.state = o.Welcome(s, m)
	return m
}

// Logger returns one whose lines name the session.
func (s *Session) Logger() *slog.Logger {
	return s.server.o.Log.With("session", s.id, "client", s.client, "uid", s.caller.UID)
}
