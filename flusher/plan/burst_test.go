package plan

import (
	"testing"
	"time"
)

// TestArrivals counts files that come at a steady pace, and then no more.
func TestArrivals(t *testing.T) {
	const idle = time.Second
	for _, c := range []struct {
		pace  time.Duration // between two files
		burst bool
	}{{time.Millisecond, true}, {10 * time.Millisecond, true}, {11 * time.Millisecond, false}, {time.Minute, false}} {
		var a Arrivals
		now := epoch
		for range 1000 {
			now = now.Add(c.pace)
			a.Add(1, Limits{Idle: idle, Small: 1}, now)
		}
		if got := a.Burst(now, idle); got != c.burst {
			t.Errorf("a file each %v is a burst: %v", c.pace, got)
		}
		if a.Burst(now.Add(2*idle), idle) {
			t.Errorf("a file each %v is a burst after its end", c.pace)
		}
	}
	var large Arrivals
	for range 2 * burstFiles {
		large.Add(2, Limits{Idle: idle, Small: 1}, epoch)
	}
	if large.Burst(epoch, idle) {
		t.Error("large files are a burst")
	}
	var a Arrivals
	for range 2 * burstFiles {
		a.Add(1, Limits{Small: 1}, epoch)
	}
	if a.Burst(epoch, 0) {
		t.Error("there is a burst where no file is left alone")
	}
}
