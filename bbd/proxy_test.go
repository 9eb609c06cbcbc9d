package bbd_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a daemon and its clients. While one way is muted, bytes that are
// sent that way is taken, as the machine of a stopped process does, and does not arrive.
type proxy struct {
	net.Listener
	deaf, mute atomic.Bool // requests, and answers, do not get through
	conns      sync.Map
	wg         sync.WaitGroup
}

// newProxy passes connections on to an address until the test ends.
func newProxy(t *testing.T, to func() string) *proxy {
	t.Helper()
	return proxyOn(t, "tcp", "127.0.0.1:0", to)
}

// proxyOn is newProxy that listens on an address, of the same network.
func proxyOn(t *testing.T, network, address string, to func() string) *proxy {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l}
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial(network, to())
			if err != nil {
				in.Close()
				continue
			}
			p.conns.Store(in, nil)
			p.conns.Store(out, nil)
			p.wg.Go(func() { pass(out, in, &p.deaf) })
			p.wg.Go(func() { pass(in, out, &p.mute) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// pass copies the bytes of a connection, unless they are lost.
func pass(to, from net.Conn, lost *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	for b := make([]byte, 64<<10); ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if !lost.Load() {
			to.Write(b[:n])
		}
	}
}

// cut breaks the connections there are. New ones work.
func (p *proxy) cut() {
	p.deaf.Store(false)
	p.mute.Store(false)
	p.conns.Range(func(c, _ any) bool {
		c.(net.Conn).Close()
		p.conns.Delete(c)
		return true
	})
}
