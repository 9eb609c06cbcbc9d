package observe

import (
	"net/http/httptest"
	"strings"
	"testing"

	"forebay/bbd/metrics"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

func TestBySource(t *testing.T) {
	t.Parallel()
	extents := []store.Extent{
		{State: store.Resident, Length: 10},
		{State: store.Resident, Tier: bb.TierDisk, Length: 20},
		{State: store.Evicted, Length: 30},
		{State: store.Hole, Length: 40},
	}
	for bytes, want := range map[int64][3]int64{
		0:   {},
		10:  {10, 0, 0},
		25:  {10, 15, 0},
		60:  {10, 20, 30},
		100: {50, 20, 30},
		200: {50, 20, 30},
	} {
		if got := bySource(extents, bytes); got != want {
			t.Errorf("%d bytes: %v, want %v", bytes, got, want)
		}
	}
}

// TestCounters: status and /metrics count the same events.
func TestCounters(t *testing.T) {
	t.Parallel()
	m := metrics.New("test", func() metrics.Stats { return metrics.Stats{} })
	o := New(m)
	if got := o.Committed([]store.NewExtent{{Length: 3}, {Length: 4}}); got != 7 {
		t.Errorf("committed: %d bytes", got)
	}
	o.Failed(wire.Type_TYPE_COMMIT, bb.Checksum)
	o.FlushFailed(bb.Checksum)
	o.FlushFailed(bb.Unavailable)
	o.Failed(wire.Type(12345), bb.Invalid)
	o.Lost(5)
	o.Evicted(bb.TierMemory, 0)
	o.Evicted(bb.TierMemory, 6)
	o.Spilled(8)
	want := status.Counters{Commits: 1, BytesCommitted: 7, ChecksumErrors: 2, LostBytes: 5, Evicted: 6, Spilled: 8}
	if got := o.Counters(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	for _, line := range []string{"checksum_errors_total 2", "lost_bytes_total 5", "spilled_bytes_total 8", `"unknown"`} {
		if !strings.Contains(text, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
	if strings.Contains(text, "12345") {
		t.Error("/metrics has a label that a client chose")
	}
}
