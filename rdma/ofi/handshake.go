//go:build ofi && cgo

package ofi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/ofi/internal/lifeline"
)

// pendingHandshakes bounds the sockets between arrival and Accept.
const pendingHandshakes = 1024

// The handshake, on the lifeline but where noted:
//
//	dialer                                        listener
//	  ├── TLS, authentication ──────────────────────▶│
//	  ├── hello (its datagram endpoint's address) ──▶│ makes its datagram endpoint, or expects
//	  │◀── hello (token, address) ───────────────────┤ the token
//	  ├── on the fabric: connect, quoting the token ▶│ makes and accepts the message endpoint
//	  ├── ready ────────────────────────────────────▶│
//	  │◀── ready ────────────────────────────────────┤
//
// A side that sends ready has its end of the connection on the fabric.
type listener struct{ *provider.Listener }

// Listen implements rdma.Fabric. The address is the lifeline's, "host:port". Port 0 picks a free
// one. The endpoint listens at Offer's address, on a port of its own.
func (f *Fabric) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	done, err := f.use()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := f.listenOnFabric(); err != nil {
		return nil, fmt.Errorf("ofi listen on %s: %w", f.dev.Offer.Domain, err)
	}
	var lc net.ListenConfig
	raw, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ofi listen on %s: %w", addr, err)
	}
	l := &listener{}
	l.Listener = provider.NewListener(ctx, provider.ListenerConfig{
		Raw: raw, Handshake: f.welcome, Timeout: f.opts.HandshakeTimeout,
		Pending: pendingHandshakes, Log: f.opts.Log,
	}, func() { f.listeners.Remove(l) })
	if err := f.listeners.Add(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// listenOnFabric opens the passive endpoint, once for all listeners.
func (f *Fabric) listenOnFabric() error {
	f.passive.Lock()
	defer f.passive.Unlock()
	if !f.dev.Message || f.passive.address != nil {
		return nil
	}
	if err := f.dev.Listen(); err != nil {
		return err
	}
	address, err := f.dev.Listening()
	f.passive.address = address
	return err
}

func (f *Fabric) passiveAddress() []byte {
	f.passive.Lock()
	defer f.passive.Unlock()
	return f.passive.address
}

// welcome is the listener's side. It owns the socket.
func (f *Fabric) welcome(ctx context.Context, raw net.Conn) (rdma.Conn, error) {
	own := f.opts.dialer()
	socket, by, err := f.admit(ctx, raw)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	c, err := newConn(f, raw, by, &own)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	defer provider.CloseOnEnd(ctx, raw)()
	if err := f.accept(ctx, c, socket); err != nil {
		return nil, c.abandon(err)
	}
	return c, nil
}

func (f *Fabric) accept(ctx context.Context, c *conn, socket net.Conn) error {
	theirs, err := lifeline.ReadHello(socket)
	if err != nil {
		return err
	}
	mine := f.hello()
	_, _ = rand.Read(mine.Token[:]) // never fails
	c.meet(theirs)
	if err := f.compatible(theirs); err != nil {
		// The dialer needs this hello to return the same error.
		_, _ = socket.Write(mine.Encode())
		return err
	}
	if f.dev.Message {
		err = f.acceptMessage(ctx, c, socket, &mine)
	} else {
		err = f.acceptDatagram(c, socket, &mine)
	}
	if err == nil {
		err = lifeline.ExpectReady(socket)
	}
	if err == nil {
		err = lifeline.SayReady(socket)
	}
	if err != nil {
		return err
	}
	return c.start(socket)
}

func (f *Fabric) acceptMessage(ctx context.Context, c *conn, socket io.Writer, mine *lifeline.Hello) error {
	mine.Address = f.passiveAddress()
	requests := f.loop.Expect(mine.Token)
	defer f.loop.Forget(mine.Token, requests)
	if _, err := socket.Write(mine.Encode()); err != nil {
		return err
	}
	var request fi.Event
	select {
	case request = <-requests:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the connection on the fabric: %w", context.Cause(ctx))
	case <-c.dying:
		return c.reason()
	}
	taken := false
	err := c.attach(func() (*fi.Endpoint, error) {
		taken = true
		return f.dev.NewAccepting(request)
	})
	if !taken {
		f.dev.Reject(request)
	}
	if err == nil {
		err = c.with(func(e *fi.Endpoint) error { return e.Accept() })
	}
	if err != nil {
		return err
	}
	return c.join(ctx)
}

func (f *Fabric) acceptDatagram(c *conn, socket io.Writer, mine *lifeline.Hello) error {
	err := c.attach(func() (*fi.Endpoint, error) { return f.dev.NewEndpoint(nil) })
	if err != nil {
		return err
	}
	err = c.with(func(e *fi.Endpoint) (err error) {
		if mine.Address, err = e.Name(); err == nil {
			err = e.SetPeer(c.theirs.Address)
		}
		return err
	})
	if err == nil {
		_, err = socket.Write(mine.Encode())
	}
	return err
}

// Dial implements rdma.Fabric. The address is that of a listener's lifeline, "host:port".
func (f *Fabric) Dial(ctx context.Context, addr string) (rdma.Conn, error) {
	return f.DialWith(ctx, addr, f.opts.dialer())
}

// DialWith is Dial as another. Connections of one Fabric to different peers share its domain and
// its loop, and need share no more.
func (f *Fabric) DialWith(ctx context.Context, addr string, own Dialer) (rdma.Conn, error) {
	own = own.withDefaults()
	ctx, cancel := f.within(ctx, f.opts.HandshakeTimeout)
	defer cancel()
	c, err := f.dial(ctx, addr, &own)
	switch {
	case err == nil:
		return c, nil
	case f.ctx.Err() != nil:
		return nil, fmt.Errorf("ofi dial %s: %w", addr, rdma.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ofi dial %s: %w: %w", addr, ctx.Err(), err)
	}
	return nil, fmt.Errorf("ofi dial %s: %w: %w", addr, rdma.ErrPeerGone, err)
}

func (f *Fabric) dial(ctx context.Context, addr string, own *Dialer) (*conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	socket, err := own.greet(ctx, raw)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	c, err := newConn(f, raw, nil, own)
	if err != nil {
		return nil, err
	}
	defer provider.CloseOnEnd(ctx, raw)()
	if err := f.connect(ctx, c, socket); err != nil {
		return nil, c.abandon(err)
	}
	return c, nil
}

func (f *Fabric) connect(ctx context.Context, c *conn, socket net.Conn) error {
	mine := f.hello()
	if !f.dev.Message {
		err := c.attach(func() (*fi.Endpoint, error) { return f.dev.NewEndpoint(nil) })
		if err != nil {
			return err
		}
		err = c.with(func(e *fi.Endpoint) (err error) { mine.Address, err = e.Name(); return err })
		if err != nil {
			return err
		}
	}
	if _, err := socket.Write(mine.Encode()); err != nil {
		return err
	}
	theirs, err := lifeline.ReadHello(socket)
	if err == nil {
		err = f.compatible(theirs)
	}
	if err != nil {
		return err
	}
	c.meet(theirs)
	if f.dev.Message {
		err = f.connectMessage(ctx, c, &theirs)
	} else {
		err = c.with(func(e *fi.Endpoint) error { return e.SetPeer(theirs.Address) })
	}
	if err == nil {
		err = lifeline.SayReady(socket)
	}
	if err == nil {
		err = lifeline.ExpectReady(socket)
	}
	if err != nil {
		return err
	}
	return c.start(socket)
}

func (f *Fabric) connectMessage(ctx context.Context, c *conn, theirs *lifeline.Hello) error {
	err := c.attach(func() (*fi.Endpoint, error) { return f.dev.NewEndpoint(theirs.Address) })
	if err == nil {
		err = c.with(func(e *fi.Endpoint) error { return e.Connect(theirs.Address, theirs.Token[:]) })
	}
	if err != nil {
		return err
	}
	return c.join(ctx)
}

// join waits until the fabric has connected the endpoint.
func (c *conn) join(ctx context.Context) error {
	select {
	case <-c.connected:
		return nil
	case <-c.dying:
		return c.reason()
	case <-ctx.Done():
		return fmt.Errorf("connecting on the fabric: %w", context.Cause(ctx))
	}
}

// start opens the connection, whose handshake is through.
func (c *conn) start(socket net.Conn) error {
	if err := socket.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return c.open(socket)
}

// hello returns the description of this side.
func (f *Fabric) hello() lifeline.Hello {
	return lifeline.Hello{
		Datagram: !f.dev.Message, Protocol: f.dev.Protocol,
		Sight: lifeline.Place{Addr: f.sight.page.Reg.Base, Key: f.sight.page.Reg.Key},
	}
}

// compatible refuses a peer whose endpoints do not fit ours.
func (f *Fabric) compatible(theirs lifeline.Hello) error {
	if theirs.Datagram == f.dev.Message || theirs.Protocol != f.dev.Protocol {
		return fmt.Errorf("the peer's endpoints are not of this side's kind, %s with %s endpoints: %w",
			f.dev.Offer.Provider, f.dev.Offer.Endpoint, rdma.ErrProtocol)
	}
	if len(theirs.Address) == 0 && (theirs.Datagram || theirs.Token != [lifeline.TokenSize]byte{}) {
		return fmt.Errorf("the peer has no address on the fabric: %w", rdma.ErrProtocol)
	}
	return nil
}

// dialer has the state that Dial and listeners share.
func (o *Options) dialer() Dialer {
	return Dialer{PeerTimeout: o.PeerTimeout, TLS: o.TLS, Authenticate: o.Authenticate, Log: o.Log}
}

func (d Dialer) withDefaults() Dialer {
	o := Options{PeerTimeout: d.PeerTimeout, Log: d.Log}.withDefaults()
	d.PeerTimeout, d.Log = o.PeerTimeout, o.Log
	return d
}

// admit runs the steps before the hello of a peer that has dialled: the deadline, TLS, authentication.
func (f *Fabric) admit(ctx context.Context, raw net.Conn) (net.Conn, *Admission, error) {
	defer provider.CloseOnEnd(ctx, raw)()
	socket, err := provider.Server(ctx, raw, f.opts.PeerTimeout, f.opts.TLS)
	if err != nil {
		return nil, nil, err
	}
	by, err := provider.Admit(ctx, socket, f.opts.Admit)
	return socket, by, err
}

// greet does the same on a lifeline that this side has dialled.
func (d *Dialer) greet(ctx context.Context, raw net.Conn) (net.Conn, error) {
	defer provider.CloseOnEnd(ctx, raw)()
	socket, err := provider.Client(ctx, raw, d.PeerTimeout, d.TLS)
	if err != nil {
		return nil, err
	}
	return socket, provider.Authenticate(ctx, socket, d.Authenticate)
}
