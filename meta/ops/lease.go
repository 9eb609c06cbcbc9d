package ops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/queue"
	"forebay/meta/retry"
)

const (
	anyWorker   = "any"
	tallyBytes  = 32 << 10
	reasonBytes = 512
)

// errTaken: another worker has the task, or it is done, or its operation was cancelled.
var errTaken = errors.New("the task is not this worker's any more")

// Lease is a task of this worker. While it is held, heartbeats to the server show that the worker
// is alive. The task goes to another if they stop for ten seconds.
type Lease struct {
	Operation Operation
	Task      Task
	Attempt   uint64 // 1 at first, more if it was begun before

	b      *kv.Bucket
	msg    *queue.Delivery
	ctx    context.Context
	cancel context.CancelCauseFunc
	beat   chan struct{} // closed when the heartbeat has ended
	stop   chan struct{}
	once   sync.Once

	mu struct {
		sync.Mutex
		record  taskRecord // as stored
		settled bool
	}
	tally struct {
		sync.Mutex
		Tally
		expected     bool
		files, bytes int64
	}
}

// NextWithin is Next that waits no longer than patience, and returns nil if there is none.
func (o *Operations) NextWithin(ctx context.Context, of, node bb.NodeID, patience time.Duration) (*Lease, error) {
	const op = "next task"
	b, err := o.records(ctx)
	if err != nil {
		return nil, kv.Wrap(op, string(node), err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	msg, err := o.pull(waiting, of)
	if msg == nil || err != nil {
		return nil, kv.Wrap(op, string(node), err)
	}
	l, err := o.lease(ctx, b, msg, node)
	return l, kv.Wrap(op, string(node), err)
}

// Next waits for a task of those for a node, or, if of is "", of those for any node, and leases it
// to a node, the same one or one that stands in for it. The lease's context ends with ctx, and the
// caller must call Done, Nak or Release.
func (o *Operations) Next(ctx context.Context, of, node bb.NodeID) (*Lease, error) {
	const op = "next task"
	if node == "" {
		return nil, bb.E(bb.Invalid, op, "", "the node has no name")
	}
	b, err := o.records(ctx)
	if err != nil {
		return nil, kv.Wrap(op, string(node), err)
	}
	for try := 0; ; try++ {
		if err := o.c.Wait(ctx); err != nil {
			return nil, kv.Wrap(op, string(node), err)
		}
		msg, err := o.pull(ctx, of)
		if err != nil {
			o.c.Logger().Debug("no tasks can be had", "node", node, "err", err)
			retry.Pause(ctx, 8)
			continue
		}
		if msg == nil {
			continue
		}
		l, err := o.lease(ctx, b, msg, node)
		if l != nil || err != nil {
			return l, kv.Wrap(op, string(node), err)
		}
	}
}

// pull returns the next message for a node ("": for any), nil if there was none for
// a while.
func (o *Operations) pull(ctx context.Context, of bb.NodeID) (*queue.Delivery, error) {
	worker := anyWorker
	if of != "" {
		sum := sha256.Sum256([]byte(of))
		worker = "node-" + hex.EncodeToString(sum[:16])
	}
	return o.queue.Next(ctx, worker, kv.NodeToken(of)+".>")
}

// lease makes a message's task this node's. It returns nil if there is nothing to do for it.
func (o *Operations) lease(ctx context.Context, b *kv.Bucket, msg *queue.Delivery, node bb.NodeID) (*Lease, error) {
	deliveries := msg.Count()
	tokens := strings.Split(msg.Subject(), ".")
	if len(tokens) != 3 {
		return nil, msg.Drop()
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		job, t, err := o.taskToDo(ctx, b, tokens[1], tokens[2])
		if err != nil {
			return nil, err
		}
		// A message of a running task that was never delivered before is a second one. The first
		// one stays in the queue until the task is done.
		if job == nil || t.state == taskRunning && deliveries == 1 {
			msg.Ack(ctx)
			return nil, nil
		}
		t.state, t.by, t.tally = taskRunning, node, Tally{}
		t.attempt++
		switch err := putTask(ctx, b, job.ID, t); {
		case errors.Is(err, kv.ErrRevision):
			continue
		case err != nil:
			return nil, err
		}
		l := &Lease{Operation: *job, Task: t.Task, Attempt: t.attempt, b: b, msg: msg, beat: make(chan struct{}), stop: make(chan struct{})}
		l.mu.record = *t
		l.ctx, l.cancel = context.WithCancelCause(ctx)
		go l.heartbeat()
		return l, nil
	}
	return nil, kv.ErrRevision
}

// taskToDo returns a task and its operation, or nil if there is nothing to do.
func (o *Operations) taskToDo(ctx context.Context, b *kv.Bucket, job, task string) (*Operation, *taskRecord, error) {
	records, _, err := b.Newest(ctx, operationKey(job), taskKey(job, task))
	if err != nil {
		return nil, nil, err
	}
	var j *Operation
	var t *taskRecord
	for i := range records {
		r := &records[i]
		switch {
		case !r.Live():
		case r.Key == operationKey(job):
			found, cancelled, err := openOperation(r)
			if err == nil && cancelled.IsZero() {
				j = &found
			}
			o.c.Unreadable(r.Key, err)
		default:
			found, err := openTask(r)
			if err == nil && found.state != taskDone {
				t = &found
			}
			o.c.Unreadable(r.Key, err)
		}
	}
	if j == nil || t == nil {
		return nil, nil, nil
	}
	return j, t, nil
}

// putTask stores a task's record and sets its revision.
func putTask(ctx context.Context, b *kv.Bucket, job string, t *taskRecord) error {
	key := taskKey(job, t.ID)
	t.changed = time.Now()
	data, err := sealTask(key, t)
	if err != nil {
		return err
	}
	seq, err := b.Put(ctx, key, data, t.revision)
	if err == nil {
		t.revision = seq
	}
	return err
}

// Context ends when the task is not this worker's any more. The operation was cancelled, or the
// task went to another worker. context.Cause returns the reason.
func (l *Lease) Context() context.Context { return l.ctx }

// Progress records the progress of the task. Watchers get it within seconds, without names.
func (l *Lease) Progress(now Tally) {
	now.Failed, now.Excluded, now.Open = nil, nil, nil
	l.tally.Lock()
	defer l.tally.Unlock()
	l.tally.Tally = now
}

// Expect sets the task's expected totals, if they were unknown when it was added.
func (l *Lease) Expect(files, bytes int64) {
	l.tally.Lock()
	defer l.tally.Unlock()
	l.tally.expected, l.tally.files, l.tally.bytes = true, files, bytes
}

// expect puts the totals of Expect into the record.
func (l *Lease) expect(t *taskRecord) {
	l.tally.Lock()
	defer l.tally.Unlock()
	if l.tally.expected {
		t.Files, t.Bytes = l.tally.files, l.tally.bytes
	}
}

// heartbeat shows the server that the worker is alive, and others its progress, and finds out
// whether it should stop.
func (l *Lease) heartbeat() {
	defer close(l.beat)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.stop:
			return
		case <-l.ctx.Done():
			return
		}
		if err := l.msg.Extend(); err != nil {
			continue // the server is away, and it shows later whether the task went to another
		}
		ctx, cancel := context.WithTimeout(l.ctx, heartbeat)
		err := l.tell(ctx)
		cancel()
		if errors.Is(err, errTaken) {
			l.cancel(err)
			return
		}
	}
}

// tell stores the task's progress. If the task is not this worker's any more, it returns errTaken.
func (l *Lease) tell(ctx context.Context) error {
	l.tally.Lock()
	now := l.tally.Tally
	l.tally.Unlock()
	l.mu.Lock()
	t := l.mu.record
	l.mu.Unlock()
	r, err := l.b.Get(ctx, operationKey(l.Operation.ID))
	if err != nil {
		return err
	}
	if _, cancelled, err := openOperation(&r); err != nil || !cancelled.IsZero() {
		return fmt.Errorf("%w: the job was cancelled", errTaken)
	}
	t.tally = now
	l.expect(&t)
	err = putTask(ctx, l.b, l.Operation.ID, &t)
	if errors.Is(err, kv.ErrRevision) || errors.Is(err, kv.ErrUncertain) {
		if t, err = l.current(ctx); err != nil {
			return err
		}
	}
	if err == nil {
		l.mu.Lock()
		l.mu.record = t
		l.mu.Unlock()
	}
	return err
}

// current returns the task's record if it is still this worker's.
func (l *Lease) current(ctx context.Context) (taskRecord, error) {
	r, err := l.b.Get(ctx, taskKey(l.Operation.ID, l.Task.ID))
	if err != nil {
		return taskRecord{}, err
	}
	if !r.Live() {
		return taskRecord{}, errTaken
	}
	t, err := openTask(&r)
	if err == nil && (t.state != taskRunning || t.attempt != l.Attempt) {
		err = errTaken
	}
	return t, err
}

// Done ends the task with its result. It is no error if another worker ended it before, since the
// first result counts. If Done fails, the task may go to another worker.
func (l *Lease) Done(ctx context.Context, result Tally) error {
	if !l.settle() {
		return nil
	}
	const op = "task"
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		r, err := l.b.Get(ctx, taskKey(l.Operation.ID, l.Task.ID))
		if err != nil {
			return kv.Wrap(op, l.Task.ID, err)
		}
		if !r.Live() {
			break // the operation was deleted
		}
		t, err := openTask(&r)
		if err != nil {
			return err
		}
		if t.state == taskDone {
			break
		}
		// The work is done, even if another worker is at it now.
		t.state, t.by, t.tally = taskDone, l.mu.record.by, bounded(result)
		t.Paths, t.Data = nil, nil
		l.expect(&t)
		err = putTask(ctx, l.b, l.Operation.ID, &t)
		if errors.Is(err, kv.ErrRevision) || errors.Is(err, kv.ErrUncertain) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return kv.Wrap(op, l.Task.ID, err)
		}
		break
	}
	l.msg.Ack(ctx) // if that is not confirmed, it comes again and is found to be done
	return nil
}

// Nak returns the task to the queue after a delay, for any worker, perhaps this one.
func (l *Lease) Nak(ctx context.Context, delay time.Duration) error {
	if !l.settle() {
		return nil
	}
	if t, err := l.current(ctx); err == nil {
		t.state, t.by, t.tally = taskPending, "", Tally{}
		_ = putTask(ctx, l.b, l.Operation.ID, &t) // else it is found running, and taken over
	} else if errors.Is(err, errTaken) {
		return nil // its message is another worker's business
	}
	if err := l.msg.GiveBack(delay); err != nil {
		return &bb.Error{Kind: bb.Unavailable, Op: "task", Path: l.Task.ID, Err: err}
	}
	return nil
}

// Release is Nak at once, unless Done or Nak was called. It is for defer.
func (l *Lease) Release(ctx context.Context) { _ = l.Nak(ctx, 0) }

// settle ends the heartbeat and reports whether the caller is the first to.
func (l *Lease) settle() bool {
	l.once.Do(func() { close(l.stop) })
	<-l.beat
	l.cancel(errTaken)
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.mu.settled
	l.mu.settled = true
	return first
}

// bounded keeps as many names of a tally as a record has room for.
func bounded(t Tally) Tally {
	t.FailedTotal = max(t.FailedTotal, int64(len(t.Failed)))
	t.ExcludedTotal = max(t.ExcludedTotal, int64(len(t.Excluded)))
	t.OpenTotal = max(t.OpenTotal, int64(len(t.Open)))
	t.SupersededTotal = max(t.SupersededTotal, int64(len(t.Superseded)))
	t.LastError = t.LastError[:min(len(t.LastError), reasonBytes)]
	failed, room := []Failure(nil), tallyBytes
	for _, f := range t.Failed {
		f.Reason = f.Reason[:min(len(f.Reason), reasonBytes)]
		if room -= len(f.Path) + len(f.Reason); room < 0 {
			break
		}
		failed = append(failed, f)
	}
	t.Failed = failed
	t.Excluded, t.Open, t.Superseded = boundedNames(t.Excluded), boundedNames(t.Open), boundedNames(t.Superseded)
	return t
}

func boundedNames(names []string) []string {
	room := tallyBytes
	for i, n := range names {
		if room -= len(n); room < 0 {
			return names[:i]
		}
	}
	return names
}
