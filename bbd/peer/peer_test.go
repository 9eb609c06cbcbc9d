package peer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// responder is a daemon that answers as a test sets.
type responder struct {
	t        *testing.T
	address  string
	accepted atomic.Int32
	open     atomic.Int32 // connections
	old      bool         // it sends no pulses
	pulse    time.Duration
	quiet    atomic.Bool // it is stopped; nothing comes any more
	held     atomic.Uint32
	// answer carries a request out. Its replies go to conn.
	answer func(conn net.Conn, head wire.Header)
}

// limit is how long a peer may be silent here.
const limit = 800 * time.Millisecond

func (r *responder) start() *responder {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = l.Addr().String()
	var wg sync.WaitGroup
	r.t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			r.open.Add(1)
			wg.Go(func() {
				r.serve(conn)
				conn.Close()
				r.open.Add(-1)
			})
		}
	})
	return r
}

func (r *responder) serve(conn net.Conn) {
	in := wire.NewReader(conn)
	head, _, err := in.Next()
	if err != nil {
		return
	}
	welcome := &wire.Welcome{Version: wire.MaxVersion, Node: "n2", MaxInFlight: 100}
	if !r.old {
		welcome.Capabilities = []string{wire.CapabilityPulse}
	}
	reply(conn, head, welcome)
	ended := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(ended)
	if r.pulse > 0 {
		wg.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(r.pulse):
				}
				if !r.quiet.Load() {
					reply(conn, wire.Header{Type: wire.Type_TYPE_PULSE}, &wire.Pulse{Held: r.held.Load()})
				}
			}
		})
	}
	for {
		head, _, err := in.Next()
		if err != nil {
			return
		}
		if r.answer != nil && !r.quiet.Load() {
			wg.Go(func() { r.answer(conn, head) })
		}
	}
}

func reply(conn net.Conn, head wire.Header, m proto.Message) {
	frame, err := wire.AppendFrame(nil, head.Type, wire.FlagReply, head.Request, m, 0)
	if err == nil {
		conn.Write(frame)
	}
}

func (r *responder) dial() *Session {
	r.t.Helper()
	s, err := Dial(r.t.Context(), "n2", r.address, &Identity{Node: "n1", Silence: limit}, Who{}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

func ask(s *Session, within time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.Ask(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{}, nil, nil)
}

// A peer that is stopped acknowledges requests, and sends nothing. Callers that wait for its answer
// get the error that it is not there.
func TestAskOfOneThatIsStopped(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, pulse: limit / 8}).start()
	s := r.dial()
	time.Sleep(2 * limit) // it is alive
	if s.Broken() {
		t.Fatal("a session with a peer that only has nothing to say is broken")
	}
	r.quiet.Store(true)
	_, err := ask(s, 30*time.Second)
	var e *bb.Error
	if !errors.As(err, &e) || e.Kind != bb.Unavailable || e.Node != "n2" || e.Remedy == "" || !strings.Contains(err.Error(), "no message from node") {
		t.Errorf("the answer of one that is stopped: %v", err)
	}
	if !s.Broken() {
		t.Error("its session goes on")
	}
}

// An answer that takes long is waited for, as long as the peer is alive.
func TestAskWaitsForOneThatLives(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, pulse: limit / 8, answer: func(conn net.Conn, head wire.Header) {
		time.Sleep(3 * limit)
		reply(conn, head, &wire.Empty{})
	}}).start()
	if _, err := ask(r.dial(), 30*time.Second); err != nil {
		t.Error(err)
	}
}

// So is one that comes slowly, before which no pulse can come.
func TestAskOverASlowLink(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, answer: func(conn net.Conn, head wire.Header) {
		frame, _ := wire.AppendFrame(nil, head.Type, wire.FlagReply, head.Request, &wire.Empty{}, 1000)
		frame = append(frame, make([]byte, 1000)...)
		for ; len(frame) > 0; frame = frame[min(50, len(frame)):] {
			conn.Write(frame[:min(50, len(frame))])
			time.Sleep(limit / 6)
		}
	}}).start()
	if data, err := ask(r.dial(), 30*time.Second); err != nil || len(data) != 1000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// A slow reader of answers does not count that as the peer's silence.
func TestStreamTakenSlowly(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, answer: func(conn net.Conn, head wire.Header) {
		for i := range 4 {
			flags := wire.FlagReply | wire.FlagMore
			if i == 3 {
				flags = wire.FlagReply
			}
			frame, _ := wire.AppendFrame(nil, head.Type, flags, head.Request, &wire.Empty{}, 0)
			conn.Write(frame)
		}
	}}).start()
	taken := 0
	err := r.dial().Stream(t.Context(), wire.Type_TYPE_STATUS, &wire.StatusRequest{}, nil, func(Answer) error {
		taken++
		if taken == 1 {
			time.Sleep(2 * limit)
		}
		return nil
	})
	if err != nil || taken != 4 {
		t.Errorf("%d answers, %v", taken, err)
	}
}

// A daemon of a release that sends no pulses is not taken for one that is stopped.
func TestAskOfOneWithoutPulses(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, old: true, answer: func(conn net.Conn, head wire.Header) {
		time.Sleep(2 * limit)
		reply(conn, head, &wire.Empty{})
	}}).start()
	if _, err := ask(r.dial(), 30*time.Second); err != nil {
		t.Error(err)
	}
}

// TestPoolMeets checks that the Pool reports each session that begins, and of none that is used
// again.
func TestPoolMeets(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, answer: func(conn net.Conn, head wire.Header) { reply(conn, head, &wire.Empty{}) }}).start()
	var met []bb.NodeID
	p := NewPool(&Identity{Node: "n1", Silence: limit, Met: func(node bb.NodeID, _ bb.InstanceID) { met = append(met, node) }}, nil)
	defer p.Close()
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			p.Drop("n2")
		}
		if _, err := p.Session(t.Context(), "n2", r.address, Who{}); err != nil {
			t.Fatal(err)
		}
		if len(met) != want || met[0] != "n2" {
			t.Errorf("after session %d: %v", i, met)
		}
	}
}

// Sessions without a user are closed, those in which the peer keeps something, are not.
func TestPoolClosesIdleSessions(t *testing.T) {
	t.Parallel()
	r := (&responder{t: t, pulse: limit / 8, answer: func(conn net.Conn, head wire.Header) {
		reply(conn, head, &wire.Empty{})
	}}).start()
	r.held.Store(1)
	p := NewPool(&Identity{Node: "n1", Silence: limit, Idle: limit / 4}, nil)
	defer p.Close()
	s, err := p.Session(t.Context(), "n2", r.address, Who{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(s, time.Minute); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * limit)
	if s.Broken() {
		t.Fatal("a session was closed in which the peer keeps an open file")
	}
	r.held.Store(0)
	for deadline := time.Now().Add(20 * time.Second); r.open.Load() > 0; time.Sleep(limit / 8) {
		if time.Now().After(deadline) {
			t.Fatal("an idle session is not closed")
		}
	}
	if n := len(p.slots(func(key) bool { return true })); n != 0 {
		t.Errorf("%d slots are kept", n)
	}
	// Callers meanwhile are not affected.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 12 {
				s, err := p.Session(t.Context(), "n2", r.address, Who{})
				if err == nil {
					_, err = ask(s, time.Minute)
				}
				if err != nil {
					t.Error(err)
				}
				time.Sleep(limit + time.Duration(time.Now().UnixNano())%limit)
			}
		})
	}
	wg.Wait()
	if n := r.accepted.Load(); n < 2 {
		t.Errorf("%d sessions were opened", n)
	}
}
