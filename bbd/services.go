package bbd

import (
	"context"

	"forebay/bbd/alloc"
	"forebay/bbd/buffer"
	"forebay/bbd/call"
	"forebay/bbd/change"
	"forebay/bbd/drain"
	"forebay/bbd/entries"
	"forebay/bbd/fabric"
	"forebay/bbd/handle"
	"forebay/bbd/rpc"
	"forebay/bbd/share"
	"forebay/bbd/staging"
	"forebay/bbd/transfer"
	"forebay/bbd/txn"
)

// newEntryService makes the service that answers requests about entries.
func (d *Daemon) newEntryService() *entries.Service {
	o := d.host.EntryOptions()
	o.Enter = entering(d, (*buffer.Buffer).Entries)
	return entries.New(o)
}

// newChangeService makes the service that answers requests that change names.
func (d *Daemon) newChangeService() *change.Service {
	o := d.host.ChangeOptions()
	o.Enter = entering(d, (*buffer.Buffer).Changes)
	o.Daemons = func(ctx context.Context, r call.Request, op, name string) (*change.Buffer, error) {
		b, err := d.daemonsBuffer(ctx, r, op, name)
		if err != nil {
			return nil, err
		}
		return b.Changes(), nil
	}
	return change.New(o)
}

// newFileService makes the service that answers requests on files.
func (d *Daemon) newFileService() *handle.Service {
	l := &d.cfg.Limits
	return handle.New(d.ctx, handle.Options{
		Enter:     entering(d, (*buffer.Buffer).Handles),
		BufferOf:  func(b alloc.Buffer) *handle.Buffer { return b.(*buffer.Buffer).Handles() },
		Admission: func(s *rpc.Session) *fabric.Admission { return clientOf(s).admission },
		Stopping:  d.server.Closed, Read: d.observe.Read, NextID: d.ids.Next, Store: d.store, Alloc: d.alloc,
		Shares: handle.Shares{
			Files: share.NewPool(int64(l.OpenFiles)), Pins: share.NewPool(d.store.Stats().Memory.Capacity), MaxPinned: d.alloc.MaxLease(),
		},
		Limits: handle.Limits{Handles: l.Handles, Leases: l.Leases, LeaseMin: l.LeaseMin, LeaseMax: l.LeaseMax, Inline: l.Inline},
	})
}

// newDrains makes the service that drains buffers and nodes.
func (d *Daemon) newDrains() *drain.Service {
	return drain.New(drain.Options{
		Node: d.cfg.Node, Epoch: d.epoch, Cluster: d.cluster, Operations: d.meta.Operations(), Transfers: d.work.transfers,
		Enter:   entering(d, func(b *buffer.Buffer) drain.Buffer { return b }),
		Flusher: d.flusher, State: &d.draining, MoveOut: d.moveAllOut, Store: d.stores.Get, Open: d.stores.OpenURL, Emit: d.emit, Log: d.log,
	})
}

// newStages makes the service that stages in and out.
func (d *Daemon) newStages() *staging.Service {
	return staging.New(staging.Options{
		Node: d.cfg.Node, Cluster: d.cluster, Operations: d.meta.Operations(), Transfers: d.work.transfers,
		Enter: entering(d, func(b *buffer.Buffer) staging.Buffer { return b }),
		Find: func(ctx context.Context, name string) (staging.Buffer, error) {
			b, err := d.buffer(ctx, name)
			if err != nil {
				return nil, err // no nil buffer in an interface
			}
			return b, nil
		},
		Open: d.stores.OpenURL, Sweeping: d.unfinished.Sweeping, Inside: d.inside,
	})
}

// newTxns makes the service of transactions.
func (d *Daemon) newTxns() *txn.Service {
	return txn.New(d.ctx, txn.Options{
		Node: d.cfg.Node, Cluster: d.cluster, Enter: entering(d, func(b *buffer.Buffer) txn.Buffer { return b }),
		Existing: func(ctx context.Context) ([]txn.Buffer, error) {
			buffers, err := d.work.buffers.Existing(ctx)
			return each(buffers, func(b *buffer.Buffer) txn.Buffer { return b }), err
		},
		Every: d.cfg.Limits.Reap, Emit: d.emit, Log: d.log,
	})
}

// newTransfers makes the service that runs stages and drains as operations.
func (d *Daemon) newTransfers() *transfer.Service {
	return transfer.NewService(d.ctx, transfer.Options{
		Node: d.cfg.Node, Epoch: d.epoch, Cluster: d.cluster, Operations: d.meta.Operations(), Run: d.runTask,
		Self: d.Self, Ready: func() bool { return d.state.Load() == "ready" }, Gone: d.sweepAll, MaySee: d.maySee, Log: d.log,
	})
}
