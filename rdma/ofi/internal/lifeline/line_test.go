package lifeline

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side is one end of a lifeline, which opens every region but the third, and records its frames.
type side struct {
	line    *Line
	socket  net.Conn
	dying   chan struct{}
	threads sync.WaitGroup
	once    sync.Once
	heard   chan Frame
	failed  chan error // capacity 1
}

func newSide(t *testing.T, socket net.Conn, silence time.Duration) *side {
	s := &side{socket: socket, dying: make(chan struct{}), heard: make(chan Frame, 100), failed: make(chan error, 1)}
	s.line = New(s, silence, s.dying)
	t.Cleanup(func() { s.end(); s.threads.Wait() })
	return s
}

func (s *side) end() { s.once.Do(func() { close(s.dying); _ = s.socket.Close() }) }

func (s *side) Open(ask Frame) {
	answer := Frame{Kind: KindOpened, Request: ask.Request, Key: ask.Key, Size: 100, Access: rdma.AccessRemoteRead}
	if ask.Key.ID() == 3 {
		answer = Frame{Kind: KindOpened, Request: ask.Request, Key: ask.Key, Status: target.Revoked}
	}
	s.line.Tell(answer)
}

func (s *side) Opened(f Frame)    { s.heard <- f }
func (s *side) Revoke(id uint64)  { s.heard <- ForRegion(KindRevoke, id) }
func (s *side) Revoked(id uint64) { s.heard <- ForRegion(KindRevoked, id) }

func (s *side) Fail(cause error) {
	select {
	case s.failed <- cause:
	default:
	}
	s.end()
}

func pair(t *testing.T, silence time.Duration) (a, b *side) {
	t.Helper()
	near, far := net.Pipe()
	return newSide(t, near, silence), newSide(t, far, silence)
}

func wantFailed(t *testing.T, s *side, want error) {
	t.Helper()
	select {
	case err := <-s.failed:
		if !errors.Is(err, want) {
			t.Errorf("failed for another reason: %v, want %v", err, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it has not failed")
	}
}

// TestQuestionsAndRevocations: answers come to the questions that they are for, and both kinds of
// revocation come through.
func TestQuestionsAndRevocations(t *testing.T) {
	a, b := pair(t, time.Hour)
	a.line.Start(a.socket, &a.threads)
	b.line.Start(b.socket, &b.threads)
	var asking sync.WaitGroup
	for id := uint64(1); id <= 40; id++ {
		asking.Go(func() {
			refused, err := a.line.Ask(t.Context(), ForRegion(KindOpen, id).Key)
			if err != nil || (id == 3) != errors.Is(refused, rdma.ErrRevoked) {
				t.Errorf("region %d: %v, %v", id, refused, err)
			}
		})
	}
	asking.Wait()
	opened := map[uint64]bool{}
	for range 39 {
		opened[(<-a.heard).Key.ID()] = true
	}
	if len(opened) != 39 || opened[3] {
		t.Errorf("%d were opened, the third: %v", len(opened), opened[3])
	}
	b.line.Tell(ForRegion(KindRevoke, 7))
	b.line.Tell(ForRegion(KindRevoked, 8))
	for _, want := range []Frame{ForRegion(KindRevoke, 7), ForRegion(KindRevoked, 8)} {
		if got := <-a.heard; got != want {
			t.Errorf("heard %+v, want %+v", got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.line.Ask(ctx, rdma.RemoteKey{}); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.end()
	if _, err := a.line.Ask(t.Context(), rdma.RemoteKey{}); !errors.Is(err, provider.ErrDone) {
		t.Errorf("asked on a lifeline that has ended: %v", err)
	}
}

// TestUnaskedAnswers: an answer to no question breaks the protocol, as does a frame that only the handshake
// has.
func TestUnaskedAnswers(t *testing.T) {
	for name, f := range map[string]Frame{"answer": {Kind: KindOpened, Request: 9}, "ready": {Kind: KindReady}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, time.Hour)
			a.line.Start(a.socket, &a.threads)
			b.line.Start(b.socket, &b.threads)
			b.line.Tell(f)
			wantFailed(t, a, rdma.ErrProtocol)
		})
	}
}

// TestPings: they keep an idle lifeline alive. Without them it ends.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 30 * time.Second
		a, b := pair(t, silence)
		a.line.Start(a.socket, &a.threads)
		got := make([]byte, frameSize)
		ping := Frame{Kind: KindPing}
		for range 10 {
			if n, err := b.socket.Read(got); n != frameSize || err != nil {
				t.Fatal(n, err)
			}
			if f, err := decodeFrame(got); err != nil || f != ping {
				t.Fatalf("%+v, %v", f, err)
			}
			if _, err := b.socket.Write(ping.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if len(a.failed) > 0 {
			t.Fatal("it ended between pings")
		}
		go func() { _, _ = io.Copy(io.Discard, b.socket) }() // and writes nothing
		last := time.Now()
		if err := <-a.failed; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(last) != silence {
			t.Errorf("after %v: %v", time.Since(last), err)
		}
	})
}

// TestPeerReadsNothing: a peer that takes no frames has a bounded queue, and is disconnected.
func TestPeerReadsNothing(t *testing.T) {
	a, _ := pair(t, time.Hour)
	a.line.Start(a.socket, &a.threads)
	for len(a.failed) == 0 {
		a.line.Tell(Frame{Kind: KindPing})
	}
	wantFailed(t, a, rdma.ErrProtocol)
}
