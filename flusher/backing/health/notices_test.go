package health

import (
	"testing"
	"time"
)

// TestNotices follows a store through trouble: one notice when it begins and one when it ends, and
// none for a while if it begins anew soon after.
func TestNotices(t *testing.T) {
	start := time.Unix(1_600_000_000, 0)
	var n Notices
	for i, c := range []struct {
		at    time.Duration
		is    Condition
		since time.Duration // of trouble
		want  Notice
		last  time.Duration
	}{
		{0, Unused, 0, Nothing, 0},
		{1 * time.Second, Answers, 0, Nothing, 0},
		{10 * time.Second, Failing, 8 * time.Second, Begins, 0},
		{11 * time.Second, Failing, 8 * time.Second, Nothing, 0},
		{20 * time.Second, Silent, 8 * time.Second, Nothing, 0}, // the same trouble
		{21 * time.Second, Unused, 0, Nothing, 0},
		{30 * time.Second, Answers, 0, Ends, 22 * time.Second},
		{31 * time.Second, Answers, 0, Nothing, 0},
		{32 * time.Second, Silent, 27 * time.Second, Nothing, 0}, // too soon
		{33 * time.Second, Answers, 0, Nothing, 0},               // about trouble without a notice
		{40 * time.Second, Failing, 40 * time.Second, Nothing, 0},
		{10*time.Second + QuietFor, Failing, 40 * time.Second, Begins, 0}, // and it lasts
		{10*time.Minute + 40*time.Second, Answers, 0, Ends, 10 * time.Minute},
	} {
		s := Status{Condition: c.is, Since: start.Add(c.since)}
		if got, last := n.Next(s, start.Add(c.at)); got != c.want || last != c.last {
			t.Errorf("step %d at %v: %d after %v, want %d after %v", i, c.at, got, last, c.want, c.last)
		}
	}
}
