package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric names are an interface, since dashboards and alerts are made of them.
const (
	buildInfo = "forebay_build_info"

	ready              = "forebay_ready"
	namespaceConnected = "forebay_namespace_connected"

	tierCapacity = "forebay_tier_capacity_bytes"
	tierBytes    = "forebay_tier_bytes"
	populated    = "forebay_populated_ratio"

	bufferResident = "forebay_buffer_resident_bytes"
	bufferDirty    = "forebay_buffer_dirty_bytes"
	oldestDirty    = "forebay_buffer_oldest_dirty_seconds"
	flushQueue     = "forebay_flush_queue_files"
	storeOps       = "forebay_store_operations_pending"

	underReplicated = "forebay_buffer_under_replicated_files"
	unexplained     = "forebay_buffer_unexplained_bytes"
	superseded      = "forebay_buffer_superseded_bytes"
	oldestFlight    = "forebay_buffer_oldest_flight_seconds"
	storeTrouble    = "forebay_buffer_store_trouble_seconds"

	logOwned   = "forebay_log_owned"
	logClaim   = "forebay_log_claim_age_seconds"
	logHolders = "forebay_log_holders"
	logLeases  = "forebay_log_leases"
	logGranted = "forebay_log_leases_granted_total"
	logRevoked = "forebay_log_leases_revoked_total"
	logSilent  = "forebay_log_silent_revocations_total"
	logWaited  = "forebay_log_silent_revocation_seconds_total"

	storeWorkers   = "forebay_store_workers"
	workerRestarts = "forebay_store_worker_restarts_total"
	workerKills    = "forebay_store_worker_kills_total"

	sessions       = "forebay_sessions"
	requests       = "forebay_requests_total"
	requestErrors  = "forebay_request_errors_total"
	leasesWaiting  = "forebay_leases_waiting"
	usersWaiting   = "forebay_users_waiting"
	leaseWait      = "forebay_lease_wait_seconds"
	commits        = "forebay_commits_total"
	committedBytes = "forebay_committed_bytes_total"
	reads          = "forebay_reads_total"
	readBytes      = "forebay_read_bytes_total"
	fabricBytes    = "forebay_fabric_bytes_total"

	evictedBytes  = "forebay_evicted_bytes_total"
	spilledBytes  = "forebay_spilled_bytes_total"
	flushedFiles  = "forebay_flushed_files_total"
	flushedBytes  = "forebay_flushed_bytes_total"
	flushSeconds  = "forebay_flush_seconds"
	flushFailures = "forebay_flush_failures_total"
	timeToDurable = "forebay_time_to_durable_seconds"

	droppedFiles = "forebay_superseded_files_total"
	droppedBytes = "forebay_superseded_bytes_total"

	eventsDropped  = "forebay_events_dropped_total"
	damagedRecords = "forebay_damaged_records_total"
	lostBytes      = "forebay_lost_bytes_total"
	checksumErrors = "forebay_checksum_errors_total"
)

type kind string

const (
	gauge     kind = "gauge"
	counter   kind = "counter"
	histogram kind = "histogram"
)

// described are all metrics but build_info and those of the Go runtime and the
// process. It is the source of the registered metrics and of docs/metrics.md.
var described = []struct {
	name    string
	kind    kind
	help    string
	labels  []string
	buckets []float64 // of a histogram, seconds
}{
	{ready, gauge, "1: clients are served; 0: the daemon starts, waits or stops.", nil, nil},
	{namespaceConnected, gauge, "1: the namespace answers. 0: there is no connection to a server, or the servers that are there answer nothing, as without a majority.", nil, nil},

	{tierCapacity, gauge, "Bytes that a tier may have.", []string{"tier"}, nil},
	{tierBytes, gauge, "Bytes of a tier by state: free, leased, dirty, clean, pinned, waste. Pinned bytes are also dirty or clean.", []string{"tier", "state"}, nil},
	{populated, gauge, "Share of a tier's memory that can be written without a page fault; 1 once a start is complete.", []string{"tier"}, nil},

	{bufferResident, gauge, "Bytes that a buffer takes on this node.", []string{"buffer"}, nil},
	{bufferDirty, gauge, "Bytes of a buffer that are not on its backing store yet.", []string{"buffer"}, nil},
	{oldestDirty, gauge, "Age of a buffer's oldest dirty byte; 0 if none is dirty.", []string{"buffer"}, nil},
	{flushQueue, gauge, "Files of a buffer that wait for a flush or a retry.", []string{"buffer"}, nil},
	{underReplicated, gauge, "Files of a buffer that this node owns and that lack their second copy on another node.", []string{"buffer"}, nil},
	{unexplained, gauge, "Dirty bytes on this node of files without an entry in the namespace.", []string{"buffer"}, nil},
	{superseded, gauge, "Dirty bytes of a buffer on this node that will not be flushed, since a newer step of their flush rule is complete.", []string{"buffer"}, nil},
	{oldestFlight, gauge, "Age of the oldest flush that is on its way to a buffer's store; 0 if none is.", []string{"buffer"}, nil},
	{storeTrouble, gauge, "How long a buffer's store has failed or not answered this node; 0 while it does neither.", []string{"buffer"}, nil},
	{storeOps, gauge, "Renames and removals that the backing stores have not seen yet.", nil, nil},

	{logOwned, gauge, "1: this daemon owns the log of a buffer's namespace, which daemons share; 0: another one does, or none.", []string{"buffer"}, nil},
	{logClaim, gauge, "How long this daemon has owned the log of a buffer's namespace; 0 if it does not.", []string{"buffer"}, nil},
	{logHolders, gauge, "Other daemons that hold the end of a log in memory, of a log that this daemon owns.", []string{"buffer"}, nil},
	{logLeases, gauge, "Leases on directories that other daemons have from this one, the owner of the log, each of one daemon on one directory.", []string{"buffer"}, nil},
	{logGranted, counter, "Look-ups and listings of other daemons that this one answered with a lease, as the owner of the log.", []string{"buffer"}, nil},
	{logRevoked, counter, "Leases that other daemons dropped before a change, on request of this one.", []string{"buffer"}, nil},
	{logSilent, counter, "Revocations that another daemon did not answer, so that a change waited for the end of its leases.", []string{"buffer"}, nil},
	{logWaited, counter, "How long these revocations lasted.", []string{"buffer"}, nil},

	{storeWorkers, gauge, "Processes that reach stores as their users, by state: serving, idle, hanging (no request answered for 5 s, a request abandoned, or an end overdue), ending.", []string{"state"}, nil},
	{workerRestarts, counter, "Store workers that were started in place of one that was killed or ended by itself.", nil, nil},
	{workerKills, counter, "Store workers that were killed, since a request did not end or since they accepted none.", nil, nil},

	{sessions, gauge, "Open sessions.", nil, nil},
	{requests, counter, "Requests answered, by type.", []string{"type"}, nil},
	{requestErrors, counter, "Requests answered with an error, by type and kind of error.", []string{"type", "kind"}, nil},
	{leasesWaiting, gauge, "Writers that wait for a lease now.", nil, nil},
	{usersWaiting, gauge, "Users whose writers wait for a lease now.", nil, nil},
	{leaseWait, histogram, "How long writers waited for a lease.", nil, prometheus.ExponentialBuckets(0.001, 4, 10)},
	{commits, counter, "Commits acknowledged.", nil, nil},
	{committedBytes, counter, "Bytes committed.", nil, nil},
	{reads, counter, "Reads answered, by where the bytes lay: memory, disk, backing. A read of bytes in both tiers counts in both.", []string{"source"}, nil},
	{readBytes, counter, "Bytes returned to readers, by their place then: memory, disk, or backing, if they came from the store and were not cached.", []string{"source"}, nil},
	{fabricBytes, counter, "Bytes that this daemon has read from other daemons' memory or written there, one-sided, by fabric and operation: read, write.", []string{"fabric", "op"}, nil},

	{evictedBytes, counter, "Clean bytes evicted from a tier.", []string{"tier"}, nil},
	{spilledBytes, counter, "Bytes moved from memory to disk.", nil, nil},
	{flushedFiles, counter, "Files made durable on a backing store.", nil, nil},
	{flushedBytes, counter, "Bytes made durable on a backing store, as the store counts them.", nil, nil},
	{flushSeconds, histogram, "How long the flush of a file took.", nil, prometheus.ExponentialBuckets(0.001, 4, 12)},
	{flushFailures, counter, "Flushes that failed and are retried, by kind of error.", []string{"kind"}, nil},
	{timeToDurable, histogram, "Time from a file's commit until it was durable on its backing store.", nil, prometheus.ExponentialBuckets(0.01, 4, 12)},

	{droppedFiles, counter, "Files that were dropped from memory and never flushed, since a newer step of their flush rule was complete.", nil, nil},
	{droppedBytes, counter, "Bytes of such files.", nil, nil},

	{eventsDropped, counter, "Events that the namespace's server did not accept in time. Listeners get one of kind missed in their place.", nil, nil},
	{damagedRecords, counter, "Records in regions that were damaged and skipped.", nil, nil},
	{lostBytes, counter, "Bytes that were lost before they were durable.", nil, nil},
	{checksumErrors, counter, "Extents whose bytes did not fit their checksum. None of these bytes was returned or flushed.", nil, nil},
}

// counted are the counters that Stats has, instead of events.
var counted = []string{eventsDropped, workerRestarts, workerKills, logGranted, logRevoked, logSilent, logWaited}

// Page returns docs/metrics.md.
func Page() string {
	var b strings.Builder
	b.WriteString("<!-- Made from bbd/metrics by \"make generate\"; changes here are overwritten. -->\n\n# Metrics of bbd\n\n" +
		"`GET /metrics` on the admin address. Beside these there is `" + buildInfo + "` with the label `version`,\n" +
		"and the usual `go_*` and `process_*`.\n\n| name | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range described {
		labels := make([]string, len(m.labels))
		for i, l := range m.labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, ", "), m.help)
	}
	return b.String()
}
