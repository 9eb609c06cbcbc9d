package node

import (
	"context"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm"
	"forebay/slurm/slurmctl"
)

// Reconcile ends the lifetimes of jobs whose epilog never reported and of which Slurm has no record any
// more, or one of another run. Then a node was down, or slurmctld has lost its state. It returns
// their keys. Unsaved files are drained then, as after any job.
func Reconcile(ctx context.Context, c *Config, d *client.Client) (ended []string, err error) {
	// In this order, since Slurm has a job's record before its prolog runs.
	lives, err := admin.Lifetimes(ctx, d, "")
	if err != nil {
		return nil, err
	}
	config, err := scontrol(ctx, "show", "config")
	if err != nil {
		return nil, err
	}
	cluster := slurmctl.ClusterName(config)
	if cluster == "" {
		return nil, bb.E(bb.Invalid, "scontrol", "show config", "it names no cluster")
	}
	jobs, err := scontrol(ctx, "show", "job")
	if err != nil {
		return nil, err
	}
	r := slurm.Reconciler{Cluster: cluster}
	for _, e := range r.Compare(lives, slurmctl.ParseJobs(jobs), time.Now(), 0) {
		if err := c.end(ctx, d, e); err != nil {
			return ended, err
		}
		ended = append(ended, e.Key)
	}
	return ended, nil
}

// end ends a lifetime that Slurm is done with.
func (c *Config) end(ctx context.Context, d *client.Client, e slurm.Ending) error {
	if _, err := admin.EndLifetime(ctx, d, e.Key, e.EndOptions); err != nil {
		return err
	}
	c.Log("job %s (%s) is over for Slurm, and not all of its nodes have reported it: its remaining data is being saved", e.Job, e.Key)
	return nil
}
