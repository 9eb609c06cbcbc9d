package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is one on a unix socket, with the handlers of a test.
type server struct {
	*rpc.Server
	socket string
	owned  sync.WaitGroup
}

type noEvents struct{}

func (noEvents) Request(wire.Type)         {}
func (noEvents) Failed(wire.Type, bb.Kind) {}

// state is a session's resource, whose release a test may observe.
type state struct{ released func() }

func (s *state) Release(bool) { s.released() }

func serve(t *testing.T, handlers map[wire.Type]rpc.Handler, change func(*rpc.Options)) *server {
	t.Helper()
	s := &server{socket: filepath.Join(t.TempDir(), "s")}
	o := rpc.Options{
		Node: "n1", Version: "test", Handlers: handlers, Events: noEvents{}, Silence: time.Minute,
		Limits:  rpc.Limits{Sessions: 10, Unproven: 10, InFlight: 100, Requests: 1000, Bytes: 1 << 20, Handshake: time.Minute},
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		Welcome: func(*rpc.Session, *wire.Welcome) rpc.Resource { return nil },
		Go:      s.owned.Go,
	}
	if change != nil {
		change(&o)
	}
	s.Server = rpc.New(o)
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.owned.Go(func() { s.Serve(context.Background(), l) })
	t.Cleanup(func() {
		l.Close()
		if !s.Shutdown(context.Background()) {
			t.Error("not all sessions have ended")
		}
		s.owned.Wait()
	})
	return s
}

// client is a connection whose frames the test writes and reads.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *wire.Reader
	last uint64
}

func (s *server) dial(t *testing.T) *client {
	t.Helper()
	c, err := s.introduce(t, &wire.Hello{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// introduce dials with a Hello of its own. The error is the daemon's.
func (s *server) introduce(t *testing.T, hello *wire.Hello) (*client, error) {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &client{t: t, conn: conn, in: wire.NewReader(conn)}
	hello.Client, hello.MinVersion, hello.MaxVersion = "test", wire.MinVersion, wire.MaxVersion
	c.send(wire.Type_TYPE_HELLO, hello)
	_, err = c.next(nil)
	return c, err
}

func (c *client) send(typ wire.Type, m proto.Message) (request uint64) {
	c.t.Helper()
	c.last++
	if _, err := wire.WriteFrame(c.conn, nil, typ, 0, c.last, m, nil); err != nil {
		c.t.Fatal(err)
	}
	return c.last
}

// next reads a reply: into m, or an error.
func (c *client) next(m proto.Message) (wire.Header, error) {
	c.t.Helper()
	head, message, err := c.in.Next()
	switch {
	case err != nil:
		c.t.Fatal(err)
	case head.Flags&wire.FlagError != 0:
		var e wire.Error
		if err := proto.Unmarshal(message, &e); err != nil {
			c.t.Fatal(err)
		}
		return head, e.AsError()
	case m != nil:
		if err := proto.Unmarshal(message, m); err != nil {
			c.t.Fatal(err)
		}
	}
	return head, nil
}

const (
	first rpc.Kind = iota
	second
)

// file is a resource with a queue.
type file struct {
	queue   rpc.Queue
	release func(lost bool)
}

func (f *file) Order() *rpc.Queue { return &f.queue }
func (f *file) Release(lost bool) { f.release(lost) }

// opening makes files, whose Close requests run after has returned.
func opening(release func(lost bool), run func(context.Context) error) rpc.Handler {
	return rpc.Opening(func(r *rpc.Request, m *wire.Open) (rpc.Ordered, func(context.Context) (proto.Message, []byte, error), error) {
		f := &file{release: release}
		if err := r.Session().Hold(rpc.Key{Kind: second, ID: m.Handle}, f, 2); err != nil {
			return nil, nil, bb.E(bb.Invalid, "open", m.Path, err.Error())
		}
		return f, func(ctx context.Context) (proto.Message, []byte, error) { return &wire.Opened{}, nil, run(ctx) }, nil
	})
}

// TestOrder: a request behind another one on a resource waits for it, whether it could have run at
// once or not, and one on another resource does not.
func TestOrder(t *testing.T) {
	var (
		mu   sync.Mutex
		done []string
	)
	note := func(what string) { mu.Lock(); defer mu.Unlock(); done = append(done, what) }
	opened := make(chan struct{})
	s := serve(t, map[wire.Type]rpc.Handler{
		wire.Type_TYPE_OPEN: opening(func(bool) {}, func(context.Context) error { <-opened; note("open"); return nil }),
		wire.Type_TYPE_CLOSE: rpc.InOrder(second, func(*file, *wire.Close) bool { return true },
			func(_ *file, _ context.Context, r *rpc.Request, m *wire.Close) { note("close"); r.Reply(&wire.Empty{}) }),
		wire.Type_TYPE_UNPIN: rpc.Quick(func(_ context.Context, r *rpc.Request, _ *wire.Unpin) { note("quick"); r.Reply(&wire.Empty{}) }),
	}, nil)
	c := s.dial(t)
	open := c.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 7})
	closing := c.send(wire.Type_TYPE_CLOSE, &wire.Close{Handle: 7})
	quick := c.send(wire.Type_TYPE_UNPIN, &wire.Unpin{})
	if head, err := c.next(nil); err != nil || head.Request != quick {
		t.Errorf("the first reply is to request %d: %v", head.Request, err)
	}
	close(opened)
	for _, want := range []uint64{open, closing} {
		if head, err := c.next(nil); err != nil || head.Request != want {
			t.Errorf("a reply to request %d, not %d: %v", head.Request, want, err)
		}
	}
	if want := []string{"quick", "open", "close"}; !slices.Equal(done, want) {
		t.Errorf("%v, not %v", done, want)
	}
	c.send(wire.Type_TYPE_CLOSE, &wire.Close{Handle: 8})
	if _, err := c.next(nil); bb.KindOf(err) != bb.Invalid {
		t.Errorf("on what is not there: %v", err)
	}
}

// TestRelease: a resource is released once: when the client gives it back, or at the session's end,
// after its requests, the state before it and lower kinds before higher ones.
func TestRelease(t *testing.T) {
	var (
		mu       sync.Mutex
		released []string
	)
	note := func(what string) { mu.Lock(); defer mu.Unlock(); released = append(released, what) }
	lost := func(what string) func(bool) {
		return func(lost bool) {
			if lost {
				what += ", lost"
			}
			note(what)
		}
	}
	began, session := make(chan struct{}), make(chan *rpc.Session, 1)
	s := serve(t, map[wire.Type]rpc.Handler{
		wire.Type_TYPE_OPEN: opening(lost("second"), func(context.Context) error { return nil }),
		wire.Type_TYPE_LEASE: rpc.Quick(func(_ context.Context, r *rpc.Request, _ *wire.LeaseRequest) {
			r.Session().HoldNew(first, &file{release: lost("first")})
			r.Reply(&wire.Empty{})
		}),
		wire.Type_TYPE_RETURN: rpc.Quick(func(_ context.Context, r *rpc.Request, m *wire.ReturnLease) {
			if !r.Session().Release(rpc.Key{Kind: second, ID: m.Id}) {
				r.Fail(bb.NotFound)
				return
			}
			r.Reply(&wire.Empty{})
		}),
		wire.Type_TYPE_DRAIN: rpc.Waiting(func(ctx context.Context, r *rpc.Request, _ *wire.Drain) (proto.Message, error) {
			session <- r.Session()
			close(began)
			<-ctx.Done()
			note("request")
			return nil, context.Cause(ctx)
		}),
	}, func(o *rpc.Options) {
		o.Welcome = func(*rpc.Session, *wire.Welcome) rpc.Resource { return &state{func() { note("state") }} }
	})
	c := s.dial(t)
	for _, handle := range []uint64{1, 2} {
		c.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: handle})
		if _, err := c.next(nil); err != nil {
			t.Fatal(err)
		}
	}
	c.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 2})
	if _, err := c.next(nil); bb.KindOf(err) != bb.Invalid {
		t.Errorf("a key in use: %v", err)
	}
	c.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 3})
	if _, err := c.next(nil); bb.KindOf(err) != bb.Invalid {
		t.Errorf("more than the session may have: %v", err)
	}
	c.send(wire.Type_TYPE_LEASE, &wire.LeaseRequest{})
	c.next(nil)
	for i := range 2 {
		c.send(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: 1})
		if _, err := c.next(nil); (err == nil) != (i == 0) {
			t.Errorf("given back, %d: %v", i, err)
		}
	}
	c.send(wire.Type_TYPE_DRAIN, &wire.Drain{})
	<-began
	if n := (<-session).Held(second); n != 1 {
		t.Errorf("%d are held, not 1", n)
	}
	c.conn.Close()
	if !s.Shutdown(context.Background()) {
		t.Fatal("the session has not ended")
	}
	want := []string{"second", "request", "state", "first, lost", "second, lost"}
	if !slices.Equal(released, want) {
		t.Errorf("%v, not %v", released, want)
	}
}

// TestCancel: a request that waits ends when the client cancels it, with the reason.
func TestCancel(t *testing.T) {
	for overdue, want := range map[bool]error{false: context.Canceled, true: context.DeadlineExceeded} {
		cause := make(chan error, 1)
		s := serve(t, map[wire.Type]rpc.Handler{
			wire.Type_TYPE_DRAIN: rpc.Waiting(func(ctx context.Context, r *rpc.Request, _ *wire.Drain) (proto.Message, error) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return &wire.Empty{}, nil
			}),
		}, nil)
		c := s.dial(t)
		waits := c.send(wire.Type_TYPE_DRAIN, &wire.Drain{})
		c.send(wire.Type_TYPE_CANCEL, &wire.Cancel{Request: waits, Overdue: overdue})
		c.next(nil)
		c.next(nil)
		if got := <-cause; !errors.Is(got, want) {
			t.Errorf("overdue %v: %v, not %v", overdue, got, want)
		}
	}
}

// TestBounds: requests beyond the session's bound are refused, and none are counted when the
// present ones have ended. A request without a table entry is unsupported.
func TestBounds(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, map[wire.Type]rpc.Handler{
		wire.Type_TYPE_DRAIN: rpc.Waiting(func(context.Context, *rpc.Request, *wire.Drain) (proto.Message, error) {
			<-release
			return &wire.Empty{}, nil
		}),
	}, func(o *rpc.Options) { o.Limits.InFlight = 2 })
	c := s.dial(t)
	for range 3 {
		c.send(wire.Type_TYPE_DRAIN, &wire.Drain{})
	}
	if head, err := c.next(nil); bb.KindOf(err) != bb.Busy || head.Request != 4 {
		t.Errorf("request %d: %v", head.Request, err)
	}
	close(release)
	for range 2 {
		if _, err := c.next(nil); err != nil {
			t.Error(err)
		}
	}
	c.send(wire.Type_TYPE_STAT, &wire.PathRequest{})
	if _, err := c.next(nil); bb.KindOf(err) != bb.Unsupported {
		t.Errorf("a request without a handler: %v", err)
	}
	c.send(wire.Type_TYPE_HELLO, &wire.Hello{})
	if _, err := c.next(nil); bb.KindOf(err) != bb.Invalid {
		t.Errorf("a second handshake: %v", err)
	}
}

// A client that leaves before its handshake is over never has a session that is open. Those have a state.
func TestLeftBeforeHello(t *testing.T) {
	s := serve(t, nil, func(o *rpc.Options) {
		o.Welcome = func(*rpc.Session, *wire.Welcome) rpc.Resource { return &state{func() {}} }
	})
	for range 300 {
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		for s.Connections() == 0 {
			time.Sleep(time.Millisecond)
		}
		go conn.Close()
		for s.Connections() > 0 {
			for _, open := range s.Sessions() {
				t.Fatalf("session %d is open, with the state %v", open.ID(), open.State())
			}
		}
	}
}
