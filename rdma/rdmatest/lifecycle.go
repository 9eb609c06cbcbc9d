package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/rdma"
)

// testMessages: they arrive in order, while the sender runs ahead as far as it may.
func testMessages(t *testing.T, p Provider) {
	x := newPair(t, p)
	const n = 2000
	sent := make(chan error, 1)
	go func() {
		buf := make([]byte, x.limit.MaxMessage)
		for i := range n {
			if err := x.conn.Send(x.ctx, fill(buf[:i*7%len(buf)], i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	got, want := make([]byte, x.limit.MaxMessage), make([]byte, x.limit.MaxMessage)
	for i := range n {
		k, err := x.farConn.Recv(x.ctx, got)
		must(t, err)
		if !bytes.Equal(got[:k], fill(want[:i*7%len(want)], i)) {
			t.Fatalf("message %d differs", i)
		}
	}
	must(t, <-sent)
}

func testMessageBounds(t *testing.T, p Provider) {
	x := newPair(t, p)
	if err := x.conn.Send(x.ctx, make([]byte, x.limit.MaxMessage+1)); !errors.Is(err, rdma.ErrTooLarge) {
		t.Fatalf("a message too large: %v", err)
	}
	must(t, x.conn.Send(x.ctx, []byte("hello")))
	buf := make([]byte, 8)
	if n, err := x.farConn.Recv(x.ctx, buf[:4]); n != 5 || !errors.Is(err, rdma.ErrTooLarge) {
		t.Fatalf("into a short buffer: %d, %v", n, err)
	}
	if n, err := x.farConn.Recv(x.ctx, buf); string(buf[:n]) != "hello" || err != nil {
		t.Fatalf("the message did not stay: %q, %v", buf[:n], err)
	}
	// Nobody receives, so at some point Send waits, and can be cancelled.
	ctx, cancel := context.WithTimeout(x.ctx, 200*time.Millisecond)
	defer cancel()
	count := 0
	var err error
	for err == nil && count < 100_000 {
		err = x.conn.Send(ctx, buf)
		count++
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("after %d messages that nobody received: %v", count, err)
	}
}

// revocation is what an operation on a revoked region may end with.
func (x *pair) revocation(err error) bool {
	if errors.Is(err, rdma.ErrRevoked) {
		return true
	}
	return x.limit.ErrorEndsConn && (errors.Is(err, rdma.ErrAccess) || errors.Is(err, rdma.ErrPeerGone))
}

func testRevokedBefore(t *testing.T, p Provider) {
	x := newPair(t, p)
	for used, ops := range [][]rdma.Op{{}, {write(x.local(10), rdma.RemoteKey{}, 0, 0)}} {
		r := x.region(1000, readWrite)
		for _, op := range ops { // once before, so that the peer knows the region
			op.Remote.Key = r.Key()
			must(t, x.do(op))
		}
		must(t, r.Close())
		must(t, r.Close())
		before := append([]byte(nil), r.Bytes()...)
		for _, op := range []rdma.Op{write(fill(x.local(100), 1), r.Key(), 0, 0), read(x.local(100), r.Key(), 0, 0)} {
			if err := x.do(op); !x.revocation(err) {
				t.Fatalf("used before: %d, got %v", used, err)
			}
		}
		if !bytes.Equal(before, r.Bytes()) {
			t.Fatal("a revoked region changed")
		}
		if x.limit.ErrorEndsConn {
			x.conn, x.farConn = x.connect()
		}
	}
}

// testRevokedDuring: operations run against a region that is closed under them. Whatever they
// were told, nothing changes once Close has returned.
func testRevokedDuring(t *testing.T, p Provider) {
	x := newPair(t, p)
	for round := range 10 {
		const size = 4 << 20
		r := x.region(size, readWrite)
		var wg sync.WaitGroup
		var good atomic.Int64
		for i := range 4 {
			local := fill(x.local(size), round*4+i)
			wg.Go(func() {
				for {
					op := write(local, r.Key(), 0, 0)
					if i%2 == 1 {
						op.Kind = rdma.OpRead
					}
					if err := x.do(op); err != nil {
						if !x.revocation(err) {
							t.Errorf("got %v", err)
						}
						return
					}
					good.Add(1)
				}
			})
		}
		for good.Load() < 8 {
			time.Sleep(time.Millisecond)
		}
		must(t, r.Close())
		after := append([]byte(nil), r.Bytes()...)
		wg.Wait()
		if !bytes.Equal(after, r.Bytes()) {
			t.Fatal("the region changed after Close had returned")
		}
		if x.limit.ErrorEndsConn {
			x.conn, x.farConn = x.connect()
		}
	}
}

// blocked runs calls that wait for something that does not come, lets them get there, ends them
// and collects their errors.
func blocked(t *testing.T, end func(), calls map[string]func() error) map[string]error {
	t.Helper()
	type result struct {
		name string
		err  error
	}
	results := make(chan result, len(calls))
	for name, call := range calls {
		go func() { results <- result{name, call()} }()
	}
	select {
	case r := <-results:
		t.Fatalf("%s did not wait: %v", r.name, r.err)
	case <-time.After(50 * time.Millisecond):
	}
	end()
	errs := make(map[string]error)
	for range calls {
		select {
		case r := <-results:
			errs[r.name] = r.err
		case <-time.After(10 * time.Second):
			t.Fatalf("still blocked; ended: %v", errs)
		}
	}
	return errs
}

func wantAll(t *testing.T, errs map[string]error, want error) {
	t.Helper()
	for name, err := range errs {
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

// stuck returns calls on the connection that wait: for a message, for room in a full queue, for
// credits.
func (x *pair) stuck() map[string]func() error {
	r := x.region(100, readWrite)
	q := rdma.NewQueue(1)
	op := []rdma.Op{write(x.local(100), r.Key(), 0, 1)}
	postAll(x.t, x, q, op)
	buf := make([]byte, 100)
	return map[string]func() error{
		"Recv": func() error { _, err := x.conn.Recv(x.ctx, buf); return err },
		"Post": func() error { _, err := x.conn.Post(x.ctx, q, op); return err },
		"Send": func() error {
			for {
				if err := x.conn.Send(x.ctx, []byte("x")); err != nil {
					return err
				}
			}
		},
	}
}

func testCloseUnblocks(t *testing.T, p Provider) {
	x := newPair(t, p)
	wantAll(t, blocked(t, func() { must(t, x.conn.Close()) }, x.stuck()), rdma.ErrClosed)
	for name, call := range x.stuckAfterClose() {
		if err := call(); !errors.Is(err, rdma.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	must(t, x.conn.Close())

	wantAll(t, blocked(t, func() { must(t, x.listener.Close()) }, map[string]func() error{
		"Accept": func() error { _, err := x.listener.Accept(x.ctx); return err },
	}), rdma.ErrClosed)
	must(t, x.listener.Close())

	q := rdma.NewQueue(3)
	wantAll(t, blocked(t, q.Close, map[string]func() error{
		"Wait": func() error { _, err := q.Wait(x.ctx, make([]rdma.Completion, 1)); return err },
	}), rdma.ErrClosed)
}

func (x *pair) stuckAfterClose() map[string]func() error {
	q := rdma.NewQueue(1)
	buf := make([]byte, 10)
	return map[string]func() error{
		"Recv": func() error { _, err := x.conn.Recv(x.ctx, buf); return err },
		"Send": func() error { return x.conn.Send(x.ctx, buf) },
		"Post": func() error {
			_, err := x.conn.Post(x.ctx, q, []rdma.Op{write(x.local(1), rdma.RemoteKey{}, 0, 0)})
			return err
		},
	}
}

// testCloseCompletesAll closes the connection under a thousand operations.
func testCloseCompletesAll(t *testing.T, p Provider) {
	for _, far := range []bool{false, true} {
		x := newPair(t, p)
		const n, size = 1000, 100_000
		r := x.region(size, readWrite)
		local := x.local(size)
		q := rdma.NewQueue(n)
		posted := make(chan int, 1)
		go func() {
			total := 0
			defer func() { posted <- total }()
			for total < n {
				k, err := x.conn.Post(x.ctx, q, []rdma.Op{write(local, r.Key(), 0, uint64(total))})
				total += k
				if err != nil {
					return
				}
			}
		}()
		time.Sleep(5 * time.Millisecond)
		want := rdma.ErrClosed
		if far {
			want = rdma.ErrPeerGone
			must(t, x.farConn.Close())
		} else {
			must(t, x.conn.Close())
		}
		for id, err := range drain(t, x, q, <-posted) {
			if err != nil && !errors.Is(err, want) {
				t.Fatalf("operation %d: %v, want %v", id, err, want)
			}
		}
	}
}

func testPeerCloses(t *testing.T, p Provider) {
	x := newPair(t, p)
	wantAll(t, blocked(t, func() { must(t, x.farConn.Close()) }, x.stuck()), rdma.ErrPeerGone)
	if err := x.do(write(x.local(1), rdma.RemoteKey{}, 0, 0)); !errors.Is(err, rdma.ErrPeerGone) {
		t.Fatal(err)
	}
	x.conn, x.farConn = x.connect() // the fabrics live on
	must(t, x.farConn.Send(x.ctx, []byte("last words")))
	buf := make([]byte, 100)
	must(t, x.conn.Send(x.ctx, []byte("ready")))
	_, err := x.farConn.Recv(x.ctx, buf)
	must(t, err)
	n, err := x.conn.Recv(x.ctx, buf)
	if string(buf[:n]) != "last words" || err != nil {
		t.Fatalf("%q, %v", buf[:n], err)
	}
}

// testPeerKilled kills a second process with SIGKILL while operations and messages are under way.
func testPeerKilled(t *testing.T, p Provider) {
	peer := startChild(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	near := newFabric(t, p)
	conn, err := near.Dial(ctx, peer.addr)
	must(t, err)
	src, dst := fill(localMemory(t, near, childRegion), 9), localMemory(t, near, childRegion)
	must(t, rdma.Do(ctx, conn, []rdma.Op{write(src, peer.key, 0, 0)}))
	must(t, rdma.Do(ctx, conn, []rdma.Op{read(dst, peer.key, 0, 0)}))
	if !bytes.Equal(src, dst) {
		t.Fatal("data differ")
	}
	x := &pair{t: t, near: near, conn: conn, ctx: ctx}
	errs := blocked(t, func() { must(t, peer.cmd.Process.Kill()) }, map[string]func() error{
		"writes": func() error { return untilError(func() error { return x.do(write(src, peer.key, 0, 0)) }) },
		"reads":  func() error { return untilError(func() error { return x.do(read(dst, peer.key, 0, 0)) }) },
		"receive": func() error {
			_, err := conn.Recv(ctx, make([]byte, 10))
			return err
		},
	})
	wantAll(t, errs, rdma.ErrPeerGone)
	must(t, conn.Close())
	if _, err := near.Dial(ctx, peer.addr); !errors.Is(err, rdma.ErrPeerGone) {
		t.Fatalf("dialled a dead peer: %v", err)
	}
}

func untilError(f func() error) error {
	for {
		if err := f(); err != nil {
			return err
		}
	}
}

func testDialNobody(t *testing.T, p Provider) {
	x := newPair(t, p)
	addr := x.listener.Addr()
	must(t, x.listener.Close())
	if c, err := x.near.Dial(x.ctx, addr); !errors.Is(err, rdma.ErrPeerGone) {
		t.Fatalf("%v, %v", c, err)
	}
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	if _, err := x.near.Dial(ctx, addr); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func testFabricClosed(t *testing.T, p Provider) {
	x := newPair(t, p)
	r := x.region(100, readWrite)
	calls := x.stuck()
	calls["Accept"] = func() error { _, err := x.listener.Accept(x.ctx); return err }
	errs := blocked(t, func() {
		must(t, x.near.Close())
		must(t, x.far.Close())
	}, calls)
	wantAll(t, errs, rdma.ErrClosed)
	must(t, r.Close())
	mem, err := Allocate(100)
	must(t, err)
	defer func() { must(t, Free(mem)) }()
	late := map[string]error{}
	_, late["Register"] = x.near.Register(mem, readWrite)
	_, late["Listen"] = x.near.Listen(x.ctx, p.Addr(t))
	_, late["Dial"] = x.near.Dial(x.ctx, x.listener.Addr())
	wantAll(t, late, rdma.ErrClosed)
	must(t, x.near.Close())
	if x.near.Name() == "" {
		t.Fatal("the provider has no name")
	}
}
