package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"forebay/internal/bb"
)

// Controller is what the hooks ask of Slurm. Its methods may be called concurrently.
type Controller interface {
	// Job describes a job; bb.NotFound if Slurm does not know it (any more).
	Job(ctx context.Context, id string) (JobInfo, error)
	// Jobs describes all jobs that Slurm knows.
	Jobs(ctx context.Context) ([]JobInfo, error)
	// Note shows a line in the job's record, where its user looks. What is gone is no error.
	Note(ctx context.Context, id, text string) error
	// Figures shows FiguresLine's in the record of a job that runs, in front of its notes.
	Figures(ctx context.Context, id, line string) error
	// Finish has Slurm end the stage-out of a job that is over, whose data are out or given up.
	Finish(ctx context.Context, id string) error
}

// Commands is the Controller that runs Slurm's own commands.
type Commands struct{}

// commandTime bounds how long a command of Slurm may take: it tries again itself.
const commandTime = 30 * time.Second

// slurmCommand runs a command of Slurm and returns what it prints.
func slurmCommand(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	text := strings.TrimSpace(errs.String())
	kind := bb.Unavailable
	switch {
	// slurm_strerror of ESLURM_INVALID_JOB_ID and ESLURM_ALREADY_DONE
	case strings.Contains(text, "Invalid job id"), strings.Contains(text, "Job has already finished"):
		kind = bb.NotFound
	case errors.Is(err, exec.ErrNotFound):
		kind = bb.Unsupported
	}
	return "", &bb.Error{Kind: kind, Op: strings.Join(args, " "), Err: fmt.Errorf("%w: %s", err, strings.ReplaceAll(text, "\n", "; "))}
}

// Job describes a job.
func (Commands) Job(ctx context.Context, id string) (JobInfo, error) {
	if err := CheckJobID(id); err != nil {
		return JobInfo{}, err
	}
	text, err := slurmCommand(ctx, "scontrol", "show", "job", id)
	if err != nil {
		return JobInfo{}, err
	}
	// The id of an array stands for all of its tasks.
	for _, j := range ParseJobs(text) {
		if j.ID == id {
			return j, nil
		}
	}
	return JobInfo{}, bb.E(bb.NotFound, "job", id, "Slurm does not know it")
}

// Jobs describes all jobs.
func (Commands) Jobs(ctx context.Context) ([]JobInfo, error) {
	text, err := slurmCommand(ctx, "scontrol", "show", "job")
	return ParseJobs(text), err
}

// notePrefix begins what Note has written.
const notePrefix = "forebay: "

// Note sets the job's AdminComment, unless somebody else has: scontrol show job shows it.
// Slurm 22.05 lets nobody change a job that is over, or its SystemComment at all.
func (c Commands) Note(ctx context.Context, id, text string) error {
	j, err := c.Job(ctx, id)
	if err == nil && (j.AdminComment == "" || strings.HasPrefix(j.AdminComment, notePrefix)) {
		_, err = slurmCommand(ctx, "scontrol", "update", "JobId="+id, "AdminComment="+notePrefix+OneLine(text))
	}
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// Figures puts them into the job's AdminComment, unless somebody else has.
func (c Commands) Figures(ctx context.Context, id, line string) error {
	j, err := c.Job(ctx, id)
	if bb.KindOf(err) == bb.NotFound || err == nil && j.State != "RUNNING" {
		return nil
	}
	if err == nil {
		if text, ours := WithFigures(j.AdminComment, line); ours && text != j.AdminComment {
			_, err = slurmCommand(ctx, "scontrol", "update", "JobId="+id, "AdminComment="+text)
		}
	}
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// Finish ends what Slurm still does for the buffer of a job that is over, by a teardown.
func (Commands) Finish(ctx context.Context, id string) error {
	_, err := slurmCommand(ctx, "scancel", "--hurry", id)
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// WithFigures is a comment with the figures in front of the notes that are in it; false: it
// is somebody else's.
func WithFigures(comment, line string) (string, bool) {
	notes, ours := strings.CutPrefix(comment, notePrefix)
	if !ours && comment != "" {
		return comment, false
	}
	if strings.HasPrefix(notes, figuresPrefix) {
		_, notes, _ = strings.Cut(notes, "; ")
	}
	if notes != "" {
		line += "; " + notes
	}
	return notePrefix + OneLine(line), true
}

// OneLine makes text fit for a field of Slurm's: of at most 400 bytes, without control characters.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	const most = 400
	if len(text) > most {
		text = text[:most-3] + "..."
	}
	return text
}
