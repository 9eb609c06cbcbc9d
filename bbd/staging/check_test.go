package staging

import (
	"testing"
	"time"

	"forebay/meta/gossip"
)

// Files copied by a node may be lost while it is away, and when it has come back since.
func TestStageMayHaveLost(t *testing.T) {
	began := time.Now()
	for name, c := range map[string]struct {
		state gossip.State
		since time.Time
		known bool
		want  bool
	}{
		"there since before": {gossip.Ready, began.Add(-time.Second), true, false},
		"came back":          {gossip.Ready, began.Add(time.Second), true, true},
		"dead":               {gossip.Dead, began.Add(time.Second), true, true},
		"unknown":            {known: false, want: true},
	} {
		if got := mayHaveLost(&gossip.Member{State: c.state, Since: c.since}, c.known, began); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
