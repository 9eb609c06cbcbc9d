package bbd_test

import (
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// A daemon is stopped, and gossip does not show that yet. Its callers get the error that it is
// unavailable, and that does not apply to its clients' daemon.
func TestClusterStoppedDaemon(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.Limits.Silence = 2 * time.Second })
	self := nodes[0].daemon.Self
	p := newProxy(t, func() string { return self().Session })
	nodes[0].members.set("n1", func() gossip.Member {
		m := self()
		m.Session = p.Addr().String()
		return m
	})
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "shared", NoFlush: []string{"*"}})
	write(t, b, "f", random(100_000))
	write(t, b, "g", random(100_000))
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, 40*time.Second)
	if _, err := there.ReadFile(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	p.deaf.Store(true)
	p.mute.Store(true)
	begun := time.Now()
	_, err := there.ReadFile(ctx, "g")
	if bb.KindOf(err) != bb.Unavailable || !strings.Contains(err.Error(), "node n1") || !strings.Contains(err.Error(), "bbctl nodes") {
		t.Errorf("read of a file whose owner is stopped: %v", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("that took %v", took)
	}
	if err := there.WriteFile(ctx, "mine", []byte("x"), 0o644); err != nil {
		t.Errorf("what does not need the stopped daemon: %v", err)
	}
	p.deaf.Store(false)
	p.mute.Store(false)
	eventually(t, "it is back", func() bool {
		_, err := there.ReadFile(ctx, "g")
		return err == nil
	})
}
