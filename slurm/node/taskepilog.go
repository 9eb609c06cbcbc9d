package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm"
	"forebay/slurm/slurmctl"
)

const (
	// slurmstepd waits for a TaskEpilog for 5 s.
	taskEpilogTime = 4 * time.Second
	// blockedLong is the least waiting time of a job's writers, added up, that is reported.
	blockedLong = 10 * time.Second
)

// TaskEnv returns the variables that the prolog has written for a job's tasks. Slurm passes
// those that TaskProlog exports to the task, and not to its TaskEpilog.
func TaskEnv(c *Config, job string) map[string]string {
	env := map[string]string{}
	if slurmctl.CheckID(job) != nil {
		return env
	}
	text, _ := os.ReadFile(c.file(job, envSuffix)) // there is none for a job without a buffer
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			env[name] = value
		}
	}
	return env
}

// TaskEpilog returns news of the job's buffer for its user when a step ends: lines
// for the task's standard error. Mostly there are none. It runs as the job's user.
//
// When the script of a job ends, or its first step (else job is ""), it also writes the work of its
// buffer so far into the job's Comment, unless its user has written something there. The user may
// not write AdminComment. For slurmctld the job is not over yet. From then on, 22.05 accepts no
// change of its record. The figures of other nodes are some seconds old.
func TaskEpilog(ctx context.Context, job, buffer string, dial Dial) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, taskEpilogTime)
	defer cancel()
	d, err := dial(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := admin.LifetimeByKey(ctx, d, buffer)
	if err != nil {
		return nil, err
	}
	lost, err := d.Buffer(buffer).Lost(ctx)
	if job != "" && l.Total() != (admin.Usage{}) {
		err = errors.Join(err, noteUsage(ctx, job, slurm.UsageLine(&l)))
	}
	return troubles(&l, len(lost)), err
}

// noteUsage writes them into a job's Comment, unless there is another one.
func noteUsage(ctx context.Context, job, line string) error {
	j, err := showJob(ctx, job)
	if err != nil {
		return err
	}
	comment, ours := slurm.WithUsage(j.Comment, line)
	if !ours || comment == j.Comment {
		return nil
	}
	_, err = scontrol(ctx, "update", "JobId="+job, "Comment="+comment)
	return bb.Wrap("task-epilog", job, err)
}

// troubles describes the faults of a job's buffer.
func troubles(l *admin.Lifetime, lost int) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, "forebay: "+fmt.Sprintf(format, args...)) }
	if lost > 0 {
		say("bb://%s: %s lost with a node: bbctl lost %s", l.Buffer, bb.Count(lost, "file is", "files are"), l.Buffer)
	}
	if by := l.MissesDeadline(); !by.IsZero() {
		say("the data of bb://%s will be on its store at %s, and is due at %s", l.Buffer, by.Local().Format(time.DateTime), l.Due.Local().Format(time.DateTime))
	}
	f := l.Total()
	if f.Failures > 0 {
		say("%s to flush files of bb://%s failed: bbctl status --job %s", bb.Count(f.Failures, "attempt"), l.Buffer, l.Job)
	}
	if f.Blocked > blockedLong.Seconds() {
		say("writers of bb://%s have waited %.0f s for room, added up", l.Buffer, f.Blocked)
	}
	return lines
}
