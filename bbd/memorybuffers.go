package bbd

import (
	"context"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/share"
	"forebay/flusher/backing/health"
)

// newAllocator makes what gives writers segments.
func (d *Daemon) newAllocator() *alloc.Allocator {
	o := alloc.Options{
		Store: d.store, Waiters: share.NewPool(int64(d.cfg.Limits.Waiters)), High: d.cfg.Flush.High, Low: d.cfg.Flush.Low,
		Shares: d.cfg.Store.Shares, Disk: d.cfg.Store.DiskDir != "", Pressure: d.setPressure, Events: d.observe, Log: d.log,
		Buffers: func() (all []alloc.Buffer) {
			for _, b := range d.buffers.All() {
				all = append(all, memoryBuffer{b})
			}
			return all
		},
	}
	if d.cluster != nil {
		o.Overflow = overflow{d}
	}
	return alloc.New(d.ctx, o)
}

// setPressure wakes the flusher when memory has become short, or is so no more.
func (d *Daemon) setPressure(short bool) {
	if d.pressure.Swap(short) != short {
		d.flusher.Kick()
		d.short.Set()
	}
}

// memoryBuffer is a buffer, for package alloc.
type memoryBuffer struct{ *buffer }

// Blocked counts the time that a writer has waited for memory.
func (b memoryBuffer) Blocked(d time.Duration) { b.usage.Blocked(d) }

// ReleaseIdle gives back the segments that the daemon itself fills and does not use now.
func (b memoryBuffer) ReleaseIdle() { b.writers.ReleaseIdle() }

// Flushes reports whether there is a store, which answers.
func (b memoryBuffer) Flushes() bool {
	if b.Spec().Backing == "" {
		return false
	}
	switch b.d.stores.Health(b.name).Status().Condition {
	case health.Silent, health.Failing:
		return false
	}
	return true
}

// overflow is the memory of other nodes, for package alloc.
type overflow struct{ d *Daemon }

// FreeElsewhere returns how much memory of other nodes is free.
func (o overflow) FreeElsewhere() int64 { return o.d.cluster.FreeElsewhere() }

// Migrate moves files to other nodes.
func (o overflow) Migrate(ctx context.Context, bytes int64) int64 { return o.d.moveFiles(ctx, bytes) }
