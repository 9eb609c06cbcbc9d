// Package observe counts the events of a daemon, for /metrics and for status. It must never depend
// on the cause of an event, nor change anything but its counters.
package observe

import (
	"slices"
	"sync/atomic"
	"time"

	"forebay/bbd/metrics"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Observer has the counters of a daemon. Its methods may be called concurrently, and do not wait.
type Observer struct {
	Metrics *metrics.Collector // counts the events as well. Events without a figure in status are counted there alone

	commits   atomic.Int64
	bytes     atomic.Int64 // committed
	checksums atomic.Int64 // mismatches found
	lostBytes atomic.Int64
	evictions atomic.Int64 // bytes
	spills    atomic.Int64 // bytes
}

// New returns counters of which a collector has all but those of status.
func New(m *metrics.Collector) *Observer { return &Observer{Metrics: m} }

// Request counts a request, for rpc.Events.
func (o *Observer) Request(t wire.Type) { o.Metrics.Request(requestName(t)) }

// Failed counts an answer that is an error, for rpc.Events.
func (o *Observer) Failed(t wire.Type, k bb.Kind) {
	if k == bb.Checksum {
		o.ChecksumError()
	}
	o.Metrics.RequestFailed(requestName(t), k)
}

// requestName returns the label's value for a type of requests. A client may send any number.
func requestName(t wire.Type) string {
	if name, ok := wire.Type_name[int32(t)]; ok {
		return name
	}
	return "unknown"
}

// ChecksumError counts bytes that differ from their checksum.
func (o *Observer) ChecksumError() {
	o.checksums.Add(1)
	o.Metrics.ChecksumError()
}

// Committed counts a commit of extents, and returns how many bytes they have.
func (o *Observer) Committed(extents []store.NewExtent) (bytes int64) {
	for i := range extents {
		bytes += extents[i].Length
	}
	o.commits.Add(1)
	o.bytes.Add(bytes)
	o.Metrics.Committed(bytes)
	return bytes
}

// Read counts a read of so many bytes from the beginning of the first extent on. Without extents the bytes
// came from the store, past memory.
func (o *Observer) Read(extents []store.Extent, bytes int64) {
	if len(extents) == 0 {
		o.Metrics.Read(metrics.SourceBacking, bytes)
		return
	}
	for source, n := range bySource(extents, bytes) {
		if n > 0 {
			o.Metrics.Read(sources[source], n)
		}
	}
}

// sources are where bytes may lie.
var sources = [...]metrics.Source{metrics.SourceMemory, metrics.SourceDisk, metrics.SourceBacking}

// bySource returns how many of so many bytes of extents lie in each of the sources.
func bySource(extents []store.Extent, bytes int64) (lay [len(sources)]int64) {
	for i := range extents {
		n := min(extents[i].Length, bytes)
		bytes -= n
		lay[slices.Index(sources[:], sourceOf(&extents[i]))] += n
	}
	return lay
}

// sourceOf returns where the bytes of an extent lie. Those of a hole are in memory.
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
func (o *Observer) Waited(d time.Duration) { o.Metrics.Waited(d) }

// Evicted counts bytes that were evicted.
func (o *Observer) Evicted(tier bb.Tier, bytes int64) {
	if bytes == 0 {
		return
	}
	o.evictions.Add(bytes)
	o.Metrics.Evicted(tier, bytes)
}

// Spilled counts bytes that were moved to disk.
func (o *Observer) Spilled(bytes int64) {
	o.spills.Add(bytes)
	o.Metrics.Spilled(bytes)
}

// Lost counts the bytes of a file that was lost.
func (o *Observer) Lost(bytes int64) {
	o.lostBytes.Add(bytes)
	o.Metrics.Lost(bytes)
}

// FlushFailed counts a flush that failed.
func (o *Observer) FlushFailed(k bb.Kind) {
	o.Metrics.FlushFailed(k)
	if k == bb.Checksum {
		o.ChecksumError()
	}
}

// Counters returns the figures of status.
func (o *Observer) Counters() status.Counters {
	return status.Counters{
		Commits: o.commits.Load(), BytesCommitted: o.bytes.Load(), ChecksumErrors: o.checksums.Load(),
		LostBytes: o.lostBytes.Load(), Evicted: o.evictions.Load(), Spilled: o.spills.Load(),
	}
}
