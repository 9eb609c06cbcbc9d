package bbd_test

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/meta/conn"
)

// farServer makes connections to a namespace's server whose answers take some time on their way.
// Any number is on its way at once.
type farServer struct {
	conn.InProcess
	delay *atomic.Int64 // time.Duration
}

func (s farServer) InProcessConn() (net.Conn, error) {
	conn, err := s.InProcess.InProcessConn()
	if err != nil {
		return nil, err
	}
	far := &farConn{Conn: conn, arriving: make(chan arrival, 1<<16), closed: make(chan struct{})}
	go far.receive(s.delay)
	return far, nil
}

type arrival struct {
	p   []byte
	due time.Time
	err error
}

type farConn struct {
	net.Conn
	arriving chan arrival
	now      arrival // the reader's
	closed   chan struct{}
}

// receive ends with the connection, which both its ends close.
func (c *farConn) receive(delay *atomic.Int64) {
	defer close(c.closed)
	for {
		p := make([]byte, 64<<10)
		n, err := c.Conn.Read(p)
		c.arriving <- arrival{p[:n], time.Now().Add(time.Duration(delay.Load())), err}
		if err != nil {
			return
		}
	}
}

func (c *farConn) Read(p []byte) (int, error) {
	if len(c.now.p) == 0 && c.now.err == nil {
		c.now = <-c.arriving
		time.Sleep(time.Until(c.now.due))
	}
	if len(c.now.p) == 0 {
		return 0, c.now.err
	}
	n := copy(p, c.now.p)
	c.now.p = c.now.p[n:]
	return n, nil
}

func (c *farConn) Close() error {
	err := c.Conn.Close()
	<-c.closed
	return err
}

// TestForgottenFilesComeBackFromAfar sets a namespace back that is 200 ms away. The daemon serves
// before a repair after the other could have ended, and everything is there by then.
func TestForgottenFilesComeBackFromAfar(t *testing.T) {
	t.Parallel()
	const (
		files = 100
		away  = 200 * time.Millisecond
	)
	var delay atomic.Int64
	n := startNode(t, func(c *bbd.Config) { c.Meta.InProcess = farServer{c.Meta.InProcess, &delay} })
	c := n.dial()
	n.buffer(c, admin.BufferSpec{Name: "b"})
	c.Close()
	copied := n.copyNamespace()
	b := n.dial().Buffer("b")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	want := map[string][]byte{}
	for i := range files {
		dir := fmt.Sprintf("new/%d", i%10)
		if err := b.MkdirAll(t.Context(), dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("%s/%d", dir, i)
		want[path] = random(100 + i)
		write(t, b, path, want[path])
	}
	n.setBack(copied)
	delay.Store(int64(away))
	began := time.Now()
	n.start()
	took := time.Since(began)
	delay.Store(0)
	t.Logf("it served after %v", took)
	if took >= files*away {
		t.Errorf("it served after %v: %d calls one after the other take %v", took, files, files*away)
	}
	b = n.dial().Buffer("b")
	for path, content := range want {
		wantFile(t, b, path, content)
	}
	if _, err := b.Stat(t.Context(), ".lost+found"); err == nil {
		t.Error("something was set aside")
	}
}

// TestLostFilesAreNamedFromAfar loses the memory of many dirty files, with a namespace that is 200 ms
// away. All are named by the time that the daemon serves, which is not one after the other.
func TestLostFilesAreNamedFromAfar(t *testing.T) {
	t.Parallel()
	const (
		files = 100
		away  = 200 * time.Millisecond
	)
	var delay atomic.Int64
	n := startNode(t, func(c *bbd.Config) { c.Meta.InProcess = farServer{c.Meta.InProcess, &delay} })
	b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	for i := range files {
		write(t, b, fmt.Sprint(i), random(100))
	}
	n.stop()
	if err := os.RemoveAll(n.shm()); err != nil {
		t.Fatal(err)
	}
	delay.Store(int64(away))
	began := time.Now()
	n.start()
	took := time.Since(began)
	delay.Store(0)
	t.Logf("it served after %v", took)
	if took >= files*away {
		t.Errorf("it served after %v: %d calls one after the other take %v", took, files, files*away)
	}
	b = n.dial().Buffer("b")
	for i := range files {
		if e, err := b.Stat(t.Context(), fmt.Sprint(i)); err != nil || e.State != client.StateLost {
			t.Errorf("%d is %v (%v), not lost", i, e.State, err)
		}
	}
}
