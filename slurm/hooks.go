package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"forebay/client"
	"forebay/internal/bb"
)

// Hooks does what burst_buffer.lua asks for: a verb for each function that runs outside
// of slurmctld. Slurm may end a verb at any moment and begin its stage again, also on
// another machine that has the same folder: what is done is found done, and work that
// the daemons were given goes on without anybody waiting for it.
type Hooks struct {
	Settings Settings
	Slurm    Controller
	// Dial connects as a user. Everything that a user has named is done with his rights.
	Dial func(context.Context, client.User) (*client.Client, error)
	// Log takes what happens besides, one line each; nil: nobody.
	Log func(string)
}

// Answer is how a verb has ended. Message is one line, and its first words say it all:
// Slurm shows them as the job's reason.
type Answer struct {
	State   string `json:"state"` // done, busy, failed
	Message string `json:"message,omitempty"`
}

// The states of a stage and of an Answer.
const (
	stateRunning = "running"
	stateDone    = "done"
	stateBusy    = "busy"
	stateFailed  = "failed"
)

// The pauses between attempts.
const (
	firstPause = 2 * time.Second
	lastPause  = 15 * time.Second
	fenceLook  = 500 * time.Millisecond
	lastWords  = 5 * time.Second
)

// How long is tried what is in the way of others: a job's nodes wait for pre-run, and
// Slurm runs a bounded number of teardowns at a time. The reaper goes on with the latter.
const (
	preRunLimit   = 2 * time.Minute
	teardownLimit = 10 * time.Minute
)

// SetupRequest is what Slurm tells slurm_bb_setup.
type SetupRequest struct {
	Job      string
	UID, GID uint32
	Pool     string // "": none
	Bytes    int64  // that Slurm has counted from the pool
	Script   []byte
	Expanded bool // Slurm has replaced the symbols in it
}

// Setup reads a job's directives, remembers them, and makes its buffers.
func (h *Hooks) Setup(ctx context.Context, q *SetupRequest) Answer {
	info, err := h.Slurm.Job(ctx, q.Job)
	if err != nil {
		return failed(err)
	}
	info.UID, info.GID = q.UID, q.GID
	o := h.Settings.options()
	o.Expanded = q.Expanded
	req, problems := Parse(q.Script, o)
	if err := problems.Err(); err != nil {
		return failed(err)
	}
	r := &record{
		Job: info, Directives: directivesOf(q.Script), Words: o.Words, Expanded: q.Expanded, Granted: q.Bytes, Pool: q.Pool,
		Stages: map[string]stage{}, Created: time.Now().Round(0).UTC(),
	}
	if req.Job != nil {
		r.Buffer = info.bufferName(h.Settings.Cluster)
	}
	work, err := req.Resolve(info.vars(r.Buffer))
	if err != nil {
		return failed(err)
	}
	if err := h.records().begin(r); err != nil {
		return failed(err)
	}
	return h.stage(ctx, r, "setup", func() (string, error) {
		env := strings.Join(append(req.Env(info.vars(r.Buffer)), h.Settings.Env...), "\n")
		if env != "" {
			env += "\n"
		}
		if err := writeWhole(h.records().env(info.ID), []byte(env), 0o644); err != nil {
			return "", err
		}
		return warningsOf(problems), h.persist(ctx, r, "setup", h.Settings.stageInLimit(), transient, func() error { return h.makeBuffers(ctx, r, work) })
	})
}

// directivesOf is what of a script is worth remembering: its first comments.
func directivesOf(script []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(script)) {
		if line[0] != '#' && line[0] != '\n' {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func warningsOf(problems Problems) string {
	var lines []string
	for _, p := range problems.Warnings() {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "; ")
}

// makeBuffers makes those that are missing, and looks whether the others can be used.
func (h *Hooks) makeBuffers(ctx context.Context, r *record, w *Work) error {
	c, err := h.dial(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range w.Creates {
		if err := createOnce(ctx, c, &w.Creates[i]); err != nil {
			return err
		}
	}
	for _, name := range w.Uses {
		if _, err := c.BufferInfo(ctx, name); err != nil {
			return bb.Wrap("persistentbb", name, err)
		}
	}
	if w.Job == nil {
		return nil
	}
	return createOnce(ctx, c, w.Job)
}

// createOnce makes a buffer. One that this user has made before, in this stage or in an
// earlier attempt, will do.
func createOnce(ctx context.Context, c *client.Client, spec *bb.Buffer) error {
	_, err := c.CreateBuffer(ctx, *spec)
	if bb.KindOf(err) != bb.Exists {
		return err
	}
	there, err := c.BufferInfo(ctx, spec.Name)
	switch {
	case err != nil:
		return err
	case there.UID != spec.UID || there.Backing != spec.Backing || there.Job != spec.Job:
		return bb.E(bb.Exists, "create_persistent", spec.Name, "there is another buffer of this name").WithRemedy("use another name, or persistentbb")
	}
	return nil
}

// DataIn copies into the buffers what the job needs before it starts. Wait bounds how
// long it is waited for; the answer is "busy" then, and the daemons go on.
func (h *Hooks) DataIn(ctx context.Context, job string, wait time.Duration) Answer {
	return h.with(job, func(r *record, req *Request, w *Work) Answer {
		return h.waiting(ctx, r, "data-in", wait, func(ctx context.Context) (string, error) {
			var skipped []string
			for i, s := range w.In {
				err := h.persist(ctx, r, "data-in", h.Settings.stageInLimit(), transient, func() error {
					c, err := h.dial(ctx, r)
					if err != nil {
						return err
					}
					defer c.Close()
					_, err = c.StageIn(ctx, client.StageRequest{Buffer: s.Buffer, Path: s.Path, URL: s.URL}, nil)
					return about("stage_in", s.URL, err)
				})
				switch {
				case err == nil:
				case ctx.Err() == nil && s.ContinueOnError:
					skipped = append(skipped, fmt.Sprintf("stage_in %d failed, and the job runs all the same: %s", i+1, failed(err).Message))
				default:
					return "", err
				}
			}
			return strings.Join(skipped, "; "), nil
		})
	})
}

// RealSize is how many bytes of the pool the job has: what Slurm has counted.
func (h *Hooks) RealSize(job string) Answer {
	return h.with(job, func(r *record, _ *Request, _ *Work) Answer {
		return Answer{State: stateDone, Message: strconv.FormatInt(r.Granted, 10)}
	})
}

// Paths are the variables of the job as NAME=value lines, as slurm_bb_paths finds them.
func (h *Hooks) Paths(job string) Answer {
	return h.with(job, func(r *record, req *Request, _ *Work) Answer {
		text, err := os.ReadFile(h.records().env(r.Job.ID))
		if err != nil {
			return failed(bb.Wrap("paths", job, err))
		}
		return Answer{State: stateDone, Message: strings.TrimSuffix(string(text), "\n")}
	})
}

// PreRun looks whether all is there that the job is to find.
func (h *Hooks) PreRun(ctx context.Context, job string) Answer {
	return h.with(job, func(r *record, _ *Request, w *Work) Answer {
		return h.stage(ctx, r, "pre-run", func() (string, error) {
			return "", h.persist(ctx, r, "pre-run", preRunLimit, transient, func() error { return h.lookFor(ctx, r, w) })
		})
	})
}

func (h *Hooks) lookFor(ctx context.Context, r *record, w *Work) error {
	c, err := h.dial(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close()
	names := w.Uses
	if w.Job != nil {
		names = append([]string{w.Job.Name}, names...)
	}
	for _, name := range names {
		if _, err := c.BufferInfo(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// PostRun is the fence: it waits until nothing of the job runs anywhere. Slurm begins
// its hook while tasks still write (those that ignore TERM, for as long as KillWait) and
// before any Epilog; the state COMPLETING ends when all Epilogs have, or their node is
// down.
func (h *Hooks) PostRun(ctx context.Context, job string) Answer {
	return h.with(job, func(r *record, _ *Request, _ *Work) Answer {
		return h.stage(ctx, r, "post-run", func() (string, error) {
			for {
				info, err := h.Slurm.Job(ctx, job)
				switch {
				case bb.KindOf(err) == bb.NotFound:
					return "Slurm does not know the job any more", nil
				case err != nil && !transient(err):
					return "", err
				case err == nil && !strings.Contains(info.State, "COMPLETING"):
					r.Well = info.endedWell()
					return "", nil
				}
				if !pause(ctx, fenceLook) {
					return "", context.Cause(ctx)
				}
			}
		})
	})
}

// DataOut copies out what the job has asked for, and drains its buffer. It does not give
// up as long as that may help: what Slurm does after a failure is to drop the data.
func (h *Hooks) DataOut(ctx context.Context, job string, wait time.Duration) Answer {
	return h.with(job, func(r *record, _ *Request, w *Work) Answer {
		return h.waiting(ctx, r, "data-out", wait, func(ctx context.Context) (string, error) { return h.dataOut(ctx, r, w) })
	})
}

func (h *Hooks) dataOut(ctx context.Context, r *record, w *Work) (string, error) {
	if !r.ran() {
		return "the job did not run", nil
	}
	if len(w.Out) == 0 && (w.Job == nil || w.Job.Backing == "") {
		return "", nil
	}
	var said []string
	for i, s := range w.Out {
		if s.OnSuccess && !r.Well {
			said = append(said, fmt.Sprintf("stage_out %d was for a job that ends well", i+1))
			continue
		}
		note := ""
		err := h.persist(ctx, r, "data-out", 0, retried, func() (err error) {
			note, err = h.copyOut(ctx, r, s)
			return err
		})
		if err != nil {
			return "", err
		}
		if note != "" {
			said = append(said, note)
		}
	}
	if w.Job != nil && w.Job.Backing != "" {
		err := h.persist(ctx, r, "data-out", 0, retried, func() error { return h.drain(ctx, r, w.Job.Name) })
		if bb.KindOf(err) == bb.Lost {
			return "bytes are lost: " + err.Error(), nil
		}
		if err != nil {
			return "", err
		}
	}
	return strings.Join(said, "; "), nil
}

// copyOut carries one stage_out out. What is not there cannot be kept.
func (h *Hooks) copyOut(ctx context.Context, r *record, s Stage) (string, error) {
	c, err := h.dial(ctx, r)
	if err != nil {
		return "", err
	}
	defer c.Close()
	address := bb.Address{Buffer: s.Buffer, Path: s.Path}.String()
	if _, err := c.Buffer(s.Buffer).Stat(ctx, s.Path); bb.KindOf(err) == bb.NotFound {
		return "nothing was written to " + address, nil
	}
	report, err := c.StageOut(ctx, client.StageRequest{Buffer: s.Buffer, Path: s.Path, URL: s.URL}, nil)
	if err != nil && onlyLost(&report) {
		return fmt.Sprintf("%d files of %s are lost", report.FailedTotal, address), nil
	}
	return "", about("stage_out", s.URL, err)
}

// about says which directive failed, around why it did.
func about(directive, url string, err error) error {
	if err == nil {
		return nil
	}
	return &bb.Error{Kind: bb.KindOf(err), Op: directive, Path: url, Err: err}
}

// onlyLost reports whether nothing but lost bytes is in the way: trying again does not
// bring them back.
func onlyLost(r *client.Report) bool {
	for _, f := range r.Failed {
		if f.Kind != bb.Lost {
			return false
		}
	}
	return len(r.Failed) > 0 && int64(len(r.Failed)) == r.FailedTotal
}

func (h *Hooks) drain(ctx context.Context, r *record, buffer string) error {
	c, err := h.dial(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close()
	report, err := c.Drain(ctx, buffer, 0, nil)
	if err != nil && onlyLost(&report) {
		return &bb.Error{Kind: bb.Lost, Op: "drain", Path: buffer, Err: fmt.Errorf("lost: %d files", report.FailedTotal)}
	}
	return err
}

// Teardown ends what belongs to the job. Hurry is that data need not be kept: its user
// has said so (scancel --hurry), or the job did not run.
func (h *Hooks) Teardown(ctx context.Context, job string, hurry bool) Answer {
	r, err := h.records().load(job)
	if bb.KindOf(err) == bb.NotFound {
		return Answer{State: stateDone, Message: "nothing is known of the job"}
	}
	if err != nil {
		return failed(err)
	}
	return h.teardown(ctx, r, hurry)
}

func (h *Hooks) teardown(ctx context.Context, r *record, hurry bool) Answer {
	if r.over() {
		return Answer{State: stateDone}
	}
	_, w, err := r.request(h.Settings.options())
	if err != nil {
		return failed(err)
	}
	return h.stage(ctx, r, "teardown", func() (string, error) {
		said := ""
		if !hurry && r.ran() && !r.done("data-out") {
			// As after a restart of slurmctld that had forgotten the job.
			if said, err = h.dataOut(ctx, r, w); err != nil {
				return "", err
			}
		}
		err = h.persist(ctx, r, "teardown", teardownLimit, transient, func() error { return h.destroy(ctx, r, w, hurry) })
		return said, errors.Join(err, h.records().dropEnv(r))
	})
}

func (h *Hooks) destroy(ctx context.Context, r *record, w *Work, hurry bool) error {
	c, err := h.dial(ctx, r)
	if err != nil {
		return err
	}
	defer c.Close()
	if w.Job != nil {
		// Nothing of a scratch buffer is ever flushed: what was to be kept is copied out.
		if err := destroyed(c.DestroyBuffer(ctx, w.Job.Name, hurry || w.Job.Backing == "")); err != nil {
			return err
		}
	}
	for _, d := range w.Destroys {
		if !r.ran() {
			break
		}
		if err := destroyed(c.DestroyBuffer(ctx, d.Name, d.Hurry)); err != nil {
			return err
		}
	}
	return nil
}

// destroyed takes it for good that a buffer is gone already.
func destroyed(err error) error {
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

func (h *Hooks) records() records { return records{h.Settings.Folder} }

func (h *Hooks) dial(ctx context.Context, r *record) (*client.Client, error) {
	return h.Dial(ctx, client.User{UID: r.Job.UID, GID: r.Job.GID})
}

func (h *Hooks) log(format string, args ...any) {
	if h.Log != nil {
		h.Log(fmt.Sprintf(format, args...))
	}
}

// with loads what is known of a job.
func (h *Hooks) with(job string, do func(*record, *Request, *Work) Answer) Answer {
	r, err := h.records().load(job)
	if err != nil {
		return failed(err)
	}
	req, w, err := r.request(h.Settings.options())
	if err != nil {
		return failed(err)
	}
	return do(r, req, w)
}

// stage carries a verb out and writes down how it ended.
func (h *Hooks) stage(ctx context.Context, r *record, verb string, do func() (string, error)) Answer {
	h.mark(r, verb, stateRunning, "")
	stop := h.records().beat(r)
	message, err := do()
	stop()
	if err != nil {
		a := failed(err)
		h.mark(r, verb, a.State, a.Message)
		return a
	}
	if message != "" {
		h.note(ctx, r, verb+": "+message)
	}
	if err := h.mark(r, verb, stateDone, message); err != nil {
		return failed(err)
	}
	return Answer{State: stateDone, Message: message}
}

// waiting is stage for work that takes long, with a bound for the time that is waited.
func (h *Hooks) waiting(ctx context.Context, r *record, verb string, wait time.Duration, do func(context.Context) (string, error)) Answer {
	if r.done(verb) {
		return Answer{State: stateDone, Message: r.Stages[verb].Message}
	}
	limited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	a := h.stage(ctx, r, verb, func() (string, error) { return do(limited) })
	if a.State == stateFailed && limited.Err() != nil && ctx.Err() == nil {
		h.mark(r, verb, stateRunning, "")
		return Answer{State: stateBusy}
	}
	return a
}

// mark writes down how a stage stands, and keeps what other verbs have written meanwhile:
// a teardown in a hurry runs beside the data-out that it ends.
func (h *Hooks) mark(r *record, verb, state, message string) error {
	h.records().refresh(r)
	r.Stages[verb] = stage{State: state, Message: message, Since: time.Now().Round(0).UTC()}
	err := h.records().save(r)
	if err != nil {
		h.log("job %s: %s: %v", r.Job.ID, verb, err)
	}
	return err
}

// note shows something in the job's record. It is not worth failing for.
func (h *Hooks) note(ctx context.Context, r *record, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := h.Slurm.Note(ctx, r.Job.ID, text); err != nil {
		h.log("job %s: %v", r.Job.ID, err)
	}
}

// persist tries something again for as long as that may help (again says so of an error),
// at most for limit (0: for ever), and shows the job's user what is in the way.
func (h *Hooks) persist(ctx context.Context, r *record, verb string, limit time.Duration, again func(error) bool, do func() error) error {
	began := time.Now()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		err := do()
		if err == nil || ctx.Err() != nil || !again(err) || limit > 0 && time.Since(began) > limit {
			return err
		}
		text := fmt.Sprintf("%s is tried again: %s", verb, failed(err).Message)
		h.mark(r, verb, stateRunning, text)
		h.note(ctx, r, text)
		h.log("job %s: %s", r.Job.ID, text)
		if !pause(ctx, wait) {
			return err
		}
		// A teardown in a hurry does not wait for us.
		if now, err := h.records().load(r.Job.ID); err == nil && now.sameLife(&r.Job) && now.over() {
			return bb.E(bb.Cancelled, verb, r.Job.ID, "the job was torn down meanwhile")
		}
	}
}

// transient reports whether an error may pass by itself.
func transient(err error) bool { return bb.KindOf(err) == bb.Unavailable }

// retried reports whether data are worth another attempt to save them. Whatever is in the
// way of it can be mended from outside, but for bytes that are gone.
func retried(err error) bool { return bb.KindOf(err) != bb.Lost }

// pause waits; false: the context ended.
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

// failed puts the reason first: Slurm shows the beginning of a message. What it was about
// comes behind it.
func failed(err error) Answer {
	var outer *bb.Error
	if !errors.As(err, &outer) {
		return Answer{State: stateFailed, Message: OneLine(err.Error())}
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
	return Answer{State: stateFailed, Message: OneLine(message)}
}
