package bbd

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/change"
	"forebay/bbd/reassert"
	"forebay/bbd/rpc"
	"forebay/bbd/writeback"
	"forebay/meta/nslog"
)

// changeOptions returns what changes of names use in all buffers.
func (d *Daemon) changeOptions() change.Options {
	o := change.Options{
		Enter: func(ctx context.Context, s *rpc.Session, op, name string) (*change.Buffer, error) {
			b, err := d.bufferFor(ctx, s, op, name)
			if err != nil {
				return nil, err
			}
			return b.changes, nil
		},
		Daemons: func(ctx context.Context, r *rpc.Request, op, name string) (*change.Buffer, error) {
			b, err := d.daemonsBuffer(ctx, r, op, name)
			if err != nil {
				return nil, err
			}
			return b.changes, nil
		},
		Owners: d.owners(), Flusher: d.flusher, Store: d.store, Silence: d.cfg.silence(), Emit: d.emit, Go: d.wg.Go,
	}
	if d.cluster != nil {
		o.Cluster = d.cluster
	}
	return o
}

// newChanges makes what changes the names of a buffer.
func newChanges(b *buffer) *change.Buffer {
	p := change.Parts{
		Spec: b.Spec, Names: b.ns, Paths: b.paths, Files: b.open, Dirty: b.dirty, Cache: b.cache, Replicas: b.replicas, Store: b.writeback,
		Follows: writeback.StoreFollows, Transactions: b.materializer, Gate: b.gate,
		Flushed: func(ctx context.Context, c access.Caller, op, path string) error {
			return b.d.work.drains.Flushed(ctx, drainBuffer{b}, c, op, path)
		},
	}
	if l := b.log(); l != nil {
		p.Log = l // no nil engine in an interface
	}
	return change.NewBuffer(b.d.ctx, b.d.changeOptions(), b.name, p)
}

// mover returns what moves entries for transactions.
func (b *buffer) mover() change.Mover {
	return change.Mover{Of: func() *change.Buffer { return b.changes }}
}

// logged is what a namespace that is a log does besides.
type logged interface {
	reassert.Log
	change.Log
}

var _ logged = (*nslog.Engine)(nil)

// log returns the namespace as one that is a log; nil: it is none.
func (b *buffer) log() logged {
	in, _ := b.ns.Tree.(logged)
	return in
}
