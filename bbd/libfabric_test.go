//go:build ofi && cgo

package bbd_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"

	"forebay/bbd"
	"forebay/bbd/fabric"
	"forebay/bbd/status"
	"forebay/client/admin"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/route"
)

func init() { clusterOFI = fabric.OFI{Use: fabric.OFIOn, Want: clusterWant} }

// libfabricNode is a node that others reach over libfabric, by one of its providers in software.
func libfabricNode(t *testing.T, want fi.Want) (n *node, address string) {
	t.Helper()
	address = freeAddress(t)
	want.Address = "127.0.0.1"
	n = startNode(t, func(c *bbd.Config) {
		c.TCP, c.Fabric, c.Keys = address, "127.0.0.1:0", wire.NewKeyring(fabricKey)
		c.OFI = fabric.OFI{Use: fabric.OFIOn, Want: want}
	})
	n.buffer(n.dial(), admin.BufferSpec{Name: "open", Mode: 0o777})
	return n, address
}

// wantPath checks the reported path of the session of uid.
func wantPath(t *testing.T, n *node, uid uint32, path string) {
	t.Helper()
	all := n.daemon.Status().Sessions
	if !slices.ContainsFunc(all, func(s status.Session) bool { return s.UID == uid && s.Path == path }) {
		t.Errorf("no session of user %d by %s: %+v", uid, path, all)
	}
}

// TestLibfabric: bytes that a client wrote over libfabric are read by others, and the other way
// round.
func TestLibfabric(t *testing.T) {
	for name, want := range map[string]fi.Want{
		"message endpoints":  {Provider: "tcp"},
		"datagram endpoints": {Provider: "sockets", Endpoint: fi.Datagram},
	} {
		t.Run(name, func(t *testing.T) {
			n, address := libfabricNode(t, want)
			r := farDial(t, address, 1001)
			if r.welcome.OfiAddress == "" || r.welcome.OfiProvider != want.Provider {
				t.Fatalf("welcome: %v", r.welcome)
			}
			w := r.welcome
			way := route.New(route.Offer{
				TCP: "127.0.0.1:1", OFI: w.OfiAddress, Provider: w.OfiProvider, Endpoint: w.OfiEndpoint, Network: w.OfiNetwork,
			}, route.Options{Log: slog.New(slog.DiscardHandler), Authenticate: func(_ context.Context, stream net.Conn) error {
				return wire.ShowTicket(stream, w.Session, w.DataTicket)
			}})
			t.Cleanup(func() { way.Close() })
			c, name, err := way.Dial(t.Context())
			if err != nil || name != "ofi/"+want.Provider {
				t.Fatal(name, err)
			}
			content := random(900_000)
			r.writeFar(c, "f", content)
			wantFile(t, n.dial().Buffer("open"), "f", content)
			wantPath(t, n, 1001, "ofi/"+want.Provider)
			wantPath(t, n, 0, "shm")

			m, _ := r.extents("f", 1<<20)
			got := make([]byte, len(content))
			if err := rdma.Do(t.Context(), c, op(t, rdma.OpRead, got, m.Regions[0], m.Extents[0].Offset)); err != nil || !bytes.Equal(got, content) {
				t.Errorf("what was read differs (%v)", err)
			}
			// The end of the session ends its connection, over any transport.
			r.conn.Close()
			wantFarGone(t, c)
		})
	}
}

// TestClusterOverLibfabric: with clusterOFI, one daemon reads from another over libfabric, so all
// tests of clusters in this build do.
func TestClusterOverLibfabric(t *testing.T) {
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	content := random(5<<20 + 3)
	write(t, b, "f", content)
	wantFile(t, nodes[1].dial().Buffer("shared"), "f", content)
	for _, s := range nodes[0].daemon.Status().Sessions {
		if s.Path == "ofi/"+clusterWant.Provider {
			return
		}
	}
	t.Errorf("no daemon reads over libfabric: %+v", nodes[0].daemon.Status().Sessions)
}
