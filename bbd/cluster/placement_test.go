package cluster

import (
	"testing"
	"time"

	"forebay/meta/gossip"
)

// Sent bytes count until the node's next report, or the time for one has passed.
func TestSent(t *testing.T) {
	t.Parallel()
	start := time.Now()
	member := func(free int64) gossip.Member {
		return gossip.Member{Node: "n", State: gossip.Ready, Memory: gossip.Tier{Free: free}}
	}
	m := member(100)
	var s sent
	want := func(what string, now gossip.Member, members int, after time.Duration, bytes int64) {
		t.Helper()
		all := append(make([]gossip.Member, members-1), now)
		if got := s.since(all, start.Add(after))["n"]; got != bytes {
			t.Errorf("%s: %d bytes count, want %d", what, got, bytes)
		}
	}
	want("nothing was sent", m, 1, 0, 0)
	s.add(&m, 30, start)
	s.add(&m, 40, start.Add(time.Second))
	want("two files", m, 1, time.Second, 70)
	s.add(&m, -40, start.Add(time.Second))
	want("one did not arrive", m, 1, sentLeast-1, 30)
	want("many members need longer to hear", m, 1000, sentLeast+1, 30)
	want("it has freed as much", m, 1, sentLeast+1, 0)
	want("what was forgotten stays so", m, 1000, 0, 0)

	s.add(&m, 30, start)
	less := member(70)
	s.add(&less, 5, start.Add(time.Second))
	want("it has said that it has less", less, 1, time.Second, 5)
	want("and more", member(90), 1, time.Second, 0)
	s.add(&m, 30, start)
	want("it is gone", gossip.Member{Node: "other"}, 1, 0, 0)
	if len(s.to) != 0 {
		t.Errorf("%d nodes are remembered", len(s.to))
	}
}
