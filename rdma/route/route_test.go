package route

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) (address string) {
	t.Helper()
	f, err := tcp.New(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	l, err := f.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr()
}

func options() Options {
	return Options{
		Log:          slog.New(slog.DiscardHandler),
		Authenticate: func(context.Context, net.Conn) error { return nil },
	}
}

// TestFallsBack: peers that libfabric cannot reach are reached over TCP, and Close ends everything.
func TestFallsBack(t *testing.T) {
	r := New(Offer{TCP: listen(t), OFI: "127.0.0.1:1", Provider: "tcp", Network: "127.0.0.1/32"}, options())
	var wanted []fi.Want
	r.shared = &shared{open: func(o ofi.Options) (fabric, error) {
		wanted = append(wanted, o.Want)
		return nil, errors.ErrUnsupported
	}}
	c, name, err := r.Dial(t.Context())
	if err != nil || name != "tcp" {
		t.Fatal(name, err)
	}
	if fi.Supported && (len(wanted) != 2 || wanted[0].Network != "127.0.0.1/32" || wanted[1].Network != "") {
		t.Errorf("looked for %+v", wanted)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Err(); !errors.Is(err, rdma.ErrClosed) {
		t.Error(err)
	}
	if _, _, err := r.Dial(t.Context()); !errors.Is(err, rdma.ErrClosed) {
		t.Error(err)
	}
}

func TestNobodyThere(t *testing.T) {
	r := New(Offer{TCP: "127.0.0.1:1"}, options())
	if _, _, err := r.Dial(t.Context()); !errors.Is(err, rdma.ErrPeerGone) {
		t.Error(err)
	}
}

// fake is a fabric that connects to no peer.
type fake struct {
	broken bool
	closed int
	kept   int // memory that is kept now
}

func (f *fake) Keep([]byte) (io.Closer, error) {
	f.kept++
	return closer(func() error { f.kept--; return nil }), nil
}

type closer func() error

func (c closer) Close() error { return c() }

func (f *fake) DialWith(ctx context.Context, _ string, _ ofi.Dialer) (rdma.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (f *fake) Broken() bool { return f.broken }
func (f *fake) Close() error { f.closed++; return nil }

// TestShared: equal choices share one fabric, while it has a user and is not broken.
func TestShared(t *testing.T) {
	var opened []*fake
	s := &shared{open: func(o ofi.Options) (fabric, error) {
		if o.Want.Provider == "none" {
			return nil, errors.ErrUnsupported
		}
		f := &fake{}
		opened = append(opened, f)
		return f, nil
	}}
	use := func(provider string) *use {
		t.Helper()
		u, err := s.use(fi.Want{Provider: provider}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	a, b, other := use("a"), use("a"), use("other")
	if len(opened) != 2 || a.fabric != b.fabric || a.fabric == other.fabric {
		t.Fatalf("%d are open", len(opened))
	}
	_ = a.Close()
	if opened[0].closed != 0 {
		t.Error("closed while it is in use")
	}
	opened[0].broken = true
	c := use("a")
	if len(opened) != 3 || c.fabric == b.fabric {
		t.Error("a broken one is given out")
	}
	_ = b.Close()
	if opened[0].closed != 1 {
		t.Error("the broken one was not closed with its last user")
	}
	if d := use("a"); len(opened) != 3 || d.Close() != nil {
		t.Error("the last user of a broken one took the good one away")
	}
	_, _ = c.Close(), other.Close()
	for i, f := range opened {
		if f.closed != 1 {
			t.Errorf("fabric %d was closed %d times", i, f.closed)
		}
	}
	for range 2 {
		if _, err := s.use(fi.Want{Provider: "none"}, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
	if len(s.mu.inUse) != 0 {
		t.Errorf("%d are in use still", len(s.mu.inUse))
	}
}

// TestKeep: memory is kept in all fabrics, also those that are opened later, until it is closed.
func TestKeep(t *testing.T) {
	var opened []*fake
	s := &shared{open: func(o ofi.Options) (fabric, error) {
		f := &fake{}
		opened = append(opened, f)
		return f, nil
	}}
	want := func(counts ...int) {
		t.Helper()
		for i, n := range counts {
			if opened[i].kept != n {
				t.Errorf("fabric %d keeps %d, want %d", i, opened[i].kept, n)
			}
		}
	}
	keep := func(mem []byte) io.Closer {
		t.Helper()
		k, err := s.keep(mem)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	mem := make([]byte, 300)
	first := keep(mem[:100])
	a, _ := s.use(fi.Want{Provider: "a"}, nil)
	want(1)
	second := keep(mem[100:200])
	want(2)
	b, _ := s.use(fi.Want{Provider: "b"}, nil)
	want(2, 2)
	for _, bad := range [][]byte{mem[50:60], mem[199:201], mem, {}} {
		if _, err := s.keep(bad); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	_ = a.Close()
	_, _ = first.Close(), first.Close()
	want(2, 1) // a fabric that is closed keeps nothing
	_ = keep(mem[:100]).Close()
	want(2, 1)
	_, _ = second.Close(), b.Close()
	want(2, 0)
	if len(s.mu.kept) != 0 || len(s.mu.open) != 0 {
		t.Errorf("%d are kept in %d fabrics still", len(s.mu.kept), len(s.mu.open))
	}
}

// TestCloseWhileDialling: Close ends a dial that would take long, and waits for it.
func TestCloseWhileDialling(t *testing.T) {
	if !fi.Supported {
		hang, err := net.Listen("tcp", "127.0.0.1:0") // no peer accepts
		if err != nil {
			t.Fatal(err)
		}
		defer hang.Close()
		r := New(Offer{TCP: hang.Addr().String()}, options())
		closeWhileDialling(t, r)
		return
	}
	f := &fake{}
	r := New(Offer{TCP: "127.0.0.1:1", OFI: "127.0.0.1:1", Provider: "tcp"}, options())
	r.shared = &shared{open: func(ofi.Options) (fabric, error) { return f, nil }}
	closeWhileDialling(t, r)
	if f.closed != 1 {
		t.Errorf("the fabric was closed %d times", f.closed)
	}
}

func closeWhileDialling(t *testing.T, r *Route) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, _, err := r.Dial(t.Context())
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond) // so that it is under way, mostly; Close is right earlier, too
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, rdma.ErrClosed) {
		t.Error(err)
	}
}
