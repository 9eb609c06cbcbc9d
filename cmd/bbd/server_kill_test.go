//go:build soak

package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
)

// TestServerKilled is TestDaemonKilled with a namespace server of its own, which is killed too:
// while the daemon keeps running, or at the same time.
func TestServerKilled(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nats-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v: %s", err, out)
	}
	kills := crashKillsAsked()
	for done := 0; done < kills; done += crashKills { // the cost of a history's check grows with its square
		t.Run(fmt.Sprintf("from %d", done), func(t *testing.T) { serverKilled(t, binary, uint64(done), min(crashKills, kills-done)) })
	}
}

func serverKilled(t *testing.T, binary string, seed uint64, kills int) {
	t.Helper()
	servers := newServers(t, binary, 1)
	servers.start()
	d := bbdtest.New(t)
	d.Config = fmt.Sprintf("listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: %s, region_size: 64MiB}\nnats: {url: %q}\n", crashMemory, servers.urls[0])
	d.Start()
	r := crashRounds(t, d, crashClients, func(i int) *rand.Rand { return rand.New(rand.NewPCG(uint64(i), seed)) })
	rng := rand.New(rand.NewPCG(3, seed))
	pause := func() { time.Sleep(time.Duration(5+rng.IntN(80)) * time.Millisecond) }
	for done := 0; done < kills; {
		r.work(t, func() {
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
		r.judge(t, durabletest.Event{}, d.Start, fmt.Sprintf("after kill %d", done))
	}
	r.drained(t)
	r.enough(t, kills/4, "write", "append", "overwrite", "rename", "remove", "read")
}
