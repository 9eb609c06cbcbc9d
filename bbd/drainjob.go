package bbd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// A drain is a task for each node, which flushes what it is the home of, and one for
// anybody, which names what the homes that are not among them have not saved.

// awayTask is what the latter is told.
type awayTask struct {
	Asked []bb.NodeID // who has a task of its own
}

// drainGrace is how much longer than the drain's timeout its daemons may take to say so.
const drainGrace = 5 * time.Second

// drainAll has every daemon flush what it is the home of, and adds what the homes that
// do not answer have not saved.
//
// A file that moves from a node that has yet to do its share to one that has done it
// would be left out, so all are asked again as long as something that was dirty after
// the last round is so still. The last word is the namespace's.
//
// timed ends when the drain's time is over; ctx, when nobody waits for it any more.
func (d *Daemon) drainCluster(ctx, timed context.Context, r *rpc.Request, b *buffer, m *wire.Drain) (answer *wire.Progress, left rest, err error) {
	var before map[content]string
	again := proto.CloneOf(m)
	for round := range maxMoves {
		if b.d.work.transfers.Available() && m.Below == "" && !m.Overwrite {
			answer, err = d.drainOnce(ctx, r, b, again)
		} else {
			answer, err = d.drainEach(ctx, timed, r, b, again)
		}
		if err != nil {
			return nil, left, err
		}
		if left, err = (drained{b, m.Below}).rest(ctx); err != nil {
			return nil, left, err
		}
		if round > 0 {
			maps.DeleteFunc(left.dirty, func(c content, _ string) bool { return before[c] == "" }) // written since
		}
		if !transfer.Saved(answer) || len(left.dirty) == 0 {
			return answer, left, nil
		}
		before = left.dirty
		// Another job, and the same one for who repeats the request at another daemon.
		again.Key = fmt.Sprintf("%s again %d", cmp.Or(m.Key, fmt.Sprint(d.epoch, r.Session().ID(), r.ID())), round)
	}
	answer = &wire.Progress{FailedTotal: int64(len(before))}
	for _, path := range before {
		if len(answer.Failed) == transfer.MaxNamed {
			break
		}
		answer.Failed = append(answer.Failed, &wire.Failure{Path: path, Kind: uint32(bb.Busy), Reason: "it went from node to node meanwhile: drain again"})
	}
	return answer, left, nil
}

// content is one content of one file.
type content struct {
	file       bb.FileID
	generation bb.Generation
}

// tasksOfDrain are the tasks of a drain on nodes.
func tasksOfDrain(nodes []bb.NodeID) ([]ops.Task, error) {
	slices.Sort(nodes)
	data, err := json.Marshal(awayTask{nodes})
	tasks := []ops.Task{{ID: "away", Data: data}}
	for _, node := range nodes {
		tasks = append(tasks, ops.Task{ID: ops.ID("node", string(node)), Node: node})
	}
	return tasks, err
}

// drainOnce has every daemon do its share once.
func (d *Daemon) drainOnce(ctx context.Context, r *rpc.Request, b *buffer, m *wire.Drain) (*wire.Progress, error) {
	tasks, err := tasksOfDrain(append(b.d.cluster.Others(), b.d.cfg.Node))
	if err != nil {
		return nil, err
	}
	j := d.work.transfers.New(r, ops.Drain, b.current.Load(), m.Key)
	j.Options[transfer.OptionTimeout] = time.Duration(m.TimeoutNs).String()
	if _, err := b.d.meta.Operations().Submit(ctx, j, tasks...); err != nil {
		return nil, err
	}
	timed, cancel := drainEnds(ctx, m)
	defer cancel()
	s, err := d.work.transfers.Follow(timed, r, j.ID)
	switch {
	case err != nil && (timed.Err() == nil || ctx.Err() != nil):
		return nil, err
	case err == nil:
		return transfer.EndOf(&s), nil
	}
	// Some have not even said that they did not come to an end.
	answer := transfer.EndOf(&s)
	return answer, drained{b: b}.addAway(ctx, answer, func(home bb.NodeID) bool { return slices.Contains(s.Left, home) })
}

// drainEnds returns the context in which other daemons are asked to drain: they are left the
// time to say what they have not saved.
func drainEnds(ctx context.Context, m *wire.Drain) (context.Context, context.CancelFunc) {
	if m.TimeoutNs <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(m.TimeoutNs)+drainGrace)
}

// drainTask does one task of a drain.
func (b *buffer) drainTask(l *ops.Lease) (ops.Tally, error) {
	ctx := l.Context()
	if t, err := time.ParseDuration(l.Operation.Options[transfer.OptionTimeout]); err == nil && t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	var isAway func(bb.NodeID) bool
	switch of := l.Task.Node; {
	case of == b.d.cfg.Node:
		p := transfer.NewProgress(func(now *wire.Progress) error {
			l.Expect(now.FilesTotal, now.BytesTotal)
			l.Progress(transfer.TallyOf(now))
			return nil
		})
		answer, err := b.drainHere(ctx, "", p)
		if err != nil {
			return ops.Tally{}, err
		}
		l.Expect(answer.FilesTotal, answer.BytesTotal)
		return transfer.TallyOf(answer), nil
	case of != "":
		isAway = func(home bb.NodeID) bool { return home == of }
	default:
		var t awayTask
		if err := json.Unmarshal(l.Task.Data, &t); err != nil {
			return ops.Tally{}, &bb.Error{Kind: bb.Internal, Op: "drain", Err: err}
		}
		isAway = func(home bb.NodeID) bool { return !slices.Contains(t.Asked, home) }
	}
	answer := new(wire.Progress)
	err := drained{b: b}.addAway(l.Context(), answer, isAway)
	l.Expect(answer.FilesTotal, answer.BytesTotal)
	return transfer.TallyOf(answer), err
}
