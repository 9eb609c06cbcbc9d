package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

// conn implements rdma.Conn.
//
//	open ──fail(ErrClosed | ErrPeerGone …)──▶ dying ──threads ended, table swept──▶ done
type conn struct {
	fabric *Fabric
	peer   string
	by     *Admission // nil: for good
	opts   Options
	theirs hello

	control *control
	streams []*stream
	slots   *provider.Credits // free slots of the table

	dying chan struct{}
	done  chan struct{}
	work  sync.WaitGroup // readers and writers

	mu struct {
		sync.Mutex
		table *table
		err   error // why it is dying
	}
}

// newConn starts a connection on streams that finished their handshake. sockets[0] is control.
func newConn(f *Fabric, sockets []socket, theirs hello) (*conn, error) {
	c := &conn{
		fabric: f, opts: f.opts, theirs: theirs, peer: sockets[0].RemoteAddr().String(), by: sockets[0].by,
		slots: provider.NewCredits(f.opts.Depth),
		dying: make(chan struct{}), done: make(chan struct{}),
	}
	c.mu.table = newTable(f.opts.Depth, f.opts.Chunk)
	c.control = &control{conn: c, socket: sockets[0]}
	for _, s := range sockets[1:] {
		c.streams = append(c.streams, newStream(c, s))
	}
	if err := f.conns.Add(c); err != nil {
		closeAll(sockets)
		return nil, err
	}
	// From here on the end of the admission finds the connection, and waits for it.
	if err := c.by.Admit(c); err != nil {
		c.fail(err)
		c.bury()
		return nil, err
	}
	c.work.Go(c.control.read)
	c.work.Go(c.control.write)
	for _, s := range c.streams {
		c.work.Go(s.read)
		c.work.Go(s.write)
	}
	go c.bury()
	return c, nil
}

// fail is the only way from open to dying. The first reason stays.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	first := c.mu.err == nil
	if first {
		c.mu.err = reason
		close(c.dying)
	}
	c.mu.Unlock()
	if !first {
		return
	}
	c.control.socket.abort()
	for _, s := range c.streams {
		s.socket.abort()
	}
}

// gone translates an error of a stream.
func (c *conn) gone(err error) error {
	if errors.Is(err, rdma.ErrProtocol) {
		c.opts.Log.Warn("peer broke the protocol, disconnected", "peer", c.peer)
	}
	return fmt.Errorf("tcp %s: %w: %w", c.peer, rdma.ErrPeerGone, err)
}

// bury waits until no operation touches the caller's memory any more, then ends the rest.
func (c *conn) bury() {
	c.work.Wait()
	c.mu.Lock()
	c.mu.table.sweep(c.mu.err)
	c.mu.Unlock()
	c.by.Leave(c)
	c.fabric.conns.Remove(c)
	close(c.done)
}

func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// Post implements rdma.Conn.
func (c *conn) Post(ctx context.Context, q *rdma.Queue, ops []rdma.Op) (int, error) {
	n, bad := wellFormed(ops)
	if n == 0 {
		return 0, bad
	}
	room, err := q.Reserve(ctx, c.dying, n)
	if err != nil {
		return 0, c.orDying(err)
	}
	took, err := c.slots.Take(ctx, c.dying, room)
	q.Unreserve(room - took)
	if err != nil {
		return 0, c.orDying(err)
	}
	if err := c.enqueue(q, ops[:took]); err != nil {
		q.Unreserve(took)
		c.slots.Give(took)
		return 0, err
	}
	if took == n {
		return n, bad
	}
	return took, nil
}

// wellFormed returns how many operations from the first on can be posted, and the fault of the next.
func wellFormed(ops []rdma.Op) (int, error) {
	for i := range ops {
		if err := rdma.CheckOp(&ops[i], maxOp); err != nil {
			return i, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return len(ops), nil
}

// orDying prefers the reason why the connection ended over the consequence.
func (c *conn) orDying(err error) error {
	if reason := c.reason(); reason != nil {
		return reason
	}
	return err
}

func (c *conn) enqueue(q *rdma.Queue, ops []rdma.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	for i := range ops {
		c.mu.table.add(ops[i], q)
	}
	c.wakeIdle(len(ops))
	return nil
}

// wakeIdle wakes up to n writers that have nothing to do and may send a chunk. The others are
// roused by the reply that opens their window. The lock is held.
func (c *conn) wakeIdle(n int) {
	for _, s := range c.streams {
		if n == 0 {
			return
		}
		if s.idle && s.owed < s.window {
			s.rouse()
			n--
		}
	}
}

// Done implements rdma.Conn.
func (c *conn) Done() <-chan struct{} { return c.done }

// Err implements rdma.Conn.
func (c *conn) Err() error {
	select {
	case <-c.done:
		return c.reason()
	default:
		return nil
	}
}

// Peer implements rdma.Conn.
func (c *conn) Peer() string { return c.peer }

// Close implements rdma.Conn.
func (c *conn) Close() error {
	c.fail(rdma.ErrClosed)
	<-c.done
	return nil
}

// uses reports whether a transfer on the wire holds the region.
func (c *conn) uses(r *target.Region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		if s.reading.Load() == r || s.sends(r) {
			return true
		}
	}
	return false
}

// socket is a stream with its TLS layer, and the TCP connection under it for an end at once.
type socket struct {
	net.Conn
	raw net.Conn
	by  *Admission
}

// abort unblocks every reader and writer without a farewell, which could block.
func (s socket) abort() { _ = s.raw.Close() }

func closeAll(sockets []socket) {
	for _, s := range sockets {
		if s.raw != nil {
			s.abort()
		}
	}
}

// deadlineIn is a deadline that far from now.
func deadlineIn(d time.Duration) time.Time { return time.Now().Add(d) }
