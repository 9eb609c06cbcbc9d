// Package retry has the pauses before retries. It must never depend on the retried operation: no server, no
// record.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// MaxTries bounds how often a change is tried again because others keep changing the same thing.
// Then it fails with Busy.
const MaxTries = 200

// Yield pauses before another try of a change that others were ahead of, so that many callers with
// the same change get their turns.
func Yield(ctx context.Context, try int) {
	if try > 1 {
		Pause(ctx, min(try-2, 5))
	}
}

// Pause waits a moment before the n-th next try, longer each time and never as long
// as others that try the same.
func Pause(ctx context.Context, n int) {
	most := 250 * time.Microsecond << min(n, 8)
	Sleep(ctx, most/2+rand.N(most/2))
}

// Sleep waits for a while, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
