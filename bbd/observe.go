package bbd

import (
	"slices"
	"sync/atomic"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/metrics"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/health"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// observe hears what happens and counts it, for /metrics and for /status.
type observe struct {
	metrics *metrics.Collector

	commits   atomic.Int64
	bytes     atomic.Int64 // committed
	checksums atomic.Int64 // mismatches found
	lostBytes atomic.Int64
	evictions atomic.Int64 // bytes
	spills    atomic.Int64 // bytes
}

// newObserve returns the counters of a daemon.
func newObserve(d *Daemon) *observe {
	return &observe{metrics: metrics.New(d.cfg.Version, d.measure)}
}

// Request counts one, for rpc.Events.
func (o *observe) Request(t wire.Type) { o.metrics.Request(requestName(t)) }

// Failed counts an answer that is an error, likewise.
func (o *observe) Failed(t wire.Type, k bb.Kind) {
	if k == bb.Checksum {
		o.checksum()
	}
	o.metrics.RequestFailed(requestName(t), k)
}

// requestName keeps what a hostile client sends out of the label's values.
func requestName(t wire.Type) string {
	if name, ok := wire.Type_name[int32(t)]; ok {
		return name
	}
	return "unknown"
}

func (o *observe) checksum() {
	o.checksums.Add(1)
	o.metrics.ChecksumError()
}

func (o *observe) committed(extents []store.NewExtent) (bytes int64) {
	for i := range extents {
		bytes += extents[i].Length
	}
	o.commits.Add(1)
	o.bytes.Add(bytes)
	o.metrics.Committed(bytes)
	return bytes
}

// read counts a read of the first bytes of some extents; without extents they came through from
// the store.
func (o *observe) read(extents []store.Extent, bytes int64) {
	if len(extents) == 0 {
		o.metrics.Read(metrics.SourceBacking, bytes)
		return
	}
	sources := [...]metrics.Source{metrics.SourceMemory, metrics.SourceDisk, metrics.SourceBacking}
	var lay [len(sources)]int64
	for i := range extents {
		n := min(extents[i].Length, bytes)
		bytes -= n
		lay[slices.Index(sources[:], sourceOf(&extents[i]))] += n
	}
	for i, source := range sources {
		if lay[i] > 0 {
			o.metrics.Read(source, lay[i])
		}
	}
}

// sourceOf returns where the bytes of an extent lie; those of a hole are in memory.
func sourceOf(e *store.Extent) metrics.Source {
	switch {
	case e.State == store.Evicted:
		return metrics.SourceBacking
	case e.State == store.Resident && e.Tier == bb.TierDisk:
		return metrics.SourceDisk
	}
	return metrics.SourceMemory
}

// Waited counts the wait of a writer for memory.
func (o *observe) Waited(d time.Duration) { o.metrics.Waited(d) }

// Evicted counts bytes that were evicted.
func (o *observe) Evicted(tier bb.Tier, bytes int64) {
	if bytes == 0 {
		return
	}
	o.evictions.Add(bytes)
	o.metrics.Evicted(tier, bytes)
}

// Spilled counts bytes that were moved to disk.
func (o *observe) Spilled(bytes int64) {
	o.spills.Add(bytes)
	o.metrics.Spilled(bytes)
}

func (o *observe) lost(bytes int64) {
	o.lostBytes.Add(bytes)
	o.metrics.Lost(bytes)
}

func (o *observe) counters() status.Counters {
	return status.Counters{
		Commits: o.commits.Load(), BytesCommitted: o.bytes.Load(), ChecksumErrors: o.checksums.Load(),
		LostBytes: o.lostBytes.Load(), Evicted: o.evictions.Load(), Spilled: o.spills.Load(),
	}
}

// measure is what a scrape of /metrics asks for.
func (d *Daemon) measure() metrics.Stats {
	status := d.health.Status()
	answers := status.Trouble() == nil
	if d.state.Load() != "ready" {
		return metrics.Stats{Namespace: answers}
	}
	stats := d.store.Stats()
	line := d.alloc.Status(access.Daemon())
	m := metrics.Stats{Ready: true, Namespace: answers, LeasesWaiting: line.Writers, UsersWaiting: line.Users}
	for tier, t := range map[bb.Tier]store.TierStats{bb.TierMemory: stats.Memory, bb.TierDisk: stats.Disk} {
		m.Tiers = append(m.Tiers, metrics.Tier{
			Tier: tier, Capacity: t.Capacity, Total: t.Total, Populated: t.Populated, Free: t.Free,
			Leased: t.Leased, Dirty: t.Dirty, Clean: t.Clean, Pinned: t.Pinned, Waste: t.Waste,
		})
	}
	for _, b := range d.allBuffers() {
		f := d.flusher.BufferStats(b.name)
		bytes := stats.Buffers[b.name]
		s := metrics.Buffer{
			Name: b.name, Resident: bytes.Resident, Dirty: bytes.Dirty, FlushQueue: f.Queued, UnderReplicated: b.replicas.Lacking(),
		}
		if !f.OldestDirty.IsZero() {
			s.OldestDirty = time.Since(f.OldestDirty)
		}
		if !f.OldestFlight.IsZero() {
			s.OldestFlight = time.Since(f.OldestFlight)
		}
		for _, u := range b.reassertion.Unexplained() {
			s.Unexplained += u.Bytes
		}
		if h := d.stores.Health(b.name).Status(); h.Condition == health.Failing || h.Condition == health.Silent {
			s.StoreTrouble = time.Since(h.Since)
		}
		m.Buffers = append(m.Buffers, s)
		m.StoreOps += f.StoreOps
	}
	if w := d.workerStatus(access.Daemon()); w != nil {
		m.WorkerRestarts, m.WorkerKills = w.Restarts, w.Kills
		m.StoreWorkers = map[string]int{
			string(asuser.Serving): w.Serving, string(asuser.Idle): w.Idle, string(asuser.Ending): w.Ending, string(asuser.Hanging): len(w.Hanging),
		}
	}
	m.Sessions = d.server.Connections()
	return m
}
