package bbd_test

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// gate passes connections on to an address, until it is shut: then it takes what is
// sent, as the machine of a stopped process does, and nothing comes any more.
type gate struct {
	l    net.Listener
	shut atomic.Bool
	wg   sync.WaitGroup
}

func newGate(t *testing.T, to func() string) *gate {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l: l}
	g.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to())
			if err != nil {
				conn.Close()
				continue
			}
			pass := func(dst, src net.Conn) {
				defer dst.Close()
				defer src.Close()
				p := make([]byte, 32<<10)
				for {
					n, err := src.Read(p)
					if err != nil {
						return
					}
					if !g.shut.Load() {
						dst.Write(p[:n])
					}
				}
			}
			g.wg.Go(func() { pass(conn, there) })
			g.wg.Go(func() { pass(there, conn) })
		}
	})
	return g
}

// A daemon is stopped, and gossip has not noticed yet: who asks it learns that it is
// unavailable, and that is not what its clients' daemon is.
func TestClusterStoppedDaemon(t *testing.T) {
	nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.Limits.Silence = 2 * time.Second })
	self := nodes[0].daemon.Self
	g := newGate(t, func() string { return self().Session })
	defer g.wg.Wait() // connections end with the daemons
	defer func() { nodes[1].stop(); g.l.Close() }()
	nodes[0].members.set("n1", func() gossip.Member {
		m := self()
		m.Session = g.l.Addr().String()
		return m
	})
	b, _ := nodes[0].buffer(nodes[0].dial(), client.BufferSpec{Name: "shared"})
	write(t, b, "f", random(100_000))
	write(t, b, "g", random(100_000))
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, 40*time.Second)
	if _, err := there.ReadFile(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	g.shut.Store(true)
	begun := time.Now()
	_, err := there.ReadFile(ctx, "g")
	if bb.KindOf(err) != bb.Unavailable || !strings.Contains(err.Error(), "node n1") || !strings.Contains(err.Error(), "bbctl nodes") {
		t.Errorf("read of a file whose home is stopped: %v", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("that took %v", took)
	}
	if err := there.WriteFile(ctx, "mine", []byte("x"), 0o644); err != nil {
		t.Errorf("what does not need the stopped daemon: %v", err)
	}
	g.shut.Store(false)
	eventually(t, "it is back", func() bool {
		_, err := there.ReadFile(ctx, "g")
		return err == nil
	})
}
