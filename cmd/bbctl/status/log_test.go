package status

import (
	"slices"
	"testing"
	"time"
)

// TestLogsOf: a log is as its newest owner has it, whichever node is asked first.
func TestLogsOf(t *testing.T) {
	now := time.Now()
	before := now.Add(-time.Minute)
	unknown, other := logStatus{Buffer: "b"}, logStatus{Buffer: "b", Owner: "other"}
	old, owner := logStatus{Buffer: "b", Owner: "old", Since: &before}, logStatus{Buffer: "b", Owner: "owner", Since: &now}
	for name, c := range map[string]struct {
		said []logStatus
		want string
	}{
		"one":                            {[]logStatus{other}, "other"},
		"one does not know the owner":    {[]logStatus{unknown, other}, "other"},
		"the owner":                      {[]logStatus{unknown, other, owner}, "owner"},
		"an owner that is one no longer": {[]logStatus{other, old, unknown, owner}, "owner"},
	} {
		for range 2 {
			var nodes []NodeView
			for _, l := range c.said {
				d := new(Daemon)
				d.NATS.Logs = []logStatus{l}
				nodes = append([]NodeView{{Status: d}, {}}, nodes...)
			}
			if got := logsOf(nodes); len(got) != 1 || got[0].Owner != c.want {
				t.Errorf("%s: %+v", name, got)
			}
			slices.Reverse(c.said)
		}
	}
}
