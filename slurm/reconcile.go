package slurm

import (
	"strings"
	"time"

	"forebay/client/admin"
	"forebay/slurm/slurmctl"
)

// Reconciler compares the lifetimes in the daemons' records with the jobs in Slurm's, and finds
// those that are over for Slurm and not ended: a node was down, a teardown was abandoned or lost,
// slurmctld has lost its state. It is for one goroutine.
type Reconciler struct {
	Cluster  string
	Governed bool // of lifetimes that burst_buffer/lua opens; else of those that prologs open

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
		if l.Cluster != r.Cluster || l.Governed != r.Governed || l.State != admin.LifetimeOpen {
			continue // another reconciler's, or the daemons are at it
		}
		var o admin.EndOptions
		is := false
		if r.Governed {
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
