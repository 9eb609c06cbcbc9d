package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
)

// watchStall prints a line, once, when a copy into a buffer has not got on for saysAfter and the daemon
// says that writers wait for room. The function that it returns ends that.
func (t *transfer) watchStall() (stop func()) {
	if t.a.json || t.dryRun {
		return func() {}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(saysAfter)
		defer ticks.Stop()
		for bytes := int64(-1); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			if now := t.bytes.Load(); now != bytes {
				bytes = now
				continue
			}
			if line := t.a.stallLine(ctx); line != "" {
				atomic.StoreUint32(&t.a.heard, 1)
				fmt.Fprintln(t.a.err, t.what+": "+line)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// stallLine is what a writer waits for; "": for nothing that the daemon knows.
func (a *app) stallLine(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, saysAfter)
	defer cancel()
	var s daemonStatus
	c, err := a.dial(ctx)
	if err != nil {
		return ""
	}
	if text, err := admin.Status(ctx, c, ""); err != nil || json.Unmarshal(text, &s) != nil || s.Waiting.Writers == 0 {
		return ""
	}
	of := "memory"
	if s.Disk.Capacity > 0 {
		of = "memory and disk"
	}
	return fmt.Sprintf("nothing is written for %v: %s for room in %s of %s%s. It goes on when files there are flushed or removed; a file that does not fit beside them waits (see bbctl status; --timeout limits it)",
		saysAfter, bb.Count(s.Waiting.Writers, "writer waits", "writers wait"), size(s.Memory.Capacity+s.Disk.Capacity), of, s.waitsFor())
}
