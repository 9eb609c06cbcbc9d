package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/slurm/directive"
	"forebay/slurm/slurmctl"
)

// Hooks carries out the requests of burst_buffer.lua: a verb for each function that runs outside
// of slurmctld. Each makes the daemons advance the job's lifetime (client.Lifetime) by a step,
// or waits until they have:
//
//	setup        opens it, governed; its buffers are made, its stage-ins begin
//	data-in      waits for these
//	pre-run      records that the job is about to begin
//	             (prologs and epilogs, where there are any, record its nodes)
//	post-run     records that it is over, and waits until it has left its nodes
//	data-out     waits until everything is copied out, drained and gone
//	teardown     ends it, in any state
//
// The daemons keep all of that. So Slurm may end a verb at any moment and begin its stage again,
// also on another machine. Finished steps are recognised, and work that the daemons have begun
// continues without a waiting client.
type Hooks struct {
	Settings Settings
	Slurm    Controller
	// Dial connects as a user. Root decides about jobs. A buffer is checked as its user.
	Dial func(context.Context, client.User) (*client.Client, error)
	// Log is called with one line for each further event. If it is nil, they are dropped.
	Log func(string)

	reconciler Reconciler           // of Reconcile
	abandoned  map[string]time.Time // since when no hook has been at work for jobs that wait for one
	finished   map[string]bool      // lifetimes of jobs that Slurm got a request to end
	recorded   map[string]time.Time // of RecordUsage: when a lifetime's usage was written into its job's record
}

// Answer is the outcome of a verb. Message is one line with the reason in its first words, since
// Slurm shows them as the job's reason.
type Answer struct {
	State   string `json:"state"` // done, busy, failed
	Message string `json:"message,omitempty"`
}

// The states of an Answer.
const (
	stateDone   = "done"
	stateBusy   = "busy"
	stateFailed = "failed"
)

// The pauses between attempts, and between checks.
const (
	firstPause = 2 * time.Second
	lastPause  = 15 * time.Second
	fenceLook  = 500 * time.Millisecond
	firstLook  = 200 * time.Millisecond
	lastLook   = 5 * time.Second
	lastWords  = 5 * time.Second
)

// Bounds of attempts that delay others. A job's nodes wait for pre-run, and Slurm runs a bounded
// number of teardowns at a time. The daemons continue the latter.
const (
	preRunLimit   = 2 * time.Minute
	teardownLimit = 30 * time.Second
)

// SetupRequest is the arguments of slurm_bb_setup.
type SetupRequest struct {
	Job      string
	UID, GID uint32
	Pool     string // "": none
	Bytes    int64  // that Slurm has counted from the pool
	Script   []byte
	Expanded bool // Slurm has replaced the symbols in it
}

// Setup reads a job's directives and opens its lifetime, which makes its buffers.
func (h *Hooks) Setup(ctx context.Context, q *SetupRequest) Answer {
	defer h.lockHook(q.Job)()
	info, err := h.Slurm.Job(ctx, q.Job)
	if err != nil {
		return failed(err)
	}
	info.UID, info.GID = q.UID, q.GID
	o := h.Settings.options()
	o.Expanded = q.Expanded
	req, problems := directive.Parse(q.Script, o)
	if err := problems.Err(); err != nil {
		return failed(err)
	}
	err = h.persist(ctx, q.Job, "setup", within(h.Settings.stageInLimit()), func(c *client.Client) error {
		key, err := h.nextKey(ctx, c, &info)
		if err != nil {
			return err
		}
		if err := h.rememberKey(info.ID, key); err != nil {
			return err
		}
		v := varsOf(&info, key)
		l := admin.Lifetime{
			Key: key, Cluster: h.Settings.Cluster, Job: info.ID, User: info.User, UID: q.UID, GID: q.GID,
			SchedulerManaged: true, Pool: q.Pool, Granted: q.Bytes,
		}
		create, err := req.Fill(&l, v)
		if err != nil {
			return err
		}
		if err := h.writeEnv(info.ID, append(req.Env(v), h.Settings.Env...)); err != nil {
			return err
		}
		_, err = admin.OpenLifetime(ctx, c, l, admin.LifetimeOptions{Create: create, Begin: true})
		return err
	})
	return h.answer(ctx, q.Job, "setup", warningsOf(problems), err)
}

func warningsOf(problems directive.Problems) string {
	var lines []string
	for _, p := range problems.Warnings() {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "; ")
}

// nextKey is the key of the lifetime that a job has, or of the one that it is to get. A run of a
// job that was held and released has another one.
func (h *Hooks) nextKey(ctx context.Context, c *client.Client, j *slurmctl.Job) (string, error) {
	base := keyOf(j, h.Settings.Cluster)
	l, err := LatestOf(ctx, c, base)
	switch {
	case bb.KindOf(err) == bb.NotFound:
		return base, nil
	case err != nil:
		return "", err
	case l.State == admin.LifetimeOpen && l.Over.IsZero():
		return l.Key, nil
	}
	return attemptKey(base, attemptOf(l.Key, base)+1), nil
}

// LatestOf returns the latest of a run's lifetimes, by the run's key (RunKey). It returns
// ErrNotFound if it has none. It requests each by its key. There may be a week's of other jobs.
func LatestOf(ctx context.Context, c *client.Client, run string) (l admin.Lifetime, err error) {
	for n := 1; ; n++ {
		next, err := admin.LifetimeByKey(ctx, c, attemptKey(run, n))
		if bb.KindOf(err) == bb.NotFound && n > 1 {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		l = next
	}
}

// attemptKey is the key of one of a run's lifetimes, from 1.
func attemptKey(run string, n int) string {
	if n == 1 {
		return run
	}
	return fmt.Sprintf("%s-%d", run, n)
}

// attemptOf returns which of a run's lifetimes has a key, from 1, or 0 if there is none.
func attemptOf(key, base string) int {
	rest, ok := strings.CutPrefix(key, base)
	if rest == "" && ok {
		return 1
	}
	n, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
	if !ok || err != nil || rest[0] != '-' || n < 2 {
		return 0
	}
	return n
}

// present returns a job's latest lifetime, or NotFound if there is none.
func (h *Hooks) present(ctx context.Context, c *client.Client, job string) (admin.Lifetime, error) {
	if key := h.rememberedKey(job); key != "" {
		l, err := admin.LifetimeByKey(ctx, c, key)
		if err == nil && l.Job == job && h.governs(&l) {
			return l, nil
		}
		if err != nil && bb.KindOf(err) != bb.NotFound {
			return l, err
		}
	}
	list, err := admin.Lifetimes(ctx, c, job) // setup may have ended before it had opened it
	if err != nil {
		return admin.Lifetime{}, err
	}
	for i := range list {
		if h.governs(&list[i]) {
			return list[i], nil
		}
	}
	return admin.Lifetime{}, bb.E(bb.NotFound, "job", job, "nothing is known of it: slurm_bb_setup has not run")
}

func (h *Hooks) governs(l *admin.Lifetime) bool {
	return l.SchedulerManaged && l.Cluster == h.Settings.Cluster
}

// DataIn waits until the input that the job needs is copied in. Wait bounds the time. The answer is
// "busy" then, and the daemons continue.
func (h *Hooks) DataIn(ctx context.Context, job string, wait time.Duration) Answer {
	defer h.lockHook(job)()
	return h.waiting(ctx, wait, func(limited context.Context) Answer {
		var l admin.Lifetime
		limit := h.Settings.stageInLimit()
		again := func(err error) bool { return transient(err) && (l.Created.IsZero() || time.Since(l.Created) < limit) }
		err := h.persist(limited, job, "data-in", again, func(c *client.Client) (err error) {
			if l, err = h.present(limited, c, job); err != nil {
				return err
			}
			if _, err = admin.OpenLifetime(limited, c, l, admin.LifetimeOptions{}); err != nil {
				return aboutStage(&l, err)
			}
			l, err = admin.LifetimeByKey(limited, c, l.Key)
			return err
		})
		var skipped []string
		for i, s := range l.In {
			if s.ContinueOnError && s.Note != "" {
				skipped = append(skipped, fmt.Sprintf("stage_in %d failed, and the job runs all the same: %s", i+1, s.Note))
			}
		}
		return h.answer(limited, job, "data-in", strings.Join(skipped, "; "), err)
	})
}

// aboutStage names the failed stage-in around the reason.
func aboutStage(l *admin.Lifetime, err error) error {
	for i := range l.In {
		if url := l.In[i].URL; strings.Contains(err.Error(), url) {
			return &bb.Error{Kind: bb.KindOf(err), Op: "stage_in", Path: url, Err: err}
		}
	}
	return err
}

// RealSize is the number of bytes of the pool that Slurm has counted for the job.
func (h *Hooks) RealSize(ctx context.Context, job string) Answer {
	defer h.lockHook(job)()
	var l admin.Lifetime
	err := h.persist(ctx, job, "real-size", within(preRunLimit), func(c *client.Client) (err error) {
		l, err = h.present(ctx, c, job)
		return err
	})
	return h.answer(ctx, job, "real-size", strconv.FormatInt(l.Granted, 10), err)
}

// Paths are the variables of the job as NAME=value lines, as slurm_bb_paths finds them.
func (h *Hooks) Paths(job string) Answer {
	if err := slurmctl.CheckID(job); err != nil {
		return failed(err)
	}
	text, err := os.ReadFile(h.envFile(job))
	if err != nil {
		return failed(bb.Wrap("paths", job, err))
	}
	return Answer{State: stateDone, Message: strings.TrimSuffix(string(text), "\n")}
}

// PreRun records that the job is about to begin, and checks that its buffers and input are
// there.
func (h *Hooks) PreRun(ctx context.Context, job string) Answer {
	err := h.persist(ctx, job, "pre-run", within(preRunLimit), func(c *client.Client) error {
		l, err := h.present(ctx, c, job)
		if err != nil {
			return err
		}
		if _, err := admin.OpenLifetime(ctx, c, l, admin.LifetimeOptions{Ran: true}); err != nil {
			return err
		}
		return h.lookFor(ctx, &l)
	})
	return h.answer(ctx, job, "pre-run", "", err)
}

// lookFor checks a job's buffers, as its user.
func (h *Hooks) lookFor(ctx context.Context, l *admin.Lifetime) error {
	c, err := h.Dial(ctx, client.User{UID: l.UID, GID: l.GID})
	if err != nil {
		return err
	}
	defer c.Close()
	names := l.Uses
	if l.Buffer != "" {
		names = append([]string{l.Buffer}, names...)
	}
	for _, name := range names {
		if _, err := admin.BufferInfo(ctx, c, name); err != nil {
			return err
		}
	}
	return nil
}

// PostRun is the fence. It waits until nothing of the job runs anywhere. Slurm begins its hook
// while tasks still write (those that ignore TERM, for as long as KillWait) and before any Epilog.
// Its state COMPLETING ends when all Epilogs have, or their node is down. The job has left all
// nodes with a recorded arrival by their prologs, or they are gone.
func (h *Hooks) PostRun(ctx context.Context, job string) Answer {
	defer h.lockHook(job)()
	for {
		info, err := h.Slurm.Job(ctx, job)
		switch {
		case err != nil && bb.KindOf(err) != bb.NotFound && !transient(err):
			return failed(err)
		case err == nil && !strings.Contains(info.State, "COMPLETING"), bb.KindOf(err) == bb.NotFound:
			err := h.follow(ctx, job, "post-run", endOf(&info), func(l *admin.Lifetime) bool { return l.State != admin.LifetimeOpen })
			return h.answer(ctx, job, "post-run", "", err)
		}
		if !pause(ctx, fenceLook) {
			return failed(context.Cause(ctx))
		}
	}
}

// endOf is the outcome of a job that is over for Slurm. A job without a record (ID "") does not
// count as failed.
func endOf(j *slurmctl.Job) admin.EndOptions {
	return admin.EndOptions{WhenLeft: true, Failed: j.ID != "" && !j.Succeeded()}
}

// DataOut waits until the job's stage-outs are copied, and its buffer is drained and gone. It
// repeats without end. After a failure, Slurm would drop the job.
func (h *Hooks) DataOut(ctx context.Context, job string, wait time.Duration) Answer {
	defer h.lockHook(job)()
	return h.waiting(ctx, wait, func(ctx context.Context) Answer {
		// Its end was recorded by post-run, with the outcome.
		said := ""
		err := h.follow(ctx, job, "data-out", admin.EndOptions{WhenLeft: true}, func(l *admin.Lifetime) bool {
			if l.Losses.Total > 0 {
				said = fmt.Sprintf("%s not saved, of %s: see bbctl status --job %s", bb.Count(l.Losses.Total, "file was", "files were"), bb.Count(l.Losses.Bytes, "byte"), job)
			}
			return l.State == admin.LifetimeGone
		})
		return h.answer(ctx, job, "data-out", said, err)
	})
}

// Teardown ends everything of the job. The daemons continue with unsaved data.
func (h *Hooks) Teardown(ctx context.Context, job string) Answer {
	return h.teardown(ctx, job, admin.EndOptions{WhenLeft: true})
}

// TeardownNow is Teardown of a job without keeping its data: by its user's request (scancel
// --hurry), or since the job did not run.
func (h *Hooks) TeardownNow(ctx context.Context, job string) Answer {
	return h.teardown(ctx, job, admin.EndOptions{Hurry: true})
}

func (h *Hooks) teardown(ctx context.Context, job string, how admin.EndOptions) Answer {
	defer h.lockHook(job)()
	limited, cancel := context.WithTimeout(ctx, teardownLimit)
	defer cancel()
	said, told := "", false
	err := h.follow(limited, job, "teardown", how, func(l *admin.Lifetime) bool {
		told = true
		return l.State == admin.LifetimeGone
	})
	switch {
	case bb.KindOf(err) == bb.NotFound:
		return Answer{State: stateDone, Message: "the job has no record"}
	case err != nil && told && ctx.Err() == nil:
		said, err = "the daemons have the job's end, and continue", nil
	}
	return h.answer(ctx, job, "teardown", said, errors.Join(err, removeIfThere(h.envFile(job))))
}

// follow has a job's lifetime end, and waits until it is as it should be.
func (h *Hooks) follow(ctx context.Context, job, verb string, o admin.EndOptions, there func(*admin.Lifetime) bool) error {
	key := ""
	return h.persist(ctx, job, verb, transient, func(c *client.Client) error {
		if key == "" { // a new run's may come meanwhile
			l, err := h.present(ctx, c, job)
			if err != nil {
				return err
			}
			key = l.Key
		}
		l, err := admin.EndLifetime(ctx, c, key, o)
		for look := firstLook; ; look = min(2*look, lastLook) {
			if err != nil {
				return err
			}
			if there(&l) {
				return nil
			}
			if !pause(ctx, look) {
				return context.Cause(ctx)
			}
			l, err = admin.LifetimeByKey(ctx, c, key)
		}
	})
}

func (h *Hooks) envFile(job string) string { return filepath.Join(h.Settings.Folder, job+envSuffix) }

// envSuffix ends the names of files with the variables of jobs, which slurmctld reads.
const envSuffix = ".env"

func (h *Hooks) writeEnv(job string, env []string) error {
	text := strings.Join(env, "\n")
	if text != "" {
		text += "\n"
	}
	return writeWhole(h.envFile(job), []byte(text), 0o644)
}

func (h *Hooks) log(format string, args ...any) {
	if h.Log != nil {
		h.Log(fmt.Sprintf(format, args...))
	}
}

// answer is the outcome of a verb, with the trouble to show to the job's user.
func (h *Hooks) answer(ctx context.Context, job, verb, said string, err error) Answer {
	switch {
	case err != nil:
		return failed(err)
	case said != "" && verb != "real-size":
		h.note(ctx, job, verb+": "+said)
	}
	return Answer{State: stateDone, Message: said}
}

// waiting bounds how long a verb is waited for. 0 means as long as it takes.
func (h *Hooks) waiting(ctx context.Context, wait time.Duration, do func(context.Context) Answer) Answer {
	limited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	a := do(limited)
	if a.State == stateFailed && limited.Err() != nil && ctx.Err() == nil {
		return Answer{State: stateBusy}
	}
	return a
}

// note shows something in the job's record. It is not worth failing for.
func (h *Hooks) note(ctx context.Context, job, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := h.Slurm.Note(ctx, job, text); err != nil {
		h.log("job %s: %v", job, err)
	}
}

// persist carries out a request to the daemons, as root, repeats it as long as that may help
// (again decides by the error), and shows the trouble to the job's user.
func (h *Hooks) persist(ctx context.Context, job, verb string, again func(error) bool, do func(*client.Client) error) error {
	if err := slurmctl.CheckID(job); err != nil {
		return err
	}
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		c, err := h.Dial(ctx, client.User{})
		if err == nil {
			err = do(c)
			c.Close()
		}
		if err == nil || ctx.Err() != nil || !again(err) {
			return err
		}
		text := fmt.Sprintf("%s is tried again: %s", verb, failed(err).Message)
		h.note(ctx, job, text)
		h.log("job %s: %s", job, text)
		if !pause(ctx, wait) {
			return err
		}
	}
}

// within bounds the attempts against trouble that may pass by itself.
func within(limit time.Duration) func(error) bool {
	began := time.Now()
	return func(err error) bool { return transient(err) && time.Since(began) < limit }
}

// transient reports whether an error may pass by itself.
func transient(err error) bool { return bb.KindOf(err) == bb.Unavailable }

// pause waits. It returns false if the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// failed puts the reason first, since Slurm shows the beginning of a message. The subject comes
// behind it.
func failed(err error) Answer {
	var outer *bb.Error
	if !errors.As(err, &outer) {
		return Answer{State: stateFailed, Message: slurmctl.OneLine(err.Error())}
	}
	inner, remedy := outer, outer.Remedy
	for next := outer; errors.As(next.Err, &next); {
		inner = next
		if remedy == "" {
			remedy = next.Remedy
		}
	}
	message := inner.Kind.String()
	if inner.Err != nil {
		message = inner.Err.Error()
		if !strings.Contains(message, inner.Kind.String()) {
			message = inner.Kind.String() + ": " + message
		}
	}
	if outer.Path != "" && !strings.Contains(message, outer.Path) {
		message += ": " + strings.TrimSpace(outer.Op+" "+outer.Path)
	}
	if remedy != "" && !strings.Contains(message, remedy) {
		message += " (" + remedy + ")"
	}
	return Answer{State: stateFailed, Message: slurmctl.OneLine(message)}
}
