package gossip

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// network connects members in memory. Packets take no time. Some may be lost, and the network may
// be cut in two. Bytes are counted as sent, without headers below memberlist's.
type network struct {
	loss atomic.Uint64 // one packet of so many is lost; 0: none

	packets, packetBytes, streamBytes atomic.Uint64

	mu struct {
		sync.RWMutex
		ports map[string]*port
		cut   func(from, to string) bool // reports whether nothing gets through
	}
}

func newNetwork() *network {
	n := &network{}
	n.mu.ports = map[string]*port{}
	return n
}

// address is the one of member i.
func address(i int) string {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 7946).String()
}

// partition cuts the network between those for which half is true and the others. nil heals it.
func (n *network) partition(half func(address string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.cut = nil
	if half != nil {
		n.mu.cut = func(from, to string) bool { return half(from) != half(to) }
	}
}

func (n *network) open(own string) *port {
	p := &port{network: n, own: own, packets: make(chan *memberlist.Packet, 256), streams: make(chan net.Conn, 16), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.ports[own] = p
	return p
}

func (n *network) way(from, to string) *port {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.mu.cut != nil && n.mu.cut(from, to) {
		return nil
	}
	return n.mu.ports[to]
}

// port is one member's transport.
type port struct {
	network *network
	own     string
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (p *port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a := netip.MustParseAddrPort(p.own)
	return a.Addr().AsSlice(), int(a.Port()), nil
}

func (p *port) WriteTo(b []byte, to string) (time.Time, error) {
	now := time.Now()
	p.network.packets.Add(1)
	p.network.packetBytes.Add(uint64(len(b)))
	if n := p.network.loss.Load(); n > 0 && rand.Uint64N(n) == 0 {
		return now, nil
	}
	if other := p.network.way(p.own, to); other != nil {
		packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(p.own)), Timestamp: now}
		select {
		case other.packets <- packet:
		default: // its buffer is full
		}
	}
	return now, nil
}

func (p *port) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *port) StreamCh() <-chan net.Conn           { return p.streams }

func (p *port) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	other := p.network.way(p.own, to)
	if other == nil {
		return nil, errors.New("nobody there")
	}
	near, far := net.Pipe()
	select {
	case other.streams <- counted{far, p.network}:
		return counted{near, p.network}, nil
	case <-other.done:
		return nil, errors.New("refused")
	case <-time.After(timeout):
		return nil, errors.New("no answer")
	}
}

func (p *port) Shutdown() error {
	p.once.Do(func() {
		close(p.done)
		p.network.mu.Lock()
		defer p.network.mu.Unlock()
		if p.network.mu.ports[p.own] == p {
			delete(p.network.mu.ports, p.own)
		}
	})
	return nil
}

type counted struct {
	net.Conn
	network *network
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.network.streamBytes.Add(uint64(n))
	return n, err
}
