package bbd_test

import (
	"slices"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/meta"
)

// If a namespace is a log, the entries of a directory move to another one in one step: files, also
// one that is being written, whole directories, and the entries of directories that both have. An
// entry in the way stays. It is all there after a restart.
func TestMerge(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Meta.Engine = meta.EngineLog })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	for _, dir := range []string{"from/whole/deep", "from/both", "from/empty", "to/both", "to/empty"} {
		if err := b.MkdirAll(t.Context(), dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	contents := map[string][]byte{}
	for _, path := range []string{"a", "whole/b", "whole/deep/c", "both/d", "taken", "both/taken"} {
		contents["to/"+path] = random(1000)
		write(t, b, "from/"+path, contents["to/"+path])
	}
	for _, path := range []string{"taken", "both/taken"} { // these stay
		contents["from/"+path] = contents["to/"+path]
		contents["to/"+path] = random(1000)
		write(t, b, "to/"+path, contents["to/"+path])
	}
	open := openWriter(t, b, "from/open")
	if _, err := open.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := open.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.Merge(t.Context(), "b", "from", "to"); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Write([]byte(" and after")); err != nil {
		t.Fatal(err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	contents["to/open"] = []byte("before and after")
	for range 2 {
		for path, content := range contents {
			wantFile(t, b, path, content)
		}
		var there []string
		for e, err := range b.ReadDir(t.Context(), "from") {
			if err != nil {
				t.Fatal(err)
			}
			there = append(there, e.Name)
		}
		if slices.Sort(there); !slices.Equal(there, []string{"both", "taken"}) {
			t.Errorf("%q stay", there)
		}
		for path := range contents {
			if ok, err := n.daemon.Identified(t.Context(), "b", path); !ok || err != nil {
				t.Errorf("memory does not say whose %s is (%v)", path, err)
			}
		}
		c.Close()
		n.stop()
		n.start()
		c = n.dial()
		b = c.Buffer("b")
	}
}

// A daemon that does not have its namespace for itself sets a buffer aside that has a log, with a
// remedy. Its memory stays.
func TestLogOfSeveral(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Meta.Engine = meta.EngineLog })
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	content := random(1000)
	write(t, b, "f", content)
	c.Close()
	n.stop()
	n.change = func(c *bbd.Config) { c.Meta.SoleWriter, c.Meta.Engine = false, meta.EngineBuckets }
	n.start()
	_, err := n.dial().Buffer("b").Stat(t.Context(), "f")
	if bb.KindOf(err) != bb.Unsupported || !strings.Contains(err.Error(), "set cluster.listen") {
		t.Errorf("a look-up with several writers: %v", err)
	}
	if s := n.status(); len(s.SetAside) != 1 || s.SetAside[0].Files != 1 || s.SetAside[0].Dirty != 1000 {
		t.Errorf("set aside: %+v", s.SetAside)
	}
	n.stop()
	n.change = nil
	n.start()
	wantFile(t, n.dial().Buffer("b"), "f", content)
}
