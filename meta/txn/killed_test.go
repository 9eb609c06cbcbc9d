package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/stream"
)

// mortalLog is a log in the view of its owner, which is killed at an append, before or after that
// is stored.
type mortalLog struct {
	owner.Log
	mu    sync.Mutex
	left  int // appends until it is killed; 0: it is not
	after bool
	dead  bool
}

var errKilled = fmt.Errorf("killed: %w", kv.ErrMaybeDone)

// step counts an append, and returns whether it is carried out, and whether it is answered.
func (l *mortalLog) step() (carry, answer bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false, false
	}
	if l.left > 0 {
		if l.left--; l.left == 0 {
			l.dead = true
			return l.after, false
		}
	}
	return true, true
}

func (l *mortalLog) killed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *mortalLog) Append(ctx context.Context, subject string, data []byte, f stream.Fence) (uint64, error) {
	carry, answer := l.step()
	if !carry {
		return 0, errKilled
	}
	seq, err := l.Log.Append(ctx, subject, data, f)
	if !answer {
		return 0, errKilled
	}
	return seq, err
}

// job is a transaction with two tasks into a directory that has some of its files, and replaces
// one of its directories.
type job struct {
	t         *testing.T
	committed bool // the commit was answered
	mortal    bool // its owner may be killed any time
}

var (
	jobBefore = map[string]string{"d": "/", "d/p0": "/", "d/p0/old": bb.FileID(1).String(), "d/p1": "/", "d/p1/f0": bb.FileID(2).String(), "d/p1/old": bb.FileID(3).String()}
	jobAfter  = map[string]string{
		"d": "/", "d/p0": "/", "d/p0/old": bb.FileID(1).String(), "d/p0/f0": bb.FileID(100).String(), "d/p0/f1": bb.FileID(110).String(),
		"d/p1": "/", "d/p1/f0": bb.FileID(101).String(), "d/p1/f1": bb.FileID(111).String(),
		"d/p2": "/", "d/p2/f0": bb.FileID(102).String(), "d/p2/f1": bb.FileID(112).String(),
	}
)

// again ignores that something was there already.
func again(err error) error {
	if errors.Is(err, bb.Exists) {
		return nil
	}
	return err
}

// run carries the job out, or continues with it. It can be stopped anywhere.
func (j *job) run(ctx context.Context, ns *process) error {
	d, err := ns.Resolve(ctx, "d")
	if err != nil {
		return err
	}
	x, err := ns.BeginTxn(ctx, bb.Txn{Destination: "d", Dir: d.Dir, Key: "job", UID: 7})
	for task := 0; task < 2 && err == nil && x.State == bb.TxnOpen; task++ {
		name := fmt.Sprint("task", task)
		for part := 0; part < 3 && err == nil; part++ {
			at := path.Join(x.Path(), attemptDir, name, "0", fmt.Sprint("p", part))
			var dir bb.Entry
			if dir, err = ns.MkdirAll(ctx, at, namespace.Owner{Mode: 0o700}); err == nil {
				f := bb.Entry{Parent: dir.Dir, Name: fmt.Sprint("f", task), Type: bb.TypeFile, File: bb.FileID(100 + 10*task + part)}
				// One that was merged is not written again. Its task is adopted.
				if now, terr := ns.TxnTask(ctx, x.ID, name); now == "" || terr != nil {
					_, err = ns.Create(ctx, f)
					err = errors.Join(terr, again(err))
				}
			}
		}
		if err == nil {
			_, err = ns.AdoptTxn(ctx, x.ID, name, "0")
		}
		if err == nil {
			err = ns.MergeTask(ctx, x.ID, name, "0", &plainMover{ns: ns})
		}
	}
	if err == nil {
		err = commitTxn(ctx, ns, x.ID, []string{"p1"}, &plainMover{ns: ns})
	}
	if err != nil {
		return err
	}
	j.committed = true
	if !j.mortal {
		j.check("committed, not folded", ns)
	}
	if err := foldOne(ctx, ns, x.ID, &plainMover{ns: ns}); err != nil {
		return err
	}
	return ns.CleanTxn(ctx, x.ID, &plainMover{ns: ns})
}

// check fails unless all of the job is visible, or nothing of it was acknowledged and nothing is
// visible.
func (j *job) check(what string, ns *process) {
	j.t.Helper()
	got := seen(j.t, ns, "")
	if !maps.Equal(got, jobAfter) && (j.committed || !maps.Equal(got, jobBefore)) {
		j.t.Fatalf("%s: %v is to be seen; committed: %v", what, got, j.committed)
	}
}

// TestOwnerKilled kills the owner of a log at each append of a job, before and after that is
// stored. Another one takes its place, and continues with the job.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	c := kvtest.Dial(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	step := 1
	if testing.Short() {
		step = 4
	}
	for _, after := range []bool{false, true} {
		for at := 1; ; at += step {
			if !killedAt(t, c, at, after) {
				if at < 20 {
					t.Errorf("a job has %d appends: the test does not test", at-1)
				}
				break
			}
		}
	}
}

// killedAt carries a job out while its owner is killed at an append, and reports whether it was.
func killedAt(t *testing.T, c *conn.Conn, at int, after bool) bool {
	t.Helper()
	what := fmt.Sprintf("killed at append %d, stored %v", at, after)
	s := stream.New(c, fmt.Sprintf("NS_%d_%v", at, after))
	ctx := metatest.Context(t)
	if err := s.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Destroy(ctx) }()
	mortal := &mortalLog{Log: s, after: after}
	ns, end := openLog(t, mortal)
	for _, p := range []string{"d/p0/old", "d/p1/f0", "d/p1/old"} {
		if _, err := ns.MkdirAll(ctx, path.Dir(p), namespace.Owner{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if err := (namespacetest.Subject{T: t, NS: ns}).Add(p, jobBefore[p]); err != nil {
			t.Fatal(err)
		}
	}
	j := &job{t: t, mortal: true}
	j.check("before", ns)
	mortal.mu.Lock()
	mortal.left = at
	mortal.mu.Unlock()
	err := j.run(ctx, ns)
	end()
	switch {
	case err == nil:
		return mortal.killed()
	case !mortal.killed() || bb.KindOf(err) != bb.Unavailable && bb.KindOf(err) != bb.Cancelled && !errors.Is(err, kv.ErrUncertain):
		t.Fatalf("%s: %v", what, err)
	}
	ns, end = openLog(t, s)
	defer end()
	j.check(what, ns)
	j.mortal = false
	for range 2 {
		if err := j.run(ctx, ns); err != nil {
			t.Fatalf("%s: going on: %v", what, err)
		}
		j.check(what+", done", ns)
	}
	if got := namespacetest.Paths(t, ns); !maps.Equal(got, jobAfter) {
		t.Fatalf("%s: folded, and there is %v", what, got)
	}
	left, err := ns.HiddenTxns(ctx)
	if err != nil || len(left) > 0 {
		t.Errorf("%s: hidden trees are left: %v %v", what, left, err)
	}
	if err := ns.ForgetTxn(ctx, bb.TxnIDOf(7, "job")); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	err = ns.records.Scan(ctx, ">", func(r *kv.Record) error {
		if strings.HasPrefix(r.Key, txnPrefix) {
			t.Errorf("%s: record %s is left", what, r.Key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// openLog opens the namespace of a log, and returns the function that ends it.
func openLog(t *testing.T, log owner.Log) (*process, func()) {
	t.Helper()
	e, err := nslog.Open(metatest.Context(t), log, newIDs(), nslog.Options{Buffer: "buf", Node: "me", CheckpointBytes: 8000})
	if err == nil {
		err = e.Prepare(metatest.Context(t), buffer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &process{Tree: &Tree{e, New(e, e.Records())}}, e.Close
}
