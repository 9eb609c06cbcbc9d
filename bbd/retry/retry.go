// Package retry repeats a change of an entry whose answer was lost until its outcome is known. It must never
// depend on the change.
package retry

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
)

// pauses are the pauses between attempts to find an outcome: the first, and the longest.
var pauses = [2]time.Duration{20 * time.Millisecond, time.Second}

// Update calls update until the outcome is known, and returns its last answer. Uncertain is true once an earlier
// call may have been carried out. update then has to succeed for an entry that is already as it makes it. When ctx
// ends, the outcome stays unknown.
func Update(ctx context.Context, update func(uncertain bool) (bb.Entry, error)) (bb.Entry, error) {
	uncertain := false
	for pause := pauses[0]; ; pause = min(2*pause, pauses[1]) {
		now, err := update(uncertain)
		uncertain = uncertain || errors.Is(err, bb.ErrUnknownOutcome)
		if !uncertain || bb.KindOf(err) != bb.Unavailable {
			return now, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return now, err
		}
	}
}
