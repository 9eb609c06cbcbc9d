package node

import (
	"context"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// How a prolog learns what a job asks for. In Slurm 22.05 its environment has neither the
// script nor the burst buffer request, nor when the job was submitted, without which a job
// whose id was used before cannot be told from that one. There are three ways:
//
//   - PrologSlurmctld has the same gaps, runs as SlurmUser where no daemon need be, and must
//     not be configured together with burst_buffer/lua, whose hooks it can hold up (slurmscriptd
//     hands the ends of its pipes to all scripts that it starts at the same moment).
//   - job_submit.lua could leave the directives where nodes see them. There is no such field:
//     the comment is the user's, and a shared folder is one more thing to keep.
//   - Asking slurmctld from the node's prolog. It has just sent the node there and answers in
//     milliseconds, needs nothing else, and says how things are now.
//
// So it is the last. Slurm's manual advises against it because of the load: two requests from
// each node of each job. A site to which that matters has job_submit.lua add the feature to
// jobs with directives and lets only those ask (--hinted).

// controllerTime is how long slurmctld may take to answer, restarting meanwhile.
const controllerTime = 60 * time.Second

// scontrol runs Slurm's command, and again as long as slurmctld does not answer.
func scontrol(ctx context.Context, args ...string) (string, error) {
	return slurmctl.Retry(ctx, controllerTime, append([]string{"scontrol"}, args...)...)
}

// showJob asks slurmctld for a job; bb.NotFound: it does not know the job (any more).
func showJob(ctx context.Context, job string) (slurmctl.Job, error) {
	text, err := scontrol(ctx, "show", "job", job)
	if err != nil {
		return slurmctl.Job{}, err
	}
	return slurmctl.Find(text, job)
}

// askJob asks slurmctld for a job, and its script if it has one.
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
	// What was given with --bb comes besides. Where a plugin reads directives, so do those
	// of the script, but then nobody asks.
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

// due is by when a job's buffer should be on its store: when its time is up, or so long
// before as it wants to be warned. Zero: it has no limit. What Slurm calls EndTime is said
// in slurmctld's time zone, and so is not asked for.
func due(j *slurmctl.Job, warn string, now time.Time) time.Time {
	if j.TimeLimit == 0 {
		return time.Time{}
	}
	w, _ := directive.ParseWarning(warn)
	return now.Add(j.TimeLimit - j.RunTime - w.Before).Round(0)
}

// hold keeps a job from running, with the reason where its user looks: a batch job is held,
// any other is cancelled, since it cannot be.
func hold(ctx context.Context, job string, batch bool, reason string) error {
	// The field that 22.05 lets an administrator set, and shows: the Reason is Slurm's own.
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
