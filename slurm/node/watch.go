package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// Watch keeps the daemons' records of jobs in step with slurmctld until ctx ends. It reports the
// ends of jobs whose time limit was changed, warns jobs whose buffer will not be on its store by
// then, and ends the lifetimes of jobs without a record. It may run on any number of nodes. The
// node with the first ready daemon does the work, and queries slurmctld only while jobs have
// buffers.
func Watch(ctx context.Context, c *Config, every time.Duration, dial Dial) error {
	w := watcher{c: c}
	var failed error
	for {
		err := w.look(ctx, every, dial)
		if err != nil && ctx.Err() == nil && (failed == nil || failed.Error() != err.Error()) {
			c.Log("watching jobs failed: %v", err)
		}
		failed = err
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}

type watcher struct {
	c          *Config
	reconciler slurm.Reconciler // its Cluster is "" until the first answer of slurmctld
}

const (
	// A run is ended when it was over for Slurm in so many checks. An epilog may be about to report
	// it, or slurmctld be starting.
	looksToEnd = 3
	// slack bounds the apparent movement of a job's end, since scontrol prints whole seconds.
	slack = 3 * time.Second
)

func (w *watcher) look(ctx context.Context, every time.Duration, dial Dial) error {
	d, err := dial(ctx, every)
	if err != nil {
		return err
	}
	defer d.Close()
	if mine, err := firstOfReady(ctx, d); err != nil || !mine {
		return err
	}
	// In this order, since Slurm has a job's record before its prolog runs.
	lives, err := admin.Lifetimes(ctx, d, "")
	if err != nil {
		return err
	}
	open := slices.DeleteFunc(lives, func(l admin.Lifetime) bool { return l.State != admin.LifetimeOpen })
	if len(open) == 0 {
		w.reconciler.Compare(nil, nil, time.Now(), 0)
		return nil
	}
	if w.reconciler.Cluster == "" {
		config, err := scontrol(ctx, "show", "config")
		if err != nil {
			return err
		}
		w.reconciler.Cluster = slurmctl.ClusterName(config)
	}
	jobs, err := scontrol(ctx, "show", "job")
	if err != nil {
		return err
	}
	return w.compare(ctx, d, open, slurmctl.ParseJobs(jobs), (looksToEnd-1)*every)
}

// firstOfReady reports whether the daemon is the first by name of the ready ones.
func firstOfReady(ctx context.Context, d *client.Client) (bool, error) {
	nodes, err := admin.Nodes(ctx, d)
	if bb.KindOf(err) == bb.Unsupported {
		return true, nil // it is alone
	}
	if err != nil {
		return false, err
	}
	for i := range nodes {
		if nodes[i].State == "ready" {
			return nodes[i].Name == d.Server().Node, nil
		}
	}
	return false, nil
}

// compare acts on each run by Slurm's state of it.
func (w *watcher) compare(ctx context.Context, d *client.Client, open []admin.Lifetime, jobs []slurmctl.Job, quiet time.Duration) error {
	var errs []error
	cluster := w.reconciler.Cluster
	runs := slurm.Runs(cluster, jobs)
	for i := range open {
		if l := &open[i]; l.Cluster == cluster && runs[l.Key].Active() {
			errs = append(errs, w.tell(ctx, d, l, runs[l.Key]))
		}
	}
	for _, e := range w.reconciler.Compare(open, jobs, time.Now(), quiet) {
		errs = append(errs, w.c.end(ctx, d, e))
	}
	return errors.Join(errs...)
}

// tell reports the end of a job to the daemons. If that is too soon, it warns the job.
func (w *watcher) tell(ctx context.Context, d *client.Client, l *admin.Lifetime, j *slurmctl.Job) error {
	due := due(j, l.Warn, time.Now())
	moved := due.IsZero() != l.Due.IsZero() || due.Sub(l.Due).Abs() > slack
	warning, wants := directive.ParseWarning(l.Warn)
	warn := wants && l.Warned.IsZero() && l.MissesDeadline().After(due) && !due.IsZero()
	if !moved && !warn {
		return nil
	}
	// First the note, then the signal, since a job must not be warned twice.
	set := admin.SetDue
	if warn {
		set = admin.WarnDue
	}
	_, err := set(ctx, d, l.Key, due)
	if kind := bb.KindOf(err); kind == bb.Busy || kind == bb.Exists {
		return nil // it is over, or another watch was faster
	}
	if err != nil || !warn {
		return err
	}
	w.c.Log("job %s is warned (%s): its data will be saved by %s, after the end of its time", j.Ref(), l.Warn, l.MissesDeadline().Format(time.DateTime))
	return warnJob(ctx, j.Ref(), warning)
}

// warnJob sends a job its signal.
func warnJob(ctx context.Context, job string, w directive.Warning) error {
	args := []string{"scancel", "--signal=" + w.Signal}
	if w.Batch {
		args = append(args, "--batch")
	}
	_, err := slurmctl.Run(ctx, append(args, job)...)
	return err
}
