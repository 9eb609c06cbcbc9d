package bbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// In a cluster, stage-ins, stage-outs and drains are jobs of all daemons (meta/jobs.go):
//
//	daemon that is asked ── submits ──▶ queue ──▶ any daemon: lists, and adds tasks
//	        │                             │   ╲──▶ any daemon with room: copies files in
//	        │                             ╰──────▶ a home: flushes, or copies out what it has
//	        ╰── follows the job and tells its client
//
// A task that a daemon did not end is given to another, or again to the home that it
// is meant for. If that is gone, another daemon stands in for it, which can do what
// concerns clean files and says of the others that their home is away.
const (
	tasksAtOnce = 2  // that anybody may do
	ownAtOnce   = 64 // that this node has to do: drains wait more than they work
	maxAttempts = 3  // of a task that cannot be begun, as when a store does not answer
	againAfter  = 2 * time.Second
	standInLook = 2 * time.Second
	// A home that has not been heard of for so long will not do its tasks soon.
	standInAfter = 10 * time.Second
	housekeeping = time.Hour // old jobs are forgotten
	lastWords    = 5 * time.Second
)

// The options of a job.
const (
	optionParallel = "parallel" // pieces at a time
	optionTimeout  = "timeout"  // of a drain
)

// hasJobs reports whether stages and drains are jobs. A daemon alone does them at once;
// so does one in a cluster with members that know of no jobs, as those do.
func (d *Daemon) hasJobs() bool {
	return d.cluster != nil && d.cluster.AllSupport("jobs", wire.VersionJobs) == nil
}

// runJobs does tasks until the daemon stops.
func (d *Daemon) runJobs() {
	d.wg.Go(func() { d.doTasks("", tasksAtOnce) })
	d.wg.Go(func() { d.doTasks(d.cfg.Node, ownAtOnce) })
	d.wg.Go(d.standIn)
	d.wg.Go(d.batch.Run)
}

// pause waits; false: the daemon stops.
func (d *Daemon) pause(t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-d.ctx.Done():
		return false
	}
}

// doTasks does the tasks of this node, or those that anybody may do.
func (d *Daemon) doTasks(of bb.NodeID, atOnce int64) {
	slots := semaphore.NewWeighted(atOnce)
	var group sync.WaitGroup
	defer group.Wait()
	for slots.Acquire(d.ctx, 1) == nil {
		if !d.mayTake(of) {
			slots.Release(1)
			if !d.pause(200 * time.Millisecond) {
				return
			}
			continue
		}
		l, err := d.meta.Operations().Next(d.ctx, of, d.cfg.Node)
		if err != nil {
			slots.Release(1)
			if !d.pause(time.Second) {
				return
			}
			continue
		}
		group.Go(func() {
			defer slots.Release(1)
			d.do(l)
		})
	}
}

// mayTake reports whether this daemon should take a task now.
func (d *Daemon) mayTake(of bb.NodeID) bool {
	if of != "" {
		return d.state.Load() == "ready"
	}
	return cluster.AcceptsTasks(d.Self(), d.cluster.Members())
}

// standIn does the tasks of nodes that are gone, if this daemon is the first of those
// that are there.
func (d *Daemon) standIn() {
	cleaned, swept := time.Now(), make(map[bb.InstanceID]bool)
	for d.pause(standInLook) {
		members := d.cluster.Members()
		if cluster.Coordinator(members) != d.cfg.Node {
			continue
		}
		for _, m := range members {
			if m.State.Gone() && time.Since(m.Since) > standInAfter {
				d.doTasksOf(m.Node)
				if m.Instance != 0 && !swept[m.Instance] {
					swept[m.Instance] = true
					d.wg.Go(d.sweepAll)
				}
			}
		}
		if time.Since(cleaned) > housekeeping {
			cleaned = time.Now()
			if _, err := d.meta.Operations().List(d.ctx); err != nil {
				d.log.Debug("forgetting old jobs", "err", err)
			}
		}
	}
}

// doTasksOf does what there is to do of a node that is gone.
func (d *Daemon) doTasksOf(node bb.NodeID) {
	for {
		l, err := d.meta.Operations().NextWithin(d.ctx, node, d.cfg.Node, standInLook)
		if l == nil || err != nil {
			return
		}
		d.do(l)
	}
}

// do does one task.
func (d *Daemon) do(l *ops.Lease) {
	last := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(d.ctx), lastWords)
	}
	defer func() {
		ctx, cancel := last()
		defer cancel()
		l.Release(ctx)
	}()
	tally, err := d.perform(l)
	if l.Context().Err() != nil {
		return // it is another's now, or will be
	}
	if err != nil && bb.KindOf(err) == bb.Unavailable && l.Attempt < maxAttempts {
		d.log.Info("a task of a job is put off", "job", l.Operation.ID, "task", l.Task.ID, "err", err)
		ctx, cancel := last()
		defer cancel()
		if err := l.Nak(ctx, againAfter); err != nil {
			d.log.Warn("giving a task back", "job", l.Operation.ID, "err", err)
		}
		return
	}
	if err != nil {
		// A failure without a path is the whole task's.
		tally.Failed = append(tally.Failed, ops.Failure{Kind: bb.KindOf(err), Reason: err.Error()})
		tally.FailedTotal++
	}
	if err := l.Done(d.ctx, tally); err != nil {
		d.log.Warn("ending a task of a job", "job", l.Operation.ID, "task", l.Task.ID, "err", err)
	}
}

// perform does what a task says, with the rights of who submitted the job.
func (d *Daemon) perform(l *ops.Lease) (ops.Tally, error) {
	j := &l.Operation
	b, err := d.buffer(l.Context(), j.Buffer)
	if err != nil {
		return ops.Tally{}, err
	}
	spec := b.Spec()
	if j.Options[ops.OptionCreated] != fmt.Sprint(spec.Created.UnixNano()) {
		return ops.Tally{}, bb.E(bb.NotFound, string(j.Kind), b.address(""), "the buffer was destroyed, and another one has its name")
	}
	c := access.Of(j.UID, j.GID)
	c.System = j.System
	if !c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
		return ops.Tally{}, access.Denied(string(j.Kind), b.address(""), "enter this buffer")
	}
	switch j.Kind {
	case ops.Drain:
		return b.drainTask(l)
	case ops.StageIn:
		return b.stageInTask(l, c)
	case ops.StageOut:
		return b.stageOutTask(l, c)
	}
	return ops.Tally{}, bb.E(bb.Unsupported, "job", string(j.Kind), "this daemon does not know such jobs")
}

// newJob makes a job of a request. The same key of the same user is the same job.
func (d *Daemon) newJob(r *rpc.Request, kind ops.Kind, b *buffer, key string) ops.Operation {
	if key == "" {
		key = fmt.Sprintf("%s.%d.%d.%d", d.cfg.Node, d.epoch, r.Session().ID(), r.ID())
	}
	c := r.Caller()
	return ops.Operation{
		ID: ops.ID(string(kind), fmt.Sprint(c.UID, c.System), key), Kind: kind, Buffer: b.name, UID: c.UID, GID: c.GIDs[0], System: c.System,
		Options: map[string]string{ops.OptionCreated: fmt.Sprint(b.Spec().Created.UnixNano())}, Created: time.Now().Round(0).UTC(),
	}
}

// follow tells the client how far a job is until it ends.
func (d *Daemon) follow(ctx context.Context, r *rpc.Request, id string) (ops.Status, error) {
	var last ops.Status
	err := d.meta.Operations().Watch(ctx, id, func(s ops.Status) {
		last = s
		if s.State == ops.Running {
			_ = r.More(progressOf(&s), nil) // if the client is gone, the request ends
		}
	})
	if err == nil && last.State == ops.Cancelled {
		err = bb.E(bb.Cancelled, string(last.Kind), last.ID, "the job was cancelled")
	}
	return last, err
}

// progressOf is how far a job is, without names.
func progressOf(s *ops.Status) *wire.Progress {
	t := &s.Tally
	return &wire.Progress{
		Job: s.ID, FilesTotal: max(s.FilesTotal, t.Files+t.FailedTotal), FilesDone: t.Files, FilesSkipped: t.Skipped,
		BytesTotal: max(s.BytesTotal, t.Bytes), BytesDone: t.Bytes, BytesNotCopied: t.NotCopied,
		FailedTotal: t.FailedTotal, HeldTotal: t.HeldTotal, OpenTotal: t.OpenTotal, LastError: t.LastError,
	}
}

// namesBytes bounds the names and reasons in one message.
const namesBytes = wire.MaxMessage / 2

// endOf is the last message about a job.
func endOf(s *ops.Status) *wire.Progress {
	p, t, room := progressOf(s), &s.Tally, namesBytes
	p.Done = true
	for _, f := range t.Failed {
		if room -= len(f.Path) + len(f.Reason); room < 0 {
			break
		}
		p.Failed = append(p.Failed, &wire.Failure{Path: f.Path, Kind: uint32(f.Kind), Reason: f.Reason, Bytes: f.Bytes})
	}
	for _, names := range []struct{ from, to *[]string }{{&t.Held, &p.Held}, {&t.Open, &p.Open}} {
		for _, name := range *names.from {
			if room -= len(name); room < 0 {
				break
			}
			*names.to = append(*names.to, name)
		}
	}
	return p
}

// tallyOf is what a task has come to.
func tallyOf(p *wire.Progress) ops.Tally {
	t := ops.Tally{
		Files: p.FilesDone, Bytes: p.BytesDone, NotCopied: p.BytesNotCopied, Skipped: p.FilesSkipped, FailedTotal: p.FailedTotal,
		Held: p.Held, HeldTotal: p.HeldTotal, Open: p.Open, OpenTotal: p.OpenTotal, LastError: p.LastError,
	}
	for _, f := range p.Failed {
		t.Failed = append(t.Failed, ops.Failure{Path: f.Path, Kind: bb.Kind(f.Kind), Reason: f.Reason, Bytes: f.Bytes})
	}
	return t
}

// away says that a node is the home of a file and does not answer.
func away(op, path string, node bb.NodeID) error {
	return &bb.Error{Kind: bb.Unavailable, Op: op, Path: path, Node: node, Err: errors.New(awayReason(node))}
}

func awayReason(node bb.NodeID) string {
	return fmt.Sprintf("its home, node %s, does not answer", node)
}

// maxJobs is how many jobs a list names: the newest.
const maxJobs = 1000

var errNoJobs = bb.E(bb.Unsupported, "jobs", "", "this daemon is alone: what it is asked to do it does at once")

// jobs lists the jobs of the buffers that the user may enter.
func (d *Daemon) jobs(ctx context.Context, r *rpc.Request, _ *wire.Empty) (proto.Message, error) {
	if d.cluster == nil {
		return nil, errNoJobs
	}
	all, err := d.meta.Operations().List(ctx)
	if err != nil {
		return nil, err
	}
	list := []bb.Job{}
	for i := range all {
		if len(list) < maxJobs && d.maySee(ctx, r.Session(), all[i].Buffer) {
			j := asJob(&all[i])
			j.Failed, j.Nodes = nil, nil
			list = append(list, j)
		}
	}
	text, err := json.Marshal(list)
	return &wire.JobReply{Json: text}, err
}

// job describes one job, or follows it until it ends.
func (d *Daemon) job(ctx context.Context, r *rpc.Request, m *wire.JobRequest) (proto.Message, error) {
	s, err := d.visibleJob(ctx, r, m.Id)
	if err != nil {
		return nil, err
	}
	if m.Watch {
		err := d.meta.Operations().Watch(ctx, m.Id, func(now ops.Status) {
			s = now
			if text, err := json.Marshal(asJob(&now)); err == nil && now.State == ops.Running {
				_ = r.More(&wire.JobReply{Json: text}, nil)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(asJob(&s))
	return &wire.JobReply{Json: text}, err
}

// cancelJob ends a job: what waits is dropped, and what is under way ends within seconds.
func (d *Daemon) cancelJob(ctx context.Context, r *rpc.Request, m *wire.JobRequest) (proto.Message, error) {
	s, err := d.visibleJob(ctx, r, m.Id)
	if err != nil {
		return nil, err
	}
	if !r.Caller().Owns(s.UID) {
		return nil, access.Denied("cancel job", m.Id, "cancel what another user has asked for")
	}
	return &wire.Empty{}, d.meta.Operations().Cancel(ctx, m.Id)
}

func (d *Daemon) visibleJob(ctx context.Context, r *rpc.Request, id string) (ops.Status, error) {
	if d.cluster == nil {
		return ops.Status{}, errNoJobs
	}
	s, err := d.meta.Operations().Status(ctx, id)
	if err == nil && !d.maySee(ctx, r.Session(), s.Buffer) {
		err = access.Denied("job", id, "enter its buffer")
	}
	return s, err
}

// jobState is a job's state as users see it: one whose tasks have ended is done only if they
// have left nothing out.
func jobState(s *ops.Status) string {
	t := &s.Tally
	switch {
	case s.State != ops.Done:
		return string(s.State)
	case t.FailedTotal > 0:
		return bb.JobFailed
	case t.HeldTotal+t.OpenTotal > 0:
		return bb.JobIncomplete
	}
	return string(ops.Done)
}

// asJob is a job as users see it.
func asJob(s *ops.Status) bb.Job {
	p := endOf(s)
	j := bb.Job{
		ID: s.ID, Kind: string(s.Kind), Buffer: s.Buffer, Path: s.Path, URL: s.URL, UID: s.UID, State: jobState(s),
		Created: s.Created, Ended: s.Ended, Tasks: s.Tasks, Running: s.Running, TasksDone: s.TasksDone,
		Files: p.FilesTotal, FilesDone: p.FilesDone, Skipped: p.FilesSkipped, Bytes: p.BytesTotal, BytesDone: p.BytesDone, BytesNotCopied: p.BytesNotCopied,
		FailedTotal: p.FailedTotal, HeldTotal: p.HeldTotal, OpenTotal: p.OpenTotal, LastError: p.LastError,
	}
	for _, f := range p.Failed {
		j.Failed = append(j.Failed, bb.JobFailure{Path: f.Path, Kind: bb.Kind(f.Kind).String(), Reason: strings.ToValidUTF8(f.Reason, "?"), Bytes: f.Bytes})
	}
	if len(s.ByNode) > 0 {
		j.Nodes = make(map[bb.NodeID]bb.JobShare, len(s.ByNode))
		for node, t := range s.ByNode {
			j.Nodes[node] = bb.JobShare{Files: t.Files, Bytes: t.Bytes}
		}
	}
	return j
}
