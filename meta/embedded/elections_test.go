package embedded

import (
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta"
)

// TestElections kills the leader of a stream until another server leads it sooner than nats-server's own bound of 4 s
// without a heartbeat, of which there is one each second, lets any become a candidate. The first of two servers that waits
// between 2.5 and 5 s does so in a third of all cases.
func TestElections(t *testing.T) {
	if testing.Short() {
		t.Skip("servers of a cluster take seconds to start")
	}
	p := startProcesses(t)
	m := mustConnect(t, meta.Options{URLs: p.urls(0)})
	if _, err := m.CreateBuffer(longContext(t), bb.Buffer{Name: "buf"}); err != nil {
		t.Fatal(err)
	}
	const stream, tries, soonest = "KV_forebay-buf-", 24, 2900 * time.Millisecond
	for range tries {
		i := p.agreed(stream)
		began := time.Now()
		p.kill(i)
		now := p.agreed(stream)
		took := time.Since(began)
		t.Logf("s%d was killed: s%d led after %v", i, now, took)
		if took < soonest {
			return
		}
		p.start(i)
	}
	t.Errorf("no election of %d took less than %v", tries, soonest)
}

// agreed returns the leader of a stream when all servers that run name the same.
func (p *processes) agreed(stream string) int {
	p.t.Helper()
	for ctx := longContext(p.t); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		named := map[int]bool{}
		for i, cmd := range p.cmds {
			if cmd == nil {
				continue
			}
			leader, ok := p.leaderAt(i, stream)
			if !ok || p.cmds[leader] == nil {
				leader = -1
			}
			named[leader] = true
		}
		if len(named) == 1 && !named[-1] {
			for leader := range named {
				return leader
			}
		}
	}
	p.t.Fatalf("no leader of %q", stream)
	return 0
}
