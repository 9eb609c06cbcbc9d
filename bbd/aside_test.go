package bbd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/meta"
)

// damageLog turns bits around in the stopped node's log of a buffer, in the record that has a text.
func (n *node) damageLog(buffer, text string) {
	n.t.Helper()
	blocks, err := filepath.Glob(filepath.Join(n.dir, "nats", "jetstream", "*", "streams", "NS_forebay-"+buffer+"-*", "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		n.t.Fatalf("no log of %s: %v", buffer, err)
	}
	hit := 0
	for _, name := range blocks {
		data, err := os.ReadFile(name)
		if err != nil {
			n.t.Fatal(err)
		}
		for at := bytes.Index(data, []byte(text)); at >= 0; at = bytes.Index(data, []byte(text)) {
			data[at] ^= 0xff
			hit++
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	if hit == 0 {
		n.t.Fatalf("the log of %s has no record of %s", buffer, text)
	}
}

// A buffer whose log is damaged keeps no daemon from starting: it is set aside with its files, named
// with a remedy, and served again when a copy of the log has been put back.
func TestDamagedLogIsSetAside(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Meta.Engine = meta.EngineLog })
	c := n.dial()
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	content := random(100_000)
	for _, name := range []string{"bad", "good"} {
		b, _ := n.buffer(c, admin.BufferSpec{Name: name})
		write(t, b, "first", content)
		write(t, b, "second", content)
	}
	whole := n.copyNamespace()
	n.stop()
	n.damageLog("bad", "first")
	n.start()
	c = n.dial()
	wantFile(t, c.Buffer("good"), "first", content)
	wantAside(t, n, 2, 200_000)
	_, err := c.Buffer("bad").Stat(t.Context(), "second")
	if kind := bb.KindOf(err); kind != bb.Checksum && kind != bb.Lost || !strings.Contains(err.Error(), "set aside") || !strings.Contains(err.Error(), "--discard") {
		t.Errorf("a look at the buffer that was set aside: %v", err)
	}
	specs, err := admin.Buffers(t.Context(), c)
	if err != nil || len(specs) != 2 {
		t.Errorf("%+v, %v", specs, err)
	}
	if err := admin.DestroyBuffer(t.Context(), c, "bad"); bb.KindOf(err) != bb.Lost && bb.KindOf(err) != bb.Checksum {
		t.Errorf("destroyed without --discard: %v", err)
	}
	n.stop()
	n.start()
	wantAside(t, n, 2, 200_000) // nothing went at the second start
	n.setBack(whole)
	n.start()
	if s := n.status(); len(s.SetAside) != 0 {
		t.Errorf("still set aside: %+v", s.SetAside)
	}
	c = n.dial()
	for _, name := range []string{"bad", "good"} {
		wantFile(t, c.Buffer(name), "first", content)
		wantFile(t, c.Buffer(name), "second", content)
	}
	n.faults.Set()
	drain(t, c, "bad")
}

// A buffer that was set aside can be given up, and made again.
func TestDestroySetAside(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Meta.Engine = meta.EngineLog })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "bad"})
	write(t, b, "first", random(1000))
	n.stop()
	n.damageLog("bad", "first")
	n.start()
	wantAside(t, n, 1, 1000)
	c = n.dial()
	if err := admin.DiscardBuffer(t.Context(), c, "bad"); err != nil {
		t.Fatal(err)
	}
	if s := n.status(); len(s.SetAside) != 0 || s.Memory.Live != 0 {
		t.Errorf("set aside: %+v, %d bytes", s.SetAside, s.Memory.Live)
	}
	b, _ = n.buffer(c, admin.BufferSpec{Name: "bad"})
	content := random(500)
	write(t, b, "first", content)
	wantFile(t, b, "first", content)
}

func wantAside(t *testing.T, n *node, files int, dirty int64) {
	t.Helper()
	s := n.status()
	if len(s.SetAside) != 1 {
		t.Fatalf("set aside: %+v", s.SetAside)
	}
	a := s.SetAside[0]
	if a.Buffer != "bad" || a.Files != files || a.Dirty != dirty || a.Remedy == "" || a.Reason == "" {
		t.Errorf("set aside: %+v, want %d files with %d dirty bytes", a, files, dirty)
	}
}
