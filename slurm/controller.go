package slurm

import (
	"context"
	"strings"

	"forebay/internal/bb"
	"forebay/slurm/slurmctl"
)

// Controller is the part of Slurm that the hooks need. Its methods may be called concurrently.
type Controller interface {
	// Job describes a job, or bb.NotFound if Slurm has no record of it (any more).
	Job(ctx context.Context, id string) (slurmctl.Job, error)
	// Jobs describes all jobs in Slurm's records.
	Jobs(ctx context.Context) ([]slurmctl.Job, error)
	// Note shows a line in the job's record, where its user reads it. A missing job is no error.
	Note(ctx context.Context, id, text string) error
	// RecordUsage writes the line of UsageLine in the record of a job that runs, in front of its notes.
	RecordUsage(ctx context.Context, id, line string) error
	// Finish makes Slurm end the stage-out of a job that is over, after its data are out or
	// abandoned.
	Finish(ctx context.Context, id string) error
}

// Commands is the Controller that runs Slurm's own commands.
type Commands struct{}

// Job describes a job.
func (Commands) Job(ctx context.Context, id string) (slurmctl.Job, error) {
	if err := slurmctl.CheckID(id); err != nil {
		return slurmctl.Job{}, err
	}
	text, err := slurmctl.Run(ctx, "scontrol", "show", "job", id)
	if err != nil {
		return slurmctl.Job{}, err
	}
	return slurmctl.Find(text, id)
}

// Jobs describes all jobs.
func (Commands) Jobs(ctx context.Context) ([]slurmctl.Job, error) {
	text, err := slurmctl.Run(ctx, "scontrol", "show", "job")
	return slurmctl.ParseJobs(text), err
}

// notePrefix begins notes of Note.
const notePrefix = "forebay: "

// Note sets the job's AdminComment, unless it has one of other origin, since scontrol show job
// shows it. Slurm 22.05 accepts no change of a job that is over, nor of its SystemComment at all.
func (c Commands) Note(ctx context.Context, id, text string) error {
	j, err := c.Job(ctx, id)
	if err == nil && (j.AdminComment == "" || strings.HasPrefix(j.AdminComment, notePrefix)) {
		_, err = slurmctl.Run(ctx, "scontrol", "update", "JobId="+id, "AdminComment="+notePrefix+slurmctl.OneLine(text))
	}
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// RecordUsage writes the line into the job's AdminComment, unless it has one of other origin.
func (c Commands) RecordUsage(ctx context.Context, id, line string) error {
	j, err := c.Job(ctx, id)
	if bb.KindOf(err) == bb.NotFound || err == nil && j.State != "RUNNING" {
		return nil
	}
	if err == nil {
		if text, ours := WithUsage(j.AdminComment, line); ours && text != j.AdminComment {
			_, err = slurmctl.Run(ctx, "scontrol", "update", "JobId="+id, "AdminComment="+text)
		}
	}
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// Finish ends Slurm's remaining work for the buffer of a job that is over, by a teardown.
func (Commands) Finish(ctx context.Context, id string) error {
	_, err := slurmctl.Run(ctx, "scancel", "--hurry", id)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// WithUsage returns a comment with the figures in front of its notes. It returns false if the
// comment is of other origin.
func WithUsage(comment, line string) (string, bool) {
	notes, ours := strings.CutPrefix(comment, notePrefix)
	if !ours && comment != "" {
		return comment, false
	}
	if strings.HasPrefix(notes, usagePrefix) {
		_, notes, _ = strings.Cut(notes, "; ")
	}
	if notes != "" {
		line += "; " + notes
	}
	return notePrefix + slurmctl.OneLine(line), true
}
