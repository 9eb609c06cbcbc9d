package node

import (
	"context"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// The source of a job's directives for a prolog. In Slurm 22.05 its environment has neither the
// script nor the burst buffer request, nor the time of submission, without which a job with a used
// id cannot be distinguished from the former job. There are three ways:
//
//   - PrologSlurmctld has the same gaps, runs as SlurmUser where no daemon need be, and must
//     not be configured together with burst_buffer/lua, whose hooks it can hold up (slurmscriptd
//     hands the ends of its pipes to all scripts that it starts at the same moment).
//   - job_submit.lua could leave the directives where nodes can read them. There is no such field.
//     The comment is the user's, and a shared folder is one more thing to keep.
//   - A request to slurmctld from the node's prolog. It has just sent the node there and answers in
//     milliseconds, needs nothing else, and has the current state.
//
// So it is the last. Slurm's manual advises against it because of the load: two requests from each
// node of each job. If that matters at a site, job_submit.lua adds the feature to jobs with
// directives, and only those send requests (--hinted).

// controllerTime is how long slurmctld may take to answer, restarting meanwhile.
const controllerTime = 60 * time.Second

// scontrol runs Slurm's command, and again as long as slurmctld does not answer.
func scontrol(ctx context.Context, args ...string) (string, error) {
	return slurmctl.Retry(ctx, controllerTime, append([]string{"scontrol"}, args...)...)
}

// showJob requests a job's record from slurmctld. It returns bb.NotFound if there is none (any more).
func showJob(ctx context.Context, job string) (slurmctl.Job, error) {
	text, err := scontrol(ctx, "show", "job", job)
	if err != nil {
		return slurmctl.Job{}, err
	}
	return slurmctl.Find(text, job)
}

// askJob queries slurmctld for a job, and its script if it has one.
func askJob(ctx context.Context, job string) (slurmctl.Job, []byte, error) {
	j, err := showJob(ctx, job)
	switch {
	case err != nil:
		return j, nil, err
	case hasPlugin(&j):
		return j, nil, nil
	case !j.Batch:
		return j, []byte(j.Request), nil
	}
	script, err := scontrol(ctx, "write", "batch_script", job, "-")
	if bb.KindOf(err) == bb.Unsupported {
		return j, []byte(j.Request), nil
	}
	// The text given with --bb comes besides. Where a plugin reads directives, this text also has
	// those of the script, but is not read.
	return j, []byte(joined(j.Request, script)), err
}

// hasPlugin reports whether burst_buffer/lua has given a job its buffer.
func hasPlugin(j *slurmctl.Job) bool { return j.Buffers != "" }

// joined is a script with the lines of --bb in front, where directives are read.
func joined(request, script string) string {
	if request == "" {
		return script
	}
	first, rest, _ := strings.Cut(script, "\n")
	return first + "\n" + request + "\n" + rest
}

// due is the time by which a job's buffer should be on its store: the job's end, or the time of
// its warning before that. Zero: it has no limit. Slurm prints EndTime
// in slurmctld's time zone, and so it is not used.
func due(j *slurmctl.Job, warn string, now time.Time) time.Time {
	if j.TimeLimit == 0 {
		return time.Time{}
	}
	w, _ := directive.ParseWarning(warn)
	return now.Add(j.TimeLimit - j.RunTime - w.Before).Round(0)
}

// hold keeps a job from running, with the reason where its user reads it. A batch job is held, any
// other is cancelled, since it cannot be held.
func hold(ctx context.Context, job string, batch bool, reason string) error {
	// The field that 22.05 allows an administrator to set, and shows. The Reason is Slurm's own.
	_, err := scontrol(ctx, "update", "JobId="+job, "AdminComment="+slurmctl.OneLine("forebay: "+reason))
	if bb.KindOf(err) == bb.Unavailable {
		return err
	}
	if batch {
		_, err = scontrol(ctx, "requeuehold", job)
		switch bb.KindOf(err) {
		case bb.Unsupported:
		case bb.NotFound: // it has ended
			return nil
		case bb.Busy: // another of its nodes was faster
			return nil
		default:
			return err
		}
	}
	// It is interactive, or was submitted with --no-requeue.
	_, err = slurmctl.Run(ctx, "scancel", job)
	return err
}
