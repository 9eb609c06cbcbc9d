package copying

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/status"
	"forebay/internal/bb"
)

// watchStall prints a line, once, when a copy into a buffer has made no progress for saysAfter and the daemon
// reports that writers wait for room. The function that it returns ends that.
func (t *transfer) watchStall() (stop func()) {
	if t.a.JSON || t.dryRun {
		return func() {}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(app.SaysAfter)
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
			if line := stallLine(ctx, t.a); line != "" {
				t.a.SetHeard()
				fmt.Fprintln(t.a.Err, t.What+": "+line)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// stallLine is the reason why a writer waits, or "" if the daemon has none.
func stallLine(ctx context.Context, a *app.App) string {
	ctx, cancel := context.WithTimeout(ctx, app.SaysAfter)
	defer cancel()
	var s status.Daemon
	c, err := a.Dial(ctx)
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
		app.SaysAfter, bb.Count(s.Waiting.Writers, "writer waits", "writers wait"), app.Size(s.Memory.Capacity+s.Disk.Capacity), of, s.WaitsFor())
}
