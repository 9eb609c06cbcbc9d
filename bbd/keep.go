package bbd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/meta/gossip"
	"forebay/meta/ops"
)

// What is done after a job's end. One daemon does it: the first of those that are ready,
// as gossip has it. That two do it for a moment does no harm, since each step is a job of
// all daemons that both submit under the same id, or a change by compare-and-set. A daemon
// that takes over begins where the records say that the last one was:
//
//	stage-outs, one after the other ─▶ drain ─▶ the bill ─▶ destroy ─▶ gone
//
// A step that fails is tried again for ever, with a growing pause; until it succeeds the
// lifetime and its buffer are orphans, and nothing of them is dropped. Only --hurry does
// that, and what it costs is in the bill.
const (
	keepEvery = 500 * time.Millisecond
	// A job has ended when one of its nodes has said so. The others have as long as this to
	// say so too, before the word of those that are gone is not waited for.
	stragglers    = 30 * time.Second
	keepPauseMin  = time.Second
	keepPauseMax  = time.Minute
	lifetimeKept  = 7 * 24 * time.Hour
	maxBill       = 1000
	keepStepLimit = 30 * time.Second
)

// keepLifetimes follows all lifetimes, and does what there is to do while it is this
// daemon's turn.
func (d *Daemon) keepLifetimes() {
	k := &keeper{d: d, changed: make(chan []bb.Lifetime), later: map[string]time.Time{}, late: map[string]bool{}}
	d.wg.Go(k.follow)
	var all []bb.Lifetime
	var noted time.Time
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), lastWords)
		defer cancel()
		if now, err := d.meta.BatchJobs().List(ctx); err == nil {
			d.noteFigures(ctx, now)
		}
	}()
	for {
		select {
		case <-d.ctx.Done():
			return
		case all = <-k.changed:
		case <-time.After(keepEvery):
		}
		d.notePeaks()
		if d.anyRetired() || time.Since(noted) > figuresEvery {
			noted = time.Now()
			d.noteFigures(d.ctx, all)
		}
		k.lookAhead(all)
		if cluster.Coordinator(d.cluster.Members()) != d.cfg.Node {
			continue
		}
		for i := range all {
			if d.ctx.Err() != nil {
				return
			}
			if now, ok := k.step(all[i]); ok {
				now.Nodes = all[i].Nodes
				all[i] = now // until the watch tells
			}
		}
	}
}

type keeper struct {
	d       *Daemon
	changed chan []bb.Lifetime
	later   map[string]time.Time // when to look again at what is under way
	late    map[string]bool      // jobs that will end before what is dirty here is saved
}

// stalledLook is how often a job is looked at whose store refuses: it tries by itself.
const stalledLook = 2 * time.Second

// stalledError is why a job that is under way does not get on. It is not begun again: each
// that waits takes a place among the tasks of a node.
type stalledError struct{ error }

func (e stalledError) Unwrap() error { return e.error }

// follow hands on what the watch tells.
func (k *keeper) follow() {
	for k.d.ctx.Err() == nil {
		err := k.d.meta.BatchJobs().Watch(k.d.ctx, func(all []bb.Lifetime) {
			select {
			case k.changed <- all:
			case <-k.d.ctx.Done():
			}
		})
		if k.d.ctx.Err() == nil {
			k.d.log.Warn("following the lifetimes of jobs", "err", err)
			k.d.pause(time.Second)
		}
	}
}

// notePeaks looks how much is dirty in the buffers of jobs.
func (d *Daemon) notePeaks() {
	var stats map[string]int64
	for _, b := range d.allBuffers() {
		if b.spec().Job == "" {
			continue
		}
		if stats == nil {
			stats = map[string]int64{}
			for name, s := range d.store.Stats().Buffers {
				stats[name] = s.Dirty
			}
		}
		b.figures.dirty(stats[b.name])
	}
}

// ended reports whether a job has left its nodes, by what they have said, and whether it
// failed on one. Gone tells which nodes cannot say anything any more, or never will of
// this job: their memory, and with it the job's processes, is another one's.
//
// When the batch system has said that it is over, those that are gone are not waited for;
// and a governed one has not ended before.
func ended(l *bb.Lifetime, now time.Time, gone func(*bb.LifetimeNode) bool) (over, failed bool) {
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
	if l.Governed || left == 0 {
		return false, failed // whoever is gone may be coming back, with the job
	}
	if silent > 0 || len(l.Nodes)-never < l.Expect {
		return now.Sub(last) >= stragglers, failed || silent > 0
	}
	return true, failed
}

// gone reports whether a node that a job came to has lost it.
func (d *Daemon) gone(n *bb.LifetimeNode) bool {
	m, known := d.cluster.Member(n.Node)
	return !known || m.State.Gone() || m.State == gossip.Ready && m.Instance.String() != n.Instance
}

// step takes a lifetime a step on, and returns how it is then; false: it is as it was.
func (k *keeper) step(l bb.Lifetime) (bb.Lifetime, bool) {
	d, now := k.d, time.Now()
	ctx, cancel := context.WithTimeout(d.ctx, keepStepLimit)
	defer cancel()
	switch l.State {
	case bb.LifetimeOpen:
		over, failed := ended(&l, now, d.gone)
		if !over {
			return l, false
		}
		return k.change(ctx, &l, func(l *bb.Lifetime) {
			if l.State == bb.LifetimeOpen {
				l.State, l.Ended, l.Succeeded = bb.LifetimeDraining, now.Round(0).UTC(), l.Succeeded && !failed
			}
		})
	case bb.LifetimeGone:
		if now.Sub(l.Gone) > lifetimeKept {
			if err := d.meta.BatchJobs().Forget(ctx, l.Key); err != nil {
				d.log.Warn("forgetting a job", "job", l.Key, "err", err)
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
	case d.ctx.Err() != nil:
		return l, false
	case errors.As(err, &stalled):
		k.later[l.Key] = now.Add(stalledLook)
		return k.stalled(ctx, &l, stalled)
	case err != nil:
		return k.failed(ctx, &l, err)
	case done:
		d.log.Info("nothing is left of a job", "job", l.Key, "unsaved", l.Bill.Total)
		return k.change(ctx, &l, func(now *bb.Lifetime) {
			now.State, now.Gone, now.Reason, now.Next = bb.LifetimeGone, time.Now().Round(0).UTC(), "", time.Time{}
		})
	}
	return l, false
}

func (k *keeper) change(ctx context.Context, l *bb.Lifetime, change func(*bb.Lifetime)) (bb.Lifetime, bool) {
	now, err := k.d.meta.BatchJobs().Change(ctx, l.Key, func(l *bb.Lifetime) error { change(l); return nil })
	if err != nil {
		k.d.log.Warn("noting what became of a job", "job", l.Key, "err", err)
		return *l, false
	}
	return now, true
}

// stalled makes an orphan of a lifetime whose job goes on.
func (k *keeper) stalled(ctx context.Context, l *bb.Lifetime, why error) (bb.Lifetime, bool) {
	if l.State == bb.LifetimeOrphan && l.Reason == why.Error() {
		return *l, false
	}
	if l.State != bb.LifetimeOrphan {
		k.d.log.Warn("what a job has left cannot be saved yet", "job", l.Key, "err", why)
		k.orphanOf(ctx, l)
	}
	return k.change(ctx, l, func(now *bb.Lifetime) {
		if now.State != bb.LifetimeGone {
			now.State, now.Reason = bb.LifetimeOrphan, why.Error()
		}
	})
}

// failed makes an orphan of a lifetime, to be tried again.
func (k *keeper) failed(ctx context.Context, l *bb.Lifetime, why error) (bb.Lifetime, bool) {
	if l.Attempt == 0 {
		k.d.log.Warn("what a job has left cannot be saved yet", "job", l.Key, "err", why)
	}
	k.orphanOf(ctx, l)
	pause := min(keepPauseMax, keepPauseMin<<min(l.Attempt, 10))
	return k.change(ctx, l, func(now *bb.Lifetime) {
		if now.State == bb.LifetimeGone {
			return
		}
		now.State, now.Reason, now.Attempt = bb.LifetimeOrphan, why.Error(), l.Attempt+1
		now.Next = time.Now().Add(pause).Round(0).UTC()
	})
}

// orphanOf marks a lifetime's buffer, for whoever lists buffers.
func (k *keeper) orphanOf(ctx context.Context, l *bb.Lifetime) {
	if l.Buffer == "" {
		return
	}
	spec, err := k.d.meta.Buffer(ctx, l.Buffer)
	if err != nil || spec.State != bb.BufferActive {
		return
	}
	spec.State = bb.BufferOrphan
	if _, err := k.d.meta.UpdateBuffer(ctx, spec); err != nil {
		k.d.log.Warn("marking an orphan", "buffer", l.Buffer, "err", err)
	}
}

// errNotYet says that a step is under way.
var errNotYet = errors.New("not yet")

// finish does the next of what a job has left to do; true: there was nothing more.
func (k *keeper) finish(ctx context.Context, l *bb.Lifetime) (done bool, err error) {
	ran := l.Ran || !l.Governed
	if ran && !l.Hurry {
		err = k.stageOut(ctx, l)
	}
	if err == nil && l.Buffer != "" {
		err = k.retire(ctx, l, l.Buffer, l.Hurry || !ran)
	}
	for i := 0; i < len(l.Destroys) && ran && err == nil; i++ {
		if err = k.mayDestroy(ctx, l, l.Destroys[i].Buffer); err == nil {
			err = k.retire(ctx, l, l.Destroys[i].Buffer, l.Destroys[i].Discard)
		}
	}
	if err == errNotYet {
		return false, nil
	}
	return err == nil, err
}

// stageOut copies out what the job asked for, one stage at a time.
func (k *keeper) stageOut(ctx context.Context, l *bb.Lifetime) error {
	for i := range l.Out {
		s := &l.Out[i]
		if s.Done || s.OnSuccess && !l.Succeeded {
			continue
		}
		j, err := k.d.stageOf(ctx, l, ops.StageOut, s, fmt.Sprint(i), fmt.Sprint(l.Attempt))
		if bb.KindOf(err) == bb.NotFound {
			continue // somebody has destroyed the buffer: nothing of it is left to copy
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
		status, err := k.ran(ctx, j, []ops.Task{{ID: planTask}})
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

// nothingAt says that there is nothing where a job was to leave what is copied out.
func (k *keeper) nothingAt(ctx context.Context, l *bb.Lifetime, s *bb.LifetimeStage) (note string, err error) {
	b, err := k.d.buffer(ctx, s.Buffer)
	if err != nil {
		return "", err
	}
	if _, err = b.lookup(ctx, userCred(l.UID, l.GID), "stage-out", s.Path); bb.KindOf(err) == bb.NotFound {
		return "nothing was written to it", nil
	}
	return "", nil // what else may be wrong is the stage's to say
}

// onlyLost reports whether nothing but lost bytes is in the way: trying again does not
// bring them back. They will be in the bill.
func onlyLost(t *ops.Tally) bool {
	return len(t.Failed) > 0 && int64(len(t.Failed)) == t.FailedTotal &&
		!slices.ContainsFunc(t.Failed, func(f ops.Failure) bool { return f.Kind != bb.Lost || f.Path == "" })
}

// stagedOut notes that a stage-out has ended.
func (k *keeper) stagedOut(ctx context.Context, l *bb.Lifetime, i int, status *ops.Status, note string) bool {
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

// ran submits a job, or returns how it ended. errNotYet: it is under way.
func (k *keeper) ran(ctx context.Context, j ops.Operation, tasks []ops.Task) (ops.Status, error) {
	status, err := k.d.meta.Operations().Status(ctx, j.ID)
	if bb.KindOf(err) == bb.NotFound {
		if _, err := k.d.meta.Operations().Submit(ctx, j, tasks...); err != nil {
			return status, err
		}
		return status, errNotYet
	}
	if err == nil && status.State == ops.Running {
		if t := status.Tally.LastError; t != "" {
			return status, stalledError{bb.E(bb.Unavailable, string(j.Kind), bb.Address{Buffer: j.Buffer}.String(), t)}
		}
		err = errNotYet
	}
	return status, err
}

// retire drains a buffer and destroys it, with a line in the bill for all that is not saved.
func (k *keeper) retire(ctx context.Context, l *bb.Lifetime, name string, discard bool) error {
	b, err := k.d.buffer(ctx, name)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if b.spec().Backing != "" && !discard {
		if err := k.drain(ctx, l, b); err != nil {
			return err
		}
	}
	// Nothing is closed between the bill and the end: what goes is in the bill.
	err = k.d.destroyBuffer(ctx, b, func(ctx context.Context) error { return k.bill(ctx, l, b, discard) })
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// drain has all daemons flush a buffer, and fails as long as something is not on the store
// that should be. A job that is under way is found by its id, which names the attempt.
func (k *keeper) drain(ctx context.Context, l *bb.Lifetime, b *buffer) error {
	all := drained{b: b}
	if err := all.fold(ctx); err != nil {
		return err
	}
	j := k.d.lifetimeJob(l, ops.Drain, b, b.name, fmt.Sprint(l.Attempt))
	j.System = true
	tasks, err := tasksOfDrain(append(k.d.cluster.Others(), k.d.cfg.Node))
	if err != nil {
		return err
	}
	status, err := k.ran(ctx, j, tasks)
	if err != nil {
		return err
	}
	answer := endOf(&status)
	answer.HeldTotal = 0 // names that were only passing: nobody is left who would rename them
	if !saved(answer) {
		if len(answer.Failed) > 0 {
			f := answer.Failed[0]
			return bb.E(bb.Kind(f.Kind), "drain", b.address(f.Path), f.Reason)
		}
		return bb.E(bb.Busy, "drain", b.address(""), bb.Count(answer.OpenTotal, "file is", "files are")+" still open for writing")
	}
	left, err := all.rest(ctx) // what is lost goes into the bill
	if err != nil {
		return err
	}
	for _, path := range left.dirty {
		return bb.E(bb.Busy, "drain", b.address(path), "it went from node to node meanwhile")
	}
	// A directory without files is no data: that the store refuses it does not hold up the end.
	if failed, err := b.saveDirs(ctx, ""); err != nil || len(failed) > 0 {
		k.d.log.Warn("not all directories are on the store", "buffer", b.name, "failed", len(failed), "err", err)
	}
	brief, cancel := context.WithTimeout(ctx, stalledLook)
	defer cancel()
	if err := all.carriedOut(brief); err != nil {
		return err
	}
	if b.spec().Receipt {
		return b.keepReceipt(ctx)
	}
	return nil
}

// bill notes what will be gone with a buffer, before it is destroyed.
func (k *keeper) bill(ctx context.Context, l *bb.Lifetime, b *buffer, discard bool) error {
	var lines []bb.BillLine
	var sum bb.BillSum
	scratch := b.spec().Backing == ""
	keep := b.spec().Keep
	err := b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if e.Type != bb.TypeFile || e.State() == bb.StateClean {
			return nil
		}
		path, err := b.pathAt(ctx, place{e.Parent, e.Name})
		if err != nil {
			return nil // removed meanwhile
		}
		if scratch && e.State() != bb.StateLost && !notCopiedOut(l, b.name, path) {
			return nil
		}
		line := bb.BillLine{Path: b.address(path), Bytes: e.Size, Reason: e.LostReason()}
		pattern, kept := plan.Kept(keep, path)
		switch {
		case e.State() == bb.StateLost:
		case kept:
			line.Reason = "it was not flushed under this name, which the pattern " + pattern + " keeps back"
		case l.Governed && !l.Ran:
			line.Reason = "it was not flushed, as the job did not run"
		case discard:
			line.Reason = "it was given up before it was flushed"
		default:
			return bb.E(bb.Busy, "drain", b.address(path), "it has been written since the buffer was drained")
		}
		sum.Total++
		sum.Bytes += e.Size
		if len(lines) < maxBill {
			lines = append(lines, line)
		}
		return nil
	})
	if err != nil || sum == (bb.BillSum{}) && !mentions(&l.Bill, b.name) {
		return err
	}
	now, ok := k.change(ctx, l, func(now *bb.Lifetime) { now.Bill = billed(now.Bill, b.name, lines, sum) })
	if !ok {
		return errNotYet
	}
	now.Nodes = l.Nodes
	*l = now
	return nil
}

// billed returns a bill in which lines and sum are all that is said of a buffer. An attempt
// that was cut off before the buffer was destroyed may have billed it already.
func billed(bill bb.Bill, buffer string, lines []bb.BillLine, sum bb.BillSum) bb.Bill {
	earlier, split := bill.Buffers[buffer]
	files := make([]bb.BillLine, 0, min(len(bill.Files)+len(lines), maxBill))
	for _, x := range bill.Files {
		if !isOf(&x, buffer) {
			files = append(files, x)
		} else if !split { // an older release noted it
			earlier.Total++
			earlier.Bytes += x.Bytes
		}
	}
	sums := map[string]bb.BillSum{}
	maps.Copy(sums, bill.Buffers)
	delete(sums, buffer)
	if sum != (bb.BillSum{}) {
		sums[buffer] = sum
	}
	files = append(files, lines...)
	return bb.Bill{
		Files: files[:min(len(files), maxBill)], Buffers: sums,
		Total: bill.Total - earlier.Total + sum.Total, Bytes: bill.Bytes - earlier.Bytes + sum.Bytes,
	}
}

// mentions reports whether a bill says anything of a buffer.
func mentions(bill *bb.Bill, buffer string) bool {
	_, ok := bill.Buffers[buffer]
	return ok || slices.ContainsFunc(bill.Files, func(x bb.BillLine) bool { return isOf(&x, buffer) })
}

// isOf reports whether a line of a bill is about a file of a buffer.
func isOf(x *bb.BillLine, buffer string) bool {
	at, err := bb.ParseAddress(x.Path)
	return err == nil && at.Buffer == buffer
}

// notCopiedOut reports whether a job that was given up had still to copy a file out.
func notCopiedOut(l *bb.Lifetime, buffer, path string) bool {
	return l.Hurry && (l.Ran || !l.Governed) && slices.ContainsFunc(l.Out, func(s bb.LifetimeStage) bool {
		return s.Buffer == buffer && bb.Within(path, s.Path) && !s.Done && (l.Succeeded || !s.OnSuccess)
	})
}

// mayDestroy refuses the end of a buffer that is another user's, or that another job uses.
func (k *keeper) mayDestroy(ctx context.Context, l *bb.Lifetime, name string) error {
	b, err := k.d.buffer(ctx, name)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if spec := b.spec(); spec.UID != l.UID && l.UID != 0 || spec.Job != "" {
		return access.Denied("buffer destroy", b.address(""), "destroy another user's buffer")
	}
	all, err := k.d.meta.BatchJobs().List(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if o := &all[i]; o.Key != l.Key && o.State == bb.LifetimeOpen && slices.Contains(o.Uses, name) {
			return bb.E(bb.Busy, "buffer destroy", b.address(""), "job "+o.Job+" still uses it")
		}
	}
	return nil
}
