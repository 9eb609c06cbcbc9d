package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// requeueSettles is the least duration of the epilog of a run that Slurm will start again.
//
// A slurmd of 22.05 does not run the prolog of a job that is still in its list. It drops the job
// one cred_expire after its epilog began, but checks the list at most every 2 s, at any event of
// any job. slurmctld starts the job again cred_expire and a second after the last epilog has ended.
// Where another job comes or goes in the second before that, the script began without a prolog.
// After an epilog of a second, slurmd checks again in between. The rest is for clocks that differ.
const requeueSettles = 2 * time.Second

// Epilog records with the daemon that a job has left the node, and removes the files of its tasks.
// It waits for no data and not longer than Config.Epilog, since dirty files are the daemons'
// business. If the daemon does not answer by then, the departure is reported later (Deliver), and
// Epilog returns true. No error should fail an epilog.
func Epilog(ctx context.Context, c *Config, e *Env, dial Dial) (later bool) {
	settled := time.NewTimer(requeueSettles)
	defer settled.Stop()
	// Of a run that is requeued, the epilog gets the number of the next.
	restarts, known := c.startedBefore(e.Job)
	later = c.epilog(ctx, e, dial)
	if known && e.Restarts > restarts {
		select {
		case <-settled.C:
		case <-ctx.Done():
		}
	}
	return later
}

func (c *Config) epilog(ctx context.Context, e *Env, dial Dial) (later bool) {
	ctx, cancel := context.WithTimeout(ctx, c.Epilog)
	defer cancel()
	for _, suffix := range []string{envSuffix, tokenSuffix, openingSuffix, runSuffix} {
		if err := os.Remove(c.file(e.Job, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.Log("%v", err)
		}
	}
	file := c.file(e.Job, noteSuffix)
	n, err := readNote(file)
	switch {
	case err != nil:
		c.Log("%v", err)
		return false
	case n == nil:
		return false // it requested nothing
	}
	n.Failed = e.Failed
	c.unmount(n) // its programs have ended, so all files are closed
	// First the note that survives this process, then the word.
	if err := c.putAside(n); err != nil {
		c.Log("%v", err)
	} else if err := os.Remove(file); err != nil {
		c.Log("%v", err)
	}
	d, err := dial(ctx, c.Epilog)
	if err != nil {
		c.Log("job %s: its end will be reported to the daemon later: %v", e.Job, err)
		return true
	}
	defer d.Close()
	return c.tell(ctx, d, n)
}

// tell reports to the daemon that a run has left. If it could not, it returns true.
func (c *Config) tell(ctx context.Context, d *client.Client, n *note) (later bool) {
	_, err := admin.LeaveLifetime(ctx, d, n.Key, admin.LeaveOptions{Failed: n.Failed})
	switch kind := bb.KindOf(err); {
	case err == nil:
		c.Log("detached: job %s (%s)", n.Job, n.Key)
	case kind == bb.NotFound: // it was never opened, or was deleted
	case kind == bb.Unavailable || kind == bb.Cancelled || kind == bb.Busy || kind == bb.Internal:
		c.Log("job %s: its end will be reported to the daemon later: %v", n.Job, err)
		return true
	default:
		c.Log("job %s: the daemon refused the report of its end: %v", n.Job, err)
		return true
	}
	if err := os.Remove(c.file(n.Key, leftSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log("%v", err)
	}
	return false
}

// Deliver reports all runs that have left the node and are not reported yet to the daemon,
// and tries again until it has succeeded or ctx ends.
func Deliver(ctx context.Context, c *Config, dial Dial) error {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		list := c.left()
		if len(list) == 0 {
			return nil
		}
		d, err := dial(ctx, time.Second)
		if err == nil {
			for _, n := range list {
				c.tell(ctx, d, n)
			}
			d.Close()
		}
		if len(c.left()) == 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return bb.Wrap("deliver", c.Dir, errors.Join(err, ctx.Err()))
		}
	}
}
