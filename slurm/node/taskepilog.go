package node

import (
	"context"
	"fmt"
	"time"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/slurm"
)

const (
	// slurmstepd waits for a TaskEpilog for 5 s.
	taskEpilogTime = 3 * time.Second
	// blockedLong is how long the writers of a job have waited, added up, when it is told.
	blockedLong = 10 * time.Second
)

// TaskEpilog returns what the user should know of the job's buffer when a step ends: lines
// for the task's standard error. Mostly there are none. It runs as the job's user.
func TaskEpilog(ctx context.Context, buffer string, dial Dial) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, taskEpilogTime)
	defer cancel()
	d, err := dial(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := d.Lifetime(ctx, buffer)
	if err != nil {
		return nil, err
	}
	lost, err := d.Lost(ctx, buffer)
	return troubles(&l, len(lost)), err
}

// NoteFigures writes into a job's Comment what its buffer has done for it so far, unless
// its user has written something there. It runs as that user, who may not write
// AdminComment, and before slurmctld knows that the job is over: from then on, 22.05 lets
// nobody change its record. What other nodes have done is known as of some seconds ago.
func NoteFigures(ctx context.Context, job, buffer string, dial Dial) error {
	ctx, cancel := context.WithTimeout(ctx, taskEpilogTime)
	defer cancel()
	d, err := dial(ctx, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Lifetime(ctx, buffer)
	if err != nil || l.Total() == (client.Figures{}) {
		return err
	}
	text, err := scontrol(ctx, "show", "job", job)
	if err != nil {
		return err
	}
	j, ok := parseJob(text, job)
	if !ok {
		return errGone
	}
	comment, ours := slurm.WithFigures(j.comment, slurm.FiguresLine(&l))
	if !ours || comment == j.comment {
		return nil
	}
	_, err = scontrol(ctx, "update", "JobId="+job, "Comment="+comment)
	return bb.Wrap("task-epilog", job, err)
}

// troubles says what is wrong with a job's buffer.
func troubles(l *client.Lifetime, lost int) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, "forebay: "+fmt.Sprintf(format, args...)) }
	if lost > 0 {
		say("%d files of bb://%s are lost with their node: bbctl lost %s", lost, l.Buffer, l.Buffer)
	}
	if by := l.Late(); !by.IsZero() {
		say("what is in bb://%s will be on its store at %s, and should be at %s", l.Buffer, by.Local().Format(time.DateTime), l.Due.Local().Format(time.DateTime))
	}
	f := l.Total()
	if f.Failures > 0 {
		say("%d attempts to flush files of bb://%s have failed: bbctl status --job %s", f.Failures, l.Buffer, l.Job)
	}
	if f.Blocked > blockedLong.Seconds() {
		say("writers of bb://%s have waited %.0f s for room, added up", l.Buffer, f.Blocked)
	}
	return lines
}
