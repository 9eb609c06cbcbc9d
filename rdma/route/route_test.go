package route

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"

	"go.uber.org/goleak"

	"forebay/rdma"
	"forebay/rdma/ofi"
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

// TestFallsBack: what libfabric cannot reach is reached over TCP, and Close ends everything.
func TestFallsBack(t *testing.T) {
	r := New(Offer{TCP: listen(t), OFI: "127.0.0.1:1", Provider: "tcp", Network: "127.0.0.1/32"}, options())
	var wanted []ofi.Want
	r.open = func(o ofi.Options) (rdma.Fabric, error) {
		wanted = append(wanted, o.Want)
		return nil, errors.ErrUnsupported
	}
	c, name, err := r.Dial(t.Context())
	if err != nil || name != "tcp" {
		t.Fatal(name, err)
	}
	if ofi.Supported && (len(wanted) != 2 || wanted[0].Network != "127.0.0.1/32" || wanted[1].Network != "") {
		t.Errorf("looked for %+v", wanted)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Send(t.Context(), nil); !errors.Is(err, rdma.ErrClosed) {
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
