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

// testDone: a connection reports its end with the reason, and not before the end.
func testDone(t *testing.T, p Provider) {
	x := newPair(t, p)
	second, farSecond := x.connect()
	for _, c := range []rdma.Conn{x.conn, x.farConn, second, farSecond} {
		wantOpen(t, c)
	}
	must(t, x.farConn.Close())
	wantEnded(t, x.farConn, rdma.ErrClosed)
	WantEnd(t, x.conn, rdma.ErrPeerGone)
	must(t, x.conn.Close())
	wantEnded(t, x.conn, rdma.ErrPeerGone) // the first reason stays
	for _, c := range []rdma.Conn{second, farSecond} {
		wantOpen(t, c)
	}
	must(t, x.near.Close())
	wantEnded(t, second, rdma.ErrClosed)
	WantEnd(t, farSecond, rdma.ErrPeerGone)
}

func ended(c rdma.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func wantOpen(t *testing.T, c rdma.Conn) {
	t.Helper()
	if err := c.Err(); ended(c) || err != nil {
		t.Fatalf("a connection to %s that nobody closed has ended: %v", c.Peer(), err)
	}
}

func wantEnded(t *testing.T, c rdma.Conn, want error) {
	t.Helper()
	if err := c.Err(); !ended(c) || !errors.Is(err, want) {
		t.Fatalf("ended: %v, %v; want %v", ended(c), err, want)
	}
}

// revocation lists the errors of an operation on a revoked region.
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
		for _, op := range ops { // once before, so that the peer has opened the region
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

// testRevokedDuring: operations run against a region that is closed under them. With any results,
// nothing changes once Close has returned.
func testRevokedDuring(t *testing.T, p Provider) {
	x := newPair(t, p)
	for round := range 10 {
		const size = 4 << 20
		r := x.region(size, readWrite)
		var wg sync.WaitGroup
		defer wg.Wait()
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
			if err := x.conn.Err(); err != nil {
				t.Fatalf("the connection has ended: %v", err)
			}
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

// blocked runs calls that wait for events that do not come, waits until they are blocked, ends
// them and collects their errors.
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
		case <-time.After(patience):
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

// stuck returns calls on the connection that wait, for its end, and for room in a full queue.
func (x *pair) stuck() map[string]func() error {
	r := x.region(100, readWrite)
	q := rdma.NewQueue(1)
	op := []rdma.Op{write(x.local(100), r.Key(), 0, 1)}
	postAll(x.t, x, q, op)
	return map[string]func() error{
		"Done": func() error { <-x.conn.Done(); return x.conn.Err() },
		"Post": func() error { _, err := x.conn.Post(x.ctx, q, op); return err },
	}
}

func testCloseUnblocks(t *testing.T, p Provider) {
	x := newPair(t, p)
	wantAll(t, blocked(t, func() { must(t, x.conn.Close()) }, x.stuck()), rdma.ErrClosed)
	late := []rdma.Op{write(x.local(1), rdma.RemoteKey{}, 0, 0)}
	if n, err := x.conn.Post(x.ctx, rdma.NewQueue(1), late); n != 0 || !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Post after Close: %d, %v", n, err)
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
	x.conn, x.farConn = x.connect() // the fabrics stay open
	r := x.region(10, readWrite)
	must(t, x.do(write(x.local(10), r.Key(), 0, 0)))
}

// testPeerKilled kills a second process with SIGKILL while operations are under way.
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
		"end":    func() error { <-conn.Done(); return conn.Err() },
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
