package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// RecordUsage writes the work of buffers so far into the records of running jobs, where that was not
// done within every, that is, at the first check with any figures, and then every so often. Slurm
// accepts no change of the record of a job that is over.
func (h *Hooks) RecordUsage(ctx context.Context, every time.Duration) error {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return err
	}
	defer c.Close()
	lives, err := admin.Lifetimes(ctx, c, "")
	if err != nil {
		return err
	}
	recorded := map[string]time.Time{}
	for i := range lives {
		l := &lives[i]
		if l.Cluster != h.Settings.Cluster || l.State != admin.LifetimeOpen || l.Total() == (admin.Usage{}) {
			continue
		}
		if last, was := h.recorded[l.Key]; was && time.Since(last) < every {
			recorded[l.Key] = last
			continue
		}
		recorded[l.Key] = time.Now()
		if bad := h.Slurm.RecordUsage(ctx, l.Job, UsageLine(l)); bad != nil {
			err = errors.Join(err, bad)
		}
	}
	h.recorded = recorded
	return err
}

// UsageLine formats the work of a buffer for its job in NAME=value words: bytes that it absorbed,
// most bytes that were not on the store, seconds that writers were blocked, flushes that failed,
// and seconds that it saved at least against writing straight to the store ("unknown" until the
// store's speed was measured).
func UsageLine(l *admin.Lifetime) string {
	f, saved := l.Total(), "unknown"
	if s, measured := l.Saved(); measured {
		saved = strconv.FormatFloat(s, 'f', 1, 64)
	}
	return fmt.Sprintf("%s%d peak_dirty=%d blocked_seconds=%.1f flush_failures=%d saved_seconds=%s", usagePrefix, f.Absorbed, f.PeakDirty, f.Blocked, f.Failures, saved)
}

const usagePrefix = "absorbed="
