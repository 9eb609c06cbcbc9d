//go:build ofi && cgo

package ofi

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/lifeline"
)

// conn implements rdma.Conn.
//
//	made ──open──▶ open ──fail(ErrClosed | ErrPeerGone …)──▶ dying ──endpoint closed, threads
//	  └────────────fail───────────────────────────────────────▲      ended, operations swept──▶ done
type conn struct {
	fabric *Fabric
	id     uint32   // in the tags of its operations
	raw    net.Conn // under the lifeline
	peer   string
	by     *Admission // nil: for good
	log    *slog.Logger
	theirs lifeline.Hello

	contexts fi.Contexts // for the memory that libfabric holds of this connection

	line  *lifeline.Line
	loans loans
	slots *provider.Credits // operations

	connected chan struct{} // closed when the fabric reports it
	joinOnce  sync.Once
	dying     chan struct{}
	done      chan struct{}
	work      sync.WaitGroup // threads of the lifeline

	mu struct {
		sync.Mutex
		err      error
		endpoint *fi.Endpoint // nil before it is attached, and after it is closed
		posts    posts
		grants   grants
	}
}

// newConn makes a connection around a socket, which it owns. The connection must be opened or
// failed.
func newConn(f *Fabric, raw net.Conn, by *Admission, own *Dialer) (*conn, error) {
	c := &conn{
		fabric: f, id: f.lastConn.Add(1), raw: raw, peer: raw.RemoteAddr().String(), by: by,
		log:   own.Log,
		slots: provider.NewCredits(f.opts.Depth), connected: make(chan struct{}), dying: make(chan struct{}), done: make(chan struct{}),
	}
	c.mu.grants.init()
	c.line = lifeline.New(c, own.PeerTimeout, c.dying)
	if err := f.conns.Add(c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	go c.bury()
	// From here on the end of the admission finds the connection, and waits for it.
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

// attach makes the endpoint, and registers it with the loop.
func (c *conn) attach(make func() (*fi.Endpoint, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	e, err := make()
	c.mu.endpoint = e // the loop closes it, complete or not
	if err != nil {
		return err
	}
	c.mu.posts.init(c.fabric)
	c.contexts = fi.NewContexts(c.id, c.mu.posts.contexts())
	c.fabric.loop.Route(c.id, e, c)
	return nil
}

// with runs something on the endpoint.
func (c *conn) with(f func(e *fi.Endpoint) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	return f(c.mu.endpoint)
}

// meet adopts the peer's description of itself. It comes before the peer may use the endpoint.
func (c *conn) meet(theirs lifeline.Hello) {
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
	c.line.Start(socket, &c.work)
	return nil
}

// Connected implements progress.Conn.
func (c *conn) Connected() { c.joinOnce.Do(func() { close(c.connected) }) }

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

// Fail implements progress.Conn and lifeline.Handler.
func (c *conn) Fail(cause error) { c.fail(c.gone(cause)) }

// gone translates an error of the lifeline or the fabric.
func (c *conn) gone(err error) error {
	if errors.Is(err, rdma.ErrProtocol) {
		c.log.Warn("peer broke the protocol, disconnected", "peer", c.peer)
	}
	return fmt.Errorf("ofi %s: %w: %w", c.peer, rdma.ErrPeerGone, err)
}

// bury waits until no operation touches the caller's memory any more, then ends the rest.
func (c *conn) bury() {
	<-c.dying
	if err := c.fabric.loop.Detach(c.id, c.takeEndpoint); err != nil {
		c.log.Warn("closing an endpoint failed", "peer", c.peer, "err", err)
	}
	c.work.Wait()
	c.mu.Lock()
	c.mu.posts.sweep(c, c.mu.err)
	c.mu.Unlock()
	c.contexts.Release()
	for _, r := range c.loans.all() {
		r.removePeer(c)
	}
	c.by.Leave(c)
	c.fabric.conns.Remove(c)
	close(c.done)
}

// takeEndpoint returns the endpoint, and nothing is posted to it any more.
func (c *conn) takeEndpoint() *fi.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.mu.endpoint
	c.mu.endpoint = nil
	return e
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

// Advance implements progress.Conn.
func (c *conn) Advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked()
}

// Retry implements local.Waiter.
func (c *conn) Retry() { c.fabric.loop.Stall(c) }

func (c *conn) advanceLocked() {
	if c.mu.endpoint == nil || c.mu.err != nil || !c.mu.posts.opened {
		return
	}
	switch err := c.mu.posts.post(c); {
	case err == nil:
	case fi.Retry(err):
		c.fabric.loop.Stall(c)
	default:
		c.failLocked(c.gone(err))
	}
}

// Complete implements progress.Conn.
func (c *conn) Complete(d *fi.Completion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failure error
	if d.Failed() {
		failure = c.fabric.dev.Failure(d)
		defer func() { c.failLocked(c.gone(failure)) }() // the operation may record the reason first
	}
	c.mu.posts.complete(c, d.Context(), failure)
}
