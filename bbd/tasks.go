package bbd

import (
	"fmt"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/meta/ops"
)

// runTask does a task of a stage or a drain with the rights of the operation's user.
func (d *Daemon) runTask(l *ops.Lease) (ops.Tally, error) {
	j := &l.Operation
	b, err := d.buffer(l.Context(), j.Buffer)
	if err != nil {
		return ops.Tally{}, err
	}
	spec, address := b.Spec(), bb.Address{Buffer: j.Buffer}.String()
	if j.Options[ops.OptionCreated] != fmt.Sprint(spec.Created.UnixNano()) {
		return ops.Tally{}, bb.E(bb.NotFound, string(j.Kind), address, "the buffer was destroyed, and another one has its name")
	}
	c := access.Of(j.UID, j.GID)
	c.System = j.System
	if !c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
		return ops.Tally{}, access.Denied(string(j.Kind), address, "enter this buffer")
	}
	switch j.Kind {
	case ops.Drain:
		return d.work.drains.Task(l, b)
	case ops.StageIn:
		d.staging.Add(1)
		defer d.staging.Add(-1)
		return d.work.stages.InTask(l, b, c)
	case ops.StageOut:
		return d.work.stages.OutTask(l, b, c)
	}
	return ops.Tally{}, bb.E(bb.Unsupported, "job", string(j.Kind), "this daemon does not support such jobs")
}
