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
	known := keysOf(cluster, jobs)
	for i := range lives {
		l := &lives[i]
		if l.State != client.LifetimeOpen || l.Governed || l.Cluster != cluster || known[l.Key] {
			continue
		}
		if _, err := d.EndLifetime(ctx, l.Key, client.EndOptions{}); err != nil {
			return ended, err
		}
		c.Log("Slurm does not know job %s (%s) any more: what it has left is being saved", l.Job, l.Key)
		ended = append(ended, l.Key)
	}
	return ended, nil
}

func clusterName(config string) string {
	for line := range strings.Lines(config) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "ClusterName" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// keysOf are those of the runs that Slurm has something to do for, by what "scontrol show
// job" prints of all jobs.
func keysOf(cluster, text string) map[string]bool {
	keys := map[string]bool{}
	for record := range strings.SplitSeq(text, "\n\n") {
		id, restarts, submitted, state := "", 0, "", ""
		for line := range strings.Lines(record) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "JobId=") {
				line, _, _ = strings.Cut(line, " JobName=") // the rest is the user's text
			}
			for field := range strings.FieldsSeq(line) {
				switch name, value, _ := strings.Cut(field, "="); name {
				case "JobId":
					id = value
				case "Restarts":
					restarts, _ = strconv.Atoi(value)
				case "SubmitTime":
					submitted = value
				case "JobState":
					state = value
				}
			}
		}
		switch state {
		case "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT":
			keys[slurm.RunKey(cluster, id, restarts, submitted)] = true
		}
	}
	return keys
}
