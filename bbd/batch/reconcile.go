package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/meta/gossip"
	"forebay/meta/ops"
)

// The work after a job's end. One daemon does it, the first of those that are ready, as gossip has
// it. Two daemons that do it for a moment do no harm, since each step is a job of all daemons that
// both submit under the same id, or a change by compare-and-set. A daemon that succeeds another
// begins at the last step in the records:
//
//	stage-outs, one after the other ─▶ drain ─▶ loss report ─▶ destroy ─▶ gone
//
// A step that fails is retried for ever, with a growing pause. Until it succeeds the lifetime and
// its buffer are orphans, and nothing of them is dropped. Only --hurry does that, and its losses
// are in the loss report.
const (
	reconcileEvery = 500 * time.Millisecond
	// A job has ended when one of its nodes has reported so. The others have as long as this to
	// report it too, before the reports of nodes that are gone are not waited for.
	stragglers = 30 * time.Second
	retryMin   = time.Second
	retryMax   = time.Minute
	recordKept = 7 * 24 * time.Hour
	maxLosses  = 1000
	stepLimit  = 30 * time.Second
	lastWords  = 5 * time.Second // for the records that are written when the daemon stops
)

// Run follows all lifetimes until the controller's context ends, and does the pending steps while
// it is this daemon's turn.
func (k *Controller) Run() {
	changed := make(chan []bb.Lifetime)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.follow(changed) })
	var all []bb.Lifetime
	var noted time.Time
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), lastWords)
		defer cancel()
		if now, err := k.o.Records.List(ctx); err == nil {
			k.noteUsage(ctx, now)
		}
	}()
	for {
		select {
		case <-k.ctx.Done():
			return
		case all = <-changed:
		case <-time.After(reconcileEvery):
		}
		k.notePeaks()
		if k.anyDestroyed() || time.Since(noted) > usageEvery {
			noted = time.Now()
			k.noteUsage(k.ctx, all)
		}
		k.trackDeadlines(all)
		if cluster.Coordinator(k.o.Cluster.Members()) != k.o.Node {
			continue
		}
		for i := range all {
			if k.ctx.Err() != nil {
				return
			}
			if now, ok := k.step(all[i]); ok {
				now.Nodes = all[i].Nodes
				all[i] = now // until the watch reports it
			}
		}
	}
}

// stalledLook is how often a job is checked whose store refuses, since it tries by itself.
const stalledLook = 2 * time.Second

// stalledError is the reason why a job under way makes no progress. It is not begun again, since
// each that waits takes a place among the tasks of a node.
type stalledError struct{ error }

func (e stalledError) Unwrap() error { return e.error }

// follow sends the records to Run whenever one has changed.
func (k *Controller) follow(changed chan<- []bb.Lifetime) {
	for k.ctx.Err() == nil {
		err := k.o.Records.Watch(k.ctx, func(all []bb.Lifetime) {
			select {
			case changed <- all:
			case <-k.ctx.Done():
			}
		})
		if k.ctx.Err() == nil {
			k.o.Log.Warn("the watch of job records ended; it is started again", "err", err)
			select {
			case <-time.After(time.Second):
			case <-k.ctx.Done():
			}
		}
	}
}

// notePeaks counts how much is dirty in the buffers of jobs.
func (k *Controller) notePeaks() {
	var dirty map[string]int64
	for _, b := range k.o.Buffers.All() {
		spec := b.Spec()
		if spec.Job == "" {
			continue
		}
		if dirty == nil {
			dirty = k.o.Buffers.Dirty()
		}
		b.Usage().dirty(dirty[spec.Name])
	}
}

// ended reports whether a job has left its nodes, by their reports, and whether it
// failed on one. Gone reports the nodes that cannot report anything any more, or never will of
// this job, since their memory, and with it the job's processes, is another one's.
//
// When the batch system has reported the job's end, nodes that are gone are not waited for. A
// job of a scheduler has not ended before that.
func ended(l *bb.Lifetime, now time.Time, gone func(*bb.Attachment) bool) (over, failed bool) {
	left, silent, never := 0, 0, 0
	var last time.Time
	for i := range l.Nodes {
		n := &l.Nodes[i]
		failed = failed || n.Failed
		switch {
		case !n.Attached && n.Since.IsZero():
			never++ // the job's buffer was on it, and not the job
		case !n.Attached:
			left++
			if n.Since.After(last) {
				last = n.Since
			}
		case !gone(n):
			return false, failed
		default:
			silent++
		}
	}
	if !l.Over.IsZero() {
		return true, failed
	}
	if l.SchedulerManaged || left == 0 {
		return false, failed // a node that is gone may come back, with the job
	}
	if silent > 0 || len(l.Nodes)-never < l.ExpectedNodes {
		return now.Sub(last) >= stragglers, failed || silent > 0
	}
	return true, failed
}

// gone reports whether a node that a job came to has lost it.
func (k *Controller) gone(n *bb.Attachment) bool {
	m, known := k.o.Cluster.Member(n.Node)
	return !known || m.State.Gone() || m.State == gossip.Ready && m.Instance.String() != n.Instance
}

// step advances a lifetime by one step and returns its new record. false means that it is unchanged.
func (k *Controller) step(l bb.Lifetime) (bb.Lifetime, bool) {
	now := time.Now()
	ctx, cancel := context.WithTimeout(k.ctx, stepLimit)
	defer cancel()
	switch l.State {
	case bb.LifetimeOpen:
		over, failed := ended(&l, now, k.gone)
		if !over {
			return l, false
		}
		return k.change(ctx, &l, func(l *bb.Lifetime) {
			if l.State == bb.LifetimeOpen {
				l.State, l.Ended, l.Succeeded = bb.LifetimeDraining, now.Round(0).UTC(), l.Succeeded && !failed
			}
		})
	case bb.LifetimeGone:
		if now.Sub(l.Gone) > recordKept {
			if err := k.o.Records.Forget(ctx, l.Key); err != nil {
				k.o.Log.Warn("the record of a job was not removed", "job", l.Key, "err", err)
			}
		}
		return l, false
	}
	if now.Before(l.Next) || now.Before(k.later[l.Key]) {
		return l, false
	}
	delete(k.later, l.Key)
	done, err := k.finish(ctx, &l)
	var stalled stalledError
	switch {
	case k.ctx.Err() != nil:
		return l, false
	case errors.As(err, &stalled):
		k.later[l.Key] = now.Add(stalledLook)
		return k.stalled(ctx, &l, stalled)
	case err != nil:
		return k.failed(ctx, &l, err)
	case done:
		k.o.Log.Info("a job's data is saved and its buffers are gone", "job", l.Key, "unsaved", l.Losses.Total)
		return k.change(ctx, &l, func(now *bb.Lifetime) {
			now.State, now.Gone, now.Reason, now.Next = bb.LifetimeGone, time.Now().Round(0).UTC(), "", time.Time{}
		})
	}
	return l, false
}

func (k *Controller) change(ctx context.Context, l *bb.Lifetime, change func(*bb.Lifetime)) (bb.Lifetime, bool) {
	now, err := k.o.Records.Change(ctx, l.Key, func(l *bb.Lifetime) error { change(l); return nil })
	if err != nil {
		k.o.Log.Warn("the record of a job was not changed", "job", l.Key, "err", err)
		return *l, false
	}
	return now, true
}

// stalled makes an orphan of a lifetime whose job goes on.
func (k *Controller) stalled(ctx context.Context, l *bb.Lifetime, why error) (bb.Lifetime, bool) {
	if l.State == bb.LifetimeOrphan && l.Reason == why.Error() {
		return *l, false
	}
	if l.State != bb.LifetimeOrphan {
		k.o.Log.Warn("a job's remaining data cannot be saved yet", "job", l.Key, "err", why)
		k.orphanOf(ctx, l)
	}
	return k.change(ctx, l, func(now *bb.Lifetime) {
		if now.State != bb.LifetimeGone {
			now.State, now.Reason = bb.LifetimeOrphan, why.Error()
		}
	})
}

// failed makes an orphan of a lifetime, to be tried again.
func (k *Controller) failed(ctx context.Context, l *bb.Lifetime, why error) (bb.Lifetime, bool) {
	if l.Attempt == 0 {
		k.o.Log.Warn("a job's remaining data cannot be saved yet", "job", l.Key, "err", why)
	}
	k.orphanOf(ctx, l)
	pause := min(retryMax, retryMin<<min(l.Attempt, 10))
	return k.change(ctx, l, func(now *bb.Lifetime) {
		if now.State == bb.LifetimeGone {
			return
		}
		now.State, now.Reason, now.Attempt = bb.LifetimeOrphan, why.Error(), l.Attempt+1
		now.Next = time.Now().Add(pause).Round(0).UTC()
	})
}

// orphanOf marks a lifetime's buffer, for lists of buffers.
func (k *Controller) orphanOf(ctx context.Context, l *bb.Lifetime) {
	if l.Buffer == "" {
		return
	}
	if err := k.o.Buffers.MarkOrphan(ctx, l.Buffer); err != nil {
		k.o.Log.Warn("marking an orphan", "buffer", l.Buffer, "err", err)
	}
}

// errNotYet is the error of a step in progress.
var errNotYet = errors.New("not yet")

// finish does the next of a job's remaining steps. It returns true if none was left.
func (k *Controller) finish(ctx context.Context, l *bb.Lifetime) (done bool, err error) {
	ran := l.Ran || !l.SchedulerManaged
	if ran && !l.Hurry {
		err = k.stageOut(ctx, l)
	}
	if err == nil && l.Buffer != "" {
		err = k.drainAndDestroy(ctx, l, l.Buffer, l.Hurry || !ran)
	}
	for i := 0; i < len(l.Destroys) && ran && err == nil; i++ {
		if err = k.mayDestroy(ctx, l, l.Destroys[i].Buffer); err == nil {
			err = k.drainAndDestroy(ctx, l, l.Destroys[i].Buffer, l.Destroys[i].Discard)
		}
	}
	if err == errNotYet {
		return false, nil
	}
	return err == nil, err
}

// stageOut copies out the files that the job requested, one stage at a time.
func (k *Controller) stageOut(ctx context.Context, l *bb.Lifetime) error {
	for i := range l.Out {
		s := &l.Out[i]
		if s.Done || s.OnSuccess && !l.Succeeded {
			continue
		}
		j, err := k.stageOf(ctx, l, ops.StageOut, s, fmt.Sprint(i), fmt.Sprint(l.Attempt))
		if bb.KindOf(err) == bb.NotFound {
			continue // the buffer was destroyed, so nothing of it is left to copy
		}
		if err != nil {
			return err
		}
		note, err := k.nothingAt(ctx, l, s)
		if err != nil {
			return err
		}
		if note != "" {
			if !k.stagedOut(ctx, l, i, &ops.Status{}, note) {
				return errNotYet
			}
			continue
		}
		status, err := k.ran(ctx, j, k.o.StageTasks())
		if err != nil {
			return err
		}
		if err := stageFailure(&status); err != nil && !onlyLost(&status.Tally) {
			return bb.Wrap("stage-out", s.URL, err)
		}
		if n := status.Tally.FailedTotal; n > 0 {
			note = bb.Count(n, "file is", "files are") + " lost"
		}
		if !k.stagedOut(ctx, l, i, &status, note) {
			return errNotYet
		}
	}
	return nil
}

// nothingAt reports a stage-out of a job whose source has nothing.
func (k *Controller) nothingAt(ctx context.Context, l *bb.Lifetime, s *bb.LifetimeStage) (note string, err error) {
	b, err := k.o.Buffers.Buffer(ctx, s.Buffer)
	if err != nil {
		return "", err
	}
	if _, err = b.Lookup(ctx, userCred(l.UID, l.GID), "stage-out", s.Path); bb.KindOf(err) == bb.NotFound {
		return "nothing was written to it", nil
	}
	return "", nil // the stage reports any other fault
}

// onlyLost reports whether nothing but lost bytes is in the way, since trying again does not bring
// them back. They will be in the loss report.
func onlyLost(t *ops.Tally) bool {
	return len(t.Failed) > 0 && int64(len(t.Failed)) == t.FailedTotal &&
		!slices.ContainsFunc(t.Failed, func(f ops.Failure) bool { return f.Kind != bb.Lost || f.Path == "" })
}

// stagedOut notes that a stage-out has ended.
func (k *Controller) stagedOut(ctx context.Context, l *bb.Lifetime, i int, status *ops.Status, note string) bool {
	now, ok := k.change(ctx, l, func(now *bb.Lifetime) {
		s := &now.Out[i]
		s.Done, s.Note, s.Bytes, s.Seconds = true, note, status.Tally.Bytes, status.Ended.Sub(status.Created).Seconds()
	})
	if ok {
		now.Nodes = l.Nodes
		*l = now
	}
	return ok
}

// ran submits a job, or returns how it ended. It returns errNotYet if it is under way.
func (k *Controller) ran(ctx context.Context, j ops.Operation, tasks []ops.Task) (ops.Status, error) {
	status, err := k.o.Operations.Status(ctx, j.ID)
	if bb.KindOf(err) == bb.NotFound {
		if _, err := k.o.Operations.Submit(ctx, j, tasks...); err != nil {
			return status, err
		}
		return status, errNotYet
	}
	if err == nil && status.State == ops.Running {
		if t := status.Tally.LastError; t != "" {
			return status, stalledError{bb.E(bb.Unavailable, string(j.Kind), address(j.Buffer, ""), t)}
		}
		err = errNotYet
	}
	return status, err
}

// drainAndDestroy drains a buffer and destroys it, with a line in the loss report for all that is not saved.
func (k *Controller) drainAndDestroy(ctx context.Context, l *bb.Lifetime, name string, discard bool) error {
	b, err := k.o.Buffers.Buffer(ctx, name)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if b.Spec().Backing != "" && !discard {
		if err := k.drain(ctx, l, b); err != nil {
			return err
		}
	}
	// Nothing is closed between the report and the end, so all that goes is in the report.
	err = b.Destroy(ctx, func(ctx context.Context) error { return k.report(ctx, l, b, discard) })
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// drain has all daemons flush a buffer, and fails as long as something is not on the store
// that should be. A job that is under way is found by its id, which names the attempt.
func (k *Controller) drain(ctx context.Context, l *bb.Lifetime, b Buffer) error {
	if err := b.Materialize(ctx); err != nil {
		return err
	}
	spec := b.Spec()
	j := operationOf(l, ops.Drain, &spec, spec.Name, fmt.Sprint(l.Attempt))
	j.System = true
	tasks, err := k.o.DrainTasks(append(k.o.Cluster.Others(), k.o.Node))
	if err != nil {
		return err
	}
	status, err := k.ran(ctx, j, tasks)
	if err != nil {
		return err
	}
	if err := unsaved(spec.Name, &status.Tally); err != nil {
		return err
	}
	return b.FinishDrain(ctx, stalledLook)
}

// unsaved is why a drain has not saved a buffer, or nil if it has. Names that are kept back do not
// count. No program is left to rename them.
func unsaved(buffer string, t *ops.Tally) error {
	switch {
	case len(t.Failed) > 0:
		f := &t.Failed[0]
		return bb.E(f.Kind, "drain", address(buffer, f.Path), f.Reason)
	case t.FailedTotal > 0:
		return bb.E(bb.Internal, "drain", address(buffer, ""), bb.Count(t.FailedTotal, "file")+" failed")
	case t.OpenTotal > 0:
		return bb.E(bb.Busy, "drain", address(buffer, ""), bb.Count(t.OpenTotal, "file is", "files are")+" still open for writing")
	}
	return nil
}

// mayDestroy refuses the end of a buffer that is another user's, or that another job uses.
func (k *Controller) mayDestroy(ctx context.Context, l *bb.Lifetime, name string) error {
	b, err := k.o.Buffers.Buffer(ctx, name)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if spec := b.Spec(); spec.UID != l.UID && l.UID != 0 || spec.Job != "" {
		return access.Denied("buffer destroy", address(name, ""), "destroy another user's buffer")
	}
	all, err := k.o.Records.List(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if o := &all[i]; o.Key != l.Key && o.State == bb.LifetimeOpen && slices.Contains(o.Uses, name) {
			return bb.E(bb.Busy, "buffer destroy", address(name, ""), "job "+o.Job+" still uses it")
		}
	}
	return nil
}
