//go:build ofi && cgo

package ofi

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/rdma"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/progress"
	"forebay/rdma/rdmatest"
)

// link is two connected fabrics over libfabric's tcp, the far one with a region.
type link struct {
	t            *testing.T
	near, far    *Fabric
	listener     rdma.Listener
	conn, target *conn
	region       *region
}

const all = rdma.AccessRemoteRead | rdma.AccessRemoteWrite

func newTestFabric(t *testing.T, change func(*Options)) *Fabric {
	t.Helper()
	opts := configurations["tcp"].opts
	if change != nil {
		change(&opts)
	}
	f, err := New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func newLink(t *testing.T, access rdma.Access, change func(*Options)) *link {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) }) // runs last
	x := &link{t: t, near: newTestFabric(t, change), far: newTestFabric(t, change)}
	var err error
	x.listener, err = x.far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	x.region = registered(t, x.far, 1<<20, access)
	x.connect()
	return x
}

func (x *link) connect() {
	x.t.Helper()
	c, err := x.near.Dial(x.t.Context(), x.listener.Addr())
	must(x.t, err)
	a, err := x.listener.Accept(x.t.Context())
	must(x.t, err)
	x.conn, x.target = c.(*conn), a.(*conn)
}

func registered(t *testing.T, f *Fabric, size int, access rdma.Access) *region {
	t.Helper()
	mem, err := rdmatest.Allocate(size)
	must(t, err)
	r, err := f.Register(mem, access)
	must(t, err)
	t.Cleanup(func() {
		must(t, r.Close())
		must(t, rdmatest.Free(mem))
	})
	return r.(*region)
}

func (x *link) do(kind rdma.OpKind, off uint64, b []byte) error {
	return rdma.Do(x.t.Context(), x.conn, []rdma.Op{{Kind: kind, Local: b, Remote: rdma.Remote{Key: x.region.Key(), Offset: off}}})
}

// tamper changes the initiator's record of its rights.
func (x *link) tamper(change func(g *grant)) {
	x.t.Helper()
	_, err := x.conn.ask(x.t.Context(), x.region.Key())
	must(x.t, err)
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	change(x.conn.mu.grants.byID[x.region.Key().ID()])
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantBroken checks that an operation was refused, which costs the connection, and that the target
// continues.
func (x *link) wantBroken(err error) {
	x.t.Helper()
	if !errors.Is(err, rdma.ErrAccess) && !errors.Is(err, rdma.ErrPeerGone) {
		x.t.Errorf("the fabric let it pass, or failed otherwise: %v", err)
	}
	x.connect()
	good := registered(x.t, x.far, 100, all)
	op := rdma.Op{Kind: rdma.OpWrite, Local: make([]byte, 100), Remote: rdma.Remote{Key: good.Key()}}
	must(x.t, rdma.Do(x.t.Context(), x.conn, []rdma.Op{op}))
}

// TestFabricEnforces: the fabric itself stops an initiator that exceeds its rights.
func TestFabricEnforces(t *testing.T) {
	for name, c := range map[string]struct {
		access rdma.Access
		kind   rdma.OpKind
		off    uint64
		tamper func(g *grant)
	}{
		"write beyond":         {all, rdma.OpWrite, 1<<20 - 50, func(g *grant) { g.size *= 2 }},
		"read beyond":          {all, rdma.OpRead, 1 << 20, func(g *grant) { g.size *= 2 }},
		"write to read-only":   {rdma.AccessRemoteRead, rdma.OpWrite, 0, func(g *grant) { g.access = all }},
		"read from write-only": {rdma.AccessRemoteWrite, rdma.OpRead, 0, func(g *grant) { g.access = all }},
		"another key":          {all, rdma.OpWrite, 0, func(g *grant) { g.at.Key ^= 0x10 }},
	} {
		t.Run(name, func(t *testing.T) {
			x := newLink(t, c.access, nil)
			x.tamper(c.tamper)
			before := bytes.Clone(x.region.Bytes())
			b := bytes.Repeat([]byte{7}, 100)
			x.wantBroken(x.do(c.kind, c.off, b))
			if !bytes.Equal(before, x.region.Bytes()) {
				t.Error("the region changed")
			}
		})
	}
}

// TestFabricRevokes: an initiator that keeps the fabric's key after the region is closed, and
// denies it, is stopped.
func TestFabricRevokes(t *testing.T) {
	x := newLink(t, all, nil)
	var kept grant
	x.tamper(func(g *grant) { kept = *g })
	must(t, x.region.Close())
	before := bytes.Clone(x.region.Bytes())
	x.conn.mu.Lock()
	kept.revoked = false
	x.conn.mu.grants.byKey[kept.key], x.conn.mu.grants.byID[kept.key.ID()] = &kept, &kept
	x.conn.mu.Unlock()
	x.wantBroken(x.do(rdma.OpWrite, 0, bytes.Repeat([]byte{7}, 100)))
	if !bytes.Equal(before, x.region.Bytes()) {
		t.Error("the region changed")
	}
}

// TestRevocationOfAStalledPeer: a peer that never confirms the revocation loses its connection, and
// the revocation goes through.
func TestRevocationOfAStalledPeer(t *testing.T) {
	x := newLink(t, all, func(o *Options) { o.RevokeTimeout = 50 * time.Millisecond })
	x.tamper(func(g *grant) { g.users++ })
	must(t, x.region.Close())
	rdmatest.WantEnd(t, x.target, rdma.ErrPeerGone)
	rdmatest.WantEnd(t, x.conn, rdma.ErrPeerGone)
}

// TestSilentPeer: a peer whose process stands still counts as gone.
func TestSilentPeer(t *testing.T) {
	f := newTestFabric(t, func(o *Options) { o.PeerTimeout = 50 * time.Millisecond })
	l, err := f.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	slow := newTestFabric(t, func(o *Options) { o.PeerTimeout = time.Hour })
	c, err := slow.Dial(t.Context(), l.Addr())
	must(t, err)
	a, err := l.Accept(t.Context())
	must(t, err)
	rdmatest.WantEnd(t, a, rdma.ErrPeerGone)
	rdmatest.WantEnd(t, c, rdma.ErrPeerGone)
}

func TestKindsOfEndpointsDoNotMix(t *testing.T) {
	x := newLink(t, all, nil)
	other := newTestFabric(t, func(o *Options) { o.Want = configurations["sockets"].opts.Want })
	_, err := other.Dial(t.Context(), x.listener.Addr())
	if !errors.Is(err, rdma.ErrProtocol) || !strings.Contains(err.Error(), "datagram") {
		t.Errorf("dialled with another kind of endpoint: %v", err)
	}
}

func TestAdmission(t *testing.T) {
	by := make(chan *Admission, 3)
	far := newTestFabric(t, func(o *Options) {
		o.Admit = func(_ context.Context, s net.Conn) (*Admission, error) {
			b := make([]byte, 1)
			if _, err := s.Read(b); err != nil || b[0] != 'y' {
				return nil, rdma.ErrAccess
			}
			return <-by, nil
		}
	})
	l, err := far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	show := func(b string) *Fabric {
		return newTestFabric(t, func(o *Options) {
			o.Authenticate = func(_ context.Context, s net.Conn) error {
				_, err := s.Write([]byte(b))
				return err
			}
		})
	}
	if _, err := show("n").Dial(t.Context(), l.Addr()); !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("dialled without the password: %v", err)
	}
	one := NewAdmission(1)
	by <- one
	by <- one
	near := show("y")
	c, err := near.Dial(t.Context(), l.Addr())
	must(t, err)
	if _, err := near.Dial(t.Context(), l.Addr()); !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("more connections than were admitted: %v", err)
	}
	a, err := l.Accept(t.Context())
	must(t, err)
	one.End()
	if err := a.Err(); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("when End has returned, the connection's end is %v", err)
	}
	rdmatest.WantEnd(t, c, rdma.ErrPeerGone)
}

// TestStrangersOnTheFabric: a connection on the fabric that no lifeline announced is refused, and
// the next announced one is not disturbed.
func TestStrangersOnTheFabric(t *testing.T) {
	x := newLink(t, all, nil)
	e, err := x.near.dev.NewEndpoint(x.far.passiveAddress())
	must(t, err)
	must(t, e.Connect(x.far.passiveAddress(), make([]byte, len(progress.Token{}))))
	x.connect()
	must(t, x.do(rdma.OpWrite, 0, make([]byte, 10)))
	must(t, e.Close())
}

// TestIdleLoopSleeps: a loop with connections that do nothing does nothing.
func TestIdleLoopSleeps(t *testing.T) {
	x := newLink(t, all, nil)
	must(t, x.do(rdma.OpWrite, 0, make([]byte, 1000)))
	rounds := func() uint64 {
		_, near := x.near.loop.Idle()
		_, far := x.far.loop.Idle()
		return near + far
	}
	for _, f := range []*Fabric{x.near, x.far} {
		for sleeps := false; !sleeps; sleeps, _ = f.loop.Idle() {
			time.Sleep(time.Millisecond)
		}
	}
	before := rounds()
	time.Sleep(300 * time.Millisecond)
	if n := rounds() - before; n > 20 {
		t.Errorf("two idle loops looked %d times", n)
	}
}

func TestListAndChoose(t *testing.T) {
	offers, err := fi.List()
	must(t, err)
	found := false
	for _, o := range offers {
		found = found || o.Provider == "tcp" && o.Address == "127.0.0.1" && o.Endpoint == fi.Message && o.Domain != ""
	}
	if !found || fi.Version() == "" {
		t.Errorf("libfabric %s offers no tcp on the loopback: %+v", fi.Version(), offers)
	}
	_, err = New(Options{Want: fi.Want{Provider: "tcp", Domain: "nothing0"}})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "nothing0") {
		t.Errorf("a domain that is not there: %v", err)
	}
}
