package bbd

import (
	"context"
	"fmt"

	"forebay/bbd/access"
	"forebay/internal/bb"
)

// Stores that overlap: two buffers with one store, or with one below the other's, hold files of others
// to each other, and neither notices what the other does there. A buffer whose store overlaps that of
// another is created only if its creator shares it, or where the two are a chain of jobs.
//
// Two creations at once, on one daemon or on two, are decided by the order of their records in the
// namespace: each looks again after its record is there, and the later of the two removes its own and
// is refused. A daemon that is killed between the two steps leaves both.

// overlaps reports whether a new buffer may not be created beside another one, since their stores
// overlap. Buffers of one user's jobs that keep files of others are a chain: the earlier one still
// drains while the next job starts, and neither replaces what the other has written.
func overlaps(spec, other *bb.Buffer) bool {
	switch {
	case other.Name == spec.Name || other.State == bb.BufferDestroying || !sameStore(spec, other):
		return false
	case spec.Job == "" || other.Job == "" || spec.UID != other.UID:
		return true
	}
	return !spec.Existing.Keeps() || !other.Existing.Keeps()
}

// sameStore reports whether the stores of two buffers are one, by their URLs or as directories, or
// one lies below the other.
func sameStore(a, b *bb.Buffer) bool {
	if a.BackingID != "" && a.BackingID == b.BackingID {
		return true
	}
	one, err := bb.ParseBacking(a.Backing)
	if err != nil {
		return false // there is none
	}
	other, err := bb.ParseBacking(b.Backing)
	return err == nil && one.Overlaps(other)
}

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
		if overlaps(spec, other) && (spec.Revision == 0 || other.Revision < spec.Revision) {
			return overlapError(c, spec, other)
		}
	}
	return nil
}

// overlapError names the other buffer to users who may enter it.
func overlapError(c access.Caller, spec, other *bb.Buffer) error {
	whose := "a buffer that you may not enter"
	if c.Permits(other.UID, other.GID, other.Mode, access.Execute) {
		whose = fmt.Sprintf("buffer %s, %s", other.Name, other.Backing)
	}
	remedy := "choose another folder; or share it, if each of the two writes names of its own: --shared, shared in the clients, shared=yes in a Slurm directive"
	if spec.Job != "" && other.Job != "" && spec.UID == other.UID {
		remedy = "wait until that job's files are on the store; or use existing=keep for both jobs, or shared=yes, with which the last flush wins"
	}
	return bb.E(bb.Exists, "backing", spec.Backing, "the store overlaps that of "+whose).WithRemedy(remedy)
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
