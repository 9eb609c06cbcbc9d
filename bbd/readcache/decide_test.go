package readcache

import (
	"slices"
	"testing"
	"time"

	"forebay/bbd/origin"
	"forebay/bbd/store"
)

// TestNext is the table of copy or bypass.
func TestNext(t *testing.T) {
	at := func(offset int64) []store.Extent {
		return []store.Extent{{FileOffset: offset}, {FileOffset: offset + 100}}
	}
	for _, c := range []struct {
		name    string
		evicted []store.Extent
		try     int
		refused bool
		want    step
	}{
		{"all in memory", nil, 1, false, answer},
		{"all in memory after a fetch", nil, 2, false, answer},
		{"all in memory though there was no room", nil, 2, true, answer},
		{"the first look", at(1000), 1, false, fetchAll},
		{"the first look, a part in memory", at(1500), 1, false, fetchAll},
		{"evicted again", at(1000), 2, false, fetchFirst},
		{"evicted again behind the beginning", at(1500), 2, false, answerPart},
		{"no room", at(1000), 2, true, bypassFirst},
		{"no room behind the beginning", at(1500), 2, true, answerPart},
		{"evicted again and again", at(1000), 3, false, bypassFirst},
		{"evicted again and again behind the beginning", at(1500), 3, false, answerPart},
	} {
		if got := next(1000, c.evicted, c.try, c.refused); got != c.want {
			t.Errorf("%s: step %d, not %d", c.name, got, c.want)
		}
	}
}

// TestWorthFetching: all of a range is brought in where it can be in memory at once, and not for ever.
func TestWorthFetching(t *testing.T) {
	evicted := []store.Extent{{Length: 60}, {Length: 40}}
	for _, c := range []struct {
		try      int
		capacity int64
		want     bool
	}{{1, 100, true}, {3, 100, true}, {4, 100, false}, {1, 99, false}} {
		if got := worthFetching(evicted, c.try, c.capacity); got != c.want {
			t.Errorf("try %d in %d bytes: %v", c.try, c.capacity, got)
		}
	}
	if !fitsMemory(50, 100) || fitsMemory(51, 100) {
		t.Error("what takes more than half of memory is read back into it, or half is not")
	}
}

// TestWait: a caller that found no room a moment ago waits less.
func TestWait(t *testing.T) {
	for since, want := range map[time.Duration]time.Duration{0: shortPatience, lately - 1: shortPatience, lately: patience, time.Hour: patience} {
		if got := wait(since); got != want {
			t.Errorf("%v after there was no room: %v, not %v", since, got, want)
		}
	}
}

// TestWholesOf: an extent of which pieces are left is read once, whole.
func TestWholesOf(t *testing.T) {
	got := wholesOf([]store.Extent{
		{FileOffset: 0, Length: 10, WholeLength: 10},
		{FileOffset: 20, Cut: 5, Length: 3, WholeLength: 40},
		{FileOffset: 30, Cut: 15, Length: 25, WholeLength: 40},
		{FileOffset: 55, Length: 5, WholeLength: 5},
	})
	if want := []origin.Run{{From: 0, To: 10}, {From: 15, To: 55}, {From: 55, To: 60}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
