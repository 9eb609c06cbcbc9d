// Package metrics turns the daemon's events and state into Prometheus metrics. It is the only
// importer of the Prometheus client. It receives numbers and must never depend on the packages of
// their origin.
package metrics

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"forebay/internal/bb"
)

// Stats is the state of a daemon at one moment, for a scrape.
type Stats struct {
	Ready         bool // clients are served
	Namespace     bool // its server answers
	Tiers         []Tier
	Buffers       []Buffer
	Logs          []Log
	Sessions      int
	LeasesWaiting int // writers that wait for a lease
	UsersWaiting  int // users with such writers
	StoreOps      int // renames and removals that have not reached the stores yet

	StoreWorkers   map[string]int // by state
	EventsDropped  int64
	WorkerRestarts int64
	WorkerKills    int64
}

// Tier is the state of one tier, in bytes.
type Tier struct {
	Tier                             bb.Tier
	Capacity, Total, Populated, Free int64
	Leased, Dirty, Clean, Pinned     int64
	Waste                            int64
}

// Buffer is the state of one buffer on this node.
type Buffer struct {
	Name        string
	Resident    int64         // bytes
	Dirty       int64         // bytes
	OldestDirty time.Duration // age of the oldest dirty byte; 0: none is dirty
	FlushQueue  int           // files that wait for a flush or for another try

	UnderReplicated int   // files that should have a second copy and have none
	Superseded      int64 // dirty bytes that a flush rule does not flush any more
	Unexplained     int64 // dirty bytes of files that have no entry

	OldestAttempt time.Duration // since the oldest flush on its way began; 0: none is
	StoreTrouble  time.Duration // how long its store has failed or been silent; 0: it is not
}

// Log is the state of the log of a buffer's namespace, which daemons share.
type Log struct {
	Buffer  string
	Owned   bool
	Age     time.Duration // of this daemon's claim
	Holders int
	Leases  int // now

	Granted, Revoked, Silent uint64
	Waited                   time.Duration
}

// Source is the source of bytes that were read.
type Source string

// The sources.
const (
	SourceMemory  Source = "memory"
	SourceDisk    Source = "disk"
	SourceBacking Source = "backing"
)

// Collector counts events and reads Stats when it is scraped. All methods may
// be called concurrently, none blocks, and none keeps its arguments.
type Collector struct {
	stats    func() Stats
	registry *prometheus.Registry
	counters map[string]*prometheus.CounterVec
	times    map[string]prometheus.Histogram
	states   map[string]*prometheus.Desc
}

// New returns a collector with a registry of its own. stats is called for every
// scrape, from any goroutine, and must be quick.
func New(version string, stats func() Stats) *Collector {
	c := &Collector{
		stats:    stats,
		registry: prometheus.NewRegistry(),
		counters: map[string]*prometheus.CounterVec{},
		times:    map[string]prometheus.Histogram{},
		states:   map[string]*prometheus.Desc{},
	}
	for _, m := range described {
		switch {
		case m.kind == gauge || slices.Contains(counted, m.name):
			c.states[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
		case m.kind == counter:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name, Help: m.help}, m.labels)
			if len(m.labels) == 0 {
				v.WithLabelValues() // shows as 0 before the first event
			}
			c.counters[m.name] = v
			c.registry.MustRegister(v)
		case m.kind == histogram:
			h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.name, Help: m.help, Buckets: m.buckets})
			c.times[m.name] = h
			c.registry.MustRegister(h)
		}
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: buildInfo, Help: "Always 1; the label has the version that runs.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	c.registry.MustRegister(build, stateCollector{c}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return c
}

// Handler serves the metrics in the formats that Prometheus requests.
func (c *Collector) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Request counts a request that was answered.
func (c *Collector) Request(typ string) { c.count(requests, 1, typ) }

// RequestFailed counts a request that was answered with an error.
func (c *Collector) RequestFailed(typ string, kind bb.Kind) {
	c.count(requestErrors, 1, typ, kind.String())
}

// Committed counts a commit and its bytes.
func (c *Collector) Committed(bytes int64) {
	c.count(commits, 1)
	c.count(committedBytes, bytes)
}

// Read counts a read and its bytes.
func (c *Collector) Read(from Source, bytes int64) {
	c.count(reads, 1, string(from))
	c.count(readBytes, bytes, string(from))
}

// Moved counts bytes that one-sided operations of this daemon have read and written.
func (c *Collector) Moved(fabric string, read, written int64) {
	c.count(fabricBytes, read, fabric, "read")
	c.count(fabricBytes, written, fabric, "write")
}

// Evicted counts bytes that were evicted from a tier.
func (c *Collector) Evicted(tier bb.Tier, bytes int64) { c.count(evictedBytes, bytes, tier.String()) }

// Spilled counts bytes that moved from memory to disk.
func (c *Collector) Spilled(bytes int64) { c.count(spilledBytes, bytes) }

// Waited records how long a writer waited for a lease.
func (c *Collector) Waited(d time.Duration) { c.times[leaseWait].Observe(d.Seconds()) }

// Flushed records a file that became durable: its bytes in the store, how long its
// flush took, and the time since the commit that made it dirty.
func (c *Collector) Flushed(bytes int64, took, sinceCommit time.Duration) {
	c.count(flushedFiles, 1)
	c.count(flushedBytes, bytes)
	c.times[flushSeconds].Observe(took.Seconds())
	c.times[timeToDurable].Observe(sinceCommit.Seconds())
}

// FlushFailed counts a flush that failed and will be tried again.
func (c *Collector) FlushFailed(kind bb.Kind) { c.count(flushFailures, 1, kind.String()) }

// Dropped counts the files of a step that a newer one has superseded before it was flushed.
func (c *Collector) Dropped(files, bytes int64) {
	c.count(droppedFiles, files)
	c.count(droppedBytes, bytes)
}

// Damaged counts records that recovery or a reader found damaged.
func (c *Collector) Damaged(records int) { c.count(damagedRecords, int64(records)) }

// Lost counts bytes that went before they were durable.
func (c *Collector) Lost(bytes int64) { c.count(lostBytes, bytes) }

// ChecksumError counts an extent whose bytes do not fit their checksum.
func (c *Collector) ChecksumError() { c.count(checksumErrors, 1) }

func (c *Collector) count(name string, n int64, labels ...string) {
	if n > 0 { // a counter never falls
		c.counters[name].WithLabelValues(labels...).Add(float64(n))
	}
}

// stateCollector makes gauges of Stats, and those counters that it has, all of one moment.
type stateCollector struct{ c *Collector }

// Describe sends the descriptions of the metrics that Collect may send.
func (s stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.c.states {
		out <- d
	}
}

// Collect reads the state once and sends it.
func (s stateCollector) Collect(out chan<- prometheus.Metric) {
	send := func(name string, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(s.c.states[name], prometheus.GaugeValue, v, labels...)
	}
	count := func(name string, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(s.c.states[name], prometheus.CounterValue, v, labels...)
	}
	stats := s.c.stats()
	for _, t := range stats.Tiers {
		t.collect(send)
	}
	for _, b := range stats.Buffers {
		send(bufferResident, float64(b.Resident), b.Name)
		send(bufferDirty, float64(b.Dirty), b.Name)
		send(oldestDirty, b.OldestDirty.Seconds(), b.Name)
		send(flushQueue, float64(b.FlushQueue), b.Name)
		send(underReplicated, float64(b.UnderReplicated), b.Name)
		send(unexplained, float64(b.Unexplained), b.Name)
		send(superseded, float64(b.Superseded), b.Name)
		send(oldestFlight, b.OldestAttempt.Seconds(), b.Name)
		send(storeTrouble, b.StoreTrouble.Seconds(), b.Name)
	}
	for i := range stats.Logs {
		stats.Logs[i].collect(send, count)
	}
	send(ready, one(stats.Ready))
	send(namespaceConnected, one(stats.Namespace))
	send(sessions, float64(stats.Sessions))
	send(leasesWaiting, float64(stats.LeasesWaiting))
	send(usersWaiting, float64(stats.UsersWaiting))
	send(storeOps, float64(stats.StoreOps))
	for state, n := range stats.StoreWorkers {
		send(storeWorkers, float64(n), state)
	}
	for name, n := range map[string]int64{eventsDropped: stats.EventsDropped, workerRestarts: stats.WorkerRestarts, workerKills: stats.WorkerKills} {
		count(name, float64(n))
	}
}

func (l *Log) collect(send, count func(string, float64, ...string)) {
	send(logOwned, one(l.Owned), l.Buffer)
	send(logClaim, l.Age.Seconds(), l.Buffer)
	send(logHolders, float64(l.Holders), l.Buffer)
	send(logLeases, float64(l.Leases), l.Buffer)
	count(logGranted, float64(l.Granted), l.Buffer)
	count(logRevoked, float64(l.Revoked), l.Buffer)
	count(logSilent, float64(l.Silent), l.Buffer)
	count(logWaited, l.Waited.Seconds(), l.Buffer)
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (t Tier) collect(send func(string, float64, ...string)) {
	tier := t.Tier.String()
	send(tierCapacity, float64(t.Capacity), tier)
	if t.Total > 0 {
		send(populated, float64(t.Populated)/float64(t.Total), tier)
	}
	for _, s := range []struct {
		state string
		bytes int64
	}{
		{"free", t.Free},
		{"leased", t.Leased},
		{"dirty", t.Dirty},
		{"clean", t.Clean},
		{"pinned", t.Pinned},
		{"waste", t.Waste},
	} {
		send(tierBytes, float64(s.bytes), tier, s.state)
	}
}
