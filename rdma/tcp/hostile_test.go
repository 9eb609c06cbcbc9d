package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/target"
	"forebay/rdma/rdmatest"
)

// rawPeer implements the protocol by hand. It has a control stream and one data stream to a real
// fabric, whose end of the connection is conn.
type rawPeer struct {
	fabric  *Fabric
	conn    rdma.Conn
	control net.Conn
	data    net.Conn
}

func newRawPeer(t *testing.T, opts Options) *rawPeer {
	t.Helper()
	f, err := New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	l, err := f.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	p := &rawPeer{fabric: f}
	mine := f.hello(1)
	var theirs hello
	for i, s := range []*net.Conn{&p.control, &p.data} {
		*s, err = net.Dial("tcp", l.Addr())
		must(t, err)
		t.Cleanup(func() { _ = (*s).Close() })
		mine.index = uint16(i)
		send(t, *s, mine.encode())
		if i == 0 {
			theirs, err = readHello(*s)
			must(t, err)
			mine.session = theirs.session
		}
	}
	_, err = readHello(p.data)
	must(t, err)
	p.conn, err = l.Accept(t.Context())
	must(t, err)
	return p
}

// TestPortLookedAt: a client that connects and closes at once, as a port scan does, causes no line
// for operators.
func TestPortLookedAt(t *testing.T) {
	lines := make(chan string, 16)
	f, err := New(Options{Log: slog.New(slog.NewTextHandler(lineWriter(lines), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	must(t, err)
	defer func() { must(t, f.Close()) }()
	l, err := f.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	c, err := net.Dial("tcp", l.Addr())
	must(t, err)
	must(t, c.Close())
	if line := <-lines; !strings.Contains(line, "level=DEBUG") || !strings.Contains(line, "closed before its handshake") {
		t.Errorf("the log says %q", line)
	}
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// newRawTarget is the other way round. A fabric dials, and the far ends of its streams are ours.
func newRawTarget(t *testing.T, opts Options) *rawPeer {
	t.Helper()
	opts.Streams = 1
	f, err := New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &rawPeer{fabric: f}
	ready := make(chan error, 1)
	go func() {
		for _, s := range []*net.Conn{&p.control, &p.data} {
			c, err := l.Accept()
			if err == nil {
				_, err = readHello(c)
			}
			if err == nil {
				mine := f.hello(1)
				_, err = c.Write(mine.encode())
			}
			if err != nil {
				ready <- err
				return
			}
			*s = c
		}
		ready <- nil
	}()
	p.conn, err = f.Dial(t.Context(), l.Addr().String())
	must(t, err)
	must(t, <-ready)
	t.Cleanup(func() { _ = p.control.Close(); _ = p.data.Close() })
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// wantGone waits until the connection detects the end.
func (p *rawPeer) wantGone(t *testing.T) {
	t.Helper()
	rdmatest.WantEnd(t, p.conn, rdma.ErrPeerGone)
}

func (p *rawPeer) register(t *testing.T, size int) rdma.Region {
	t.Helper()
	r, err := p.fabric.Register(make([]byte, size), rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	must(t, err)
	return r
}

func writeFrame(key rdma.RemoteKey, n int) []byte {
	f := frame{kind: kindWrite, length: uint32(n), total: uint32(n), tag: 1 << 32, key: key}
	return f.append(nil)
}

func TestWriteCutInMidFrame(t *testing.T) {
	p := newRawPeer(t, Options{})
	r := p.register(t, 1<<20)
	half := bytes.Repeat([]byte{7}, 1<<19)
	send(t, p.data, append(writeFrame(r.Key(), 1<<20), half...))
	must(t, p.data.Close())
	p.wantGone(t)
	must(t, r.Close())
	if !bytes.Equal(r.Bytes()[:1<<19], half) || !bytes.Equal(r.Bytes()[1<<19:], make([]byte, 1<<19)) {
		t.Fatal("the region holds something else than the half that arrived")
	}
}

// TestReplyCutInMidFrame: neither a read whose bytes came by half nor a write whose
// acknowledgement is missing may succeed.
func TestReplyCutInMidFrame(t *testing.T) {
	for _, kind := range []rdma.OpKind{rdma.OpRead, rdma.OpWrite} {
		p := newRawTarget(t, Options{})
		result := make(chan error, 1)
		go func() {
			result <- rdma.Do(t.Context(), p.conn, []rdma.Op{{Kind: kind, Local: make([]byte, 1000)}})
		}()
		head := make([]byte, requestSize)
		_, err := io.ReadFull(p.data, head)
		must(t, err)
		f, err := decodeBase(head, maxChunk)
		must(t, err)
		cut := baseSize / 2
		reply := answer(&f, kindAck, target.OK)
		if kind == rdma.OpRead {
			reply.kind, cut = kindData, baseSize+500
		}
		send(t, p.data, append(reply.append(nil), make([]byte, 1000)...)[:cut])
		must(t, p.data.Close())
		if err := <-result; !errors.Is(err, rdma.ErrPeerGone) {
			t.Fatalf("operation of kind %d: %v", kind, err)
		}
	}
}

// TestStalledWriteDoesNotHoldUpRevocation: half a payload came, and the peer sits on the rest.
func TestStalledWriteDoesNotHoldUpRevocation(t *testing.T) {
	p := newRawPeer(t, Options{RevokeTimeout: 20 * time.Millisecond})
	r := p.register(t, 1<<20)
	send(t, p.data, append(writeFrame(r.Key(), 1<<20), bytes.Repeat([]byte{7}, 1000)...))
	for p.conn.(*conn).streams[0].reading.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	must(t, r.Close())
	after := bytes.Clone(r.Bytes())
	_, _ = p.data.Write(make([]byte, 1<<19)) // it may be refused; the connection is cut
	p.wantGone(t)
	if !bytes.Equal(after, r.Bytes()) {
		t.Fatal("the region changed after Close had returned")
	}
}

// TestStalledReaderDoesNotHoldUpRevocation: the peer requests much and reads nothing.
func TestStalledReaderDoesNotHoldUpRevocation(t *testing.T) {
	p := newRawPeer(t, Options{RevokeTimeout: 20 * time.Millisecond, Window: 64})
	r := p.register(t, 1<<20)
	ask := frame{kind: kindRead, length: 1 << 20, total: 1 << 20, key: r.Key()}
	for range 60 {
		send(t, p.data, ask.append(nil))
	}
	// The sockets take some replies before the writer is stuck with one. Then the queue stands
	// still.
	c := p.conn.(*conn)
	waiting := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.streams[0].replies.count
	}
	for last, still := 0, 0; still < 20 || last == 0; time.Sleep(2 * time.Millisecond) {
		now := waiting()
		if still++; now != last {
			last, still = now, 0
		}
	}
	must(t, r.Close())
	p.wantGone(t)
}

func TestSilentPeerIsGone(t *testing.T) {
	p := newRawPeer(t, Options{PeerTimeout: 50 * time.Millisecond})
	p.wantGone(t)
}

// TestIdlePeersStayConnected: pings keep an idle connection alive, which works on after that.
func TestIdlePeersStayConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far, near := benchFabricOf(t, Options{Streams: 1}), benchFabricOf(t, Options{Streams: 1})
		var sockets [2][]socket
		for range 2 {
			a, b := net.Pipe()
			sockets[0] = append(sockets[0], socket{Conn: a, raw: a})
			sockets[1] = append(sockets[1], socket{Conn: b, raw: b})
		}
		c, err := newConn(near, sockets[0], far.hello(1))
		must(t, err)
		other, err := newConn(far, sockets[1], near.hello(1))
		must(t, err)
		r, err := far.Register(make([]byte, 100), rdma.AccessRemoteWrite)
		must(t, err)
		time.Sleep(100 * far.opts.PeerTimeout)
		must(t, errors.Join(c.Err(), other.Err()))
		op := rdma.Op{Kind: rdma.OpWrite, Local: make([]byte, 100), Remote: rdma.Remote{Key: r.Key()}}
		q, done := rdma.NewQueue(1), make([]rdma.Completion, 1) // not of Do, whose queues others use, too
		_, err = c.Post(t.Context(), q, []rdma.Op{op})
		must(t, err)
		_, err = q.Wait(t.Context(), done)
		must(t, errors.Join(err, done[0].Err))
	})
}

func benchFabricOf(t *testing.T, opts Options) *Fabric {
	t.Helper()
	f, err := New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

// TestBrokenProtocolDisconnects: each of these ends the connection, and only it.
func TestBrokenProtocolDisconnects(t *testing.T) {
	reply := frame{kind: kindAck, tag: 1 << 32}
	unasked := frame{kind: kindData, length: 8, total: 8, tag: 1 << 32}
	long := frame{kind: kindWrite, length: maxChunk, total: maxChunk}
	longer := frame{kind: kindRead, length: maxChunk + 1, total: maxChunk + 1}
	far := frame{kind: kindRead, at: 9, length: 9, total: 17}
	for name, c := range map[string]struct {
		control, data []byte
	}{
		"unknown frame":             {data: make([]byte, 64)},
		"reply without request":     {data: reply.append(nil)},
		"data without request":      {data: unasked.append(nil)},
		"chunk above agreement":     {data: long.append(nil)},
		"chunk above all":           {data: longer.append(nil)},
		"chunk not in its whole":    {data: far.append(nil)},
		"unknown control frame":     {control: make([]byte, 8)},
		"message of older releases": {control: []byte{1, 0, 0, 0, 0, 0, 0, 1, 'x'}},
		"credits of older releases": {control: []byte{2, 0, 0, 0, 0, 0, 0, 1}},
		"ping that says something":  {control: []byte{3, 0, 0, 0, 0, 0, 0, 1}},
		"good ping, then a bad one": {control: append(ping[:], 3, 1, 0, 0, 0, 0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, Options{})
			_, _ = p.control.Write(c.control) // may be cut while writing
			_, _ = p.data.Write(c.data)
			rdmatest.WantEnd(t, p.conn, rdma.ErrPeerGone)
			if err := p.conn.Err(); !errors.Is(err, rdma.ErrProtocol) {
				t.Fatal(err)
			}
		})
	}
}

// TestTooManyUnansweredRequests: a peer that keeps sending requests and reads no answers is
// disconnected.
func TestTooManyUnansweredRequests(t *testing.T) {
	p := newRawPeer(t, Options{Window: 4})
	r := p.register(t, 1<<20)
	ask := frame{kind: kindRead, length: 1 << 20, total: 1 << 20, key: r.Key()}
	_, _ = p.data.Write(bytes.Repeat(ask.append(nil), 1000))
	p.wantGone(t)
	if err := p.conn.(*conn).reason(); !errors.Is(err, rdma.ErrProtocol) {
		t.Fatal(err)
	}
}

// TestListenerOutlivesGarbage: a peer without the protocol, or with another version, is refused,
// and the next one is served.
func TestListenerOutlivesGarbage(t *testing.T) {
	f := benchFabricOf(t, Options{HandshakeTimeout: 100 * time.Millisecond})
	l, err := f.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	good := f.hello(1)
	future := good.encode()
	future[9]++
	stranger := f.hello(1)
	stranger.index = 1
	lonely := good.encode() // its data stream never comes
	for name, b := range map[string][]byte{
		"nothing": nil, "half": good.encode()[:20], "text": bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 9),
		"version": future, "unknown session": stranger.encode(), "lonely": lonely,
	} {
		s, err := net.Dial("tcp", l.Addr())
		must(t, err)
		send(t, s, b)
		must(t, s.SetReadDeadline(time.Now().Add(5*time.Second)))
		if n, err := io.Copy(io.Discard, s); errors.Is(err, context.DeadlineExceeded) || n > helloSize {
			t.Errorf("%s: read %d bytes, %v", name, n, err)
		}
		must(t, s.Close())
	}
	accepted := make(chan error, 1)
	go func() { _, err := l.Accept(t.Context()); accepted <- err }()
	_, err = f.Dial(t.Context(), l.Addr())
	must(t, err)
	must(t, <-accepted)
}

// TestWriteToMemoryCutShort: a region's user has cut its file short. Small payloads are copied from
// bytes read ahead, with no system call that would fail.
func TestWriteToMemoryCutShort(t *testing.T) {
	for _, size := range []int{100, 3 << 10, 64 << 10} {
		p := newRawPeer(t, Options{})
		path := filepath.Join(t.TempDir(), "region")
		must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		mem, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		must(t, f.Truncate(0))
		must(t, f.Close())
		r, err := p.fabric.Register(mem, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
		must(t, err)
		send(t, p.data, append(writeFrame(r.Key(), size), make([]byte, size)...))
		p.wantGone(t)
		must(t, r.Close())
		must(t, unix.Munmap(mem))
	}
}
