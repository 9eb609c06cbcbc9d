// Package slurmctl reads and changes jobs in slurmctld by Slurm's own commands. It runs them, reads
// their output, and classifies their failures. It must never depend on the purpose of a job's buffers.
package slurmctl

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

// commandTime bounds how long one command may take, since it tries again itself.
const commandTime = 30 * time.Second

// Run runs a command of Slurm (scontrol, scancel) and returns its output. Its errors:
//
//	bb.NotFound     slurmctld has no such job, or it has finished
//	bb.Busy         the job is pending
//	bb.Unsupported  the command is not there, or cannot do this for this job
//	bb.Unavailable  all else: slurmctld may be restarting
func Run(ctx context.Context, args ...string) (string, error) {
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
	text := strings.ReplaceAll(strings.TrimSpace(errs.String()), "\n", "; ")
	failed := &bb.Error{Kind: kindOf(text), Op: strings.Join(args, " "), Err: fmt.Errorf("%w: %s", err, text)}
	if errors.Is(err, exec.ErrNotFound) {
		failed.Kind = bb.Unsupported
		return "", failed.WithRemedy("set PATH: bbctl slurm install does, for prologs and hooks")
	}
	return "", failed
}

// kindOf is the kind of a failure by its text, one of slurm_strerror(3).
func kindOf(text string) bb.Kind {
	for _, known := range []struct {
		text string
		kind bb.Kind
	}{
		{"Invalid job id", bb.NotFound},           // ESLURM_INVALID_JOB_ID
		{"Job has already finished", bb.NotFound}, // ESLURM_ALREADY_DONE
		{"pending execution", bb.Busy},            // ESLURM_JOB_PENDING
		{"Job script not specified", bb.Unsupported},
		{"not supported", bb.Unsupported},
		{"disabled", bb.Unsupported},
	} {
		if strings.Contains(text, known.text) {
			return known.kind
		}
	}
	return bb.Unavailable
}

// Retry is Run, again as long as slurmctld does not answer, for at most limit.
func Retry(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		text, err := Run(ctx, args...)
		if bb.KindOf(err) != bb.Unavailable || ctx.Err() != nil {
			return text, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", err
		}
	}
}

// Find returns the job with an id from the output of "scontrol show job ID". The id of an array
// stands for all of its tasks. It returns bb.NotFound if it is not there.
func Find(text, id string) (Job, error) {
	for _, j := range ParseJobs(text) {
		if j.ID == id {
			return j, nil
		}
	}
	return Job{}, bb.E(bb.NotFound, "job", id, "Slurm has no such job")
}

// ClusterName returns it from the output of "scontrol show config", or "" if it is not there.
func ClusterName(config string) string {
	for line := range strings.Lines(config) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "ClusterName" {
			return strings.TrimSpace(value)
		}
	}
	return ""
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
