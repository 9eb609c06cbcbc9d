package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A job has a deadline. Each daemon passes it to its flusher. If the job's buffer would be saved
// too late, the flusher raises its share. If that does not suffice, the daemon notes it with the
// job's attachment to the node. The hook that warns the job reads it there.

// trackDeadlines follows the ends of jobs, and whether their dirty bytes on this node are saved by then.
func (k *Controller) trackDeadlines(all []bb.Lifetime) {
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
	for _, b := range k.o.Buffers.All() {
		name := b.Spec().Name
		l := runs[name]
		if l == nil {
			b.SetDue(time.Time{})
			continue
		}
		b.SetDue(l.Due)
		k.predict(name, l)
	}
}

// predict notes, and publishes, when it has turned out that a job's buffer will not be saved
// in time, or will be after all.
func (k *Controller) predict(buffer string, l *bb.Lifetime) {
	var stay *bb.Attachment
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Node == k.o.Node && n.Attached {
			stay = n
		}
	}
	stats := k.o.Buffers.Backlog(buffer)
	if stay == nil || stats.QueuedBytes > 0 && !stats.PaceKnown {
		return
	}
	was, known := k.late[l.Key]
	if !known {
		was = !stay.MissesDeadline.IsZero()
	}
	now, due := time.Now(), l.Due
	if was {
		// Only when there is some time to spare. Near the deadline the result changes with each check.
		due = now.Add(due.Sub(now) * 4 / 5)
	}
	by, late := plan.CleanBy(stats.QueuedBytes, stats.Pace, now, due)
	if late == was {
		return
	}
	if !late {
		by = time.Time{}
	}
	ctx, cancel := context.WithTimeout(k.ctx, stepLimit)
	defer cancel()
	err := k.o.Records.ChangeAttachment(ctx, l.Key, k.o.Node, func(n *bb.Attachment) error {
		if !n.Attached {
			return errLeftNode
		}
		n.MissesDeadline = by.Round(0).UTC()
		return nil
	})
	if err != nil {
		return // the next check retries
	}
	if k.late[l.Key] = late; late {
		k.o.Emit(bb.Event{Kind: bb.EventLate, Buffer: buffer, Bytes: stats.QueuedBytes, Reason: lateReason(stats.Pace, now, by, l.Due)})
	}
}

// errLeftNode ends a change of an attachment that has ended.
var errLeftNode = errors.New("the job has left the node")

func lateReason(pace float64, now, by, due time.Time) string {
	left := due.Sub(now).Round(time.Second)
	if pace <= 0 {
		return fmt.Sprintf("no bytes reach the store, and the job's time ends in %v", left)
	}
	return fmt.Sprintf("at %.0f bytes a second the data reaches the store in %v, and the job's time ends in %v", pace, by.Sub(now).Round(time.Second), left)
}

// Due notes by when a job's buffer should be saved, and that the job is being warned.
func (k *Controller) Due(ctx context.Context, r call.Request, m *wire.LifetimeDue) (proto.Message, error) {
	const op = "change lifetime"
	if err := k.mayGovern(r, op, m.Key); err != nil {
		return nil, err
	}
	_, err := k.o.Records.Change(ctx, m.Key, func(l *bb.Lifetime) error {
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
	return k.now(ctx, m.Key)
}
