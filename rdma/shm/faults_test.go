package shm

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newFabric(t *testing.T, opts Options) *Fabric {
	t.Helper()
	f, err := New(opts)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() }) // may report a peer that a test made stubborn
	return f
}

func listen(t *testing.T, f *Fabric) rdma.Listener {
	t.Helper()
	l, err := f.Listen(t.Context(), filepath.Join(t.TempDir(), "s"))
	must(t, err)
	return l
}

func connect(t *testing.T, near *Fabric, l rdma.Listener) (nearConn, farConn *conn) {
	t.Helper()
	a, err := near.Dial(t.Context(), l.Addr())
	must(t, err)
	b, err := l.Accept(t.Context())
	must(t, err)
	return a.(*conn), b.(*conn)
}

func register(t *testing.T, f *Fabric, size int, access rdma.Access) (rdma.Region, rdma.Memory) {
	t.Helper()
	mem, err := rdma.Allocate(size)
	must(t, err)
	r, err := f.Register(mem, access)
	must(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = mem.Free() })
	return r, mem
}

func one(kind rdma.OpKind, local []byte, r rdma.Region) []rdma.Op {
	return []rdma.Op{{Kind: kind, Local: local, Remote: rdma.Remote{Key: r.Key()}}}
}

// mappings counts how often memory files of this package's regions are mapped in this process.
func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return strings.Count(string(b), "memfd:rdma")
}

// TestMappedOncePerProcess: however many operations and connections, one mapping; none after the
// revocation, and none after the last connection ended.
func TestMappedOncePerProcess(t *testing.T) {
	far, near := newFabric(t, Options{}), newFabric(t, Options{})
	l := listen(t, far)
	first, _ := connect(t, near, l)
	second, _ := connect(t, near, l)
	a, _ := register(t, far, 1<<20, rdma.AccessRemoteRead)
	b, _ := register(t, far, 1<<20, rdma.AccessRemoteRead)
	base := mappings(t)
	local := make([]byte, 1000)
	for range 100 {
		must(t, rdma.Do(t.Context(), first, one(rdma.OpRead, local, a)))
		must(t, rdma.Do(t.Context(), second, one(rdma.OpRead, local, a)))
		must(t, rdma.Do(t.Context(), first, one(rdma.OpRead, local, b)))
	}
	if n := mappings(t) - base; n != 2 {
		t.Fatalf("2 regions are mapped %d times", n)
	}
	must(t, a.Close())
	if n := mappings(t) - base; n != 1 {
		t.Fatalf("after a revocation, %d mappings of the peer's are left, want 1", n)
	}
	must(t, first.Close())
	if n := mappings(t) - base; n != 0 {
		t.Fatalf("after the last connection that used them, %d mappings are left", n)
	}
}

// TestPeerThatKeepsItsMapping: Close waits a bounded time, says so, and disconnects the peer.
func TestPeerThatKeepsItsMapping(t *testing.T) {
	far, near := newFabric(t, Options{RevokeTimeout: 30 * time.Millisecond}), newFabric(t, Options{})
	nearConn, farConn := connect(t, near, listen(t, far))
	r, _ := register(t, far, 4096, rdma.AccessRemoteRead)
	must(t, rdma.Do(t.Context(), nearConn, one(rdma.OpRead, make([]byte, 1), r)))
	nearConn.mu.Lock()
	m := nearConn.mu.maps[r.Key()]
	nearConn.mu.Unlock()
	must(t, m.acquire()) // a copy that does not end
	if err := r.Close(); !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("closed a region that a peer still has mapped: %v", err)
	}
	if _, err := farConn.Recv(t.Context(), nil); !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("the peer is still connected: %v", err)
	}
	m.release()
}

// TestTruncatedFile: the owner cuts the file off under the mapping.
func TestTruncatedFile(t *testing.T) {
	far, near := newFabric(t, Options{}), newFabric(t, Options{})
	c, _ := connect(t, near, listen(t, far))
	r, mem := register(t, far, 1<<20, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	local := make([]byte, 1<<20)
	must(t, rdma.Do(t.Context(), c, one(rdma.OpRead, local, r)))
	must(t, mem.File.Truncate(4096))
	for _, kind := range []rdma.OpKind{rdma.OpRead, rdma.OpWrite} {
		if err := rdma.Do(t.Context(), c, one(kind, local, r)); !errors.Is(err, rdma.ErrRevoked) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	must(t, rdma.Do(t.Context(), c, one(rdma.OpRead, local[:4096], r)))
}

// TestReadOnlyDescriptor: what peers may not write is handed out without the right to.
func TestReadOnlyDescriptor(t *testing.T) {
	far := newFabric(t, Options{})
	r, _ := register(t, far, 4096, rdma.AccessRemoteRead)
	fd := int(r.(*region).file.Fd())
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EACCES) {
		t.Fatalf("mapped for writing: %v", err)
	}
}

func TestRegisterRefuses(t *testing.T) {
	f := newFabric(t, Options{})
	mem, err := rdma.Allocate(4096)
	must(t, err)
	defer func() { must(t, mem.Free()) }()
	for _, c := range []struct {
		name string
		mem  rdma.Memory
		want error
	}{
		{"no file", rdma.Memory{Bytes: mem.Bytes}, errors.ErrUnsupported},
		{"beyond the file", rdma.Memory{Bytes: mem.Bytes, File: mem.File, Offset: 4096}, rdma.ErrInvalid},
		{"within a page", rdma.Memory{Bytes: mem.Bytes[1:], File: mem.File, Offset: 1}, rdma.ErrInvalid},
		{"before the file", rdma.Memory{Bytes: mem.Bytes, File: mem.File, Offset: -4096}, rdma.ErrInvalid},
	} {
		if _, err := f.Register(c.mem, rdma.AccessRemoteRead); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	r, err := f.Register(rdma.Memory{Bytes: make([]byte, 10)}, rdma.AccessLocal)
	must(t, err)
	must(t, r.Close())
}

func TestOtherUsersAreRefused(t *testing.T) {
	if sameUser(unix.Ucred{Uid: uint32(os.Geteuid())}) != nil || sameUser(unix.Ucred{Uid: 0}) != nil {
		t.Error("the same user, or root, is refused")
	}
	if err := sameUser(unix.Ucred{Uid: uint32(os.Geteuid()) + 1}); !errors.Is(err, rdma.ErrAccess) {
		t.Errorf("another user: %v", err)
	}
	far := newFabric(t, Options{Authorize: func(p unix.Ucred) error {
		if int(p.Pid) != os.Getpid() || int(p.Uid) != os.Geteuid() {
			t.Errorf("the kernel says %+v", p)
		}
		return rdma.ErrAccess
	}})
	l := listen(t, far)
	if c, err := newFabric(t, Options{}).Dial(t.Context(), l.Addr()); !errors.Is(err, rdma.ErrPeerGone) {
		t.Fatalf("connected: %v, %v", c, err)
	}
}

// rawPeer is a connection of f whose other end is ours.
func rawPeer(t *testing.T, f *Fabric) (*conn, *net.UnixConn) {
	t.Helper()
	l := listen(t, f)
	s, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.Addr(), Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	mine := packet{kind: kindHello, a: 100, b: 4}
	_, err = s.Write(mine.append(nil))
	must(t, err)
	c, err := l.Accept(t.Context())
	must(t, err)
	_, err = s.Read(make([]byte, 100))
	must(t, err)
	return c.(*conn), s
}

// TestBrokenProtocolDisconnects: each of these ends the connection.
func TestBrokenProtocolDisconnects(t *testing.T) {
	for name, c := range map[string]struct {
		packet  packet
		payload int
		times   int
	}{
		"second hello":           {packet{kind: kindHello}, 0, 1},
		"unknown kind":           {packet{kind: 99}, 0, 1},
		"message too large":      {packet{kind: kindMessage}, 16<<10 + 1, 1},
		"more messages than may": {packet{kind: kindMessage}, 1, 33},
		"credits out of nothing": {packet{kind: kindCredit, a: 1}, 0, 1},
		"half a key":             {packet{kind: kindMap}, 16, 1},
		"answer to no question":  {packet{kind: kindMapped, request: 7}, 0, 1},
		"confirms no revocation": {packet{kind: kindRevoked, a: 7}, 0, 1},
		"unknown status":         {packet{kind: kindMapped, status: 200}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			conn, s := rawPeer(t, newFabric(t, Options{}))
			for range c.times {
				_, _ = s.Write(append(c.packet.append(nil), make([]byte, c.payload)...)) // may be cut
			}
			<-conn.done
			if err := conn.reason(); !errors.Is(err, rdma.ErrProtocol) || !errors.Is(err, rdma.ErrPeerGone) {
				t.Fatal(err)
			}
		})
	}
}

// TestPeerThatDoesNotAnswer: a request for a region is not waited for beyond the limit.
func TestPeerThatDoesNotAnswer(t *testing.T) {
	c, _ := rawPeer(t, newFabric(t, Options{PeerTimeout: 50 * time.Millisecond}))
	err := rdma.Do(t.Context(), c, []rdma.Op{{Kind: rdma.OpRead, Local: make([]byte, 1)}})
	if !errors.Is(err, rdma.ErrPeerGone) {
		t.Fatal(err)
	}
}

// TestLyingPeer: it hands out a file shorter than the region that it claims.
func TestLyingPeer(t *testing.T) {
	mem, err := rdma.Allocate(4096)
	must(t, err)
	defer func() { must(t, mem.Free()) }()
	for _, p := range []packet{{b: 8192}, {a: 4096, b: 1}, {a: 1, b: 1}, {a: 1 << 63, b: 1}, {b: 1 << 63}} {
		if m, err := mapRegion(p, int(mem.File.Fd())); !errors.Is(err, rdma.ErrProtocol) {
			t.Errorf("offset %d, length %d: mapped %d bytes, %v", p.a, p.b, len(m), err)
		}
	}
}

func FuzzDecodePacket(f *testing.F) {
	for k := kindHello; k <= kindRevoked; k++ {
		p := packet{kind: k, status: 1, access: 2, request: 3, a: 4, b: 5}
		f.Add(p.append(nil))
		f.Add(append(p.append(nil), make([]byte, rdma.RemoteKeySize)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, payload, err := decodePacket(b)
		if err != nil {
			return
		}
		again, tail, err := decodePacket(append(p.append(nil), payload...))
		if err != nil || again != p || string(tail) != string(payload) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}
