package rpc_test

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// nth is the Hello of a client's nth session of a connection.
func nth(n uint64) *wire.Hello {
	return &wire.Hello{Connection: bytes.Repeat([]byte{7}, wire.ConnectionSize), Succession: n}
}

// events are the events so far, in order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) note(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, what)
}

func (e *events) want(t *testing.T, want ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.list, want) {
		t.Errorf("%v, not %v", e.list, want)
	}
}

// succession serves opens of which those of handle 1 wait for more than their session's end, and looks that
// wait for nothing.
func succession(t *testing.T) (s *server, e *events, began, release chan struct{}) {
	e, began, release = new(events), make(chan struct{}), make(chan struct{})
	open := rpc.Opening(func(r *rpc.Request, m *wire.Open) (rpc.Ordered, func(context.Context) (proto.Message, []byte, error), error) {
		f := &file{release: func(bool) {
			if m.Handle == 1 {
				e.note("released " + m.Path)
			}
		}}
		if err := r.Session().Hold(rpc.Key{Kind: second, ID: m.Handle}, f, 2); err != nil {
			return nil, nil, err
		}
		return f, func(context.Context) (proto.Message, []byte, error) {
			if m.Handle == 1 {
				close(began)
				<-release
			}
			e.note("opened " + m.Path)
			return &wire.Opened{}, nil, nil
		}, nil
	})
	s = serve(t, map[wire.Type]rpc.Handler{
		wire.Type_TYPE_OPEN: open,
		wire.Type_TYPE_STAT: rpc.Waiting(func(context.Context, *rpc.Request, *wire.PathRequest) (proto.Message, error) {
			return &wire.Entry{}, nil
		}),
	}, nil)
	return s, e, began, release
}

// TestSuccession: as soon as a client's next session has begun, its session before is over. Its later requests
// are not read. A change waits until the work of the session before is done, and its resources are released.
// Reading does not.
func TestSuccession(t *testing.T) {
	s, e, began, release := succession(t)
	a, err := s.introduce(t, nth(1))
	if err != nil {
		t.Fatal(err)
	}
	a.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 1, Path: "a", Write: true})
	<-began
	stranger := s.dial(t)
	b, err := s.introduce(t, nth(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.in.Next(); err != io.EOF {
		t.Errorf("the session before: %v", err)
	}
	// One that breaks at once, too. The next one waits for the first.
	b.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 2, Path: "b", Write: true})
	b.send(wire.Type_TYPE_STAT, &wire.PathRequest{})
	if _, err := b.next(nil); err != nil {
		t.Error(err)
	}
	c, err := s.introduce(t, nth(3))
	if err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; { // its open has failed, perhaps in time for an answer
		_, _, err = b.in.Next()
	}
	if err != io.EOF {
		t.Errorf("the second session: %v", err)
	}
	c.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 2, Path: "c", Write: true})
	c.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 3, Path: "read"})
	looked := c.send(wire.Type_TYPE_STAT, &wire.PathRequest{})
	for range 2 {
		if head, err := c.next(nil); err != nil || head.Request < looked-1 {
			t.Errorf("while the first session lasts, request %d is answered (%v)", head.Request, err)
		}
	}
	stranger.send(wire.Type_TYPE_OPEN, &wire.Open{Handle: 2, Path: "stranger", Write: true})
	if _, err := stranger.next(nil); err != nil {
		t.Errorf("another client: %v", err)
	}
	e.want(t, "opened read", "opened stranger")
	close(release)
	if _, err := c.next(nil); err != nil {
		t.Error(err)
	}
	e.want(t, "opened read", "opened stranger", "opened a", "released a", "opened c")
	c.conn.Close()
	stranger.conn.Close()
	if !s.Shutdown(context.Background()) {
		t.Error("sessions did not end")
	}
	for s.Unfinished() != 0 { // the server forgets a connection right after its session
		runtime.Gosched()
	}
}

// TestSuccessionReadAhead: if requests were read from a connection and not begun before the
// client's next session began, they are not carried out.
func TestSuccessionReadAhead(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	var e events
	s := serve(t, map[wire.Type]rpc.Handler{
		wire.Type_TYPE_UNPIN: rpc.Quick(func(context.Context, *rpc.Request, *wire.Unpin) {
			close(began)
			<-release
		}),
		wire.Type_TYPE_MKDIR: rpc.Waiting(func(context.Context, *rpc.Request, *wire.Mkdir) (proto.Message, error) {
			e.note("made")
			return &wire.Entry{}, nil
		}),
		wire.Type_TYPE_RETURN: rpc.Quick(func(_ context.Context, r *rpc.Request, _ *wire.ReturnLease) {
			e.note("returned")
			r.Reply(&wire.Empty{})
		}),
	}, nil)
	a, err := s.introduce(t, nth(1))
	if err != nil {
		t.Fatal(err)
	}
	var frames []byte
	for i, typ := range []wire.Type{wire.Type_TYPE_UNPIN, wire.Type_TYPE_RETURN, wire.Type_TYPE_MKDIR} {
		if frames, err = wire.AppendFrame(frames, typ, 0, uint64(10+i), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.conn.Write(frames); err != nil { // which one read brings
		t.Fatal(err)
	}
	<-began
	b, err := s.introduce(t, nth(2))
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	b.send(wire.Type_TYPE_MKDIR, &wire.Mkdir{})
	if _, err := b.next(nil); err != nil {
		t.Error(err)
	}
	e.want(t, "made")
}

// TestSuccessionRefused: a session that is later than its successor, and one without a valid name, are refused, and
// end no other.
func TestSuccessionRefused(t *testing.T) {
	s, _, _, _ := succession(t)
	c, err := s.introduce(t, nth(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, hello := range []*wire.Hello{
		nth(1), nth(2), nth(0),
		{Connection: []byte("short"), Succession: 3},
		{Connection: bytes.Repeat([]byte{7}, wire.ConnectionSize+1), Succession: 3},
	} {
		if _, err := s.introduce(t, hello); bb.KindOf(err) != bb.Invalid {
			t.Errorf("%v: %v", hello, err)
		}
	}
	other := nth(3)
	other.Connection[0]++
	if _, err := s.introduce(t, other); err != nil {
		t.Error(err)
	}
	c.send(wire.Type_TYPE_STAT, &wire.PathRequest{})
	if _, err := c.next(nil); err != nil {
		t.Error(err)
	}
}
