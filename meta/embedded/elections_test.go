package embedded

import (
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta"
)

// TestElections kills the leader of a stream until another server leads it sooner than nats-server's own bound of 4 s
// without a heartbeat, of which there is one each second, lets any become a candidate. The first of two servers that waits
// between 2.5 and 5 s does so in more than half of all cases.
func TestElections(t *testing.T) {
	if testing.Short() {
		t.Skip("servers of a cluster take seconds to start")
	}
	p := startProcesses(t)
	m := mustConnect(t, meta.Options{URLs: p.urls(0)})
	if _, err := m.CreateBuffer(longContext(t), bb.Buffer{Name: "buf"}); err != nil {
		t.Fatal(err)
	}
	const stream, tries, soonest = "KV_forebay-buf-", 12, 2900 * time.Millisecond
	for range tries {
		i := p.leader(stream)
		began := time.Now()
		p.kill(i)
		p.leader(stream)
		took := time.Since(began)
		t.Logf("s%d was killed: another one led after %v", i, took)
		if took < soonest {
			return
		}
		p.start(i)
		for ctx := longContext(t); ; time.Sleep(50 * time.Millisecond) { // the next kill leaves a majority
			if _, ok := p.leaderAt(i, stream); ok {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("s%d has not come back", i)
			}
		}
	}
	t.Errorf("no election of %d took less than %v", tries, soonest)
}
