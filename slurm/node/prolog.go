package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// Dial connects to the node's daemon.
type Dial func(ctx context.Context, retry time.Duration) (*client.Client, error)

// Prolog opens the buffer that a job requests, joins its stage-in, and writes the files of its
// tasks. An error needs an administrator. It takes the node out of service. A fault of the job
// itself, or of its store, holds the job, with the reason.
func Prolog(ctx context.Context, c *Config, e *Env, dial Dial) error {
	if err := c.makeDir(); err != nil {
		return err
	}
	if err := writeFile(c.file(e.Job, openingSuffix), nil, os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	if err := writeFile(c.file(e.Job, runSuffix), fmt.Appendln(nil, e.Restarts), os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	c.unmountLost()
	return c.prolog(ctx, e, dial)
}

func (c *Config) prolog(ctx context.Context, e *Env, dial Dial) error {
	wants := e.wants(c.Feature)
	if c.FeatureRequired && !wants {
		return c.leaveEnv(e, nil)
	}
	j, script, err := askJob(ctx, e.Job)
	if bb.KindOf(err) == bb.NotFound {
		c.Log("job %s has ended already", e.Job)
		return nil
	}
	if err != nil {
		return err
	}
	if hasPlugin(&j) {
		return c.join(ctx, e, slurm.RunKey(e.Cluster, e.Job, e.Restarts, j.Submitted), dial)
	}
	r, problems := directive.Parse(script, directive.Options{Prefixes: c.Prefixes})
	if r.Empty() && problems.Err() == nil && wants {
		r, problems = directive.Parse([]byte("#"+c.Prefixes[0]+" jobbb "+c.Default+"\n"), directive.Options{Prefixes: c.Prefixes})
		if err := problems.Err(); err != nil {
			return bb.Wrap("prolog", "--default", err)
		}
	}
	for _, p := range problems.Warnings() {
		c.Log("job %s: %v", e.Job, p)
	}
	if err := problems.Err(); err != nil {
		return c.holdJob(ctx, e, &j, err)
	}
	if r.Empty() {
		return c.leaveEnv(e, nil)
	}
	return c.open(ctx, e, &j, r, dial)
}

// join records that a job has come to the node, with a buffer of burst_buffer/lua, so that its
// writes here are waited for. The hooks beside slurmctld have done all else.
func (c *Config) join(ctx context.Context, e *Env, run string, dial Dial) error {
	d, err := dial(ctx, c.StartTimeout)
	if err != nil {
		return bb.Wrap("prolog", e.Job, err)
	}
	defer d.Close()
	l, err := slurm.LatestOf(ctx, d, run)
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return bb.Wrap("prolog", e.Job, err)
	}
	if err != nil || !l.SchedulerManaged || l.UID != e.UID || l.State != admin.LifetimeOpen || !l.Over.IsZero() {
		c.Log("job %s has a buffer of burst_buffer/lua's that no daemon has a record of: is its --cluster %s?", e.Job, e.Cluster)
		return c.leaveEnv(e, nil)
	}
	if err := c.noteRun(e, l.Key); err != nil {
		return err
	}
	_, err = admin.OpenLifetime(ctx, d, l, admin.LifetimeOptions{Attach: true, Begin: true})
	if err != nil && (bb.KindOf(err) != bb.Busy || !gone(ctx, d, l.Key)) {
		return bb.Wrap("prolog", e.Job, err)
	}
	var env []string
	if err == nil && l.Buffer != "" {
		if env, err = c.mount(ctx, l.Key, l.Buffer); err != nil {
			return err
		}
	}
	return c.leaveEnv(e, env)
}

// open makes the daemon open a job's buffers.
func (c *Config) open(ctx context.Context, e *Env, j *slurmctl.Job, r *directive.Request, dial Dial) error {
	v := vars(e, j)
	l, create, err := lifetime(e, j, r, v)
	if err != nil {
		return c.holdJob(ctx, e, j, err)
	}
	// The note comes first. After any failure from here on, the epilog reports that the job left.
	if err := c.noteRun(e, l.Key); err != nil {
		return err
	}
	d, err := dial(ctx, c.StartTimeout)
	if err != nil {
		return bb.Wrap("prolog", e.Job, err)
	}
	defer d.Close()
	_, err = admin.OpenLifetime(ctx, d, l, admin.LifetimeOptions{Create: create, Attach: true})
	for _, n := range c.left() {
		c.tell(ctx, d, n) // departures that an epilog could not report
	}
	switch {
	case err == nil:
		return c.leaveForTasks(ctx, e, j, r, v, d)
	case ctx.Err() != nil:
		return err
	case bb.KindOf(err) == bb.Busy && gone(ctx, d, l.Key):
		c.Log("job %s was over before this node was ready: %v", e.Job, err)
		return nil
	case errors.Is(err, bb.Unsupported) && strings.Contains(err.Error(), "cluster.listen"):
		return err // that of the daemon's configuration
	}
	// Does the daemon answer? Then it is not the node's fault, nor its administrator's.
	if _, asking := admin.LifetimeByKey(ctx, d, l.Key); bb.KindOf(asking) == bb.Unavailable {
		return bb.Wrap("prolog", e.Job, err)
	}
	return c.holdJob(ctx, e, j, err)
}

// gone reports whether a run has left all its nodes.
func gone(ctx context.Context, d *client.Client, key string) bool {
	l, err := admin.LifetimeByKey(ctx, d, key)
	return err == nil && l.State != admin.LifetimeOpen
}

// noteRun records which run of a job has come. An older one, which left without an epilog, is put
// aside.
func (c *Config) noteRun(e *Env, key string) error {
	file := c.file(e.Job, noteSuffix)
	old, err := readNote(file)
	if err != nil {
		c.Log("%v", err) // of a crash; it is replaced
	} else if old != nil && old.Key != key {
		c.unmount(old)
		if err := c.putAside(old); err != nil {
			return err
		}
	}
	return writeNote(file, &note{Key: key, Job: e.Job, Since: time.Now(), Dir: c.mountOf(key)})
}

// leaveForTasks leaves the job's variables and token, readable by its user alone.
func (c *Config) leaveForTasks(ctx context.Context, e *Env, j *slurmctl.Job, r *directive.Request, v *directive.Vars, d *client.Client) error {
	env := r.Env(v)
	socket := c.Socket
	if socket == "" {
		socket = strings.TrimPrefix(d.Server().Address, "unix://")
	}
	env = append(env, "FOREBAY_SOCKET="+socket)
	if r.Job != nil {
		token, _, err := admin.Token(ctx, d, v.Buffer, tokenLife(j.TimeLimit))
		switch {
		case err == nil:
			file := c.file(e.Job, tokenSuffix)
			if err := writeFile(file, []byte(token+"\n"), int(e.UID), int(e.GID)); err != nil {
				return err
			}
			env = append(env, "FOREBAY_TOKEN_FILE="+file)
		case bb.KindOf(err) != bb.Unsupported: // a daemon without a key makes none
			return bb.Wrap("prolog", e.Job, err)
		}
		dir, err := c.mount(ctx, v.Buffer, v.Buffer)
		if err != nil {
			return err
		}
		env = append(env, dir...)
	}
	return c.leaveEnv(e, env)
}

// leaveEnv leaves the variables of a job's tasks, of which there may be none, since TaskProlog
// waits for them. Where a prolog leaves none, the job is held or cancelled, and none of its tasks
// is to begin before the epilog.
func (c *Config) leaveEnv(e *Env, env []string) error {
	var text strings.Builder
	for _, line := range env {
		text.WriteString(line + "\n")
	}
	if err := writeFile(c.file(e.Job, envSuffix), []byte(text.String()), int(e.UID), int(e.GID)); err != nil {
		return err
	}
	return bb.Wrap("prolog", e.Job, os.Remove(c.file(e.Job, openingSuffix)))
}

const (
	longestToken = 30 * 24 * time.Hour
	afterTheEnd  = time.Hour // stage-outs of a program of the user's own
)

// tokenLife is how long a job's token holds: its time limit (0: none), and some more.
func tokenLife(limit time.Duration) time.Duration {
	if limit == 0 {
		return longestToken
	}
	return min(longestToken, limit+afterTheEnd)
}

// holdJob holds a job for a reason of its own. If Slurm cannot be reached, that is an error. The
// job must not run without its buffer.
func (c *Config) holdJob(ctx context.Context, e *Env, j *slurmctl.Job, why error) error {
	c.Log("job %s is held: %v", e.Job, why)
	return hold(ctx, e.Job, j.Batch, why.Error())
}

// How long a task waits for the prolog to begin. When that has begun, it waits as long as
// it takes.
const prologBegins = 10 * time.Second

// TaskProlog returns the lines that set the job's variables in slurmstepd. It runs as the job's user, with the job's
// variables: environ.
//
// It waits for the prolog, for which Slurm waits too before it starts a job for the first time. It
// starts a requeued job at once, with the prolog (in 22.05 the script is launched 2 ms after the
// job was started again, and 140 ms before the prolog has ended).
func TaskProlog(ctx context.Context, c *Config, job string, environ []string) (string, error) {
	if n, err := strconv.ParseUint(job, 10, 32); err != nil || n == 0 {
		return "", bb.E(bb.Invalid, "environment", "SLURM_JOB_ID", fmt.Sprintf("%q is no job's id", job)).WithRemedy("this is for Slurm's TaskProlog: see bbctl slurm install")
	}
	for began := time.Now(); ; {
		text, err := os.ReadFile(c.file(job, envSuffix))
		if err == nil {
			return exports(directories(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), environ)), nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", bb.Wrap("task-prolog", job, err)
		}
		// This user may not list the folder, but open a name in it.
		if _, err := os.Stat(c.file(job, openingSuffix)); err == nil {
			began = time.Now()
		}
		if time.Since(began) > prologBegins {
			c.Log("the prolog has left no notes for job %s: is it bbctl's?", job)
			return "", nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func exports(env []string) string {
	var out strings.Builder
	for _, line := range env {
		if line != "" {
			fmt.Fprintf(&out, "export %s\n", line)
		}
	}
	return out.String()
}

// directories returns the variables of a job's tasks. Where the job's buffer is mounted, those that have its address get its directory,
// as users of DataWarp expect. The prolog has left them, or burst_buffer/lua has set them in the job's own.
func directories(left, environ []string) []string {
	all := slices.Concat(environ, left)
	value := func(name string) (v string) {
		for _, line := range all {
			if text, ok := strings.CutPrefix(line, name+"="); ok {
				v = text
			}
		}
		return v
	}
	dir, address := "", bb.Scheme+"://"+value("FOREBAY_BUFFER")
	for _, line := range left {
		if text, ok := strings.CutPrefix(line, "FOREBAY_DIR="); ok {
			dir = text
		}
	}
	if dir == "" {
		return left
	}
	env := slices.DeleteFunc(slices.Clone(left), func(line string) bool { return strings.HasSuffix(line, "="+address) })
	for _, line := range all {
		name, text, _ := strings.Cut(line, "=")
		if text == address && (strings.HasPrefix(name, "BB_JOB_") || strings.HasPrefix(name, "DW_JOB_")) {
			env = append(env, name+"="+dir)
		}
	}
	return env
}
