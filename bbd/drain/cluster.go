package drain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// A drain is a task for each node, which flushes its own files, and one for any node, which names
// the superseded steps, and the unsaved files of the owners that are not among them.

// awayTask is the data of the latter.
type awayTask struct {
	Asked []bb.NodeID // nodes with tasks of their own
}

// drainGrace is the daemons' extra time after the drain's timeout to report it.
const drainGrace = 5 * time.Second

// maxRounds is how often all daemons get requests for one drain.
const maxRounds = 5

// everywhere has every daemon flush its own files, and adds the unsaved files of the owners that do not
// answer.
//
// A file that moves from a node that has yet to do its share to one that has done it
// would be left out, so all get another request as long as a file that was dirty after the last
// round is so still. The namespace decides.
//
// timed ends when the drain's time is over. ctx ends when its caller stops waiting.
func (c scope) everywhere(ctx, timed context.Context, r call.Request, m *wire.Drain) (answer *wire.Progress, left rest, err error) {
	var before map[content]string
	again := proto.CloneOf(m)
	for round := range maxRounds {
		if c.s.o.Transfers.Available() && m.Below == "" && !m.Overwrite {
			answer, err = c.asOperation(ctx, r, again)
		} else {
			answer, err = c.askEach(ctx, timed, r, again)
		}
		if err != nil {
			return nil, left, err
		}
		if left, err = c.rest(ctx); err != nil {
			return nil, left, err
		}
		if round > 0 {
			maps.DeleteFunc(left.dirty, func(of content, _ string) bool { return before[of] == "" }) // written since
		}
		if !transfer.Saved(answer) || len(left.dirty) == 0 {
			return answer, left, nil
		}
		before = left.dirty
		// Another operation, and the same one for a client that repeats the request at another daemon.
		again.Key = fmt.Sprintf("%s again %d", cmp.Or(m.Key, fmt.Sprint(c.s.o.Epoch, r.SessionID(), r.ID())), round)
	}
	return movedAround(before), left, nil
}

// Tasks returns the tasks of a drain on nodes.
func Tasks(nodes []bb.NodeID) ([]ops.Task, error) {
	slices.Sort(nodes)
	data, err := json.Marshal(awayTask{nodes})
	tasks := []ops.Task{{ID: "away", Data: data}}
	for _, node := range nodes {
		tasks = append(tasks, ops.Task{ID: ops.ID("node", string(node)), Node: node})
	}
	return tasks, err
}

// asOperation has every daemon do its share once, as an operation.
func (c scope) asOperation(ctx context.Context, r call.Request, m *wire.Drain) (*wire.Progress, error) {
	tasks, err := Tasks(append(c.s.o.Cluster.Others(), c.s.o.Node))
	if err != nil {
		return nil, err
	}
	spec := c.Spec()
	j := c.s.o.Transfers.New(r, ops.Drain, &spec, m.Key)
	j.Options[transfer.OptionTimeout] = time.Duration(m.TimeoutNs).String()
	if _, err := c.s.o.Operations.Submit(ctx, j, tasks...); err != nil {
		return nil, err
	}
	timed, cancel := withGrace(ctx, m)
	defer cancel()
	status, err := c.s.o.Transfers.Follow(timed, r, j.ID)
	switch {
	case err != nil && (timed.Err() == nil || ctx.Err() != nil):
		return nil, err
	case err == nil:
		return transfer.EndOf(&status), nil
	}
	// Some have not even reported that they did not come to an end.
	answer := transfer.EndOf(&status)
	return answer, c.addAway(ctx, answer, func(owner bb.NodeID) bool { return slices.Contains(status.Left, owner) })
}

// withGrace returns the context of drain requests to other daemons. They are left the time to
// report their unsaved files.
func withGrace(ctx context.Context, m *wire.Drain) (context.Context, context.CancelFunc) {
	if m.TimeoutNs <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(m.TimeoutNs)+drainGrace)
}

// Task does one task of a drain of a buffer.
func (s *Service) Task(l *ops.Lease, b Buffer) (ops.Tally, error) {
	ctx, c := l.Context(), s.scope(b, "")
	if t, err := time.ParseDuration(l.Operation.Options[transfer.OptionTimeout]); err == nil && t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	if l.Task.Node == s.o.Node {
		p := transfer.NewProgress(func(now *wire.Progress) error {
			l.Expect(now.FilesTotal, now.BytesTotal)
			l.Progress(transfer.TallyOf(now))
			return nil
		})
		answer, err := c.flush(ctx, p)
		if err != nil {
			return ops.Tally{}, err
		}
		l.Expect(answer.FilesTotal, answer.BytesTotal)
		return transfer.TallyOf(answer), nil
	}
	isAway, err := awayOf(&l.Task)
	if err != nil {
		return ops.Tally{}, err
	}
	answer := new(wire.Progress)
	err = c.addAway(l.Context(), answer, isAway)
	if err == nil && l.Task.Node == "" {
		err = c.nameSuperseded(l.Context(), answer)
	}
	l.Expect(answer.FilesTotal, answer.BytesTotal)
	return transfer.TallyOf(answer), err
}

// nameSuperseded names the steps that are superseded now, for the record of the operation. The answer to the drain
// has those too that are superseded before a node begins its share.
func (c scope) nameSuperseded(ctx context.Context, answer *wire.Progress) error {
	steps, err := c.Rules().SupersededSteps(ctx)
	left := rest{superseded: map[string]string{}}
	for _, s := range steps {
		left.superseded[s.Step] = s.By
	}
	left.addSuperseded(answer)
	return err
}

// awayOf returns whether a task is about the files of an owner that does not carry it out: one of a
// node that is gone, or of all nodes without a task of their own.
func awayOf(t *ops.Task) (isAway func(owner bb.NodeID) bool, err error) {
	if t.Node != "" {
		return func(owner bb.NodeID) bool { return owner == t.Node }, nil
	}
	var away awayTask
	if err := json.Unmarshal(t.Data, &away); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "drain", Err: err}
	}
	return func(owner bb.NodeID) bool { return !slices.Contains(away.Asked, owner) }, nil
}
