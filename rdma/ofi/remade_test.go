//go:build ofi && cgo

package ofi

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

// TestPeerComesBack: a peer dies with operations in flight and comes back at its address.
// Operations in flight fail, each once. While it is away, dialling it fails at once. When it is
// back, it is dialled and used again by the same fabric, whose other connection is not affected.
func TestPeerComesBack(t *testing.T) {
	for _, name := range []string{"tcp", "sockets", "hardware"} {
		t.Run(name, func(t *testing.T) { peerComesBack(t, name) })
	}
}

func peerComesBack(t *testing.T, name string) {
	x := newLinkOf(t, name, all)
	other := x.conn
	stop := x.keepBusy(other)
	var address string
	for round := range 3 {
		peer := x.peer(name, address)
		address = peer.listener.Addr()
		c, err := x.near.Dial(t.Context(), address)
		must(t, err)
		content := bytes.Repeat([]byte{byte(round + 1)}, 100_000)
		op := rdma.Op{Kind: rdma.OpWrite, Local: content, Remote: rdma.Remote{Key: peer.region.Key()}}
		must(t, rdma.Do(t.Context(), c, []rdma.Op{op}))
		if !bytes.Equal(peer.region.Bytes()[:len(content)], content) {
			t.Fatal("what was written is not there")
		}
		flying := postMany(t, c, op)
		peer.die()
		flying()
		start := time.Now()
		if _, err := x.near.Dial(t.Context(), address); !errors.Is(err, rdma.ErrPeerGone) || time.Since(start) > x.near.opts.HandshakeTimeout/2 {
			t.Errorf("dialling who is away: %v after %v", err, time.Since(start))
		}
		must(t, c.Close())
	}
	if n := stop(); n == 0 {
		t.Error("the other connection did nothing meanwhile")
	}
}

// TestPeerThatHangs: dialling a peer that accepts connections and sends nothing ends in time, and
// delays no other peer.
func TestPeerThatHangs(t *testing.T) {
	x := newLinkOf(t, "tcp", all)
	x.near.opts.HandshakeTimeout = 300 * time.Millisecond
	hang, err := net.Listen("tcp", "127.0.0.1:0") // no peer accepts
	must(t, err)
	defer hang.Close()
	stop := x.keepBusy(x.conn)
	if _, err := x.near.Dial(t.Context(), hang.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dialled one that says nothing: %v", err)
	}
	if n := stop(); n < 3 {
		t.Errorf("meanwhile another connection finished %d operations", n)
	}
	x.connect()
	must(t, x.do(rdma.OpWrite, 0, make([]byte, 10)))
}

// keepBusy has a connection write without a pause. The returned function ends that, and returns
// how often it did.
func (x *link) keepBusy(c rdma.Conn) (stop func() int) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		b := make([]byte, 10_000)
		for {
			select {
			case <-ended:
				return
			default:
			}
			op := rdma.Op{Kind: rdma.OpWrite, Local: b, Remote: rdma.Remote{Key: x.region.Key()}}
			if err := rdma.Do(context.Background(), c, []rdma.Op{op}); err != nil {
				x.t.Errorf("the other connection: %v", err)
				return
			}
			n++
		}
	})
	return sync.OnceValue(func() int {
		close(ended)
		wg.Wait()
		return n
	})
}

// postMany posts an operation many times. The returned function waits until all have completed,
// and checks that each did so once.
func postMany(t *testing.T, c rdma.Conn, op rdma.Op) (wait func()) {
	const many = 64
	q := rdma.NewQueue(many)
	ops := make([]rdma.Op, many)
	for i := range ops {
		ops[i] = op
		ops[i].ID = uint64(i)
	}
	posted, err := c.Post(t.Context(), q, ops)
	must(t, err)
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		seen := map[uint64]int{}
		got := make([]rdma.Completion, many)
		for len(seen) < posted {
			n, err := q.Wait(ctx, got)
			must(t, err)
			for _, done := range got[:n] {
				seen[done.ID]++
				if err := done.Err; err != nil && !errors.Is(err, rdma.ErrPeerGone) && !errors.Is(err, rdma.ErrRevoked) {
					t.Errorf("operation %d: %v", done.ID, err)
				}
				if seen[done.ID] > 1 {
					t.Errorf("operation %d completed twice", done.ID)
				}
			}
		}
		if n := q.Poll(got); n != 0 {
			t.Errorf("%d completions too many", n)
		}
	}
}

// mortal is a peer that can be brought down.
type mortal struct {
	fabric   *Fabric
	listener rdma.Listener
	region   rdma.Region
	die      func()
}

// peer starts a peer at an address, "" for any.
func (x *link) peer(name, address string) *mortal {
	x.t.Helper()
	f, err := newFabric(configurations[name].opts, configurations[name].rules)
	must(x.t, err)
	if address == "" {
		address = "127.0.0.1:0"
	}
	m := &mortal{fabric: f}
	m.listener, err = f.Listen(x.t.Context(), address)
	must(x.t, err)
	mem, err := rdmatest.Allocate(1 << 20)
	must(x.t, err)
	m.region, err = f.Register(mem, all)
	must(x.t, err)
	m.die = sync.OnceFunc(func() { must(x.t, f.Close()); must(x.t, rdmatest.Free(mem)) })
	x.t.Cleanup(m.die)
	return m
}
