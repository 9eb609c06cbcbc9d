package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/client/admin"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

func TestDialWithoutDaemon(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none.sock")
	_, err := client.Dial(context.Background(), client.Options{Address: "unix://" + socket})
	wantKind(t, err, client.ErrUnavailable)
	var e *client.Error
	if !errors.As(err, &e) || e.Remedy == "" || e.Path != "unix://"+socket {
		t.Errorf("the error names neither socket nor remedy: %v", err)
	}
	for _, bad := range []string{"http://x", "unix://", "somewhere"} {
		_, err := client.Dial(context.Background(), client.Options{Address: bad})
		wantKind(t, err, client.ErrInvalid)
	}
}

func TestSharedKey(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.key = []byte("secret secret secret secret secret")
	file := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(file, append(f.key, '\n'), 0o600))
	f.connect(client.Options{KeyFile: file})
	_, err := client.Dial(context.Background(), client.Options{Address: f.address()})
	wantKind(t, err, client.ErrPermission)
	check(t, os.Chmod(file, 0o640))
	_, err = client.Dial(context.Background(), client.Options{Address: f.address(), KeyFile: file})
	wantKind(t, err, client.ErrPermission)
	check(t, os.Chmod(file, 0o600))
	check(t, os.WriteFile(file, []byte("other other other other other other"), 0o600))
	_, err = client.Dial(context.Background(), client.Options{Address: f.address(), KeyFile: file})
	wantKind(t, err, client.ErrPermission)
}

// TestNotADaemon: an answer of another program is no daemon's.
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
	_, err := client.Dial(context.Background(), client.Options{Address: "unix://" + l.Addr().String()})
	wantKind(t, err, client.ErrInvalid)
	l.Close()
	<-done
}

// TestRequestsInFlight lets many goroutines send requests on one session at once, of which some
// cancel, with few requests allowed in flight.
func TestRequestsInFlight(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.maxInFlight = session.SpareRequests + 16
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
	c := f.connect(client.Options{})
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithCancel(context.Background())
				if (g+i)%5 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, cancel)
				}
				name := fmt.Sprintf("%d-%d", g, i)
				got, err := admin.Status(ctx, c, name)
				switch {
				case err != nil && (ctx.Err() == nil || !errors.Is(err, client.ErrCancelled)):
					t.Errorf("status: %v", err)
				case err == nil && string(got) != `"`+name+`"`:
					t.Errorf("asked for %s, got %s", name, got)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s := c.Connection().Now()
	eventually(t, "requests are left in flight", func() bool {
		_, err := admin.Status(context.Background(), c, "x")
		return err == nil && s.InFlight() == 0
	})
}

// TestCancelledWait returns at once, cancels the request at the daemon, and does not affect others.
func TestCancelledWait(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.leaseGate = make(chan struct{})
	c := f.connect(client.Options{})
	b := c.Buffer("b")
	ctx, cancel := context.WithCancel(context.Background())
	w := must[*client.File](t)(b.Create(ctx, "x"))
	blocked := make(chan error)
	go func() {
		_, err := w.Write(random(1 << 20))
		blocked <- err
	}()
	eventually(t, "no lease was asked for", func() bool { return f.count(wire.Type_TYPE_LEASE) == 1 })
	// The blocked one reads for others, too.
	must[client.Entry](t)(b.Stat(context.Background(), ""))
	cancel()
	select {
	case err := <-blocked:
		wantKind(t, err, client.ErrCancelled)
	case <-time.After(5 * time.Second):
		t.Fatal("the write is still blocked")
	}
	wantKind(t, w.Sync(), client.ErrCancelled)
	wantKind(t, w.Close(), client.ErrCancelled)
	_, err := b.Stat(context.Background(), "x")
	wantKind(t, err, client.ErrNotFound)
	// The lease that was requested serves the next.
	close(f.leaseGate)
	check(t, b.WriteFile(context.Background(), "y", random(100_000), 0))
}

// TestCloseUnblocks: Close of the client ends waiting calls.
func TestCloseUnblocks(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.leaseGate = make(chan struct{})
	defer close(f.leaseGate)
	c := f.connect(client.Options{})
	w := must[*client.File](t)(c.Buffer("b").Create(context.Background(), "x"))
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
	wantKind(t, err, client.ErrInvalid)
}

// TestDaemonHangs: a daemon that takes nothing does not hold up a call whose context ends.
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
	c := f.connect(client.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := must[*client.File](t)(c.Buffer("b").Create(ctx, "x"))
	must[int](t)(w.Write(random(3 << 20)))
	time.AfterFunc(50*time.Millisecond, cancel) // not before it waits, since a busy machine takes that long to write
	if err := w.Close(); !errors.Is(err, client.ErrCancelled) && !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
	close(hang)
}

// TestMalformedReply ends the session, and only that.
func TestMalformedReply(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.connect(client.Options{RetryFor: time.Second})
	bad := true
	f.onRequest = func(c *fakeConn, h wire.Header, m proto.Message) bool {
		if h.Type != wire.Type_TYPE_STATUS || !bad {
			return false
		}
		bad = false
		c.conn.Write(make([]byte, wire.HeaderSize))
		return true
	}
	must[any](t)(admin.Status(context.Background(), c, ""))
	if bad {
		t.Error("nothing malformed was sent")
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(client.Options{})
	must[admin.BufferSpec](t)(admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "new"}))
	if !f.buffers["new"].KeepDefault {
		t.Error("a nil NoFlush does not ask for the default patterns")
	}
	_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "new"})
	wantKind(t, err, client.ErrExists)
	if got := must[[]admin.BufferSpec](t)(admin.Buffers(ctx, c)); len(got) != 2 {
		t.Errorf("%d buffers", len(got))
	}
	check(t, admin.DiscardBuffer(ctx, c, "new"))
	_, err = admin.BufferInfo(ctx, c, "new")
	wantKind(t, err, client.ErrNotFound)

	calls := 0
	r := must[admin.Report](t)(admin.Drain(ctx, c, "b", 0, func(admin.Progress) { calls++ }))
	if calls != 2 || r.FilesDone != 2 {
		t.Errorf("drain: %d calls, %+v", calls, r)
	}
	n := 0
	for e, err := range admin.Events(ctx, c, "b") {
		check(t, err)
		if n++; e.Path != "x" || n == 2 {
			break
		}
	}
	stopping, cancel := context.WithCancel(ctx)
	for _, err := range admin.Events(stopping, c, "b") {
		if err != nil {
			wantKind(t, err, client.ErrCancelled)
		}
		cancel()
	}
	cancel()
	lost := must[[]client.Entry](t)(c.Buffer("b").Lost(ctx))
	if len(lost) != 1 || lost[0].Path != "gone" || lost[0].State != client.StateLost {
		t.Errorf("lost: %+v", lost)
	}
	_, err = admin.StageIn(ctx, c, admin.StageRequest{Buffer: "b", URL: "ftp://x"}, nil)
	wantKind(t, err, bb.Invalid)
}
