package bbd

import (
	"context"

	"forebay/bbd/access"
	"forebay/bbd/overlap"
	"forebay/internal/bb"
)

// Two creations at once, on one daemon or on two, are decided by the order of their records in the
// namespace: each looks again after its record is there, and the later of the two removes its own and
// is refused. A daemon that is killed between the two steps leaves both.

// checkOverlap refuses a buffer whose store overlaps that of another one, made by whichever daemon.
// Of a buffer that has a record, those whose records are newer do not count.
func (d *Daemon) checkOverlap(ctx context.Context, c access.Caller, spec *bb.Buffer, shared bool) error {
	if shared || spec.Backing == "" {
		return nil
	}
	all, err := d.meta.Buffers(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		other := &all[i]
		if overlap.Of(spec, other) && (spec.Revision == 0 || other.Revision < spec.Revision) {
			return overlap.Refusal(c, spec, other)
		}
	}
	return nil
}

// withdrawOverlap removes the record of a new buffer if that of another whose store overlaps came
// before it since checkOverlap, and refuses the new one.
func (d *Daemon) withdrawOverlap(ctx context.Context, c access.Caller, made *bb.Buffer, shared bool) error {
	refused := d.checkOverlap(ctx, c, made, shared)
	switch {
	case refused == nil:
		return nil
	case bb.KindOf(refused) != bb.Exists: // the buffer is there
		return bb.MaybeDone(refused)
	}
	if err := d.meta.DestroyBuffer(ctx, made.Name); err != nil {
		return bb.MaybeDone(err)
	}
	return refused
}
