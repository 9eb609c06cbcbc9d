//go:build ofi && cgo

package route

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/rdmatest"
)

// serve starts a peer over libfabric's tcp. It returns its address, its admission, and its close
// function.
func serve(t *testing.T, ticket string) (Offer, rdma.Region, *ofi.Fabric) {
	t.Helper()
	f, err := ofi.New(ofi.Options{
		Want: fi.Want{Provider: "tcp", Address: "127.0.0.1"},
		Admit: func(_ context.Context, s net.Conn) (*ofi.Admission, error) {
			b := make([]byte, len(ticket))
			if _, err := s.Read(b); err != nil || string(b) != ticket {
				return nil, rdma.ErrAccess
			}
			return nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	l, err := f.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := rdmatest.Allocate(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdmatest.Free(mem) })
	r, err := f.Register(mem, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	o := f.Offer()
	return Offer{TCP: "127.0.0.1:1", OFI: l.Addr(), Provider: o.Provider, Endpoint: string(o.Endpoint), Network: o.Fabric}, r, f
}

func showing(ticket string) Options {
	o := options()
	o.Authenticate = func(_ context.Context, s net.Conn) error {
		_, err := s.Write([]byte(ticket))
		return err
	}
	return o
}

// TestSessionsShareAFabric: routes to several peers, each with its own ticket, have one domain and
// one loop. The end of a peer ends its own route, and nothing else. So does the end of a route.
func TestSessionsShareAFabric(t *testing.T) {
	s := &shared{open: openOFI}
	type session struct {
		route  *Route
		conn   rdma.Conn
		region rdma.Region
		peer   *ofi.Fabric
	}
	var all []*session
	for _, ticket := range []string{"one", "two", "six"} {
		offer, region, peer := serve(t, ticket)
		x := &session{route: New(offer, showing(ticket)), region: region, peer: peer}
		x.route.shared = s
		t.Cleanup(func() { _ = x.route.Close() })
		var err error
		if x.conn, _, err = x.route.Dial(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if len(s.mu.inUse) != 1 {
		t.Errorf("three sessions over one network have %d fabrics open", len(s.mu.inUse))
	}
	do := func(x *session) error {
		return rdma.Do(t.Context(), x.conn, slices.Repeat([]rdma.Op{{
			Kind: rdma.OpWrite, Local: make([]byte, 100_000), Remote: rdma.Remote{Key: x.region.Key()},
		}}, 8))
	}
	for _, x := range all {
		if err := do(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := all[0].peer.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := do(all[0]); !errors.Is(err, rdma.ErrPeerGone) && !errors.Is(err, rdma.ErrRevoked) {
			t.Errorf("to a peer that is gone: %v", err)
		}
		if err := errors.Join(do(all[1]), do(all[2])); err != nil {
			t.Fatalf("%d: the end of one peer ended the others': %v", i, err)
		}
	}
	if err := all[1].route.Close(); err != nil {
		t.Fatal(err)
	}
	if err := do(all[1]); !errors.Is(err, rdma.ErrClosed) {
		t.Error(err)
	}
	if err := do(all[2]); err != nil {
		t.Errorf("the end of one route ended the others': %v", err)
	}
	_, _ = all[0].route.Close(), all[2].route.Close()
	if len(s.mu.inUse) != 0 {
		t.Error("a fabric is open that nobody uses")
	}
}
