package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/slurm"
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

// jobInfo is what slurmctld says of a job.
type jobInfo struct {
	name, arrayJob, arrayTask string
	workDir, submitted        string
	limit, ran                string // TimeLimit, RunTime
	comment                   string
	batch                     bool
	request                   string // --bb, or the directives as Slurm has read them
	plugin                    bool   // burst_buffer/lua has given the job its buffer
}

// controllerTime is how long slurmctld may take to answer, restarting meanwhile.
const controllerTime = 60 * time.Second

// errGone says that slurmctld does not know a job any more.
var errGone = bb.E(bb.NotFound, "scontrol", "", "Slurm does not know the job any more")

// errPending says that a job does not run (any more).
var errPending = bb.E(bb.Busy, "scontrol", "", "the job is pending")

// scontrol runs Slurm's command, and again as long as slurmctld does not answer.
func scontrol(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, controllerTime)
	defer cancel()
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		text, err := scontrolOnce(ctx, args...)
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

func scontrolOnce(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	text := strings.ReplaceAll(strings.TrimSpace(errs.String()), "\n", "; ")
	switch {
	case err == nil:
		return out.String(), nil
	case strings.Contains(text, "Invalid job id"): // slurm_strerror(ESLURM_INVALID_JOB_ID)
		return "", errGone
	case strings.Contains(text, "pending execution"): // ESLURM_JOB_PENDING
		return "", errPending
	case strings.Contains(text, "Job script not specified"), strings.Contains(text, "not supported"), strings.Contains(text, "disabled"):
		return "", bb.E(bb.Unsupported, "scontrol", args[0], text)
	case errors.Is(err, exec.ErrNotFound):
		return "", bb.E(bb.Unsupported, "scontrol", "", "Slurm's scontrol is not found").WithRemedy("set PATH in the prolog: bbctl slurm install does")
	}
	return "", &bb.Error{Kind: bb.Unavailable, Op: "scontrol", Path: args[0], Err: fmt.Errorf("%w: %s", err, text)}
}

// askJob asks slurmctld for a job, and its script if it has one.
func askJob(ctx context.Context, job string) (jobInfo, []byte, error) {
	text, err := scontrol(ctx, "show", "job", job)
	if err != nil {
		return jobInfo{}, nil, err
	}
	j, ok := parseJob(text, job)
	switch {
	case !ok:
		return j, nil, errGone
	case j.plugin:
		return j, nil, nil
	case !j.batch:
		return j, []byte(j.request), nil
	}
	script, err := scontrol(ctx, "write", "batch_script", job, "-")
	if bb.KindOf(err) == bb.Unsupported {
		return j, []byte(j.request), nil
	}
	// What was given with --bb comes besides. Where a plugin reads directives, so do those
	// of the script, but then nobody asks.
	return j, []byte(joined(j.request, script)), err
}

// joined is a script with the lines of --bb in front, where directives are read.
func joined(request, script string) string {
	if request == "" {
		return script
	}
	first, rest, _ := strings.Cut(script, "\n")
	return first + "\n" + request + "\n" + rest
}

// parseJob reads a job from what "scontrol show job" prints: records that a blank line ends.
// An array's id stands for all of its tasks.
func parseJob(text, job string) (jobInfo, bool) {
	for record := range strings.SplitSeq(text, "\n\n") {
		var j jobInfo
		id, plugin := "", false
		request := false
		for line := range strings.Lines(record) {
			line = strings.TrimSpace(line)
			name, value, _ := strings.Cut(line, "=")
			switch {
			case request && (line == "" || isField(line)):
				request = false
			case request:
				j.request += "\n" + line
				continue
			}
			switch name {
			case "JobId":
				id = j.identity(line)
			case "WorkDir":
				j.workDir = value
			case "BurstBuffer":
				j.request, request = value, true
			case "BurstBufferState":
				plugin = true
			case "Comment":
				j.comment = strings.TrimSpace(value)
			default:
				j.fields(line)
			}
		}
		if id == job {
			j.plugin = plugin
			return j, true
		}
	}
	return jobInfo{}, false
}

// isField reports whether a line is NAME=…, and not one of a request of several lines.
func isField(line string) bool {
	name, _, ok := strings.Cut(line, "=")
	return ok && name != "" && !strings.ContainsAny(name, "# \t")
}

// identity reads the first line of a record; the job's name, which is the user's text, is its last field.
func (j *jobInfo) identity(line string) (id string) {
	head, name, _ := strings.Cut(line, " JobName=")
	j.name = name
	for field := range strings.FieldsSeq(head) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "JobId":
			id = value
		case "ArrayJobId":
			j.arrayJob = value
		case "ArrayTaskId":
			j.arrayTask = value
		}
	}
	return id
}

func (j *jobInfo) fields(line string) {
	for field := range strings.FieldsSeq(line) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "SubmitTime":
			j.submitted = value
		case "TimeLimit":
			j.limit = value
		case "RunTime":
			j.ran = value
		case "BatchFlag":
			j.batch = value == "1"
		}
	}
}

// parseTime reads a time as scontrol prints it, [DAYS-]HH:MM:SS; false: it is none, but
// UNLIMITED, say.
func parseTime(text string) (time.Duration, bool) {
	var days, h, m, s int64
	if n, err := fmt.Sscanf(text, "%d-%d:%d:%d", &days, &h, &m, &s); n != 4 || err != nil {
		days = 0
		if n, err := fmt.Sscanf(text, "%d:%d:%d", &h, &m, &s); n != 3 || err != nil {
			return 0, false
		}
	}
	if days < 0 || days > 36500 || h < 0 || h > 1000 || m < 0 || m > 60 || s < 0 || s > 60 {
		return 0, false
	}
	return time.Duration(((days*24+h)*60+m)*60+s) * time.Second, true
}

// due is by when a job's buffer should be on its store: when its time is up, or so long
// before as it wants to be warned. Zero: it has no limit. What Slurm calls EndTime is said
// in slurmctld's time zone, and so is not asked for.
func due(limit, ran, warn string, now time.Time) time.Time {
	all, ok := parseTime(limit)
	gone, _ := parseTime(ran)
	if !ok {
		return time.Time{}
	}
	w, _ := slurm.ParseWarning(warn)
	return now.Add(all - gone - w.Before).Round(0)
}

// hold keeps a job from running, with the reason where its user looks: a batch job is held,
// any other is cancelled, since it cannot be.
func hold(ctx context.Context, job string, batch bool, reason string) error {
	// The field that 22.05 lets an administrator set, and shows: the Reason is Slurm's own.
	_, err := scontrol(ctx, "update", "JobId="+job, "AdminComment="+slurm.OneLine("forebay: "+reason))
	if bb.KindOf(err) == bb.Unavailable {
		return err
	}
	if batch {
		switch _, err = scontrol(ctx, "requeuehold", job); {
		case err == nil, err == errGone:
			return nil
		case err == errPending:
			return nil // another of its nodes was faster
		case bb.KindOf(err) != bb.Unsupported:
			return err
		}
	}
	// It is interactive, or was submitted with --no-requeue.
	cmd := exec.CommandContext(ctx, "scancel", job)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return &bb.Error{Kind: bb.Unavailable, Op: "scancel", Path: job, Err: fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))}
	}
	return nil
}
