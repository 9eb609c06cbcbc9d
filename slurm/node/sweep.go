package node

import (
	"context"
	"strconv"
	"strings"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/slurm"
)

// Sweep ends what jobs have left whose epilog never said so and that Slurm does not know
// any more, or knows as another run: a node was down, or slurmctld has lost its state. It
// returns their keys. What was not saved is drained then, as after any job.
func Sweep(ctx context.Context, c *Config, d *client.Client) (ended []string, err error) {
	// In this order: a job is known to Slurm before its prolog runs.
	lives, err := d.Lifetimes(ctx, "")
	if err != nil {
		return nil, err
	}
	config, err := scontrol(ctx, "show", "config")
	if err != nil {
		return nil, err
	}
	cluster := clusterName(config)
	if cluster == "" {
		return nil, bb.E(bb.Invalid, "scontrol", "show config", "it names no cluster")
	}
	jobs, err := scontrol(ctx, "show", "job")
	if err != nil {
		return nil, err
	}
	runs := runsOf(cluster, jobs)
	for i := range lives {
		l := &lives[i]
		if l.State != client.LifetimeOpen || l.Governed || l.Cluster != cluster || runs[l.Key].open() {
			continue
		}
		if err := c.end(ctx, d, l, runs[l.Key]); err != nil {
			return ended, err
		}
		ended = append(ended, l.Key)
	}
	return ended, nil
}

// end ends what Slurm does not know any more, or knows to be over.
func (c *Config) end(ctx context.Context, d *client.Client, l *client.Lifetime, r run) error {
	failed := r.state != "" && r.state != "COMPLETED"
	if _, err := d.EndLifetime(ctx, l.Key, client.EndOptions{Failed: failed}); err != nil {
		return err
	}
	c.Log("job %s (%s) is over for Slurm, and not all of its nodes have said so: what it has left is being saved", l.Job, l.Key)
	return nil
}

func clusterName(config string) string {
	for line := range strings.Lines(config) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "ClusterName" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// run is a run of a job, as Slurm knows it. The zero value is one that it does not know.
type run struct {
	name       string // that scancel takes for this job alone
	state      string
	limit, ran string
}

// open reports whether Slurm has something to do for a run.
func (r run) open() bool {
	switch r.state {
	case "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT":
		return true
	}
	return false
}

// runsOf are the runs that Slurm knows, by their keys and by what "scontrol show job"
// prints of all jobs.
func runsOf(cluster, text string) map[string]run {
	runs := map[string]run{}
	for record := range strings.SplitSeq(text, "\n\n") {
		if strings.TrimSpace(record) == "" {
			continue
		}
		var r run
		var j jobInfo
		id, restarts := "", 0
		for line := range strings.Lines(record) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "JobId=") {
				id = j.identity(line)
				continue
			}
			j.fields(line)
			for field := range strings.FieldsSeq(line) {
				switch name, value, _ := strings.Cut(field, "="); name {
				case "Restarts":
					restarts, _ = strconv.Atoi(value)
				case "JobState":
					r.state = value
				}
			}
		}
		r.name, r.limit, r.ran = id, j.limit, j.ran
		if _, err := strconv.Atoi(j.arrayTask); err == nil {
			r.name = j.arrayJob + "_" + j.arrayTask // the id of one task is that of the array too
		}
		runs[slurm.RunKey(cluster, id, restarts, j.submitted)] = r
		// The tasks of a run that is requeued may still write, but have the number of the next.
		if r.state == "COMPLETING" && restarts > 0 {
			runs[slurm.RunKey(cluster, id, restarts-1, j.submitted)] = r
		}
	}
	return runs
}
