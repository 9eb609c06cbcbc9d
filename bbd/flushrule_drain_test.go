package bbd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client/admin"
)

// TestFlushRuleDrainWhileWriting: a drain that is done has flushed a complete step that is no older than the newest at
// its beginning, however many steps are completed meanwhile.
func TestFlushRuleDrainWhileWriting(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=last at end of job")
	r.save("step-1", random(1000))
	var newest atomic.Int64
	newest.Store(1)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 2; i <= 60; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r.save(fmt.Sprint("step-", i), random(1000))
			newest.Store(int64(i))
		}
	}()
	defer func() { close(stop); <-done }()
	for round, at := 0, int64(0); at < 60; round++ {
		at = newest.Load()
		report, err := admin.Drain(t.Context(), r.c, "ckpt", 2*time.Minute, nil)
		if err != nil && (report.OpenTotal == 0 || report.FailedTotal > 0) { // a file that is being written is named
			t.Fatalf("drain: %v (%+v)", err, report)
		}
		after := newest.Load()
		whole := false
		for i := at; i <= after+2 && !whole; i++ {
			whole = true
			for _, f := range []string{"part-0", "deep/part-1", ".metadata"} {
				if _, err := os.Stat(filepath.Join(r.store, fmt.Sprint("step-", i), f)); err != nil {
					whole = false
				}
			}
		}
		if !whole {
			t.Errorf("round %d: step %d was complete when the drain began, %d when it ended; the store has %s", round, at, after, r.stored())
			t.Errorf("report %+v", report)
			return
		}
	}
}
