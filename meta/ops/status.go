package ops

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// view is the records of an operation that were read.
type view struct {
	b         *kv.Bucket
	operation kv.Record
	tasks     map[string]taskRecord // by key
	keys      map[string]uint64     // all, and their revisions
}

// add adds a record of the operation, unless it has a newer one.
func (v *view) add(r *kv.Record) {
	if v.keys == nil {
		v.keys, v.tasks = map[string]uint64{}, map[string]taskRecord{}
	}
	if r.Seq <= v.keys[r.Key] {
		return
	}
	v.keys[r.Key] = r.Seq
	if strings.HasSuffix(r.Key, ".job") {
		v.operation = *r
		return
	}
	delete(v.tasks, r.Key)
	if !r.Live() {
		return
	}
	t, err := openTask(r)
	if err != nil {
		v.b.Unreadable(r.Key, err)
		return
	}
	v.tasks[r.Key] = t
}

func (v *view) status() (Status, error) {
	j, cancelled, err := openOperation(&v.operation)
	if err != nil {
		return Status{}, err
	}
	return summary(j, cancelled, slices.Collect(maps.Values(v.tasks))), nil
}

// forget deletes the records of an operation, the operation's own last.
func (v *view) forget(ctx context.Context, b *kv.Bucket) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(tasksAtOnce)
	for _, t := range v.tasks {
		g.Go(func() error {
			return kv.IgnoreConflict(b.Remove(gctx, taskKey(operationOf(v.operation.Key), t.ID), t.revision))
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return kv.IgnoreConflict(b.Remove(ctx, v.operation.Key, v.operation.Seq))
}

// summary is the progress of an operation, by its tasks.
func summary(j Operation, cancelled time.Time, tasks []taskRecord) Status {
	s := Status{Operation: j, State: Running, Tasks: len(tasks), ByNode: map[bb.NodeID]Tally{}}
	slices.SortFunc(tasks, func(a, b taskRecord) int { return strings.Compare(a.ID, b.ID) })
	var last time.Time
	for i := range tasks {
		t := &tasks[i]
		s.FilesTotal += t.Files
		s.BytesTotal += t.Bytes
		s.Tally.add(&t.tally)
		switch t.state {
		case taskRunning:
			s.Running++
		case taskDone:
			s.TasksDone++
		}
		if t.state != taskDone && t.Node != "" && !slices.Contains(s.Left, t.Node) {
			s.Left = append(s.Left, t.Node)
		}
		if t.by != "" {
			n := s.ByNode[t.by]
			n.count(&t.tally)
			s.ByNode[t.by] = n
		}
		if t.changed.After(last) {
			last = t.changed
		}
	}
	slices.Sort(s.Left)
	switch {
	case !cancelled.IsZero():
		s.State, s.Ended = Cancelled, cancelled
	case s.TasksDone == s.Tasks && s.Tasks > 0:
		s.State, s.Ended = Done, last
	}
	return s
}

func (t *Tally) count(o *Tally) {
	t.Files += o.Files
	t.Bytes += o.Bytes
	t.Skipped += o.Skipped
	t.NotCopied += o.NotCopied
	t.FailedTotal += o.FailedTotal
	t.ExcludedTotal += o.ExcludedTotal
	t.OpenTotal += o.OpenTotal
	t.SupersededTotal += o.SupersededTotal
	t.LastError = cmp.Or(o.LastError, t.LastError)
}

// add adds counts, and names as far as there is room.
func (t *Tally) add(o *Tally) {
	t.count(o)
	t.Failed = appendSome(t.Failed, o.Failed)
	t.Excluded = appendSome(t.Excluded, o.Excluded)
	t.Open = appendSome(t.Open, o.Open)
	t.Superseded = appendSome(t.Superseded, o.Superseded)
}

func appendSome[T any](to, more []T) []T {
	return append(to, more[:min(len(more), max(0, maxNamed-len(to)))]...)
}
