package bbd

import (
	"context"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/flusher/backing/health"
)

// newAllocator makes what gives writers segments.
func (d *Daemon) newAllocator() *alloc.Allocator {
	o := alloc.Options{
		Store: d.store, Waiters: d.shares.waiters, High: d.cfg.Flush.High, Low: d.cfg.Flush.Low,
		Shares: d.cfg.Store.Shares, Disk: d.cfg.Store.DiskDir != "", Pressure: d.setPressure, Events: d.observe, Log: d.log,
		Buffers: func() (all []alloc.Buffer) {
			for _, b := range d.allBuffers() {
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

// claimant is a session of a client of this node, for package alloc.
type claimant struct{ s *rpc.Session }

// claimantOf returns the claimant of a session; nil for one of another daemon, which acts for many
// clients: what they hold counts as memory that may become free.
func claimantOf(s *rpc.Session) alloc.Claimant {
	if s.Peer() != "" {
		return nil
	}
	return claimant{s}
}

// Claim returns a session's leases for a buffer, the files that it alone has open for writing, and how
// many it has open.
func (c claimant) Claim(of alloc.Buffer) (has store.Claim, writes int) {
	b := of.(memoryBuffer).buffer
	c.s.Each(leases, func(_ uint64, r rpc.Resource) {
		if l := r.(*heldLease); l.buffer.Load() == b {
			has.Leases = append(has.Leases, l.id)
		}
	})
	for _, f := range b.open.All() {
		if f.OfAlone(c.s) {
			has.Files = append(has.Files, f.ID())
		}
	}
	c.s.Each(handles, func(_ uint64, r rpc.Resource) {
		if r.(*handle).writes == b.name {
			writes++
		}
	})
	return has, writes
}
