package bbd_test

import (
	"cmp"
	"fmt"
	"os"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// A user cuts a region of theirs short while the daemon has dirty files in it. Lost bytes are an
// error wherever they are used, with the store in between or not, and the daemon continues.
func TestRegionsCutShortBeforeTheFlush(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"", "zstd", "s2"} {
		for _, size := range []int{100, 9 << 20} {
			t.Run(fmt.Sprintf("%s %d", cmp.Or(codec, "plain"), size), func(t *testing.T) {
				n := startNode(t, func(cfg *bbd.Config) {
					cfg.Flush.Backoff = [2]time.Duration{10 * time.Millisecond, 50 * time.Millisecond}
				})
				c := n.dial()
				b, _ := n.buffer(c, admin.BufferSpec{Name: "short", Codec: codec})
				other, dir := n.buffer(c, admin.BufferSpec{Name: "other"})
				n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
				content := random(size)
				write(t, b, "first", content)
				write(t, b, "second", random(size))
				path, _ := n.find(content[:100])
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
				n.faults.Set()
				if report, err := admin.Drain(t.Context(), c, "short", time.Second, nil); err == nil || report.FailedTotal != 2 {
					t.Errorf("drain: %+v (%v)", report, err)
				}
				out := admin.StageRequest{URL: "file://" + t.TempDir(), Buffer: "short"}
				if report, err := admin.StageOut(t.Context(), c, out, nil); err == nil {
					t.Errorf("stage-out: %+v", report)
				}
				for _, name := range []string{"first", "second"} {
					// This process maps larger files itself, as its user.
					if size < 1000 {
						if got, err := b.ReadFile(t.Context(), name); err == nil {
							t.Errorf("%d bytes that are gone were read", len(got))
						}
					}
					if e, err := b.Stat(t.Context(), name); err != nil || e.Size != int64(size) {
						t.Errorf("the daemon answers: %+v, %v", e, err)
					}
				}
				content = random(1000)
				write(t, other, "fine", content)
				write(t, b, "again", content[:100]) // the segment that was being filled is gone too
				drain(t, c, "other")
				wantStored(t, dir, "fine", content)
			})
		}
	}
}
