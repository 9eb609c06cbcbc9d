package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

func TestDialWithoutDaemon(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none.sock")
	_, err := Dial(context.Background(), Options{Address: "unix://" + socket})
	wantKind(t, err, ErrUnavailable)
	var e *Error
	if !errors.As(err, &e) || e.Remedy == "" || e.Path != "unix://"+socket {
		t.Errorf("the error names neither socket nor remedy: %v", err)
	}
	for _, bad := range []string{"http://x", "unix://", "somewhere"} {
		_, err := Dial(context.Background(), Options{Address: bad})
		wantKind(t, err, ErrInvalid)
	}
}

func TestWellKnownAddresses(t *testing.T) {
	t.Setenv("FOREBAY_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	if got := addresses(""); len(got) != 2 || got[0] != "unix:///run/user/1/forebay/bbd.sock" || got[1] != "unix:///run/forebay/bbd.sock" {
		t.Errorf("addresses are %v", got)
	}
	t.Setenv("FOREBAY_SOCKET", "/x.sock")
	if got := addresses(""); len(got) != 1 || got[0] != "unix:///x.sock" {
		t.Errorf("addresses are %v", got)
	}
}

// A socket that the user may not use does not hide that the user's own daemon is not there, or
// not yet: that is the error, and it may pass. A daemon that refuses is the end.
func TestNoDaemon(t *testing.T) {
	own, nodes := "unix:///own", "unix:///node's"
	absent := &net.OpError{Op: "dial", Err: syscall.ENOENT}
	denied := bb.Wrap("dial", nodes, &net.OpError{Op: "dial", Err: syscall.EACCES})
	for _, c := range []struct {
		err       error
		addresses int
		on        bool
	}{
		{absent, 1, true},
		{denied, 1, false},
		{denied, 2, true},
		{bb.E(bb.Permission, "hello", nodes, "another key"), 2, false},
		{bb.E(bb.Invalid, "dial", "x", "is no address"), 2, false},
	} {
		if on := elsewhere(c.err, c.addresses); on != c.on {
			t.Errorf("%v, of %d addresses: goes on: %v", c.err, c.addresses, on)
		}
	}
	err := noDaemon([]string{own, nodes}, []error{absent, denied})
	wantKind(t, err, ErrUnavailable)
	for _, part := range []string{own, nodes, "no such file", "permission denied", "start your own", "administrator"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("several lines: %q", err)
	}
}

func TestSharedKey(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.key = []byte("secret secret secret secret secret")
	file := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(file, append(f.key, '\n'), 0o600))
	f.connect(Options{KeyFile: file})
	_, err := Dial(context.Background(), Options{Address: f.address()})
	wantKind(t, err, ErrPermission)
	check(t, os.Chmod(file, 0o640))
	_, err = Dial(context.Background(), Options{Address: f.address(), KeyFile: file})
	wantKind(t, err, ErrPermission)
	check(t, os.Chmod(file, 0o600))
	check(t, os.WriteFile(file, []byte("other other other other other other"), 0o600))
	_, err = Dial(context.Background(), Options{Address: f.address(), KeyFile: file})
	wantKind(t, err, ErrPermission)
}

// TestNotADaemon: something else that answers is told from a daemon.
func TestNotADaemon(t *testing.T) {
	t.Parallel()
	l := must[net.Listener](t)(net.Listen("unix", filepath.Join(t.TempDir(), "s")))
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Read(make([]byte, 1000))
		conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nno"))
	}()
	_, err := Dial(context.Background(), Options{Address: "unix://" + l.Addr().String()})
	wantKind(t, err, ErrInvalid)
	l.Close()
	<-done
}

// TestRequestsInFlight has many goroutines ask on one session at once, some of which
// give up, with few requests allowed in flight.
func TestRequestsInFlight(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.maxInFlight = spareRequests + 16
	f.onRequest = func(c *fakeConn, h wire.Header, m proto.Message) bool {
		r, ok := m.(*wire.StatusRequest)
		if !ok {
			return false
		}
		answer := &wire.StatusReply{Json: []byte(`"` + r.Buffer + `"`)}
		c.wg.Go(func() { // in any order
			time.Sleep(time.Duration(h.Request%7) * 20 * time.Microsecond)
			c.reply(h, answer, nil, nil)
		})
		return true
	}
	c := f.connect(Options{})
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithCancel(context.Background())
				if (g+i)%5 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, cancel)
				}
				name := fmt.Sprintf("%d-%d", g, i)
				got, err := c.Status(ctx, name)
				switch {
				case err != nil && (ctx.Err() == nil || !errors.Is(err, ErrCancelled)):
					t.Errorf("status: %v", err)
				case err == nil && string(got) != `"`+name+`"`:
					t.Errorf("asked for %s, got %s", name, got)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s := c.current.Load()
	eventually(t, "requests are left in flight", func() bool {
		_, err := c.Status(context.Background(), "x")
		return err == nil && s.calls.InFlight() == 0
	})
}

// TestCancelledWait returns at once, tells the daemon, and hurts nobody else.
func TestCancelledWait(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.leaseGate = make(chan struct{})
	c := f.connect(Options{})
	b := c.Buffer("b")
	ctx, cancel := context.WithCancel(context.Background())
	w := must[*File](t)(b.Create(ctx, "x"))
	blocked := make(chan error)
	go func() {
		_, err := w.Write(random(1 << 20))
		blocked <- err
	}()
	eventually(t, "no lease was asked for", func() bool { return f.count(wire.Type_TYPE_LEASE) == 1 })
	// The blocked one reads for others, too.
	must[Entry](t)(b.Stat(context.Background(), ""))
	cancel()
	select {
	case err := <-blocked:
		wantKind(t, err, ErrCancelled)
	case <-time.After(5 * time.Second):
		t.Fatal("the write is still blocked")
	}
	wantKind(t, w.Sync(), ErrCancelled)
	wantKind(t, w.Close(), ErrCancelled)
	_, err := b.Stat(context.Background(), "x")
	wantKind(t, err, ErrNotFound)
	// The lease that was asked for serves the next.
	close(f.leaseGate)
	check(t, b.WriteFile(context.Background(), "y", random(100_000), 0))
}

// TestCloseUnblocks: Close of the client ends what waits.
func TestCloseUnblocks(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.leaseGate = make(chan struct{})
	defer close(f.leaseGate)
	c := f.connect(Options{})
	w := must[*File](t)(c.Buffer("b").Create(context.Background(), "x"))
	blocked := make(chan error)
	go func() {
		_, err := w.Write(random(1 << 20))
		blocked <- err
	}()
	eventually(t, "no lease was asked for", func() bool { return f.count(wire.Type_TYPE_LEASE) == 1 })
	check(t, c.Close())
	if err := <-blocked; err == nil {
		t.Error("the write succeeded")
	}
	check(t, c.Close())
	_, err := c.Buffer("b").Open(context.Background(), "x")
	wantKind(t, err, ErrInvalid)
}

// TestDaemonHangs: a daemon that takes nothing does not hold up whom its context ends.
func TestDaemonHangs(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.inlineOnly = true
	hang := make(chan struct{})
	f.onRequest = func(c *fakeConn, h wire.Header, m proto.Message) bool {
		if h.Type == wire.Type_TYPE_OPEN {
			<-hang
		}
		return false
	}
	c := f.connect(Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := must[*File](t)(c.Buffer("b").Create(ctx, "x"))
	must[int](t)(w.Write(random(3 << 20)))
	time.AfterFunc(50*time.Millisecond, cancel) // not before it waits: a busy machine takes that long to write
	if err := w.Close(); !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
	close(hang)
}

// TestMalformedReply ends the session, and only that.
func TestMalformedReply(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.connect(Options{RetryFor: time.Second})
	bad := true
	f.onRequest = func(c *fakeConn, h wire.Header, m proto.Message) bool {
		if h.Type != wire.Type_TYPE_STATUS || !bad {
			return false
		}
		bad = false
		c.conn.Write(make([]byte, wire.HeaderSize))
		return true
	}
	must[any](t)(c.Status(context.Background(), ""))
	if bad {
		t.Error("nothing malformed was sent")
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(Options{})
	must[BufferSpec](t)(c.CreateBuffer(ctx, BufferSpec{Name: "new"}))
	if !f.buffers["new"].KeepDefault {
		t.Error("a nil Keep does not ask for the default patterns")
	}
	_, err := c.CreateBuffer(ctx, BufferSpec{Name: "new"})
	wantKind(t, err, ErrExists)
	if got := must[[]BufferSpec](t)(c.Buffers(ctx)); len(got) != 2 {
		t.Errorf("%d buffers", len(got))
	}
	check(t, c.DiscardBuffer(ctx, "new"))
	_, err = c.BufferInfo(ctx, "new")
	wantKind(t, err, ErrNotFound)

	calls := 0
	r := must[Report](t)(c.Drain(ctx, "b", 0, func(Progress) { calls++ }))
	if calls != 2 || r.FilesDone != 2 {
		t.Errorf("drain: %d calls, %+v", calls, r)
	}
	n := 0
	for e, err := range c.Events(ctx, "b") {
		check(t, err)
		if n++; e.Path != "x" || n == 2 {
			break
		}
	}
	stopping, cancel := context.WithCancel(ctx)
	for _, err := range c.Events(stopping, "b") {
		if err != nil {
			wantKind(t, err, ErrCancelled)
		}
		cancel()
	}
	cancel()
	lost := must[[]Entry](t)(c.Lost(ctx, "b"))
	if len(lost) != 1 || lost[0].Path != "gone" || lost[0].State != StateLost {
		t.Errorf("lost: %+v", lost)
	}
	_, err = c.StageIn(ctx, StageRequest{Buffer: "b", URL: "ftp://x"}, nil)
	wantKind(t, err, bb.Invalid)
}

// A user's own daemon is asked before that of the node.
func TestOwnDaemonFirst(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	t.Setenv("FOREBAY_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := filepath.Join(base, fmt.Sprintf("forebay-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{"unix://" + dir + "/bbd.sock", "unix:///run/forebay/bbd.sock"}
	if got := addresses(""); !slices.Equal(got, want) {
		t.Errorf("addresses: %v, want %v", got, want)
	}
}
