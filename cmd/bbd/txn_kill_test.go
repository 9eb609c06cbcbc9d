package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
)

// The daemon is killed at random moments while tasks write into transactions, adopt, commit and
// abort. After each restart a job continues where it was. Closed files of a task are not written
// again. The output of a committed transaction is there as a whole, that of another one not at all,
// and the store holds nothing else.

const (
	txnWorkers = 4
	txnKills   = 20 // or FOREBAY_KILLS
)

// txnWorker runs one transaction after the other into a directory of its own, and other
// operations between them.
type txnWorker struct {
	*crasher
	jobs int
	job  *txnJob // nil: none is under way
}

// txnJob is a transaction and its progress. Each of its steps may be repeated.
type txnJob struct {
	key     string
	x       *client.Txn
	tasks   []txnTask
	abort   bool
	replace bool
	ended   func(o durabletest.Outcome, unsaved ...string) // of a commit that was not answered
}

type txnTask struct {
	names   []string
	attempt int
	files   map[string]durabletest.Content // of the attempt
	written bool
	adopted bool
}

func (w *txnWorker) plan() *txnJob {
	w.jobs++
	j := &txnJob{key: fmt.Sprintf("%s job %d", w.dir, w.jobs), abort: w.rng.IntN(5) == 0, replace: w.rng.IntN(3) == 0}
	j.tasks = make([]txnTask, 1+w.rng.IntN(3))
	for i, n := range w.rng.Perm(crashFiles)[:len(j.tasks)+w.rng.IntN(4)] {
		task := &j.tasks[i%len(j.tasks)]
		task.names = append(task.names, fmt.Sprintf("f%d", n))
	}
	return j
}

func (w *txnWorker) run(ctx context.Context, c *client.Client) {
	b := c.Buffer(w.buffer)
	for ctx.Err() == nil {
		if w.job == nil {
			for op, do := range map[string]func(context.Context, *client.Buffer) error{"write": w.write, "remove": w.remove, "read": w.read} {
				if w.rng.IntN(3) > 0 {
					continue
				}
				if do(ctx, b) != nil {
					return
				}
				w.ops[op]++
			}
			w.job = w.plan()
		}
		if w.finish(ctx, b, w.job) != nil {
			return
		}
		w.job = nil
	}
}

// finish takes a job to its end.
func (w *txnWorker) finish(ctx context.Context, b *client.Buffer, j *txnJob) error {
	if j.x == nil {
		x, err := b.Begin(ctx, client.TxnSpec{Destination: w.dir, Key: j.key})
		if err != nil {
			return w.unexpected("begin "+j.key, err)
		}
		j.x = x
	}
	j.x = b.Txn(j.x.ID()) // with the client of now
	for i := range j.tasks {
		if err := w.task(ctx, b, j.x, fmt.Sprintf("t%d", i), &j.tasks[i]); err != nil {
			return w.unexpected(fmt.Sprintf("task %d of %s", i, j.key), err)
		}
	}
	if j.abort {
		if _, err := j.x.Abort(ctx); err != nil {
			return w.unexpected("abort "+j.key, err)
		}
		w.ops["abort"]++
		return nil
	}
	return w.commitJob(ctx, j)
}

// task writes and adopts. An attempt that was cut off is left, and another one made.
func (w *txnWorker) task(ctx context.Context, b *client.Buffer, x *client.Txn, name string, t *txnTask) error {
	if !t.written {
		t.attempt++
		t.files = map[string]durabletest.Content{}
		dir := x.Path(name, strconv.Itoa(t.attempt))
		if err := b.MkdirAll(ctx, dir, 0o755); err != nil {
			return err
		}
		for _, f := range t.names {
			v, p := w.next(durabletest.Content{}, 0, w.size())
			if err := b.WriteFile(ctx, dir+"/"+f, p, 0o644); err != nil {
				return err
			}
			t.files[f] = v
		}
		t.written = true
	}
	if t.adopted {
		return nil
	}
	winner, err := x.Adopt(ctx, name, strconv.Itoa(t.attempt))
	if err == nil && winner != strconv.Itoa(t.attempt) {
		err = fmt.Errorf("attempt %s is adopted, and %d alone was written as a whole", winner, t.attempt)
	}
	t.adopted = err == nil
	return err
}

func (w *txnWorker) commitJob(ctx context.Context, j *txnJob) error {
	output := map[string]durabletest.Content{}
	for _, t := range j.tasks {
		for f, v := range t.files {
			output[w.dir+"/"+f] = v
		}
	}
	e := durabletest.Event{Op: durabletest.Txn}
	for i := range crashFiles { // in one order
		name := fmt.Sprintf("%s/f%d", w.dir, i)
		if v, is := output[name]; is {
			version := durabletest.Of(v.Bytes())
			w.maybe[version] = v
			e.Changes = append(e.Changes, durabletest.Change{Path: name, Version: version})
		} else if j.replace {
			e.Changes = append(e.Changes, durabletest.Change{Path: name})
		}
	}
	o := client.CommitOptions{Wait: w.rng.IntN(2) == 0}
	if j.replace {
		o.Replace = []string{"."}
	}
	j.ended = w.past.Begin(e)
	if _, err := j.x.Commit(ctx, o); err != nil {
		return w.unexpected("commit "+j.key, err)
	}
	j.ended(durabletest.Done)
	for _, c := range e.Changes {
		delete(w.files, c.Path)
	}
	maps.Copy(w.files, output)
	w.ops["commit"]++
	return nil
}

// look also finds the outcome of the job under way.
func (w *txnWorker) look(ctx context.Context, b *client.Buffer, all map[string]durabletest.Found) error {
	return errors.Join(w.learn(ctx, b), w.crasher.look(ctx, b, all))
}

// learn finds after a restart the outcome of a commit without an answer.
func (w *txnWorker) learn(ctx context.Context, b *client.Buffer) error {
	j := w.job
	if j == nil || j.ended == nil {
		return nil
	}
	info, err := b.Txn(j.x.ID()).Info(ctx)
	if err != nil {
		return fmt.Errorf("%s after a restart: %w", j.key, err)
	}
	switch info.State {
	case client.TxnCommitted, client.TxnFolded:
		j.ended(durabletest.Done)
		w.job = nil
	case client.TxnOpen, client.TxnCommitting: // not decided: the job commits again
		j.ended(durabletest.Failed)
		j.ended = nil
	default:
		return fmt.Errorf("%s is %s after a restart: %s", j.key, info.State, info.Reason)
	}
	w.ops["cut "+string(info.State)]++
	return nil
}

func TestDaemonKilledInTransactions(t *testing.T) { daemonKilledInTransactions(t, withBuckets...) }

// TestDaemonKilledInTransactionsWithLog is the same of a namespace that is a log.
func TestDaemonKilledInTransactionsWithLog(t *testing.T) { daemonKilledInTransactions(t, withLog...) }

func daemonKilledInTransactions(t *testing.T, args ...string) {
	kills := txnKills
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		kills = n
	}
	if testing.Short() {
		kills = 5
	}
	d := bbdtest.Start(t, append(args, "--memory", crashMemory)...)
	r := newRounds(t, d)
	r.walks = true
	crashers, workers := make([]*crasher, txnWorkers), make([]*txnWorker, txnWorkers)
	for i := range workers {
		crashers[i] = newCrasher(t, i, r.past)
		workers[i] = &txnWorker{crasher: crashers[i]}
		r.workers = append(r.workers, workers[i])
	}
	r.make(t, admin.BufferSpec{Backing: "file://" + r.root}, crashers)
	rng := rand.New(rand.NewPCG(3, 4))
	for kill := range kills {
		r.work(t, func() { killAfter(d, time.Duration(20+rng.IntN(150))*time.Millisecond) })
		r.judge(t, durabletest.Event{}, d.Start, fmt.Sprintf("after kill %d", kill+1))
	}
	for _, w := range workers { // files that a transaction still hides are not drained
		if w.job == nil {
			continue
		}
		if err := w.finish(t.Context(), dial(t, d).Buffer(w.buffer), w.job); err != nil {
			t.Fatalf("%s: %v", w.job.key, err)
		}
		w.job = nil
	}
	r.drained(t)
	r.look(t, "after the drain")
	// A loaded machine does few between two kills.
	r.enough(t, kills/10, "commit", "abort", "write")
}
