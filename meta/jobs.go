package meta

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
	"forebay/meta/kv"
)

// Jobs. A job is split into tasks, each of which one daemon does. What is known of them
// lies in a bucket of its own; that a task is to be done is a message in a work queue,
// which the server gives to one daemon, and to another if it does not hear of the
// first for ackWait.
//
//	bucket forebay_jobs         jobs.ID.job         the job, as it was submitted
//	                            jobs.ID.task.TASK   a task and how far it is
//	stream forebay_tasks        forebay.jobs.NODE.ID.TASK    a task that a node has to do
//	                            forebay.jobs.=any.ID.TASK    one that anybody may do
//
// A task's record is changed only by compare-and-set:
//
//	           NextTask             Done
//	pending ────────────▶ running ────────▶ done
//	   ▲                   │   │ ▲
//	   └───────────────────┘   └─┘ NextTask of another, when the first was silent:
//	           Nak                 the first finds out with its next heartbeat
//
// A task that is done stays so, and its message is acknowledged after that. So a task
// that is delivered again counts once, whoever died when; and what a task does must
// bear being done twice. Records come before messages: whoever was stopped between the
// two submits the same again, or plans it again, under the same names.
//
// Nobody marks a job as done. It is when all its tasks are, and a task that plans
// others ends after it has added them.
const (
	jobsBucket  = "forebay_jobs"
	jobsPrefix  = "jobs."
	tasksStream = "forebay_tasks"
	taskSubject = "forebay.jobs."

	jobKept     = 24 * time.Hour     // after it ended
	jobAge      = 7 * 24 * time.Hour // of records: a job must not take longer
	tasksAtOnce = 64
	maxNamed    = 1000 // files that a job names as failed, held or open

	ackWait   = 10 * time.Second
	heartbeat = 3 * time.Second
)

// JobKind says what a job does.
type JobKind string

// The kinds of jobs.
const (
	StageIn   JobKind = "stage-in"
	StageOut  JobKind = "stage-out"
	Drain     JobKind = "drain"
	NodeDrain JobKind = "node-drain"
)

// Job is what was submitted.
type Job struct {
	ID       string // [a-z0-9-]; "" for a new one. The same ID again is the same job
	Kind     JobKind
	Buffer   string
	Path     string
	URL      string
	Node     bb.NodeID // of a node-drain
	UID, GID uint32    // who wants it
	System   bool      // a daemon does, and no user
	Options  map[string]string
	Created  time.Time
	rest     string
}

// Task is a part of a job. What it means is between those who add and those who do it.
type Task struct {
	ID    string    // [a-z0-9-], of this job
	Node  bb.NodeID // who has to do it; "": anybody
	Paths []string
	Data  []byte
	// Files and Bytes are what it is expected to come to.
	Files, Bytes int64
}

// TaskFailure is a file that could not be dealt with.
type TaskFailure struct {
	Path   string
	Kind   bb.Kind
	Reason string
	Bytes  int64
}

// Tally is how far something is, or how it ended. Lists hold the first names, totals
// count all.
type Tally struct {
	Files, Bytes, Skipped             int64
	NotCopied                         int64 // bytes of files that were skipped or have failed
	Failed                            []TaskFailure
	Held, Open                        []string
	FailedTotal, HeldTotal, OpenTotal int64
	LastError                         string
}

// JobState is a job's place in its life.
type JobState string

// The states of a job.
const (
	JobRunning   JobState = "running" // some tasks are not done
	JobDone      JobState = "done"
	JobCancelled JobState = "cancelled" // tasks that were running may have come to an end
)

// JobStatus is a job and how far it is.
type JobStatus struct {
	Job
	State                     JobState
	Ended                     time.Time // zero while it runs
	Tasks, Running, TasksDone int
	// FilesTotal and BytesTotal are what the tasks that are known were expected to
	// come to.
	FilesTotal, BytesTotal int64
	Tally                  Tally
	ByNode                 map[bb.NodeID]Tally // without names
	Left                   []bb.NodeID         // who has tasks to do that nobody else may; sorted
}

type taskState string

const (
	taskPending taskState = "pending"
	taskRunning taskState = "running"
	taskDone    taskState = "done"
)

// taskRecord is what is stored of a task.
type taskRecord struct {
	Task
	state   taskState
	by      bb.NodeID
	attempt uint64
	changed time.Time
	tally   Tally
	seq     uint64
	rest    string
}

func jobKey(id string) string         { return jobsPrefix + id + ".job" }
func taskKey(job, task string) string { return jobsPrefix + job + ".task." + task }
func keysOfJob(id string) string      { return jobsPrefix + id + ".>" }

// jobOf returns the job that a key belongs to.
func jobOf(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, jobsPrefix), ".")
	return id
}

// Operations are the operations of a cluster, in a bucket and a queue that are made when
// first needed. It is safe for concurrent use.
type Operations struct {
	c     *kv.Conn
	newID func(context.Context) (uint64, error)
	queue *kv.Queue
	mu    struct {
		sync.Mutex
		records *kv.Bucket // nil until it is needed
	}
}

// newOperations returns the operations on a server. IDs gives ids that are used nowhere else.
func newOperations(c *kv.Conn, ids func(context.Context) (uint64, error)) *Operations {
	return &Operations{c: c, newID: ids, queue: c.Queue(tasksStream, taskSubject, kv.QueueOptions{Age: jobAge, AckWait: ackWait})}
}

// records returns the bucket; it and the queue are made when first needed.
func (o *Operations) records(ctx context.Context) (*kv.Bucket, error) {
	o.mu.Lock()
	b := o.mu.records
	o.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b = o.c.Bucket(jobsBucket, kv.BucketOptions{Age: jobAge, Gone: kv.NeverGone})
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

// SubmitJob stores a job with its first tasks, of which there must be one, and returns
// its id. Called again with the same id it adds what is missing.
func (o *Operations) SubmitJob(ctx context.Context, j Job, first ...Task) (string, error) {
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
	data, err := sealJob(&j, time.Time{})
	if err != nil {
		return "", err
	}
	if _, _, err := b.Create(ctx, jobKey(j.ID), data, 0); err != nil && !errors.Is(err, kv.ErrRevision) {
		return "", kv.Wrap(op, j.ID, err)
	}
	return j.ID, o.AddTasks(ctx, j.ID, first)
}

// AddTasks adds tasks to a job. Those that it has are left as they are. Cancelled if
// the job was cancelled.
func (o *Operations) AddTasks(ctx context.Context, job string, tasks []Task) error {
	const op = "add tasks"
	b, err := o.records(ctx)
	if err != nil {
		return kv.Wrap(op, job, err)
	}
	_, cancelled, err := o.job(ctx, b, op, job)
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

// job returns a job and when it was cancelled.
func (o *Operations) job(ctx context.Context, b *kv.Bucket, op, id string) (Job, time.Time, error) {
	if err := kv.CheckID(op, id); err != nil {
		return Job{}, time.Time{}, err
	}
	r, err := b.Get(ctx, jobKey(id))
	if err != nil {
		return Job{}, time.Time{}, kv.Wrap(op, id, err)
	}
	if !r.Live() {
		return Job{}, time.Time{}, noJob(op, id)
	}
	return openJob(&r)
}

func noJob(op, id string) error {
	return bb.E(bb.NotFound, op, id, "there is no such job").WithRemedy("jobs are forgotten a day after they ended")
}

// CancelJob ends a job: tasks that wait are dropped, and who does one learns of it
// within seconds. A job that has ended stays as it is.
func (o *Operations) CancelJob(ctx context.Context, id string) error {
	const op = "cancel job"
	b, err := o.records(ctx)
	if err != nil {
		return kv.Wrap(op, id, err)
	}
	for try := range kv.MaxTries {
		kv.Yield(ctx, try)
		status, seq, err := o.jobStatus(ctx, b, op, id)
		if err != nil {
			return err
		}
		if status.State != JobRunning {
			return nil
		}
		data, err := sealJob(&status.Job, time.Now())
		if err != nil {
			return err
		}
		switch _, err := b.Put(ctx, jobKey(id), data, seq); {
		case errors.Is(err, kv.ErrRevision):
			continue
		case err != nil:
			return kv.Wrap(op, id, err)
		}
		// What is left in the queue is dropped by who gets it, so this may fail.
		if err := o.queue.Purge(ctx, "*."+id+".>"); err != nil {
			o.c.Logger().Warn("the tasks of a cancelled job stay in the queue for now", "job", id, "err", err)
		}
		return nil
	}
	return kv.Wrap(op, id, kv.ErrRevision)
}

// Job returns a job and how far it is. NotFound if there is none.
func (o *Operations) Job(ctx context.Context, id string) (JobStatus, error) {
	const op = "job"
	b, err := o.records(ctx)
	if err != nil {
		return JobStatus{}, kv.Wrap(op, id, err)
	}
	status, _, err := o.jobStatus(ctx, b, op, id)
	return status, err
}

func (o *Operations) jobStatus(ctx context.Context, b *kv.Bucket, op, id string) (JobStatus, uint64, error) {
	if err := kv.CheckID(op, id); err != nil {
		return JobStatus{}, 0, err
	}
	v := jobView{b: b}
	err := b.Scan(ctx, keysOfJob(id), func(r *kv.Record) error { v.add(r); return nil })
	if err != nil {
		return JobStatus{}, 0, kv.Wrap(op, id, err)
	}
	if !v.job.Live() {
		return JobStatus{}, 0, noJob(op, id)
	}
	status, err := v.status()
	return status, v.job.Seq, err
}

// Jobs returns all jobs, the newest first, and forgets those that ended a day ago.
func (o *Operations) Jobs(ctx context.Context) ([]JobStatus, error) {
	const op = "jobs"
	b, err := o.records(ctx)
	if err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	views := map[string]*jobView{}
	err = b.Scan(ctx, jobsPrefix+">", func(r *kv.Record) error {
		id := jobOf(r.Key)
		if views[id] == nil {
			views[id] = &jobView{b: b}
		}
		views[id].add(r)
		return nil
	})
	if err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	var jobs []JobStatus
	for _, v := range views {
		if !v.job.Live() {
			continue
		}
		s, err := v.status()
		if err != nil {
			o.c.Unreadable(v.job.Key, err)
			continue
		}
		if s.State != JobRunning && time.Since(s.Ended) > jobKept {
			if err := v.forget(ctx, b); err != nil {
				return nil, kv.Wrap(op, s.ID, err)
			}
			continue
		}
		jobs = append(jobs, s)
	}
	slices.SortFunc(jobs, func(a, b JobStatus) int { return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID)) })
	return jobs, nil
}

// RunningJob returns the newest job that fits and has not ended; bb.NotFound if there is
// none. Who asks takes it that none is begun while an older one that fits runs.
func (o *Operations) RunningJob(ctx context.Context, fits func(*Job) bool) (Job, error) {
	const op = "running job"
	b, err := o.records(ctx)
	if err != nil {
		return Job{}, kv.Wrap(op, "", err)
	}
	var newest Job
	err = b.Scan(ctx, jobKey("*"), func(r *kv.Record) error {
		if !r.Live() {
			return nil
		}
		j, cancelled, err := openJob(r)
		o.c.Unreadable(r.Key, err)
		if err == nil && cancelled.IsZero() && fits(&j) && j.Created.After(newest.Created) {
			newest = j
		}
		return nil
	})
	if err != nil {
		return Job{}, kv.Wrap(op, "", err)
	}
	if newest.ID == "" {
		return Job{}, bb.E(bb.NotFound, op, "", "no such job runs")
	}
	s, _, err := o.jobStatus(ctx, b, op, newest.ID)
	if err == nil && s.State != JobRunning {
		err = bb.E(bb.NotFound, op, "", "no such job runs")
	}
	return s.Job, err
}

// WatchJob calls fn with how far a job is, now and whenever that changes, at most ten
// times a second, and returns nil after it ended, or why the watch did. fn runs on the
// caller's goroutine.
func (o *Operations) WatchJob(ctx context.Context, id string, fn func(JobStatus)) error {
	const op = "watch job"
	b, err := o.records(ctx)
	if err != nil {
		return kv.Wrap(op, id, err)
	}
	if err := kv.CheckID(op, id); err != nil {
		return err
	}
	v := jobView{b: b}
	var failed error
	err = b.Watch(ctx, keysOfJob(id), v.add, func() bool {
		if !v.job.Live() {
			failed = noJob(op, id)
			return true
		}
		var s JobStatus
		if s, failed = v.status(); failed != nil {
			return true
		}
		fn(s)
		return s.State != JobRunning
	})
	if err == nil {
		err = failed
	}
	return kv.Wrap(op, id, err)
}
