package staging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/transfer"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// A stage begins with one task, planning, for any node. It lists the files to copy and adds the
// tasks that copy them. Planning again adds nothing that is there already, since a task's id is
// made of its content.
const (
	planTask  = "plan"
	taskFiles = 64
	taskBytes = 1 << 30
	taskText  = 96 << 10 // of the names and attributes
)

// stageTask is the content of a task: the files to copy in, or out.
type stageTask struct {
	In  []stage.Found   `json:",omitempty"`
	Out []stage.Leaving `json:",omitempty"`
}

// run submits a stage and follows it. One that runs already, of the same files to or from the same
// place, is followed first. Its copied files are not copied again, but checked, since it may have
// begun before something was put there.
func (v *Service) run(ctx context.Context, r call.Request, kind ops.Kind, s *job, at, name string, m *wire.Stage) (proto.Message, error) {
	spec := s.b.Spec()
	j := v.o.Transfers.New(r, kind, &spec, m.Key)
	j.Path, j.URL = m.Path, m.Url
	if m.Parallel > 0 {
		j.Options[transfer.OptionParallel] = fmt.Sprint(m.Parallel)
	}
	running, err := v.o.Operations.Running(ctx, func(o *ops.Operation) bool {
		return o.Kind == kind && o.Buffer == j.Buffer && o.Path == j.Path && o.URL == j.URL && o.UID == j.UID && o.System == j.System
	})
	switch {
	case err == nil && running.ID != j.ID:
		if _, err := v.o.Transfers.Follow(ctx, r, running.ID); err != nil && bb.KindOf(err) != bb.Cancelled && bb.KindOf(err) != bb.NotFound {
			return nil, bb.Wrap(string(kind), m.Url, err)
		}
	case err != nil && bb.KindOf(err) != bb.NotFound:
		return nil, bb.Wrap(string(kind), m.Url, err)
	}
	if _, err := v.o.Operations.Submit(ctx, j, ops.Task{ID: planTask}); err != nil {
		return nil, bb.Wrap(string(kind), m.Url, err)
	}
	status, err := v.o.Transfers.Follow(ctx, r, j.ID)
	if err != nil {
		return nil, bb.Wrap(string(kind), m.Url, err)
	}
	for _, f := range status.Tally.Failed {
		if f.Path == "" { // not of one file, so there is nothing to copy, or it cannot be listed
			return nil, bb.E(f.Kind, string(kind), m.Url, f.Reason)
		}
	}
	if kind == ops.StageOut {
		if err := s.endOut(ctx, at, s.outName(ctx, at, name)); err != nil {
			return nil, bb.Wrap(string(kind), m.Url, err)
		}
	}
	if kind == ops.StageIn {
		if err := s.end(ctx, name, s.inTarget(ctx, at, name)); err != nil {
			return nil, bb.Wrap(string(kind), m.Url, err)
		}
		if err := s.stagedAway(ctx, &status, at, name); err != nil {
			return nil, bb.Wrap(string(kind), m.Url, err)
		}
	}
	return transfer.EndOf(&status), nil
}

// planner gathers files into tasks and adds them.
type planner struct {
	v    *Service
	job  string
	open map[bb.NodeID]*planned
}

// planned is a task that is not full yet.
type planned struct {
	task         stageTask
	ids          []string
	files, bytes int64
	text         int
}

func (v *Service) newPlanner(job string) *planner {
	return &planner{v: v, job: job, open: make(map[bb.NodeID]*planned)}
}

// add puts a file into a node's next task ("": any node's), and adds that if it is full.
func (p *planner) add(ctx context.Context, node bb.NodeID, id string, bytes int64, put func(*stageTask)) error {
	t := p.open[node]
	if t == nil {
		t = new(planned)
		p.open[node] = t
	}
	put(&t.task)
	t.ids = append(t.ids, id)
	t.files++
	t.bytes += bytes
	t.text += 3*len(id) + 300
	if t.files < taskFiles && t.bytes < taskBytes && t.text < taskText {
		return nil
	}
	delete(p.open, node)
	return p.submit(ctx, node, t)
}

// end adds the tasks that are not full.
func (p *planner) end(ctx context.Context) error {
	for node, t := range p.open {
		if err := p.submit(ctx, node, t); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) submit(ctx context.Context, node bb.NodeID, t *planned) error {
	data, err := json.Marshal(&t.task)
	if err != nil {
		return &bb.Error{Kind: bb.Internal, Op: "plan", Err: err}
	}
	id := ops.ID(append(t.ids, string(node))...)
	return p.v.o.Operations.AddTasks(ctx, p.job, []ops.Task{{ID: id, Node: node, Data: data, Files: t.files, Bytes: t.bytes}})
}

// taskOptions has a stage report a task's progress.
func taskOptions(l *ops.Lease) stage.Options {
	parallel, _ := strconv.Atoi(l.Operation.Options[transfer.OptionParallel])
	return stage.Options{Parallel: min(parallel, maxParallel), Progress: func(now stage.Progress) { l.Progress(tallyOfStage(&now)) }}
}

func tallyOfStage(p *stage.Progress) ops.Tally {
	return ops.Tally{
		Files: p.FilesDone - p.Failed, Bytes: p.BytesDone, NotCopied: p.BytesNotCopied, Skipped: p.Skipped, FailedTotal: p.Failed,
	}
}

// tallyOfReport is the result of a task of a stage.
func tallyOfReport(report *stage.Report) ops.Tally {
	t := tallyOfStage(&report.Progress)
	for _, f := range report.Failures {
		t.Failed = append(t.Failed, ops.Failure{Path: f.Name, Kind: bb.KindOf(f.Err), Reason: f.Err.Error(), Bytes: f.Bytes})
	}
	return t
}

// InTask does a task of a stage-in, with a user's rights.
func (v *Service) InTask(l *ops.Lease, b Buffer, c access.Caller) (ops.Tally, error) {
	s, target, name, err := v.open(l.Context(), b, c, "stage-in", l.Operation.Path, l.Operation.URL)
	if err != nil {
		return ops.Tally{}, err
	}
	defer s.remote.Close()
	if l.Task.ID == planTask {
		return s.planIn(l, target, name)
	}
	t, err := taskOf(l)
	if err != nil {
		return ops.Tally{}, err
	}
	report := inAgain(l.Context(), t.In, s.b.Spec().Codec, func(found []stage.Found, before stage.Progress) stage.Report {
		o := taskOptions(l)
		o.Progress = func(now stage.Progress) {
			all := plus(before, now)
			l.Progress(tallyOfStage(&all))
		}
		// Its error is the report's, or the context's.
		report, _ := stage.InFound(l.Context(), s.remote, found, s, stage.InOptions{Options: o, Codec: s.b.Spec().Codec})
		return report
	})
	if err := s.sendToOwners(l, t.In, &report); err != nil {
		return ops.Tally{}, err
	}
	return tallyOfReport(&report), nil
}

func taskOf(l *ops.Lease) (t stageTask, err error) {
	if err = json.Unmarshal(l.Task.Data, &t); err != nil {
		err = &bb.Error{Kind: bb.Internal, Op: string(l.Operation.Kind), Path: l.Task.ID, Err: err}
	}
	return t, err
}

// planIn lists the source.
func (s *job) planIn(l *ops.Lease, target, name string) (ops.Tally, error) {
	ctx, p := l.Context(), s.of.newPlanner(l.Operation.ID)
	target = s.inTarget(ctx, target, name)
	dirs, odd, err := s.begin(ctx, name, target, false)
	if err != nil || dirs == 0 && len(odd) > 0 {
		return tallyOfOdd(odd), err
	}
	found := false
	err = stage.Find(ctx, s.remote, name, target, func(f stage.Found) error {
		found = true
		if _, err := bb.CleanPath(f.Target); err != nil { // a task holds text, not other bytes
			odd = append(odd, stage.Failure{Name: f.Target, Bytes: f.Object.Size, Err: bb.Wrap("stage-in", f.Object.Name, err)})
			return nil
		}
		return p.add(ctx, "", f.Object.Name, f.Object.Size, func(t *stageTask) { t.In = append(t.In, f) })
	})
	if dirs > 0 && !found && bb.KindOf(err) == bb.NotFound {
		err = nil // empty directories
	}
	if err == nil {
		err = p.end(ctx)
	}
	return tallyOfOdd(odd), err
}

// sendToOwners makes tasks of the files that take the place of dirty ones whose owners are other nodes.
// Only these can replace them.
func (s *job) sendToOwners(l *ops.Lease, found []stage.Found, report *stage.Report) error {
	p, left := s.of.newPlanner(l.Operation.ID), report.Failures[:0:0]
	targets := make(map[string]stage.Found, len(found))
	for _, f := range found {
		target, _ := stage.Plain(f.Target, s.b.Spec().Codec)
		targets[target] = f
	}
	for _, failure := range report.Failures {
		there, f := NotOwner(nil), stage.Found{}
		known := errors.As(failure.Err, &there)
		if known {
			f, known = targets[failure.Name]
		}
		if !known {
			left = append(left, failure)
			continue
		}
		err := p.add(l.Context(), there.Owner(), f.Object.Name, f.Object.Size, func(t *stageTask) { t.In = append(t.In, f) })
		if err != nil {
			return err
		}
		report.Failed--
		report.FilesDone--
		report.Files--
		report.Bytes -= f.Object.Size
		report.BytesDone -= f.Object.Size
	}
	report.Failures = left
	l.Expect(report.Files, report.Bytes)
	return p.end(l.Context())
}

// OutTask does a task of a stage-out, with a user's rights.
func (v *Service) OutTask(l *ops.Lease, b Buffer, c access.Caller) (ops.Tally, error) {
	s, source, name, err := v.open(l.Context(), b, c, "stage-out", l.Operation.Path, l.Operation.URL)
	if err != nil {
		return ops.Tally{}, err
	}
	defer func() { s.remote.Close() }()
	if l.Task.ID == planTask {
		return s.planOut(l, source, name)
	}
	t, err := taskOf(l)
	if err != nil {
		return ops.Tally{}, err
	}
	s.sweeps(l.Operation.ID, l.Attempt > 1)
	report, _ := stage.OutFiles(l.Context(), s, t.Out, s.remote, taskOptions(l))
	return tallyOfReport(&report), nil
}

// planOut walks the tree, and assigns each file to its owner. Of an owner that does not
// answer, clean files go to any node, and the others cannot be copied.
func (s *job) planOut(l *ops.Lease, source, name string) (t ops.Tally, err error) {
	ctx, p, found := l.Context(), s.of.newPlanner(l.Operation.ID), false
	name = s.outName(ctx, source, name)
	dirs, odd, err := s.beginOut(ctx, source, name, false)
	if err != nil {
		return t, err
	}
	t = tallyOfOdd(odd)
	err = s.files(ctx, source, func(at string, e *bb.Entry) error {
		found = true
		node := s.b.Owner(e)
		if !s.of.o.Cluster.Reachable(node) {
			if !s.b.Adoptable(e) {
				t.FailedTotal++
				if len(t.Failed) < transfer.MaxNamed {
					t.Failed = append(t.Failed, ops.Failure{Path: at, Kind: bb.Unavailable, Reason: cluster.AwayReason(node), Bytes: e.Size})
				}
				return nil
			}
			node = ""
		}
		file := stage.Leaving{Entry: Leaving(at, e), Name: stage.Under(source, name, at)}
		return p.add(ctx, node, at, e.Size, func(t *stageTask) { t.Out = append(t.Out, file) })
	})
	if err == nil && !found && dirs == 0 {
		err = bb.E(bb.NotFound, "stage-out", s.address(source), "there is nothing under this path")
	}
	if err != nil {
		return t, err
	}
	return t, p.end(ctx)
}
