package mux

import (
	"errors"
	"io"
	"net"
	"testing"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// pair returns the table of one end of a connection and a reader at the other one.
func pair(t *testing.T) (*Mux[string], *wire.Reader, net.Conn) {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	var m *Mux[string]
	m = New[string](wire.NewWriter(here), &wire.Welcome{Version: wire.MaxVersion, Server: "bbd", Node: "n"}, func(err error) { m.Break(err) })
	return m, wire.NewReader(there), there
}

var ask = Frame{Type: wire.Type_TYPE_STATUS, Message: &wire.StatusRequest{}}

// start starts a request while the other end reads it.
func start(t *testing.T, m *Mux[string], in *wire.Reader, call string, limit int) uint64 {
	t.Helper()
	got := make(chan uint64)
	go func() {
		head, _, err := in.Next()
		if err != nil {
			t.Error(err)
		}
		got <- head.Request
	}()
	id, err := m.Start(call, limit, ask)
	if err != nil {
		t.Fatal(err)
	}
	if sent := <-got; sent != id {
		t.Fatalf("request %d was sent as %d", id, sent)
	}
	return id
}

// TestAnswered: each call is handed out with its answers, and is in flight until the last of them.
func TestAnswered(t *testing.T) {
	t.Parallel()
	m, in, _ := pair(t)
	a, b := start(t, m, in, "a", 2), start(t, m, in, "b", 2)
	if _, err := m.Start("c", 2, ask); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the limit: %v", err)
	}
	for _, c := range []struct {
		head wire.Header
		call string
		left int
	}{
		{wire.Header{Request: b, Flags: wire.FlagReply | wire.FlagMore}, "b", 2},
		{wire.Header{Request: a, Flags: wire.FlagReply}, "a", 1},
		{wire.Header{Request: a, Flags: wire.FlagReply}, "", 1},
		{wire.Header{Request: b, Flags: wire.FlagReply}, "b", 0},
		{wire.Header{Request: 77, Flags: wire.FlagReply}, "", 0},
	} {
		call, ok := m.Answered(c.head)
		if call != c.call || ok != (c.call != "") || m.InFlight() != c.left {
			t.Errorf("%+v: %q, %v, %d left", c.head, call, ok, m.InFlight())
		}
	}
	m.Forget(start(t, m, in, "d", 1))
	if m.InFlight() != 0 {
		t.Error("a request that was forgotten is in flight")
	}
}

// TestTooLarge: a request that fits into no frame is refused, and hurts no other.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	m, in, _ := pair(t)
	f := ask
	f.Data = make([]byte, wire.MaxData+1)
	id, err := m.Start("a", 0, f)
	if tooLarge := (*wire.FrameError)(nil); id != 0 || !errors.As(err, &tooLarge) {
		t.Errorf("request %d: %v", id, err)
	}
	start(t, m, in, "b", 1)
}

// TestBreak: a connection that ends hands out the calls in flight, once, and accepts none.
func TestBreak(t *testing.T) {
	t.Parallel()
	m, in, there := pair(t)
	a := start(t, m, in, "a", 0)
	there.Close()
	id, err := m.Start("b", 0, ask)
	var broken *BrokenError
	if id == 0 || !errors.As(err, &broken) || bb.KindOf(err) != bb.Unavailable {
		t.Errorf("request %d: %v", id, err)
	}
	if !m.Broken() || m.InFlight() != 0 {
		t.Errorf("broken: %v, %d in flight", m.Broken(), m.InFlight())
	}
	if _, ok := m.Answered(wire.Header{Request: a}); ok {
		t.Error("a call is answered after the end")
	}
	id, err = m.Start("c", 0, ask)
	if id != 0 || !errors.As(err, &broken) || broken.Sent || errors.Is(err, bb.ErrUnknownOutcome) {
		t.Errorf("request %d: %v", id, err)
	}
	m, in, _ = pair(t)
	start(t, m, in, "a", 0)
	start(t, m, in, "b", 0)
	if calls := m.Break(io.EOF); len(calls) != 2 {
		t.Errorf("%d calls", len(calls))
	}
	if calls := m.Break(io.ErrUnexpectedEOF); len(calls) != 0 {
		t.Errorf("%d calls the second time", len(calls))
	}
	if _, err := m.Start("c", 0, ask); !errors.Is(err, io.EOF) {
		t.Errorf("the first reason counts: %v", err)
	}
}

// TestUnknownOutcome: only a request that was sent has one.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{false, true} {
		err := error(&BrokenError{Reason: io.EOF, Sent: sent})
		if errors.Is(err, bb.ErrUnknownOutcome) != sent || !errors.Is(err, io.EOF) {
			t.Errorf("sent: %v: %v", sent, err)
		}
	}
}
