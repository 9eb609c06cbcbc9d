package bbd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client/admin"
)

// A daemon of a cluster that is started once under another name, which is the host's where
// none is configured, leaves the memory of its own name as it is, and logs that.
func TestOtherNameLeavesMemory(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	n := nodes[0]
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	write(t, b, "f", []byte("precious"))
	c.Close()
	n.stop()
	change := n.change
	n.change = func(cfg *bbd.Config) { change(cfg); cfg.Node, cfg.Meta.Node = "n1-renamed", "n1-renamed" }
	n.start()
	s := n.status()
	if len(s.Foreign) == 0 || s.Foreign[0].Node != "n1" || !strings.Contains(s.Foreign[0].Remedy, "start this daemon as node n1 and drain it") {
		t.Errorf("the status names %+v", s.Foreign)
	}
	held := int64(0)
	for _, f := range s.Foreign {
		held += f.Held
	}
	if held == 0 || s.Memory.Capacity >= 64<<20 {
		t.Errorf("%d bytes are held by others, and a capacity of %d is left", held, s.Memory.Capacity)
	}
	if err := n.dial().Buffer("b").WriteFile(t.Context(), "g", random(1000), 0o644); err != nil && !strings.Contains(err.Error(), "regions of another node") {
		t.Errorf("writing beside it: %v", err)
	}
	n.stop()
	n.change = change
	n.start()
	wantFile(t, n.dial().Buffer("b"), "f", []byte("precious"))
	for _, f := range n.status().Foreign {
		if f.Held == 0 {
			t.Errorf("what holds nothing is still there: %+v", f)
		}
	}
}

// A daemon that is started once with another namespace, an empty one, leaves the memory of
// its own as it is.
func TestOtherNamespaceLeavesMemory(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	want := random(1 << 20)
	write(t, b, "f", want)
	c.Close()
	n.stop()
	nats := filepath.Join(n.dir, "nats")
	if err := os.Rename(nats, nats+".away"); err != nil {
		t.Fatal(err)
	}
	n.start()
	s := n.status()
	if len(s.Foreign) == 0 || !strings.Contains(s.Foreign[0].Remedy, "with the namespace that it was written with") {
		t.Errorf("the status names %+v", s.Foreign)
	}
	n.stop()
	if err := os.RemoveAll(nats); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(nats+".away", nats); err != nil {
		t.Fatal(err)
	}
	n.start()
	wantFile(t, n.dial().Buffer("b"), "f", want)
	if s := n.status(); len(s.Foreign) > 0 {
		t.Errorf("the status still names %+v", s.Foreign)
	}
}

// A daemon that is alone owns its memory under any name.
func TestAloneUnderAnotherName(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	write(t, b, "f", []byte("precious"))
	c.Close()
	n.stop()
	n.change = func(cfg *bbd.Config) { cfg.Node, cfg.Meta.Node = "renamed", "renamed" }
	n.start()
	wantFile(t, n.dial().Buffer("b"), "f", []byte("precious"))
	if s := n.status(); len(s.Foreign) > 0 {
		t.Errorf("the status names %+v", s.Foreign)
	}
}
