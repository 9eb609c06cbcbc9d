package client_test

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/internal/bbdtest"
	"forebay/internal/wire"
)

// middle is a proxy between clients and a daemon that can hold back the bytes of one side, as the buffers
// of a network do, and break the connection of the client alone.
type middle struct {
	t      testing.TB
	socket string
	l      net.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	pairs []*pair
}

// pair is one connection of a client and its connection to the daemon.
type pair struct {
	t              testing.TB
	client, daemon net.Conn
	ended          chan struct{} // closed when the daemon has ended its connection

	mu               sync.Mutex
	keeps            bool   // from now on, nothing is passed on
	requests, answer []byte // bytes held back
	passing          bool   // the answers alone are kept
}

// between starts a proxy in front of a daemon.
func between(t testing.TB, d *bbdtest.Daemon) *middle {
	m := &middle{t: t, socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", m.socket)
	if err != nil {
		t.Fatal(err)
	}
	m.l = l
	m.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			daemon, err := net.Dial("unix", d.Socket)
			if err != nil {
				t.Error(err)
				conn.Close()
				return
			}
			p := &pair{t: t, client: conn, daemon: daemon, ended: make(chan struct{})}
			m.mu.Lock()
			m.pairs = append(m.pairs, p)
			m.mu.Unlock()
			m.wg.Go(p.pass)
			m.wg.Go(p.passBack)
		}
	})
	t.Cleanup(func() {
		l.Close()
		m.mu.Lock()
		for _, p := range m.pairs {
			p.client.Close()
			p.daemon.Close()
		}
		m.mu.Unlock()
		m.wg.Wait()
	})
	return m
}

// last is the newest connection.
func (m *middle) last() *pair {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pairs[len(m.pairs)-1]
}

// pass passes requests on. If the client leaves while frames are kept, the daemon does not detect
// that.
func (p *pair) pass() {
	buf := make([]byte, 64<<10)
	for {
		n, err := p.client.Read(buf)
		p.mu.Lock()
		if p.keeps && !p.passing {
			p.requests = append(p.requests, buf[:n]...)
		} else {
			p.daemon.Write(buf[:n])
		}
		kept := p.keeps
		p.mu.Unlock()
		if err != nil {
			if !kept {
				p.daemon.Close()
			}
			return
		}
	}
}

// passBack passes answers on.
func (p *pair) passBack() {
	defer close(p.ended)
	defer p.client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := p.daemon.Read(buf)
		p.mu.Lock()
		if p.keeps {
			p.answer = append(p.answer, buf[:n]...)
		} else {
			p.client.Write(buf[:n])
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// keep holds back later frames, only answers, or all.
func (p *pair) keep(answersOnly bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeps, p.passing = true, answersOnly
}

// has reports whether frames of a type are among the kept ones.
func (p *pair) has(typ wire.Type) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := wire.NewReader(bytes.NewReader(append(bytes.Clone(p.requests), p.answer...)))
	for {
		h, _, err := in.Next()
		if err != nil || in.ReadData(make([]byte, h.DataLength)) != nil {
			return false
		}
		if h.Type == typ {
			return true
		}
	}
}

// deliver brings the daemon the requests that were kept, and waits for its answer to the last one, or until it
// has ended the connection, as it does in any case then.
func (p *pair) deliver(last wire.Type) {
	p.mu.Lock()
	late := p.requests
	p.requests = nil
	p.mu.Unlock()
	p.daemon.Write(late)
	eventually(p.t, "the daemon has answered, or hung up", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return p.has(last)
		}
	})
	p.daemon.(*net.UnixConn).CloseWrite()
	<-p.ended
}

// lateRequests runs test with each size of the first write, and a buffer behind a proxy.
func lateRequests(t *testing.T, test func(t *testing.T, m *middle, b, direct *client.Buffer, size int)) {
	d, c, _ := daemonClient(t)
	for _, size := range []int{1000, 300_000} { // in the message, and in leased memory
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			m := between(t, d)
			far := must[*client.Client](t)(client.Dial(t.Context(), client.Options{Address: "unix://" + m.socket, RetryFor: time.Minute}))
			t.Cleanup(func() { far.Close() })
			test(t, m, far.Buffer("b"), c.Buffer("b"), size)
		})
	}
}

// syncWhile runs a sync whose request or answer is kept, and breaks the client's connection then. The
// connection to the daemon is there still.
func syncWhile(t *testing.T, m *middle, w *client.File, answersOnly bool) *pair {
	t.Helper()
	old := m.last()
	old.keep(answersOnly)
	done := make(chan error, 1)
	go func() { done <- w.Sync() }()
	eventually(t, "the commit is on its way", func() bool { return old.has(wire.Type_TYPE_COMMIT) })
	old.client.Close()
	check(t, <-done)
	return old
}

// TestLateRequests: requests of a connection that broke reach the daemon when the client has
// continued in another one. Confirmed changes of that stay.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	lateRequests(t, func(t *testing.T, m *middle, b, direct *client.Buffer, size int) {
		name, data := fmt.Sprint("late", size), random(2*size)
		w := must[*client.File](t)(b.Create(t.Context(), name))
		must[int](t)(w.Write(data[:size]))
		old := syncWhile(t, m, w, false)
		must[int](t)(w.Write(data[size:]))
		check(t, w.Close())
		before := must[client.Entry](t)(direct.Stat(t.Context(), name))
		old.deliver(wire.Type_TYPE_COMMIT)
		if got := readAll(t, direct, name); !bytes.Equal(got, data) {
			t.Errorf("the file has %d bytes, or others than the %d that were closed", len(got), len(data))
		}
		if e := must[client.Entry](t)(direct.Stat(t.Context(), name)); e.Generation != before.Generation {
			t.Errorf("generation %d has become %d", before.Generation, e.Generation)
		}
	})
}

// TestLateAnswers: a connection breaks at the client's end, and the daemon does not detect that.
// The writer continues, and its close is the last of the file.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{false, true} {
		t.Run(fmt.Sprintf("synced=%v", synced), func(t *testing.T) {
			lateRequests(t, func(t *testing.T, m *middle, b, direct *client.Buffer, size int) {
				name, data := fmt.Sprint("answer", size), random(3*size)
				w := must[*client.File](t)(b.Create(t.Context(), name))
				if synced {
					must[int](t)(w.Write(data[:size]))
					check(t, w.Sync())
				}
				must[int](t)(w.WriteAt(data[size:2*size], int64(size)))
				must[int](t)(w.WriteAt(data[:size], 0))
				syncWhile(t, m, w, true)
				must[int](t)(w.WriteAt(data[2*size:], int64(2*size)))
				check(t, w.Close())
				if e := must[client.Entry](t)(direct.Stat(t.Context(), name)); e.State == client.StateOpen {
					t.Error("after its only writer has closed it, the file is open")
				}
				if got := readAll(t, direct, name); !bytes.Equal(got, data) {
					t.Errorf("the file has %d bytes, or others than the %d that were closed", len(got), len(data))
				}
			})
		})
	}
}
