package bbd

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/rpc"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A job ends at a time that is known. Each daemon hands it to its flusher, which gives
// the job's buffer a larger share if it would come too late, and says with the job's stay
// on the node when it still would. Whoever warns the job reads it there.

// lookAhead follows when jobs end, and whether what is dirty on this node is saved by then.
func (k *keeper) lookAhead(all []bb.Lifetime) {
	runs := map[string]*bb.Lifetime{}
	for i := range all {
		if l := &all[i]; l.State == bb.LifetimeOpen && l.Buffer != "" && !l.Due.IsZero() {
			runs[l.Buffer] = l
		}
	}
	for key := range k.late {
		if runs[key] == nil { // the buffer of a job has its key for a name
			delete(k.late, key)
		}
	}
	for _, b := range k.d.allBuffers() {
		l := runs[b.name]
		if l == nil {
			b.due.Store(0)
			continue
		}
		b.due.Store(l.Due.UnixNano())
		k.forecast(b, l)
	}
}

// forecast notes, and tells, when it has turned out that a job's buffer will not be saved
// in time, or will be after all.
func (k *keeper) forecast(b *buffer, l *bb.Lifetime) {
	var stay *bb.LifetimeNode
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Node == k.d.cfg.Node && n.Attached {
			stay = n
		}
	}
	stats := k.d.flusher.BufferStats(b.name)
	if stay == nil || stats.QueuedBytes > 0 && !stats.PaceKnown {
		return
	}
	was, known := k.late[l.Key]
	if !known {
		was = !stay.Late.IsZero()
	}
	now, due := time.Now(), l.Due
	if was {
		// Only when there is some time to spare: what is a near thing changes with each look.
		due = now.Add(due.Sub(now) * 4 / 5)
	}
	by, late := plan.CleanBy(stats.QueuedBytes, stats.Pace, now, due)
	if late == was {
		return
	}
	if !late {
		by = time.Time{}
	}
	ctx, cancel := context.WithTimeout(k.d.ctx, keepStepLimit)
	defer cancel()
	err := k.d.meta.BatchJobs().ChangeAttachment(ctx, l.Key, k.d.cfg.Node, func(n *bb.LifetimeNode) error {
		if !n.Attached {
			return errNotConcerned
		}
		n.Late = by.Round(0).UTC()
		return nil
	})
	if err != nil {
		return // the next look tries again
	}
	if k.late[l.Key] = late; late {
		k.d.emit(bb.Event{Kind: bb.EventLate, Buffer: b.name, Bytes: stats.QueuedBytes, Reason: lateReason(stats.Pace, now, by, l.Due)})
	}
}

func lateReason(pace float64, now, by, due time.Time) string {
	left := due.Sub(now).Round(time.Second)
	if pace <= 0 {
		return fmt.Sprintf("nothing gets to the store, and the job's time is up in %v", left)
	}
	return fmt.Sprintf("at %.0f bytes a second it will be on the store in %v, and the job's time is up in %v", pace, by.Sub(now).Round(time.Second), left)
}

// lifetimeDue notes by when a job's buffer should be saved, and that the job is being warned.
func (d *Daemon) lifetimeDue(ctx context.Context, r *rpc.Request, m *wire.LifetimeDue) (proto.Message, error) {
	const op = "change lifetime"
	if err := d.mayGovern(r, op, m.Key); err != nil {
		return nil, err
	}
	_, err := d.meta.BatchJobs().Change(ctx, m.Key, func(l *bb.Lifetime) error {
		if l.State != bb.LifetimeOpen {
			return bb.E(bb.Busy, op, m.Key, "the job has left all its nodes")
		}
		if l.Due = (time.Time{}); m.DueNs != 0 {
			l.Due = time.Unix(0, m.DueNs).UTC()
		}
		if m.Warned {
			if !l.Warned.IsZero() {
				return bb.E(bb.Exists, op, m.Key, "the job has been warned")
			}
			l.Warned = time.Now().Round(0).UTC()
		}
		return nil
	})
	if err != nil {
		return nil, bb.Wrap(op, m.Key, err)
	}
	return d.lifetimeNow(ctx, m.Key)
}
