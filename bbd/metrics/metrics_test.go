package metrics

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

func scrape(t *testing.T, c *Collector) string {
	t.Helper()
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// everything has a state and an event of every kind.
func everything() *Collector {
	c := New("v1", func() Stats {
		return Stats{
			Tiers: []Tier{{
				Tier: bb.TierMemory, Capacity: 100, Total: 80, Populated: 20, Free: 1, Leased: 2, Dirty: 3, Clean: 4,
				Pinned: 5, Waste: 6,
			}},
			Buffers: []Buffer{{Name: "scratch", Resident: 7, Dirty: 8, OldestDirty: 9 * time.Second, FlushQueue: 10, UnderReplicated: 14, Unexplained: 15, StoreTrouble: 16 * time.Second, OldestAttempt: 17 * time.Second, Superseded: 18}},
			Logs: []Log{
				{Buffer: "scratch", Owned: true, Age: 41 * time.Second, Holders: 42, Leases: 43, Granted: 44, Revoked: 45, Silent: 46, Waited: 47 * time.Second},
				{Buffer: "elsewhere"},
			},
			Ready: true, Namespace: true,
			Sessions: 11, LeasesWaiting: 12, UsersWaiting: 30, StoreOps: 13,
			StoreWorkers: map[string]int{"hanging": 31, "idle": 32}, WorkerRestarts: 33, WorkerKills: 34, EventsDropped: 35,
		}
	})
	c.Request("commit")
	c.RequestFailed("commit", bb.NoSpace)
	c.Committed(21)
	c.Read(SourceDisk, 22)
	c.Moved("tcp", 28, 29)
	c.Evicted(bb.TierDisk, 23)
	c.Spilled(24)
	c.Waited(time.Second)
	c.Flushed(25, time.Second, 2*time.Second)
	c.FlushFailed(bb.Unavailable)
	c.Damaged(26)
	c.Lost(27)
	c.ChecksumError()
	return c
}

func TestEveryMetricIsServed(t *testing.T) {
	page := scrape(t, everything())
	for _, m := range described {
		if !strings.Contains(page, "# TYPE "+m.name+" "+string(m.kind)+"\n") {
			t.Errorf("%s is not served as a %s", m.name, m.kind)
		}
	}
	for _, line := range []string{
		`forebay_build_info{version="v1"} 1`,
		`forebay_tier_capacity_bytes{tier="memory"} 100`,
		`forebay_tier_bytes{state="free",tier="memory"} 1`,
		`forebay_tier_bytes{state="leased",tier="memory"} 2`,
		`forebay_tier_bytes{state="dirty",tier="memory"} 3`,
		`forebay_tier_bytes{state="clean",tier="memory"} 4`,
		`forebay_tier_bytes{state="pinned",tier="memory"} 5`,
		`forebay_tier_bytes{state="waste",tier="memory"} 6`,
		`forebay_populated_ratio{tier="memory"} 0.25`,
		`forebay_buffer_resident_bytes{buffer="scratch"} 7`,
		`forebay_buffer_dirty_bytes{buffer="scratch"} 8`,
		`forebay_buffer_oldest_dirty_seconds{buffer="scratch"} 9`,
		`forebay_flush_queue_files{buffer="scratch"} 10`,
		`forebay_buffer_store_trouble_seconds{buffer="scratch"} 16`,
		`forebay_buffer_oldest_flight_seconds{buffer="scratch"} 17`,
		`forebay_log_owned{buffer="scratch"} 1`,
		`forebay_log_owned{buffer="elsewhere"} 0`,
		`forebay_log_claim_age_seconds{buffer="scratch"} 41`,
		`forebay_log_holders{buffer="scratch"} 42`,
		`forebay_log_leases{buffer="scratch"} 43`,
		`forebay_log_leases_granted_total{buffer="scratch"} 44`,
		`forebay_log_leases_revoked_total{buffer="scratch"} 45`,
		`forebay_log_silent_revocations_total{buffer="scratch"} 46`,
		`forebay_log_silent_revocation_seconds_total{buffer="scratch"} 47`,
		`forebay_ready 1`,
		`forebay_namespace_connected 1`,
		`forebay_sessions 11`,
		`forebay_leases_waiting 12`,
		`forebay_users_waiting 30`,
		`forebay_store_operations_pending 13`,
		`forebay_store_workers{state="hanging"} 31`,
		`forebay_store_workers{state="idle"} 32`,
		`forebay_store_worker_restarts_total 33`,
		`forebay_store_worker_kills_total 34`,
		`forebay_events_dropped_total 35`,
		`forebay_requests_total{type="commit"} 1`,
		`forebay_request_errors_total{kind="no space",type="commit"} 1`,
		`forebay_commits_total 1`,
		`forebay_committed_bytes_total 21`,
		`forebay_reads_total{source="disk"} 1`,
		`forebay_read_bytes_total{source="disk"} 22`,
		`forebay_fabric_bytes_total{fabric="tcp",op="read"} 28`,
		`forebay_fabric_bytes_total{fabric="tcp",op="write"} 29`,
		`forebay_evicted_bytes_total{tier="disk"} 23`,
		`forebay_spilled_bytes_total 24`,
		`forebay_lease_wait_seconds_sum 1`,
		`forebay_flushed_files_total 1`,
		`forebay_flushed_bytes_total 25`,
		`forebay_flush_seconds_count 1`,
		`forebay_flush_failures_total{kind="unavailable"} 1`,
		`forebay_time_to_durable_seconds_sum 2`,
		`forebay_damaged_records_total 26`,
		`forebay_lost_bytes_total 27`,
		`forebay_checksum_errors_total 1`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("%q is not in the page", line)
		}
	}
}

func TestNothingHappenedYet(t *testing.T) {
	c := New("v1", func() Stats { return Stats{} })
	c.Lost(0)
	c.Lost(-1)
	page := scrape(t, c)
	for _, line := range []string{"forebay_lost_bytes_total 0", "forebay_sessions 0", "forebay_time_to_durable_seconds_count 0"} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("%q is not in the page", line)
		}
	}
}

func TestPageIsCurrent(t *testing.T) {
	const page = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(page, []byte(Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != Page() {
		t.Error("docs/metrics.md is not current: run make generate")
	}
}
