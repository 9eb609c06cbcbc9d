package bbd_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
	"forebay/rdma"
	"forebay/rdma/rdmatest"
	"forebay/rdma/tcp"
)

var fabricKey = []byte("0123456789abcdef0123456789abcdef")

// freeAddress is an address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fabricNode is a node that others reach over TCP, with a buffer that is open to all.
func fabricNode(t *testing.T) (n *node, address string) {
	t.Helper()
	address = freeAddress(t)
	n = startNode(t, func(c *bbd.Config) {
		c.TCP, c.Fabric, c.Keys = address, "127.0.0.1:0", wire.NewKeyring(fabricKey)
	})
	n.buffer(n.dial(), admin.BufferSpec{Name: "open", Mode: 0o777})
	return n, address
}

// farSession is a raw session over TCP.
type farSession struct {
	rawSession
	welcome *wire.Welcome
	handle  uint64
}

func dialTCP(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func farDial(t *testing.T, address string, uid uint32) *farSession {
	t.Helper()
	conn := dialTCP(t, address)
	var err error
	r := &farSession{rawSession: rawSession{t: t, conn: conn, in: wire.NewReader(conn), last: 10}}
	if r.welcome, err = wire.Handshake(conn, r.in, &wire.Hello{Client: "far", Uid: uid, Gid: uid}, fabricKey); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	return r
}

// dialFabric opens a connection with a session's ticket.
func dialFabric(t *testing.T, w *wire.Welcome) (rdma.Conn, error) {
	t.Helper()
	f, err := tcp.New(tcp.Options{
		HandshakeTimeout: 5 * time.Second,
		Authenticate: func(_ context.Context, stream net.Conn) error {
			return wire.ShowTicket(stream, w.Session, w.DataTicket)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.Dial(t.Context(), w.DataAddress)
}

func (r *farSession) fabric() rdma.Conn {
	r.t.Helper()
	c, err := dialFabric(r.t, r.welcome)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *farSession) lease() *wire.Lease {
	r.t.Helper()
	var l wire.Lease
	r.ok(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "open", Bytes: 1 << 20}, nil, &l)
	if l.Region.Path != "" || len(l.Region.Key) != rdma.RemoteKeySize {
		r.t.Fatalf("a lease with path %q and a key of %d bytes", l.Region.Path, len(l.Region.Key))
	}
	return &l
}

func (r *farSession) giveBack(l *wire.Lease) {
	r.t.Helper()
	r.ok(wire.Type_TYPE_RETURN, &wire.ReturnLease{Id: l.Id}, nil, &wire.Empty{})
}

// op makes an operation on a place of a region.
func op(t *testing.T, kind rdma.OpKind, p []byte, r *wire.Region, off int64) []rdma.Op {
	t.Helper()
	key, err := rdma.DecodeRemoteKey(r.Key)
	if err != nil {
		t.Fatal(err)
	}
	return []rdma.Op{{Kind: kind, Local: p, Remote: rdma.Remote{Key: key, Offset: uint64(off)}}}
}

// writeFar writes a file with one lease, one-sided.
func (r *farSession) writeFar(c rdma.Conn, path string, content []byte) {
	r.t.Helper()
	l := r.lease()
	if err := rdma.Do(r.t.Context(), c, op(r.t, rdma.OpWrite, content, l.Region, l.Offset+l.DataStart)); err != nil {
		r.t.Fatal(err)
	}
	r.handle++
	r.open(&wire.Open{Handle: r.handle, Buffer: "open", Path: path, Write: true, Create: true, Mode: 0o644})
	r.ok(wire.Type_TYPE_COMMIT, &wire.Commit{Handle: r.handle, Close: true, Extents: []*wire.NewExtent{{
		Length: int64(len(content)), Checksum: checksum.Sum(content), Lease: l.Id, SegmentOffset: l.DataStart,
	}}}, nil, &wire.Committed{})
	r.giveBack(l)
}

// extents requests a file's extents.
func (r *farSession) extents(path string, n int64) (*wire.Extents, []byte) {
	r.t.Helper()
	r.handle++
	r.open(&wire.Open{Handle: r.handle, Buffer: "open", Path: path})
	reply := r.call(wire.Type_TYPE_EXTENTS, &wire.ExtentsRequest{Handle: r.handle, Length: n}, nil)
	var m wire.Extents
	if err := wire.DecodeReply(reply.head, reply.message, &m); err != nil {
		r.t.Fatal(err)
	}
	return &m, reply.data
}

// wantFarGone waits until the daemon has closed a connection of the fabric.
func wantFarGone(t *testing.T, c rdma.Conn) {
	t.Helper()
	rdmatest.WantEnd(t, c, rdma.ErrPeerGone)
}

func TestFabric(t *testing.T) {
	n, address := fabricNode(t)
	r := farDial(t, address, 1001)
	c := r.fabric()
	content := random(700_000)
	r.writeFar(c, "f", content)
	wantFile(t, n.dial().Buffer("open"), "f", content)

	m, data := r.extents("f", 1<<20)
	if m.Pin == 0 || len(data) > 0 || len(m.Extents) != 1 || len(m.Regions) != 1 || m.Regions[0].Path != "" {
		t.Fatalf("extents: %v and %d bytes", m, len(data))
	}
	got := make([]byte, len(content))
	if err := rdma.Do(t.Context(), c, op(t, rdma.OpRead, got, m.Regions[0], m.Extents[0].Offset)); err != nil || !bytes.Equal(got, content) {
		t.Errorf("what was read differs (%v)", err)
	}
	if checksum.Sum(got) != m.Extents[0].Checksum {
		t.Error("the checksum differs")
	}
	if _, data := r.extents("f", 1000); !bytes.Equal(data, content[:1000]) {
		t.Error("a small read is not answered with the bytes")
	}
}

// TestFabricKeysAreTheOwners: a reader of another user's file gets its bytes, but no key of the
// region that they lie in.
func TestFabricKeysAreTheOwners(t *testing.T) {
	n, address := fabricNode(t)
	r := farDial(t, address, 1001)
	content := random(700_000)
	r.writeFar(r.fabric(), "theirs", content)
	local := n.dial().Buffer("open")
	write(t, local, "roots", content)
	for uid, name := range map[uint32]string{1002: "theirs", 1003: "roots"} {
		m, data := farDial(t, address, uid).extents(name, 1<<20)
		if len(m.Regions) > 0 || !bytes.Equal(data, content) {
			t.Errorf("user %d got %d regions and %d bytes", uid, len(m.Regions), len(data))
		}
	}
}

func TestFabricIntruders(t *testing.T) {
	n, address := fabricNode(t)
	r := farDial(t, address, 1001)
	first := r.fabric()
	l := r.lease()
	for what, change := range map[string]func(*wire.Welcome){
		"a ticket that is made up": func(w *wire.Welcome) { w.DataTicket = wire.NewTicket() },
		"no ticket":                func(w *wire.Welcome) { w.DataTicket = nil },
		"a session that never was": func(w *wire.Welcome) { w.Session += 1000 },
		"another session's ticket": func(w *wire.Welcome) { w.DataTicket = farDial(t, address, 1002).welcome.DataTicket },
		"session 0":                func(w *wire.Welcome) { w.Session = 0 },
	} {
		w := &wire.Welcome{DataAddress: r.welcome.DataAddress, Session: r.welcome.Session, DataTicket: r.welcome.DataTicket}
		change(w)
		if c, err := dialFabric(t, w); err == nil {
			c.Close()
			t.Errorf("%s opens the fabric", what)
		}
	}
	// A session on the unix socket has no business there.
	var local wire.Welcome
	n.connect().ok(wire.Type_TYPE_HELLO, &wire.Hello{MinVersion: 1, MaxVersion: 1}, nil, &local)
	if local.DataAddress != "" || len(local.DataTicket) > 0 || !local.MapRegions {
		t.Errorf("a local session is told %v", &local)
	}
	// Guessed keys, and places outside a region, open nothing.
	wrong := &wire.Region{Key: append([]byte(nil), l.Region.Key...)}
	wrong.Key[len(wrong.Key)-1] ^= 1
	if err := rdma.Do(t.Context(), first, op(t, rdma.OpRead, make([]byte, 8), wrong, 0)); !errors.Is(err, rdma.ErrAccess) {
		t.Errorf("a guessed key: %v", err)
	}
	if err := rdma.Do(t.Context(), first, op(t, rdma.OpWrite, make([]byte, 8), l.Region, l.Region.Length-4)); !errors.Is(err, rdma.ErrBounds) {
		t.Errorf("beyond the region: %v", err)
	}
}

// TestFabricEndsWithTheSession: neither connections nor tickets outlive a session, and
// its uncommitted bytes are nowhere.
func TestFabricEndsWithTheSession(t *testing.T) {
	n, address := fabricNode(t)
	r := farDial(t, address, 1001)
	c := r.fabric()
	l := r.lease()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(rdma.Do(t.Context(), c, op(t, rdma.OpWrite, random(1000), l.Region, l.Offset+l.DataStart)))
	r.conn.Close()
	wantFarGone(t, c)
	if err := rdma.Do(t.Context(), c, op(t, rdma.OpWrite, random(1000), l.Region, l.Offset+l.DataStart)); !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("writing after the session: %v", err)
	}
	if again, err := dialFabric(t, r.welcome); err == nil {
		again.Close()
		t.Error("the ticket of a session that ended opens the fabric")
	}
	eventually(t, "the lease is taken back", func() bool { return n.status().Memory.Leased == 0 })

	// Many sessions that end while they write. Goleak and the race detector check them.
	for range 5 {
		r := farDial(t, address, 1001)
		c, l := r.fabric(), r.lease()
		done := make(chan error, 1)
		go func() {
			p := make([]byte, 512<<10)
			for {
				if err := rdma.Do(context.Background(), c, op(t, rdma.OpWrite, p, l.Region, l.Offset+l.DataStart)); err != nil {
					done <- err
					return
				}
			}
		}()
		time.Sleep(5 * time.Millisecond)
		r.conn.Close()
		if err := <-done; !errors.Is(err, rdma.ErrPeerGone) {
			t.Errorf("a write that the session's end met: %v", err)
		}
	}
}

// TestFabricRegionGoesToAnotherUser: its former user's keys open nothing any more.
func TestFabricRegionGoesToAnotherUser(t *testing.T) {
	_, address := fabricNode(t)
	first := farDial(t, address, 1001)
	c := first.fabric()
	old := first.lease()
	where := old.Offset + old.DataStart
	if err := rdma.Do(t.Context(), c, op(t, rdma.OpWrite, random(1000), old.Region, where)); err != nil {
		t.Fatal(err)
	}
	first.giveBack(old)
	// One region is left for the second user. The third one gets the first one's.
	var taken []*wire.Lease
	for uid := uint32(1002); uid < 1004; uid++ {
		s := farDial(t, address, uid)
		l := s.lease()
		for _, other := range append(taken, old) {
			if other.Region.Id == l.Region.Id || bytes.Equal(other.Region.Key, l.Region.Key) {
				t.Fatalf("user %d has a region that was another's", uid)
			}
		}
		taken = append(taken, l)
	}
	for _, kind := range []rdma.OpKind{rdma.OpWrite, rdma.OpRead} {
		if err := rdma.Do(t.Context(), c, op(t, kind, make([]byte, 1000), old.Region, where)); !errors.Is(err, rdma.ErrRevoked) {
			t.Errorf("with the key of a region that went to another user: %v", err)
		}
	}
	// The connection itself is as good as before.
	l := taken[1]
	if err := rdma.Do(t.Context(), c, op(t, rdma.OpWrite, nil, l.Region, l.Offset)); err != nil {
		t.Errorf("the connection: %v", err)
	}
}

func TestFabricIsNotForStrangers(t *testing.T) {
	n := startNode(t, nil)
	cfg := bbd.Config{Socket: n.socket + "2", Fabric: "0.0.0.0:0"}
	if _, err := bbd.New(t.Context(), cfg); bb.KindOf(err) != bb.Invalid {
		t.Errorf("listening beyond loopback without a key: %v", err)
	}
}

// TestOnlyRegionChangesHands: one user has leased all segments of the only region, and
// another one waits for memory. The region becomes that user's once the leases are returned.
func TestOnlyRegionChangesHands(t *testing.T) {
	address := freeAddress(t)
	n := startNode(t, func(c *bbd.Config) {
		c.TCP, c.Fabric, c.Keys = address, "127.0.0.1:0", wire.NewKeyring(fabricKey)
		c.Store.MemoryBytes, c.Store.RegionBytes = 8<<20, 8<<20
	})
	n.buffer(n.dial(), admin.BufferSpec{Name: "open", Mode: 0o777})
	first, second := farDial(t, address, 1001), farDial(t, address, 1002)
	var all []*wire.Lease
	for range 8 - 1 { // the first MiB is the header's
		all = append(all, first.lease())
	}
	second.conn.SetDeadline(time.Now().Add(time.Minute))
	id := second.send(wire.Type_TYPE_LEASE, &wire.LeaseRequest{Buffer: "open", Bytes: 1 << 20}, nil)
	for deadline := time.Now().Add(time.Minute); n.status().Waiting.Writers == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second user does not wait")
		}
	}
	for _, l := range all {
		first.giveBack(l)
	}
	var l wire.Lease
	reply := second.receive()
	if err := wire.DecodeReply(reply.head, reply.message, &l); err != nil || reply.head.Request != id {
		t.Fatalf("an answer to %d: %v", reply.head.Request, err)
	}
	if l.Region.Id == all[0].Region.Id {
		t.Error("the second user has the region of the first one")
	}
}
