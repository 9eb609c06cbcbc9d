// Package ops has the operations of a cluster (stage-ins, stage-outs, drains): their records, their
// tasks, and the queue from which daemons lease tasks. It must never depend on the work of a task, which
// is between its planners and its workers.
//
// An operation is split into tasks, each of which one daemon does. Their records lie in a bucket of
// its own. A task to be done is a message in a work queue, which the server gives to one daemon,
// and to another if the first is silent for ackWait.
//
//	bucket forebay_jobs         jobs.ID.job         the operation, as it was submitted
//	                            jobs.ID.task.TASK   a task and its progress
//	stream forebay_tasks        forebay.jobs.NODE.ID.TASK    a task that a node has to do
//	                            forebay.jobs.=any.ID.TASK    one that anybody may do
//
// A task's record is changed only by compare-and-set:
//
//	             Next               Done
//	pending ────────────▶ running ────────▶ done
//	   ▲                   │   │ ▲
//	   └───────────────────┘   └─┘ Next of another, when the first was silent:
//	           Nak                 the first finds out with its next heartbeat
//
// A task that is done stays so, and its message is acknowledged after that. So a task that is
// delivered again counts once, after any death. The work of a task must bear repetition. Records
// come before messages. A daemon that was stopped between the two submits the same again, or plans
// it again, under the same names.
//
// No record marks an operation as done. It is done when all its tasks are, and a task that plans
// others ends after it has added them.
package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/queue"
	"forebay/meta/retry"
)

const (
	bucketName = "forebay_jobs"
	prefix     = "jobs."
	// Stream is the queue's stream, as servers name it.
	Stream      = "forebay_tasks"
	taskSubject = "forebay.jobs."

	kept        = 24 * time.Hour     // after it ended
	age         = 7 * 24 * time.Hour // of records; an operation must not take longer
	tasksAtOnce = 64
	maxNamed    = 1000 // files that an operation names as failed, held or open

	ackWait   = 10 * time.Second
	heartbeat = 3 * time.Second
)

// Kind is the kind of work of an operation.
type Kind string

// The kinds of operations.
const (
	StageIn   Kind = "stage-in"
	StageOut  Kind = "stage-out"
	Drain     Kind = "drain"
	NodeDrain Kind = "node-drain"
)

// Operation is the submitted description of an operation.
type Operation struct {
	ID       string // [a-z0-9-]; "" for a new one. The same ID again is the same operation
	Kind     Kind
	Buffer   string
	Path     string
	URL      string
	Node     bb.NodeID // of a node-drain
	UID, GID uint32    // the user for whom it is done
	System   bool      // a daemon does, and no user
	Options  map[string]string
	Created  time.Time
	rest     string
}

// Task is a part of an operation. Its meaning is between its submitter and its worker.
type Task struct {
	ID    string    // [a-z0-9-], of this operation
	Node  bb.NodeID // the node that has to do it; "": any
	Paths []string
	Data  []byte
	// Files and Bytes are the expected totals.
	Files, Bytes int64
}

// Failure is a file that could not be dealt with.
type Failure struct {
	Path   string
	Kind   bb.Kind
	Reason string
	Bytes  int64
}

// Tally is the progress of something, or its result. Lists hold the first names, totals count all.
type Tally struct {
	Files, Bytes, Skipped                 int64
	NotCopied                             int64 // bytes of files that were skipped or have failed
	Failed                                []Failure
	Excluded, Open                        []string
	FailedTotal, ExcludedTotal, OpenTotal int64
	Superseded                            []string // steps that a drain leaves out, since newer ones are complete
	SupersededTotal                       int64
	LastError                             string
}

// State is an operation's place in its life.
type State string

// The states of an operation.
const (
	Running   State = "running" // some tasks are not done
	Done      State = "done"
	Cancelled State = "cancelled" // tasks that were running may have come to an end
)

// Status is an operation and its progress.
type Status struct {
	Operation
	State                     State
	Ended                     time.Time // zero while it runs
	Tasks, Running, TasksDone int
	// FilesTotal and BytesTotal are the sums of the expected totals of the tasks so far.
	FilesTotal, BytesTotal int64
	Tally                  Tally
	ByNode                 map[bb.NodeID]Tally // without names
	Left                   []bb.NodeID         // nodes with tasks that are for them alone; sorted
}

type taskState string

const (
	taskPending taskState = "pending"
	taskRunning taskState = "running"
	taskDone    taskState = "done"
)

// taskRecord is the stored form of a task.
type taskRecord struct {
	Task
	state    taskState
	by       bb.NodeID
	attempt  uint64
	changed  time.Time
	tally    Tally
	revision uint64
	rest     string
}

func operationKey(id string) string   { return prefix + id + ".job" }
func taskKey(job, task string) string { return prefix + job + ".task." + task }
func keysOf(id string) string         { return prefix + id + ".>" }

// operationOf returns the operation that a key belongs to.
func operationOf(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), ".")
	return id
}

// Operations are the operations of a cluster, in a bucket and a queue that are made when
// first needed. It is safe for concurrent use.
type Operations struct {
	c     *conn.Conn
	newID func(context.Context) (uint64, error)
	queue *queue.Queue
	mu    struct {
		sync.Mutex
		records *kv.Bucket // nil until it is needed
	}
}

// New returns the operations on a server. IDs returns ids that are used nowhere else.
func New(c *conn.Conn, ids func(context.Context) (uint64, error)) *Operations {
	return &Operations{c: c, newID: ids, queue: queue.New(c, Stream, taskSubject, queue.Options{Age: age, AckWait: ackWait})}
}

// records returns the bucket. It and the queue are made when first needed.
func (o *Operations) records(ctx context.Context) (*kv.Bucket, error) {
	o.mu.Lock()
	b := o.mu.records
	o.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b = kv.New(o.c, bucketName, kv.BucketOptions{Age: age, Gone: kv.NeverGone})
	if err := b.Ensure(ctx); err != nil {
		return nil, err
	}
	if err := o.queue.Ensure(ctx); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.records == nil {
		o.mu.records = b
	}
	return o.mu.records, nil
}

// Submit stores an operation with its first tasks, of which there must be one, and returns
// its id. Called again with the same id it adds missing tasks.
func (o *Operations) Submit(ctx context.Context, j Operation, first ...Task) (string, error) {
	const op = "submit job"
	if j.ID == "" {
		id, err := o.newID(ctx)
		if err != nil {
			return "", err
		}
		j.ID = fmt.Sprintf("%x", id)
	}
	if err := kv.CheckID(op, j.ID); err != nil {
		return "", err
	}
	if len(first) == 0 {
		return "", bb.E(bb.Invalid, op, j.ID, "has no task")
	}
	if j.Created.IsZero() {
		j.Created = time.Now().Round(0).UTC()
	}
	b, err := o.records(ctx)
	if err != nil {
		return "", kv.Wrap(op, j.ID, err)
	}
	data, err := sealOperation(&j, time.Time{})
	if err != nil {
		return "", err
	}
	if _, _, err := b.Create(ctx, operationKey(j.ID), data, 0); err != nil && !errors.Is(err, kv.ErrRevision) {
		return "", kv.Wrap(op, j.ID, err)
	}
	return j.ID, o.AddTasks(ctx, j.ID, first)
}

// AddTasks adds tasks to an operation. Tasks that it has are left as they are. If the operation was
// cancelled, it is Cancelled.
func (o *Operations) AddTasks(ctx context.Context, job string, tasks []Task) error {
	const op = "add tasks"
	b, err := o.records(ctx)
	if err != nil {
		return kv.Wrap(op, job, err)
	}
	_, cancelled, err := o.operation(ctx, b, op, job)
	switch {
	case err != nil:
		return err
	case !cancelled.IsZero():
		return bb.E(bb.Cancelled, op, job, "the job was cancelled")
	}
	for i := range tasks {
		if err := kv.CheckID(op, tasks[i].ID); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(tasksAtOnce)
	for i := range tasks {
		g.Go(func() error { return o.addTask(gctx, b, job, tasks[i]) })
	}
	return kv.Wrap(op, job, g.Wait())
}

func (o *Operations) addTask(ctx context.Context, b *kv.Bucket, job string, t Task) error {
	key := taskKey(job, t.ID)
	data, err := sealTask(key, &taskRecord{Task: t, state: taskPending, changed: time.Now()})
	if err != nil {
		return err
	}
	_, old, err := b.Create(ctx, key, data, 0)
	if errors.Is(err, kv.ErrRevision) {
		if r, err := openTask(&old); err != nil || r.state != taskPending {
			return err // it was delivered, and so it had been sent
		}
	} else if err != nil {
		return err
	}
	// The server drops a message that comes again soon, and a worker one of a task
	// that is done.
	return o.queue.Add(ctx, kv.NodeToken(t.Node)+"."+job+"."+t.ID, job+"."+t.ID)
}

// operation returns an operation and when it was cancelled.
func (o *Operations) operation(ctx context.Context, b *kv.Bucket, op, id string) (Operation, time.Time, error) {
	if err := kv.CheckID(op, id); err != nil {
		return Operation{}, time.Time{}, err
	}
	r, err := b.Get(ctx, operationKey(id))
	if err != nil {
		return Operation{}, time.Time{}, kv.Wrap(op, id, err)
	}
	if !r.Live() {
		return Operation{}, time.Time{}, notFound(op, id)
	}
	return openOperation(&r)
}

func notFound(op, id string) error {
	return bb.E(bb.NotFound, op, id, "there is no such job").WithRemedy("jobs are removed a day after their end")
}

// Cancel ends an operation. Waiting tasks are dropped, and workers of running ones detect it within
// seconds. An operation that has ended stays as it is.
func (o *Operations) Cancel(ctx context.Context, id string) error {
	const op = "cancel job"
	b, err := o.records(ctx)
	if err != nil {
		return kv.Wrap(op, id, err)
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		status, seq, err := o.status(ctx, b, op, id)
		if err != nil {
			return err
		}
		if status.State != Running {
			return nil
		}
		data, err := sealOperation(&status.Operation, time.Now())
		if err != nil {
			return err
		}
		switch _, err := b.Put(ctx, operationKey(id), data, seq); {
		case errors.Is(err, kv.ErrRevision):
			continue
		case err != nil:
			return kv.Wrap(op, id, err)
		}
		// A worker drops the tasks left in the queue, so this may fail.
		if err := o.queue.Purge(ctx, "*."+id+".>"); err != nil {
			o.c.Logger().Warn("the tasks of a cancelled job stay in the queue for now", "job", id, "err", err)
		}
		return nil
	}
	return kv.Wrap(op, id, kv.ErrRevision)
}

// Status returns an operation and its progress. NotFound if there is none.
func (o *Operations) Status(ctx context.Context, id string) (Status, error) {
	const op = "job"
	b, err := o.records(ctx)
	if err != nil {
		return Status{}, kv.Wrap(op, id, err)
	}
	status, _, err := o.status(ctx, b, op, id)
	return status, err
}

func (o *Operations) status(ctx context.Context, b *kv.Bucket, op, id string) (Status, uint64, error) {
	if err := kv.CheckID(op, id); err != nil {
		return Status{}, 0, err
	}
	v := view{b: b}
	err := b.Scan(ctx, keysOf(id), func(r *kv.Record) error { v.add(r); return nil })
	if err != nil {
		return Status{}, 0, kv.Wrap(op, id, err)
	}
	if !v.operation.Live() {
		return Status{}, 0, notFound(op, id)
	}
	status, err := v.status()
	return status, v.operation.Seq, err
}

// List returns all operations, the newest first, and drops those that ended a day ago.
func (o *Operations) List(ctx context.Context) ([]Status, error) {
	const op = "jobs"
	b, err := o.records(ctx)
	if err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	views := map[string]*view{}
	err = b.Scan(ctx, prefix+">", func(r *kv.Record) error {
		id := operationOf(r.Key)
		if views[id] == nil {
			views[id] = &view{b: b}
		}
		views[id].add(r)
		return nil
	})
	if err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	var jobs []Status
	for _, v := range views {
		if !v.operation.Live() {
			continue
		}
		s, err := v.status()
		if err != nil {
			o.c.Unreadable(v.operation.Key, err)
			continue
		}
		if s.State != Running && time.Since(s.Ended) > kept {
			if err := v.forget(ctx, b); err != nil {
				return nil, kv.Wrap(op, s.ID, err)
			}
			continue
		}
		jobs = append(jobs, s)
	}
	slices.SortFunc(jobs, func(a, b Status) int { return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID)) })
	return jobs, nil
}

// Running returns the newest operation that fits and has not ended, or bb.NotFound if there is
// none. The caller relies on none being begun while an older one that fits runs.
func (o *Operations) Running(ctx context.Context, fits func(*Operation) bool) (Operation, error) {
	const op = "running job"
	b, err := o.records(ctx)
	if err != nil {
		return Operation{}, kv.Wrap(op, "", err)
	}
	var newest Operation
	err = b.Scan(ctx, operationKey("*"), func(r *kv.Record) error {
		if !r.Live() {
			return nil
		}
		j, cancelled, err := openOperation(r)
		o.c.Unreadable(r.Key, err)
		if err == nil && cancelled.IsZero() && fits(&j) && j.Created.After(newest.Created) {
			newest = j
		}
		return nil
	})
	if err != nil {
		return Operation{}, kv.Wrap(op, "", err)
	}
	if newest.ID == "" {
		return Operation{}, bb.E(bb.NotFound, op, "", "no such job runs")
	}
	s, _, err := o.status(ctx, b, op, newest.ID)
	if err == nil && s.State != Running {
		err = bb.E(bb.NotFound, op, "", "no such job runs")
	}
	return s.Operation, err
}

// Watch calls fn with the progress of an operation, now and whenever that changes, at most ten
// times a second. It returns nil after the operation ended, or the reason why the watch did. fn
// runs on the caller's goroutine.
func (o *Operations) Watch(ctx context.Context, id string, fn func(Status)) error {
	const op = "watch job"
	b, err := o.records(ctx)
	if err != nil {
		return kv.Wrap(op, id, err)
	}
	if err := kv.CheckID(op, id); err != nil {
		return err
	}
	v := view{b: b}
	var failed error
	err = b.Watch(ctx, keysOf(id), v.add, func() bool {
		if !v.operation.Live() {
			failed = notFound(op, id)
			return true
		}
		var s Status
		if s, failed = v.status(); failed != nil {
			return true
		}
		fn(s)
		return s.State != Running
	})
	if err == nil {
		err = failed
	}
	return kv.Wrap(op, id, err)
}
