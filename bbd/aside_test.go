package bbd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/metatest"
)

// damageLog turns bits around in the stopped node's log of a buffer, in the record that has a text.
func (n *node) damageLog(buffer, text string) {
	n.t.Helper()
	metatest.FlipText(n.t, filepath.Join(n.dir, "nats"), "NS_forebay-"+buffer+"-", text)
}

// A buffer whose log is damaged keeps no daemon from starting. It is set aside with its files, named
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

// A buffer that was set aside can be abandoned, and made again.
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

// A start that has found that memory was lost, and could not read the namespace, is the only one with the
// knowledge that something may be missing of files which were open. The start that reads it reports them.
func TestSetAsideRemembersLostMemory(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	n := startNode(t, func(c *bbd.Config) {
		c.Meta.Engine, c.Store.DiskDir, c.Store.DiskBytes = meta.EngineLog, disk, 128<<20
	})
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "bad", Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}}})
	f := openWriter(t, b, "unfinished")
	for range 4 {
		addTo(t, f, random(4<<20))
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, b, "finished", random(1<<20))
	var whole string // as a kill leaves it, with the file open
	eventually(t, "the server has written what it has acknowledged", func() bool {
		whole = filepath.Join(t.TempDir(), "nats")
		if err := os.CopyFS(whole, os.DirFS(filepath.Join(n.dir, "nats"))); err != nil {
			t.Fatal(err)
		}
		blocks, err := filepath.Glob(filepath.Join(metatest.StreamDir(t, whole, "NS_forebay-bad-"), "msgs", "*.blk"))
		if err != nil || len(blocks) != 1 {
			t.Fatalf("the blocks are %q (%v)", blocks, err)
		}
		data, err := os.ReadFile(blocks[0])
		return err == nil && bytes.Count(data, []byte("finished")) > bytes.Count(data, []byte("unfinished"))
	})
	n.stop()
	n.damageLog("bad", "finished")
	n.loseMemory()
	for range 2 {
		if s := n.status(); len(s.SetAside) != 1 {
			t.Fatalf("set aside: %+v", s.SetAside)
		}
		n.stop()
		n.start()
	}
	n.setBack(whole)
	n.start()
	lost, err := n.dial().Buffer("bad").Lost(t.Context())
	if err != nil || !slices.ContainsFunc(lost, func(e client.Entry) bool { return e.Path == "unfinished" }) {
		t.Errorf("lost: %+v (%v)", lost, err)
	}
	n.stop()
	if left, err := filepath.Glob(filepath.Join(n.dir, "aside", "*")); err != nil || len(left) != 0 {
		t.Errorf("notes that stay: %q (%v)", left, err)
	}
	n.start()
}

// The store of a buffer that was set aside and destroyed is not that of the next buffer of its name. A call to
// destroy it that comes late destroys nothing of that.
func TestSuccessorOfSetAside(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, was := n.buffer(c, admin.BufferSpec{Name: "bad"})
	write(t, b, "f", random(1000))
	drain(t, c, "bad") // its store is open
	if err := n.daemon.SetAside(t.Context(), "bad", bb.E(bb.Lost, "read", "bad", "a part is missing")); err != nil {
		t.Fatal(err)
	}
	old, is := n.daemon.Aside("bad")
	if !is {
		t.Fatal("it is not set aside")
	}
	if err := admin.DiscardBuffer(t.Context(), c, "bad"); err != nil {
		t.Fatal(err)
	}
	b, now := n.buffer(c, admin.BufferSpec{Name: "bad"})
	content := random(500)
	write(t, b, "g", content)
	if err := n.daemon.DestroyAside(t.Context(), old); bb.KindOf(err) != bb.NotFound {
		t.Errorf("destroyed late: %v", err)
	}
	wantFile(t, b, "g", content)
	drain(t, c, "bad")
	for dir, want := range map[string]bool{was: false, now: true} {
		if _, err := os.Stat(filepath.Join(dir, "g")); (err == nil) != want {
			t.Errorf("g in %s: %v, want it there: %v", dir, err, want)
		}
	}
}

// A buffer that one daemon has set aside, and that is destroyed by way of another one, is set aside no more.
// The next one of its name is served.
func TestSetAsideDestroyedElsewhere(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	here, there := nodes[0], nodes[1]
	b, _ := here.buffer(here.dial(), admin.BufferSpec{Name: "bad"})
	write(t, b, "f", random(1000))
	if err := here.daemon.SetAside(t.Context(), "bad", bb.E(bb.Lost, "read", "bad", "a part is missing")); err != nil {
		t.Fatal(err)
	}
	old, _ := here.daemon.Aside("bad")
	c := there.dial()
	if err := admin.DiscardBuffer(t.Context(), c, "bad"); err != nil {
		t.Fatal(err)
	}
	next, _ := there.buffer(c, admin.BufferSpec{Name: "bad"})
	content := random(500)
	write(t, next, "g", content)
	if err := here.daemon.DestroyAside(t.Context(), old); bb.KindOf(err) != bb.NotFound {
		t.Errorf("the buffer that was set aside, destroyed here too: %v", err)
	}
	eventually(t, "it is set aside no more", func() bool {
		_, is := here.daemon.Aside("bad")
		return !is
	})
	wantFile(t, here.dial().Buffer("bad"), "g", content)
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
