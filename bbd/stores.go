package bbd

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/backings"
	"forebay/bbd/leftovers"
	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// openStores makes the pool of backing stores, and the tracker that removes the unfinished work in them.
func (d *Daemon) openStores() {
	var members func() []gossip.Member
	if d.cluster != nil {
		members = d.cluster.Members
	}
	d.unfinished = leftovers.New(d.ctx, leftovers.Options{
		StateDir: d.cfg.StateDir, Instance: d.store.Instance(), Members: members, OneUser: d.cfg.Backing.Workers == nil, Log: d.log,
		Open: func(ctx context.Context, c access.Caller, url string) (backing.Store, error) {
			return d.stores.OpenURL(ctx, c, url, bb.Buffer{})
		},
	})
	d.stores = backings.New(d.ctx, backings.Options{
		Instance: d.store.Instance(), Open: d.cfg.Backing, Rules: d.cfg.StoreRules, Names: d.names,
		Limit: d.cfg.Flush.Limit, ClusterLimit: d.cfg.Flush.ClusterLimit, Lustre: d.cfg.Lustre,
		Buffers: backedBuffers{d}, Peers: d.unfinished, Emit: d.emit, Go: d.wg.Go, Log: d.log,
	})
	d.wg.Go(d.stores.LogTrouble)
	if members != nil {
		d.stores.KeepShare(d.cfg.Node, members, d.hasDirty)
	}
}

// hasDirty reports whether this daemon has, or is about to have, something to flush.
func (d *Daemon) hasDirty() bool {
	stats := d.store.Stats()
	return stats.Memory.Dirty > 0 || stats.Disk.Dirty > 0 || d.staging.Load() > 0
}

// backedBuffers are the daemon's buffers, for package backings.
type backedBuffers struct{ d *Daemon }

// Buffer returns the record of a buffer, also of one whose files are still being restored.
func (s backedBuffers) Buffer(ctx context.Context, name string) (bb.Buffer, error) {
	if b := s.d.buffers.Served(name); b != nil {
		return b.Spec(), nil
	}
	b, err := s.d.buffer(ctx, name)
	if err != nil {
		return bb.Buffer{}, err
	}
	return b.Spec(), nil
}

// Known returns the record of a buffer that this daemon serves, or the zero one if it does not.
func (s backedBuffers) Known(name string) bb.Buffer {
	if b := s.d.buffers.Served(name); b != nil {
		return b.Spec()
	}
	return bb.Buffer{}
}

// Changed checks a file whose object was changed late.
func (s backedBuffers) Changed(name, object string) {
	if b := s.d.buffers.Served(name); b != nil {
		b.Changed(object)
	}
}

// sweepAll removes from the stores of all buffers the leftovers of a member that is gone.
func (d *Daemon) sweepAll() {
	for _, b := range d.buffers.All() {
		if d.ctx.Err() == nil {
			b.Sweep()
		}
	}
}
