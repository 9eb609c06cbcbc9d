package nsbucket

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"forebay/internal/bb"
	"forebay/internal/rounds"
	"forebay/meta/kv"
	"forebay/meta/nsbucket/record"
)

// removals gathers the files that callers remove at one time, each with a StoreOp, into shared
// atomic changes. One change of the server for many costs little more than one for two.
//
//	queued ── a round begins ──▶ in a batch ──▶ removed, with all others of the batch
//	   │                              │
//	   │ its caller gave up           └ one of them was not as expected ──▶ errAlone: each
//	   ▼                                is changed by itself
//	not sent
type removals struct {
	rounds rounds.Group[struct{}]
	mu     sync.Mutex
	queue  []*removal
}

// removal is one file that a caller removes.
type removal struct {
	ctx   context.Context // of the caller
	entry *bb.Entry
	err   error // once its round has ended
}

// errAlone: a batch was refused for one of its files, and it is unknown which.
var errAlone = errors.New("is to be removed by itself")

func (q *removals) add(r *removal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, r)
}

// withdraw takes a removal back, and reports whether it was in no batch yet.
func (q *removals) withdraw(r *removal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queue, r)
	if i < 0 {
		return false
	}
	q.queue = slices.Delete(q.queue, i, i+1)
	return true
}

func (q *removals) takeAll() []*removal {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.queue
	q.queue = nil
	return all
}

// removeFollowed removes a file by its entry, and leaves a StoreOp for it.
func (ns *Namespace) removeFollowed(ctx context.Context, e *bb.Entry) error {
	r := &removal{ctx: ctx, entry: e}
	ns.removals.add(r)
	_, err := ns.removals.rounds.Do(ctx, func(context.Context) (struct{}, error) {
		for batch := range slices.Chunk(ns.removals.takeAll(), removePage) {
			ns.removeTogether(batch)
		}
		return struct{}{}, nil
	})
	switch {
	case err == nil:
		err = r.err
	case ns.removals.withdraw(r):
		return ns.b.Unavailable(ctx, "remove", kv.ErrNoServer)
	default:
		return ns.b.Unavailable(ctx, "remove", kv.ErrMaybeDone)
	}
	if errors.Is(err, errAlone) {
		return ns.removeBatch(ctx, []*bb.Entry{e})
	}
	return err
}

// removeTogether removes the files of a batch and returns the outcome of each. The batch
// continues while one of its callers waits.
func (ns *Namespace) removeTogether(batch []*removal) {
	ctx, cancel := whileAnyWaits(batch)
	defer cancel()
	files := make([]*bb.Entry, 0, len(batch))
	first := map[entryID]*removal{}
	for _, r := range batch {
		if id := (entryID{r.entry.Parent, r.entry.Name}); first[id] == nil {
			first[id] = r
			files = append(files, r.entry)
		}
	}
	err := ns.removeBatch(ctx, files)
	if len(batch) > 1 && errors.Is(err, kv.ErrRevision) && !errors.Is(err, kv.ErrUncertain) {
		err = errAlone
	}
	for _, r := range batch {
		r.err = err
		if first[entryID{r.entry.Parent, r.entry.Name}] != r {
			r.err = errAlone // it was removed by another caller of this batch, or not
		}
	}
}

// whileAnyWaits returns a context that ends with the last of the callers' ones.
func whileAnyWaits(batch []*removal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(batch[0].ctx))
	waiting := new(atomic.Int64)
	waiting.Store(int64(len(batch)))
	stops := make([]func() bool, len(batch))
	for i, r := range batch {
		stops[i] = context.AfterFunc(r.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel(context.Cause(r.ctx))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// removeBatch removes files, each with its StoreOp, in one atomic change. errConflict if one of
// them, or the path of its directory, was changed meanwhile.
func (ns *Namespace) removeBatch(ctx context.Context, files []*bb.Entry) error {
	type located struct {
		path  string
		paths uint64
	}
	dirs := map[bb.DirID]located{}
	changes := make([]kv.Change, 0, 2*len(files))
	entries := make([]entryChange, 0, len(files))
	for _, e := range files {
		dir, ok := dirs[e.Parent]
		if !ok {
			path, paths, err := ns.pathOf(ctx, e.Parent)
			if err != nil {
				ns.ops.GiveBack(changes)
				return gone(err)
			}
			dir = located{path, paths}
			dirs[e.Parent] = dir
		}
		op, err := ns.removalOpIn(ctx, dir.path, dir.paths, e)
		if err != nil {
			ns.ops.GiveBack(changes)
			return err
		}
		entries = append(entries, entryChange{id: entryID{e.Parent, e.Name}, change: len(changes) + 1})
		changes = append(changes, op, kv.Change{Key: record.EntryKey(e.Parent, e.Name), Expected: e.Revision, Gone: e.File})
	}
	return ns.commit(ctx, changes, entries, nil)
}
