//go:build soak

package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
)

// TestServerKilled is TestDaemonKilled with a namespace server of its own, which is killed
// too: while the daemon lives on, or at the same time.
func TestServerKilled(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nats-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v: %s", err, out)
	}
	kills := crashKillsAsked()
	for done := 0; done < kills; done += crashKills { // what a history costs to judge grows with its square
		t.Run(fmt.Sprintf("from %d", done), func(t *testing.T) { serverKilled(t, binary, uint64(done), min(crashKills, kills-done)) })
	}
}

func serverKilled(t *testing.T, binary string, seed uint64, kills int) {
	t.Helper()
	servers := newServers(t, binary, 1)
	servers.start()
	store := t.TempDir()
	d := bbdtest.New(t)
	d.Config = fmt.Sprintf("listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: %s, region_size: 64MiB}\nnats: {url: %q}\n", crashMemory, servers.urls[0])
	d.Start()
	ctx := t.Context()
	c := dial(t, d)
	if _, err := c.CreateBuffer(ctx, client.BufferSpec{Name: "crash", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	past := durabletest.NewHistory()
	crashers := make([]*crasher, crashClients)
	for i := range crashers {
		crashers[i] = newCrasher(t, i, past)
		crashers[i].rng = rand.New(rand.NewPCG(uint64(i), seed))
		if err := c.Buffer("crash").Mkdir(ctx, crashers[i].dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	rng := rand.New(rand.NewPCG(3, seed))
	pause := func() { time.Sleep(time.Duration(5+rng.IntN(80)) * time.Millisecond) }
	total := map[string]int{}
	for done := 0; done < kills; {
		runWith(t, d, crashers, func() {
			pause()
			switch rng.IntN(3) {
			case 0: // the daemon alone
			case 1:
				servers.kill()
				pause()
				servers.start()
				pause()
				done++
			case 2:
				servers.kill()
				done++
			}
			d.Kill()
			done++
		})
		if servers.cmds[0] == nil {
			servers.start()
		}
		past.Over()
		past.Fault(durabletest.Event{})
		broken(t, past.Observe(onStore(t, store, past)), fmt.Sprintf("the store after kill %d", done))
		d.Start()
		c := dial(t, d)
		found := durabletest.Observation{Begin: past.Now(), Files: map[string]durabletest.Found{}}
		for _, w := range crashers {
			if err := w.look(ctx, c.Buffer("crash"), found.Files); err != nil {
				t.Errorf("after kill %d: %v", done, err)
			}
		}
		broken(t, past.Observe(found), fmt.Sprintf("after kill %d", done))
		c.Close()
		if t.Failed() {
			t.FailNow()
		}
	}
	drained(t, d, store, past)
	for _, w := range crashers {
		for op, n := range w.ops {
			total[op] += n
		}
	}
	t.Logf("%d kills, operations acknowledged: %v", kills, total)
	for _, op := range []string{"write", "append", "overwrite", "rename", "remove", "read"} {
		if total[op] < kills/4 {
			t.Errorf("only %d of %s: the test does not test", total[op], op)
		}
	}
}
