package bbd

import (
	"fmt"

	"forebay/bbd/access"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/meta/ops"
)

// newTransfers makes what runs stages and drains as operations.
func (d *Daemon) newTransfers() *transfer.Service {
	return transfer.NewService(d.ctx, transfer.Options{
		Node: d.cfg.Node, Epoch: d.epoch, Cluster: d.cluster, Operations: d.meta.Operations(), Performer: performer{d},
		Self: d.Self, Ready: func() bool { return d.state.Load() == "ready" }, Gone: d.sweepAll, MaySee: d.maySee, Log: d.log,
	})
}

// performer does tasks, for package transfer.
type performer struct{ d *Daemon }

// Perform does a task with the rights of the operation's user.
func (p performer) Perform(l *ops.Lease) (ops.Tally, error) {
	d, j := p.d, &l.Operation
	b, err := d.buffer(l.Context(), j.Buffer)
	if err != nil {
		return ops.Tally{}, err
	}
	spec := b.Spec()
	if j.Options[ops.OptionCreated] != fmt.Sprint(spec.Created.UnixNano()) {
		return ops.Tally{}, bb.E(bb.NotFound, string(j.Kind), b.address(""), "the buffer was destroyed, and another one has its name")
	}
	c := access.Of(j.UID, j.GID)
	c.System = j.System
	if !c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
		return ops.Tally{}, access.Denied(string(j.Kind), b.address(""), "enter this buffer")
	}
	switch j.Kind {
	case ops.Drain:
		return d.work.drains.Task(l, drainBuffer{b})
	case ops.StageIn:
		d.staging.Add(1)
		defer d.staging.Add(-1)
		return d.work.stages.InTask(l, stagingBuffer{b}, c)
	case ops.StageOut:
		return d.work.stages.OutTask(l, stagingBuffer{b}, c)
	}
	return ops.Tally{}, bb.E(bb.Unsupported, "job", string(j.Kind), "this daemon does not know such jobs")
}
