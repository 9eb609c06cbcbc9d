package bbd

import (
	"forebay/bbd/alloc"
	"forebay/bbd/buffer"
	"forebay/bbd/flushrule"
	"forebay/bbd/share"
)

// newAllocator makes the allocator of segments for writers.
func (d *Daemon) newAllocator() *alloc.Allocator {
	o := alloc.Options{
		Store: d.store, Waiters: share.NewPool(int64(d.cfg.Limits.Waiters)), High: d.cfg.Flush.High, Low: d.cfg.Flush.Low,
		Shares: d.cfg.Store.Shares, Disk: d.cfg.Store.DiskDir != "", Pressure: d.setPressure, Events: d.observe, Log: d.log,
		Buffers: ofAll(d, func(b *buffer.Buffer) alloc.Buffer { return b }),
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

// holdBack evaluates and drops the steps of all buffers.
func (d *Daemon) holdBack() {
	flushrule.Run(d.ctx, d.pressure.Load, d.short, ofAll(d, (*buffer.Buffer).Rules))
}
