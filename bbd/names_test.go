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
	if l := nodes[0].status().NATS.Logs[0]; l.Since == nil || l.Leases.Granted == 0 || l.Leases.Revoked == 0 {
		t.Errorf("the owner has %+v of its log", l)
	}
	if l := nodes[1].status().NATS.Logs[0]; l.Since != nil || l.Leases.Granted != 0 {
		t.Errorf("another daemon has %+v of the log", l)
	}
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

// A daemon starts alone, with logs of its own or in the configuration of a cluster, and others join it later. All of them
// have its names, and when it stops, the others own its log, whichever engine they have for new buffers.
func TestLogIsJoined(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone=%v", alone), func(t *testing.T) {
			t.Parallel()
			engine := meta.EngineLog
			nodes := newCluster(t, 3, func(c *bbd.Config) { c.Meta.Engine = engine })
			joined := nodes[0].change
			if alone {
				nodes[0].change = func(c *bbd.Config) {
					joined(c)
					c.Members, c.TCP, c.Fabric, c.Insecure, c.Meta.SoleWriter = nil, "", "", false, true
				}
				nodes[0].members = nil
			}
			nodes[0].start()
			c := nodes[0].dial()
			b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
			contents := map[string][]byte{"f": random(70_000), "d/g": random(10)}
			if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
				t.Fatal(err)
			}
			for name, content := range contents {
				write(t, b, name, content)
			}
			write(t, b, "removed", random(10))
			if err := b.Remove(t.Context(), "removed"); err != nil {
				t.Fatal(err)
			}
			if logs := nodes[0].status().NATS.Logs; !alone && (len(logs) != 1 || logs[0].Owner != "n1" || !logs[0].Unheld) {
				t.Errorf("the state of the log while no other daemon is there: %+v", logs)
			}
			if alone {
				c.Close()
				nodes[0].stop()
				nodes[0].change, nodes[0].members = joined, nodes[1].members
				nodes[0].start()
			}
			engine = meta.EngineBuckets
			nodes[1].start()
			nodes[2].start()
			for i, n := range nodes {
				there := n.dial().Buffer("shared")
				for name, content := range contents {
					wantFile(t, there, name, content)
				}
				if _, err := there.Stat(t.Context(), "removed"); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a removed file: %v", err)
				}
				name := fmt.Sprintf("d/of-%d", i)
				contents[name] = random(1000)
				write(t, there, name, contents[name])
			}
			eventually(t, "another daemon holds the end of the log", func() bool {
				logs := nodes[0].status().NATS.Logs
				return len(logs) == 1 && logs[0].Owner == "n1" && !logs[0].Unheld && logs[0].Since != nil
			})
			drain(t, nodes[0].dial(), "shared")
			nodes[0].stop()
			for name := range contents {
				there := nodes[1].dial().Buffer("shared")
				if _, err := there.Stat(t.Context(), name); err != nil {
					t.Errorf("without the first daemon: %v", err)
				}
			}
			write(t, nodes[2].dial().Buffer("shared"), "d/last", random(10))
		})
	}
}
