package readcache

import (
	"time"

	"forebay/bbd/store"
)

// step is the next step of a read of a range.
type step int

const (
	answer      step = iota // all of it is in memory
	answerPart              // the bytes before the first evicted extent are in memory
	fetchAll                // bring all that is evicted into memory
	fetchFirst              // bring the first evicted extent into memory
	bypassFirst             // read the first extent past memory
)

// maxTries is how often evicted bytes are brought in before they go past memory. Where there is
// little of it, they may be evicted again before they are pinned.
const maxTries = 3

// next decides the next step of a read from an offset on, where some extents are evicted. The first
// try is 1. Refused: there was no room in memory. A read that has brought something in answers with
// that. Only the first extent, without which there is no answer, is worth another wait.
func next(offset int64, evicted []store.Extent, try int, refused bool) step {
	switch {
	case len(evicted) == 0:
		return answer
	case try > 1 && evicted[0].FileOffset > offset:
		return answerPart
	case refused || try >= maxTries:
		return bypassFirst
	case try > 1:
		return fetchFirst
	}
	return fetchAll
}

// worthFetching reports whether all evicted bytes are brought in for a caller that needs all of a range
// in memory.
func worthFetching(evicted []store.Extent, try int, capacity int64) bool {
	var missing int64
	for i := range evicted {
		missing += evicted[i].Length
	}
	return try <= maxTries && missing <= capacity
}

// fitsMemory reports whether a file is brought back into memory whole. Otherwise it is read once for its
// checksums alone.
func fitsMemory(size, capacity int64) bool { return size <= capacity/2 }

// wait is how long a reader waits for room that found none some time ago.
func wait(since time.Duration) time.Duration {
	if since < lately {
		return shortPatience
	}
	return patience
}
