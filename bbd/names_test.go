package bbd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/meta"
)

// Daemons share a namespace that is a log. Each changes it and has its changes, whichever owns the
// log. When the owner is gone or has stopped in order, another one owns the log.
func TestClusterLog(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 3, func(c *bbd.Config) { c.Meta.Engine = meta.EngineLog })
	nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "shared"})
	contents := map[string][]byte{}
	all := func(round int) {
		t.Helper()
		for i, n := range nodes {
			if n == nil {
				continue
			}
			there := n.dial().Buffer("shared")
			dir := fmt.Sprintf("d%d-%d", round, i)
			if err := there.Mkdir(t.Context(), dir, 0o755); err != nil {
				t.Fatal(err)
			}
			name := dir + "/f"
			contents[name] = random(70_000)
			write(t, there, name, contents[name])
			if err := there.Rename(t.Context(), name, name+"2"); err != nil {
				t.Fatal(err)
			}
			contents[name+"2"] = contents[name]
			delete(contents, name)
			write(t, there, name, random(10))
			if err := there.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range nodes {
			if n == nil {
				continue
			}
			there := n.dial().Buffer("shared")
			for name, content := range contents {
				wantFile(t, there, name, content)
			}
			if _, err := there.Stat(t.Context(), "d0-0/f"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a removed file: %v", err)
			}
		}
	}
	all(0)
	drain(t, nodes[0].dial(), "shared") // the files made are on the store
	nodes[0].stop()                     // the owner, which has made the buffer
	stopped := nodes[0]
	nodes[0] = nil
	for name := range contents {
		if name[:4] == "d0-0" {
			delete(contents, name) // its owner is away
		}
	}
	all(1)
	stopped.start()
	nodes[0] = stopped
	all(2)
}
