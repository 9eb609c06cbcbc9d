package slurm

import (
	"context"
	"errors"
	"strings"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/slurm/slurmctl"
)

// Reconciler compares the lifetimes in the daemons' records with the jobs in Slurm's, and finds
// those that are over for Slurm and not ended: a node was down, a teardown was abandoned or lost,
// slurmctld has lost its state. It is for one goroutine.
type Reconciler struct {
	Cluster          string
	SchedulerManaged bool // of lifetimes that burst_buffer/lua opens; else of those that prologs open

	done map[string]time.Time // since when Slurm is done, by the lifetime's key
}

// Ending is a lifetime that is to be ended, and how.
type Ending struct {
	*admin.Lifetime
	admin.EndOptions
}

// Compare returns the lifetimes that were over for Slurm in each comparison of the last time quiet.
// 0 means in this one. The lifetimes have to be read before the jobs, since Slurm records a job
// before its lifetime is opened.
func (r *Reconciler) Compare(lives []admin.Lifetime, jobs []slurmctl.Job, now time.Time, quiet time.Duration) []Ending {
	known, runs := jobsByID(jobs), Runs(r.Cluster, jobs)
	var endings []Ending
	done := map[string]time.Time{}
	for i := range lives {
		l := &lives[i]
		if l.Cluster != r.Cluster || l.SchedulerManaged != r.SchedulerManaged || l.State != admin.LifetimeOpen {
			continue // another reconciler's, or the daemons are at it
		}
		var o admin.EndOptions
		is := false
		if r.SchedulerManaged {
			o, is = governedEnd(l, known[l.Job], r.Cluster, now)
		} else {
			o, is = prologEnd(runs[l.Key])
		}
		if !is {
			continue
		}
		since, seen := r.done[l.Key]
		if !seen {
			since = now
		}
		if done[l.Key] = since; now.Sub(since) >= quiet {
			endings = append(endings, Ending{l, o})
		}
	}
	r.done = done
	return endings
}

func jobsByID(jobs []slurmctl.Job) map[string]*slurmctl.Job {
	known := map[string]*slurmctl.Job{}
	for i := range jobs {
		known[jobs[i].ID] = &jobs[i]
	}
	return known
}

// Runs are the runs of jobs in Slurm's records, by their keys.
func Runs(cluster string, jobs []slurmctl.Job) map[string]*slurmctl.Job {
	runs := map[string]*slurmctl.Job{}
	for i := range jobs {
		j := &jobs[i]
		runs[keyOf(j, cluster)] = j
		// The tasks of a run that is requeued may still write, but have the number of the next.
		if j.State == "COMPLETING" && j.Restarts > 0 {
			runs[RunKey(cluster, j.ID, j.Restarts-1, j.Submitted)] = j
		}
	}
	return runs
}

// stayed bounds the wait for a job that is over for Slurm, and has not left its nodes, since an
// epilog that never ran reports nothing.
const stayed = 10 * time.Minute

// governedEnd decides whether and how an open lifetime of burst_buffer/lua's ends, by the job that
// has its id now (nil: none). It ends when it has left its nodes. If it was over for long, it ends
// even if it still seems to be on some.
func governedEnd(l *admin.Lifetime, j *slurmctl.Job, cluster string, now time.Time) (o admin.EndOptions, is bool) {
	its := j != nil && ofRun(l, j, cluster)
	switch {
	case j != nil && strings.Contains(j.State, "COMPLETING"), its && !j.Over():
		return o, false
	case l.Over.IsZero():
		return admin.EndOptions{WhenLeft: true, Failed: its && !j.Succeeded()}, true
	}
	return o, now.Sub(l.Over) > stayed
}

// prologEnd decides whether and how an open lifetime of a prolog's ends, by its run (nil: Slurm has no
// record of it).
func prologEnd(j *slurmctl.Job) (o admin.EndOptions, is bool) {
	if j.Active() {
		return o, false
	}
	return admin.EndOptions{Failed: j != nil && j.State != "COMPLETED"}, true
}

// ofRun reports whether a lifetime is that of a job's present run.
func ofRun(l *admin.Lifetime, j *slurmctl.Job, cluster string) bool {
	return attemptOf(l.Key, keyOf(j, cluster)) > 0
}

// Reconciled is a job that Reconcile has ended.
type Reconciled struct {
	Job    string `json:"job"`
	Buffer string `json:"buffer,omitempty"`
	Answer
}

// Quiet is how long Slurm must have had no record of a lifetime's job before the lifetime is ended.
// Slurm may start the hooks long after a job's end.
const Quiet = 2 * time.Minute

// Reconcile compares the daemons' records of jobs with Slurm's, and ends those without a record in
// Slurm. Slurm stops after three teardowns, loses one if a job is cancelled at the wrong moment,
// all of them with its state, and those of the last half minute when slurmctld is killed. The
// daemons save the data first, as ever. A job that Slurm had in any check within quiet is left
// alone.
func (h *Hooks) Reconcile(ctx context.Context, quiet time.Duration) ([]Reconciled, error) {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// In this order, since Slurm has a job's record before its setup runs.
	lives, err := admin.Lifetimes(ctx, c, "")
	if err != nil {
		return nil, err
	}
	jobs, err := h.Slurm.Jobs(ctx)
	if err != nil {
		return nil, err // without Slurm's list, all jobs would seem gone
	}
	now, done := time.Now(), []Reconciled{}
	h.reconciler.Cluster, h.reconciler.SchedulerManaged = h.Settings.Cluster, true
	for _, e := range h.reconciler.Compare(lives, jobs, now, quiet) {
		a := Answer{State: stateDone, Message: "ended"}
		if _, err := admin.EndLifetime(ctx, c, e.Key, e.EndOptions); err != nil {
			a = failed(err)
		}
		h.log("job %s (%s) is over for Slurm, and was not for the daemons: %s", e.Job, e.Key, a.Message)
		done = append(done, Reconciled{Job: e.Job, Buffer: e.Buffer, Answer: a})
	}
	if quiet > 0 { // one check proves nothing
		h.tellAbandoned(ctx, jobs, now, quiet)
		err = h.finish(ctx, jobs, lives, now, quiet)
	}
	return done, errors.Join(err, h.dropFiles(jobsByID(jobs), now.Add(-quiet)))
}

// tellAbandoned notifies the users of jobs that Slurm may never continue.
func (h *Hooks) tellAbandoned(ctx context.Context, jobs []slurmctl.Job, now time.Time, quiet time.Duration) {
	hookRuns := func(job string) bool { return h.hookRuns(job, quiet) }
	var list []*slurmctl.Job
	list, h.abandoned = abandoned(jobs, hookRuns, h.abandoned, now, quiet)
	for _, j := range list {
		if strings.Contains(j.AdminComment, abandonedNote) {
			continue
		}
		h.log("job %s is %s, and no hook is at work for it: Slurm has lost track of it, and its user has to cancel it", j.ID, j.Buffers)
		h.note(ctx, j.ID, abandonedNote)
	}
}

// finish makes Slurm end the stage-outs of finished jobs, each once. If it has lost the record of
// the buffer when it was killed, 22.05 ignores that.
func (h *Hooks) finish(ctx context.Context, jobs []slurmctl.Job, lives []admin.Lifetime, now time.Time, quiet time.Duration) (err error) {
	hookRuns := func(job string) bool { return h.hookRuns(job, quiet) }
	finished := map[string]bool{}
	for key, job := range finishable(jobs, lives, h.Settings.Cluster, hookRuns, now, quiet) {
		finished[key] = true
		if h.finished[key] {
			continue
		}
		h.log("job %s (%s) has nothing left to be saved, and is still in STAGE_OUT: its end is requested from Slurm", job, key)
		err = errors.Join(err, h.Slurm.Finish(ctx, job))
	}
	h.finished = finished
	return err
}

// finishable are the jobs, by the keys of their lifetimes, that Slurm takes for staging out, though
// all of that has been over for quiet and no hook is at work. Slurm has not detected that the hook
// has ended.
func finishable(jobs []slurmctl.Job, lives []admin.Lifetime, cluster string, hookRuns func(job string) bool, now time.Time, quiet time.Duration) map[string]string {
	staging := map[string]*slurmctl.Job{}
	for i := range jobs {
		if jobs[i].State == "STAGE_OUT" {
			staging[jobs[i].ID] = &jobs[i]
		}
	}
	found := map[string]string{}
	for i := range lives { // the newest first
		l := &lives[i]
		j := staging[l.Job]
		if j == nil || !l.SchedulerManaged || l.Cluster != cluster || !ofRun(l, j, cluster) {
			continue
		}
		delete(staging, l.Job)
		if l.State == admin.LifetimeGone && now.Sub(l.Gone) >= quiet && !hookRuns(l.Job) {
			found[l.Key] = l.Job
		}
	}
	return found
}
