//go:build ofi && cgo

package ofi

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
)

var errShutdown = errors.New("the fabric's connection was shut down")

// conn implements rdma.Conn.
//
//	made ──open──▶ open ──fail(ErrClosed | ErrPeerGone …)──▶ dying ──endpoint closed, threads
//	  └────────────fail───────────────────────────────────────▲      ended, operations swept──▶ done
type conn struct {
	fabric   *Fabric
	id       uint32   // in the tags of its operations
	raw      net.Conn // under the lifeline
	peer     string
	by       *Admission // nil: for good
	log      *slog.Logger
	patience time.Duration // with a silent peer: Options.PeerTimeout
	theirs   hello

	contexts contexts // of libfabric's, for what it holds of this connection

	line  *lifeline
	slots *provider.Credits // operations

	connected chan struct{} // closed when the fabric says so
	joinOnce  sync.Once
	dying     chan struct{}
	done      chan struct{}
	work      sync.WaitGroup // threads of the lifeline

	mu struct {
		sync.Mutex
		err      error
		endpoint *endpoint // nil before it is attached, and after it is closed
		posts    posts
		grants   grants
	}
}

// newConn makes a connection around a socket, which it owns: the connection must be opened or
// failed.
func newConn(f *Fabric, raw net.Conn, by *Admission, own *Dialer) (*conn, error) {
	c := &conn{
		fabric: f, id: f.lastConn.Add(1), raw: raw, peer: raw.RemoteAddr().String(), by: by,
		log: own.Log, patience: own.PeerTimeout,
		slots: provider.NewCredits(f.opts.Depth), connected: make(chan struct{}), dying: make(chan struct{}), done: make(chan struct{}),
	}
	c.mu.grants.init()
	c.line = newLifeline(c)
	if err := f.conns.Add(c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	go c.bury()
	// From here on whoever ends the admission finds the connection, and waits for it.
	if err := by.Admit(c); err != nil {
		return nil, c.abandon(err)
	}
	return c, nil
}

// abandon ends a connection whose handshake failed.
func (c *conn) abandon(err error) error {
	c.fail(err)
	<-c.done
	return err
}

// attach makes the endpoint, and has the loop know it.
func (c *conn) attach(make func() (*endpoint, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	e, err := make()
	c.mu.endpoint = e // whatever there is of it, the loop closes
	if err != nil {
		return err
	}
	c.mu.posts.init(c.fabric)
	c.contexts = newContexts(c.id, c.mu.posts.contexts())
	c.fabric.loop.route(c, e)
	return nil
}

// with runs something on the endpoint.
func (c *conn) with(f func(e *endpoint) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	return f(c.mu.endpoint)
}

// meet takes in what the peer said of itself. It comes before the peer may use the endpoint.
func (c *conn) meet(theirs hello) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.theirs = theirs
}

// open starts the connection after its handshake.
func (c *conn) open(socket net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	c.mu.posts.opened = true
	c.line.socket = socket
	c.work.Go(c.line.read)
	c.work.Go(c.line.write)
	return nil
}

// joined is told that the fabric has connected the endpoint.
func (c *conn) joined() { c.joinOnce.Do(func() { close(c.connected) }) }

// fail is the only way to dying. The first reason stays.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(reason)
}

func (c *conn) failLocked(reason error) {
	if c.mu.err != nil {
		return
	}
	c.mu.err = reason
	close(c.dying)
	_ = c.raw.Close() // without a farewell, which could block
}

// gone translates an error of the lifeline or the fabric.
func (c *conn) gone(err error) error {
	if errors.Is(err, rdma.ErrProtocol) {
		c.log.Warn("peer broke the protocol, disconnected", "peer", c.peer)
	}
	return fmt.Errorf("ofi %s: %w: %w", c.peer, rdma.ErrPeerGone, err)
}

// bury waits until nobody touches the caller's memory any more, then ends what is left.
func (c *conn) bury() {
	<-c.dying
	c.fabric.loop.detach(c)
	c.work.Wait()
	c.mu.Lock()
	c.mu.posts.sweep(c, c.mu.err)
	c.mu.Unlock()
	c.contexts.release()
	for _, r := range c.line.held() {
		r.letGo(c)
	}
	c.by.Leave(c)
	c.fabric.conns.Remove(c)
	close(c.done)
}

func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// orDying prefers the reason why the connection ended over the consequence.
func (c *conn) orDying(err error) error {
	if reason := c.reason(); reason != nil {
		return reason
	}
	return err
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

// advance posts what there is to post.
func (c *conn) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked()
}

func (c *conn) advanceLocked() {
	if c.mu.endpoint == nil || c.mu.err != nil || !c.mu.posts.opened {
		return
	}
	switch err := c.mu.posts.post(c); {
	case err == nil:
	case retry(err):
		c.fabric.loop.stall(c)
	default:
		c.failLocked(c.gone(err))
	}
}

// complete takes one completion.
func (c *conn) complete(context int, d *completion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failure error
	if d.err != 0 {
		failure = c.fabric.dev.failure(d)
		defer func() { c.failLocked(c.gone(failure)) }() // what it was may say why first
	}
	c.mu.posts.complete(c, context, failure)
}
