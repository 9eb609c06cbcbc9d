package killed

import "testing"

func TestBeingKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status string
		killed bool
	}{
		{"Name:\tdd\nState:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", false},
		{"Name:\tdd\nState:\tD (disk sleep)\nSigPnd:\t0000000000400000\nShdPnd:\t0000000000000002\n", false}, // SIGURG, and SIGINT with a handler
		{"Name:\tdd\nState:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000002\n", true},  // SIGINT without one
		{"Name:\tdd\nState:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n", true},
		{"Name:\tdd\nState:\tZ (zombie)\nSigPnd:\t0000000000000000\n", true},
		{"Name:\tState: Z\nState:\tS (sleeping)\n", false},
		{"", false},
	} {
		if got := beingKilled(c.status); got != c.killed {
			t.Errorf("%q: %v", c.status, got)
		}
	}
}
