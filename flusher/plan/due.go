package plan

import (
	"math"
	"time"
)

// A buffer whose job ends soon should be clean by then. Its dirty bytes and the pace of its flushes
// show whether it will be.
const (
	// maxUrge is how many shares a buffer may have at most. The others are to make progress too.
	maxUrge = 8
	// ease is the part of the time left that a buffer may need before it is urged. Later writes of
	// the job will be dirty too.
	ease = 0.8
	// Of a buffer without figures, a job's last minutes count as too short.
	unknownPace = 2 * time.Minute
)

// urge returns the number of shares of the stores' throughput for a buffer. 1 is the usual number.
func (b *Buffer) urge(now time.Time) int64 {
	if b.Due.IsZero() || b.Dirty <= 0 {
		return 1
	}
	left := b.Due.Sub(now)
	if b.Pace <= 0 {
		if left > unknownPace {
			return 1
		}
		return 2
	}
	need := float64(b.Dirty) / b.Pace / ease // seconds
	if left <= 0 || need >= maxUrge*left.Seconds() {
		return maxUrge
	}
	return max(1, int64(math.Ceil(need/left.Seconds())))
}

// CleanBy returns when dirty bytes will be on the store at a pace in bytes a second, and whether
// that is after due. At a pace of zero, that is a year from now.
func CleanBy(dirty int64, pace float64, now, due time.Time) (by time.Time, late bool) {
	const never = 365 * 24 * time.Hour
	need := never
	if seconds := float64(dirty) / pace; pace > 0 && seconds < never.Seconds() {
		need = time.Duration(seconds * float64(time.Second))
	}
	if dirty <= 0 {
		need = 0
	}
	by = now.Add(need)
	return by, dirty > 0 && by.After(due)
}
