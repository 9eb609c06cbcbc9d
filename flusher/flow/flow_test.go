package flow

import (
	"testing"
	"time"
)

// A rate that has decayed must not be read as one. The time left would be years.
func TestRateOfSilentStore(t *testing.T) {
	now := time.Now()
	var r Rate
	if got := r.At(now); got != 0 {
		t.Errorf("before anything was flushed: %v", got)
	}
	r.Add(now, 1<<30)
	for after, some := range map[time.Duration]bool{0: true, rateMemory: true, rateSilence: true, rateSilence + 1: false, time.Hour: false} {
		if got := r.At(now.Add(after)); (got > 0) != some {
			t.Errorf("%v after the last byte: %v bytes a second", after, got)
		}
	}
}
