package cluster

import (
	"testing"
	"time"

	"forebay/meta/gossip"
)

// TestExpected: a daemon that has left is waited for as long as a restart takes, and not for as long as gossip knows it.
func TestExpected(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		state gossip.State
		ago   time.Duration
		want  bool
	}{
		{gossip.Ready, time.Hour, true},
		{gossip.Starting, time.Hour, true},
		{gossip.Suspect, time.Second, true},
		{gossip.Dead, time.Second, false},
		{gossip.Left, time.Second, true},
		{gossip.Left, restarts, false},
		{gossip.Left, 23 * time.Hour, false},
	} {
		if got := expected(&gossip.Member{State: c.state, Since: now.Add(-c.ago)}, now); got != c.want {
			t.Errorf("%v for %v: %v", c.state, c.ago, got)
		}
	}
}
