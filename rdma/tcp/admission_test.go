package tcp

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

// doorman admits streams by the admission set at the moment.
func doorman(t *testing.T, by *atomic.Pointer[Admission]) rdma.Listener {
	t.Helper()
	far := benchFabricOf(t, Options{Admit: func(context.Context, net.Conn) (*Admission, error) {
		return by.Load(), nil
	}})
	l, err := far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	return l
}

func TestAdmissionEnds(t *testing.T) {
	var by atomic.Pointer[Admission]
	by.Store(NewAdmission(2))
	l := doorman(t, &by)
	near := benchFabricOf(t, Options{})
	var dialled, accepted []rdma.Conn
	for range 2 {
		d, err := near.Dial(t.Context(), l.Addr())
		must(t, err)
		a, err := l.Accept(t.Context())
		must(t, err)
		dialled, accepted = append(dialled, d), append(accepted, a)
	}
	// A third one is too many. Its dialer may see the error only when it uses it.
	if c, err := near.Dial(t.Context(), l.Addr()); err == nil {
		wantGone(t, c)
	}
	// One that ended makes room.
	must(t, accepted[0].Close())
	wantGone(t, dialled[0])
	third, err := near.Dial(t.Context(), l.Addr())
	must(t, err)
	_, err = l.Accept(t.Context())
	must(t, err)

	by.Load().End()
	if err := accepted[1].Err(); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("when End has returned, the connection's end is %v", err)
	}
	wantGone(t, dialled[1])
	wantGone(t, third)
	if c, err := near.Dial(t.Context(), l.Addr()); err == nil {
		wantGone(t, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("accepted one whose admission had ended: %v", err)
	}
	by.Load().End() // twice
}

// wantGone waits until the other side has closed a connection.
func wantGone(t *testing.T, c rdma.Conn) {
	t.Helper()
	rdmatest.WantEnd(t, c, rdma.ErrPeerGone)
}

// TestAdmissionsAreNotMixed: a stream that was admitted by something else than its
// connection's first one does not join it.
func TestAdmissionsAreNotMixed(t *testing.T) {
	far := benchFabricOf(t, Options{Admit: func(context.Context, net.Conn) (*Admission, error) {
		return NewAdmission(1), nil
	}, HandshakeTimeout: 200 * time.Millisecond})
	l, err := far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	if c, err := benchFabricOf(t, Options{}).Dial(t.Context(), l.Addr()); err == nil {
		_ = c.Close()
		t.Error("connected")
	}
}
