package gossip

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"forebay/internal/bb"
)

// dialTime bounds the time for which a member that does not answer delays the others.
const dialTime = 3 * time.Second

// bind opens the transport and sets c's addresses.
func (g *Gossip) bind(ctx context.Context, c *memberlist.Config) error {
	o := &g.options
	if o.transport != nil {
		t, err := o.transport(g.log)
		c.Transport = t
		return err
	}
	ip, port, err := numeric(ctx, o.Listen)
	if err != nil {
		return err
	}
	if o.Advertise != "" {
		if c.AdvertiseAddr, c.AdvertisePort, err = numeric(ctx, o.Advertise); err != nil {
			return err
		}
	}
	config := &memberlist.NetTransportConfig{BindAddrs: []string{ip}, BindPort: port, Logger: c.Logger}
	var t *memberlist.NetTransport
	for range 10 { // the port that is free for TCP may be taken for UDP
		if t, err = memberlist.NewNetTransport(config); err == nil || port != 0 {
			break
		}
	}
	if err != nil {
		return (&bb.Error{Kind: bb.Unavailable, Op: "gossip", Path: o.Listen, Err: err}).
			WithRemedy("give it an address of this node and a port that is free, both UDP and TCP")
	}
	c.BindAddr, c.BindPort = ip, t.GetAutoBindPort()
	if o.Advertise == "" {
		c.AdvertisePort = c.BindPort
	}
	c.Transport = &transport{NetTransport: t, ctx: g.ctx}
	return nil
}

// numeric resolves host:port. An empty host is every address of this node.
func numeric(ctx context.Context, address string) (ip string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, bb.Wrap("gossip", address, err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		return "", 0, bb.E(bb.Invalid, "gossip", address, "has no port")
	}
	if host == "" {
		return "0.0.0.0", port, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(ips) == 0 {
		err = errors.New("has no address")
	}
	if err != nil {
		return "", 0, (&bb.Error{Kind: bb.Invalid, Op: "gossip", Path: address, Err: err}).WithRemedy("use a number or a name that this node can resolve")
	}
	return ips[0].Unmap().String(), port, nil
}

// transport is memberlist's own, but ends its dials when gossip is closed.
type transport struct {
	*memberlist.NetTransport
	ctx context.Context
}

// DialAddressTimeout connects to a member.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: min(timeout, dialTime)}
	c, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, stop: context.AfterFunc(t.ctx, func() { _ = c.Close() })}, nil
}

// DialTimeout connects to an address.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

type conn struct {
	net.Conn
	stop func() bool
}

// Close closes the connection.
func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}
