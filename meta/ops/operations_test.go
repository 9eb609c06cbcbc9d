package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
)

// operationsOn returns operations over a connection of their own.
func operationsOn(t *testing.T, o conn.Options) *Operations {
	t.Helper()
	var last atomic.Uint64
	base := kv.Random64()
	return New(kvtest.Dial(t, o), func(context.Context) (uint64, error) { return base + last.Add(1), nil })
}

func someTasks(n int) []Task {
	var tasks []Task
	for i := range n {
		tasks = append(tasks, Task{ID: fmt.Sprint("t", i), Paths: []string{fmt.Sprint("p", i)}, Files: 1, Bytes: 10})
	}
	return tasks
}

func submit(t *testing.T, m *Operations, j Operation, tasks ...Task) string {
	t.Helper()
	id, err := m.Submit(metatest.Context(t), j, tasks...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func nextTask(t *testing.T, m *Operations, node bb.NodeID) *Lease {
	t.Helper()
	l, err := m.Next(metatest.Context(t), "", node)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantOperation(t *testing.T, m *Operations, id string, state State, done int, bytes int64) Status {
	t.Helper()
	s, err := m.Status(metatest.Context(t), id)
	if err != nil || s.State != state || s.TasksDone != done || s.Tally.Bytes != bytes {
		t.Errorf("%+v, want %s with %d tasks done and %d bytes (%v)", s, state, done, bytes, err)
	}
	return s
}

// Workers on two nodes do an operation whose first task plans the others, some of which are for one
// of them, while a client watches.
func TestOperation(t *testing.T) {
	t.Parallel()
	s := metatest.StartListening(t, t.TempDir(), "127.0.0.1:0")
	o := conn.Options{URLs: []string{s.URL()}}
	m := operationsOn(t, o)
	j := Operation{Kind: StageIn, Buffer: "buf", Path: "in", URL: "file:///data", UID: 7, GID: 8, Options: map[string]string{"parallel": "4"}}
	id := submit(t, m, j, Task{ID: "plan"})
	if again := submit(t, m, Operation{ID: id, Kind: Drain}, Task{ID: "plan"}); again != id {
		t.Errorf("submitted again it is %q", again)
	}
	watched, seen := make(chan error, 1), make(chan Status, 1000)
	go func() { watched <- m.Watch(metatest.Context(t), id, func(s Status) { seen <- s }) }()

	planner := nextTask(t, m, "a/strange node.name")
	j.ID, j.Created = id, planner.Operation.Created
	if got := planner.Operation; got.Kind != StageIn || got.URL != j.URL || got.UID != 7 || got.Options["parallel"] != "4" || planner.Attempt != 1 {
		t.Errorf("%+v", planner)
	}
	tasks := someTasks(20)
	for i := range tasks {
		if i%4 == 0 {
			tasks[i].Node = "b"
		}
	}
	for range 2 { // a planner of a repeated task
		if err := m.AddTasks(metatest.Context(t), id, tasks); err != nil {
			t.Fatal(err)
		}
	}
	if err := planner.Done(metatest.Context(t), Tally{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for _, of := range []bb.NodeID{"", "b", ""} {
		node := cmp.Or(of, "a")
		w := operationsOn(t, o)
		ctx, cancel := context.WithCancel(metatest.Context(t))
		t.Cleanup(cancel)
		go func() {
			for {
				l, err := w.Next(ctx, of, node)
				if err != nil {
					done <- err
					return
				}
				if l.Task.Node != "" && l.Task.Node != node {
					t.Errorf("%s got %+v", node, l.Task)
				}
				err = l.Done(ctx, Tally{
					Files: 1, Bytes: 10, Failed: []Failure{{Path: l.Task.Paths[0], Kind: bb.Busy, Reason: "because"}}, Excluded: []string{"h"},
				})
				if err != nil {
					t.Error(err)
				}
				l.Release(ctx)
			}
		}()
		defer func() {
			cancel()
			if err := <-done; bb.KindOf(err) != bb.Cancelled {
				t.Errorf("a worker ended with %v", err)
			}
		}()
	}
	if err := <-watched; err != nil {
		t.Fatal(err)
	}
	close(seen)
	var last Status
	for s := range seen {
		if s.TasksDone < last.TasksDone {
			t.Errorf("%d tasks were done after %d", s.TasksDone, last.TasksDone)
		}
		last = s
	}
	if last.State != Done || last.Tasks != 21 || last.BytesTotal != 200 || last.Tally.Bytes != 200 || last.Ended.IsZero() {
		t.Errorf("%+v", last)
	}
	if len(last.Tally.Failed) != 20 || last.Tally.FailedTotal != 20 || last.Tally.ExcludedTotal != 20 || last.Tally.Failed[0].Kind != bb.Busy {
		t.Errorf("%+v", last.Tally)
	}
	if b := last.ByNode["b"]; b.Files != 5 || b.Files+last.ByNode["a"].Files != 20 {
		t.Errorf("%+v", last.ByNode)
	}
	jobs, err := m.List(metatest.Context(t))
	if err != nil || len(jobs) != 1 || jobs[0].ID != id || jobs[0].State != Done {
		t.Errorf("%+v %v", jobs, err)
	}
	_, err = m.Running(metatest.Context(t), func(j *Operation) bool { return j.Kind == StageIn })
	metatest.WantKind(t, "a job that has ended", err, bb.NotFound)
	other := submit(t, m, Operation{Kind: StageIn, Buffer: "other"}, Task{ID: "t", Node: "gone"})
	running, err := m.Running(metatest.Context(t), func(j *Operation) bool { return j.Kind == StageIn })
	if err != nil || running.ID != other || running.Buffer != "other" {
		t.Errorf("running: %+v (%v)", running, err)
	}
	if s := wantOperation(t, m, other, Running, 0, 0); len(s.Left) != 1 || s.Left[0] != "gone" {
		t.Errorf("%+v", s)
	}
	_, err = m.Status(metatest.Context(t), "none")
	metatest.WantKind(t, "unknown job", err, bb.NotFound)
	metatest.WantKind(t, "watch of an unknown job", m.Watch(metatest.Context(t), "none", nil), bb.NotFound)
	metatest.WantKind(t, "tasks for an unknown job", m.AddTasks(metatest.Context(t), "none", tasks), bb.NotFound)
	_, err = m.Submit(metatest.Context(t), Operation{ID: "has.dot"}, Task{ID: "t"})
	metatest.WantKind(t, "bad id", err, bb.Invalid)
	_, err = m.Submit(metatest.Context(t), Operation{})
	metatest.WantKind(t, "no task", err, bb.Invalid)
	if err := m.Cancel(metatest.Context(t), id); err != nil {
		t.Error(err)
	}
	wantOperation(t, m, id, Done, 21, 200)
}

// The task of a worker that dies is given to another, and counts once, even if the
// first one comes back and ends it too.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	s := metatest.StartListening(t, t.TempDir(), "127.0.0.1:0")
	o := conn.Options{URLs: []string{s.URL()}}
	m, dies := operationsOn(t, o), operationsOn(t, o)
	id := submit(t, m, Operation{Kind: Drain}, someTasks(1)...)
	ctx, kill := context.WithCancel(metatest.Context(t))
	dead, err := dies.Next(ctx, "", "dead")
	if err != nil {
		t.Fatal(err)
	}
	dead.Progress(Tally{Bytes: 3})
	if err := dead.tell(ctx); err != nil {
		t.Fatal(err)
	}
	if s := wantOperation(t, m, id, Running, 0, 3); s.Running != 1 {
		t.Errorf("%+v", s)
	}
	kill() // its heartbeat ends
	began := time.Now()
	heir := nextTask(t, m, "heir")
	if d := time.Since(began); heir.Attempt != 2 || heir.Task.ID != "t0" || d > ackWait+5*time.Second {
		t.Errorf("%+v after %v", heir, d)
	}
	if _, err := dead.current(metatest.Context(t)); !errors.Is(err, errTaken) {
		t.Errorf("the first worker still has it: %v", err)
	}
	if err := heir.Done(metatest.Context(t), Tally{Files: 1, Bytes: 10}); err != nil {
		t.Fatal(err)
	}
	if err := dead.Done(metatest.Context(t), Tally{Files: 1, Bytes: 10}); err != nil {
		t.Fatal(err)
	}
	if s := wantOperation(t, m, id, Done, 1, 10); len(s.ByNode) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestNak(t *testing.T) {
	t.Parallel()
	m := operationsOn(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	id := submit(t, m, Operation{Kind: Drain}, someTasks(1)...)
	l := nextTask(t, m, "n")
	began := time.Now()
	if err := l.Nak(metatest.Context(t), 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if s := wantOperation(t, m, id, Running, 0, 0); s.Running != 0 {
		t.Errorf("%+v", s)
	}
	again := nextTask(t, m, "n")
	if d := time.Since(began); d < 400*time.Millisecond || again.Attempt != 2 {
		t.Errorf("%+v after %v", again, d)
	}
	again.Release(metatest.Context(t))
	last := nextTask(t, m, "n")
	if err := last.Done(metatest.Context(t), Tally{}); err != nil {
		t.Fatal(err)
	}
	wantOperation(t, m, id, Done, 1, 0)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	m := operationsOn(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	id := submit(t, m, Operation{Kind: StageOut}, someTasks(5)...)
	l := nextTask(t, m, "n")
	defer l.Release(metatest.Context(t))
	for range 2 {
		if err := m.Cancel(metatest.Context(t), id); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-l.Context().Done():
	case <-time.After(3 * heartbeat):
		t.Error("the worker does not learn of it")
	}
	if s := wantOperation(t, m, id, Cancelled, 0, 0); s.Ended.IsZero() {
		t.Errorf("%+v", s)
	}
	short, cancel := context.WithTimeout(metatest.Context(t), 2*time.Second)
	defer cancel()
	if l, err := m.Next(short, "", "n"); err == nil {
		t.Errorf("a task of a cancelled job: %+v", l.Task)
	}
	metatest.WantKind(t, "more tasks", m.AddTasks(metatest.Context(t), id, someTasks(9)), bb.Cancelled)
}

// A task survives the server, and its worker continues with it.
func TestOverRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := metatest.StartListening(t, dir, "127.0.0.1:0")
	url := s.URL()
	m := operationsOn(t, conn.Options{URLs: []string{url}})
	id := submit(t, m, Operation{Kind: Drain}, someTasks(3)...)
	l := nextTask(t, m, "n")
	watched := make(chan error, 1)
	go func() { watched <- m.Watch(metatest.Context(t), id, func(Status) {}) }()
	s.Shutdown()
	metatest.StartListening(t, dir, strings.TrimPrefix(url, "nats://"))
	if err := l.Done(metatest.Context(t), Tally{Files: 1, Bytes: 10}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l := nextTask(t, m, "n")
		if err := l.Done(metatest.Context(t), Tally{Files: 1, Bytes: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-watched; err != nil {
		t.Error(err)
	}
	wantOperation(t, m, id, Done, 3, 30)
}

// Operations that ended a day ago are deleted.
func TestOldOperations(t *testing.T) {
	t.Parallel()
	m := operationsOn(t, conn.Options{InProcess: metatest.StartServer(t, t.TempDir())})
	id := submit(t, m, Operation{Kind: Drain}, someTasks(3)...)
	stays := submit(t, m, Operation{Kind: Drain}, someTasks(1)...)
	b, err := m.records(metatest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		key := taskKey(id, fmt.Sprint("t", i))
		r, err := b.Get(metatest.Context(t), key)
		if err != nil {
			t.Fatal(err)
		}
		old := taskRecord{Task: Task{ID: fmt.Sprint("t", i)}, state: taskDone, by: "n", changed: time.Now().Add(-kept - time.Minute)}
		data, err := sealTask(key, &old)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(metatest.Context(t), key, data, r.Seq); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := m.List(metatest.Context(t))
	if err != nil || len(jobs) != 1 || jobs[0].ID != stays {
		t.Errorf("%+v %v", jobs, err)
	}
	_, err = m.Status(metatest.Context(t), id)
	metatest.WantKind(t, "an old job", err, bb.NotFound)
	// Messages of it that are still in the queue lead to nothing.
	if l := nextTask(t, m, "n"); l.Operation.ID != stays {
		t.Errorf("%+v", l)
	} else {
		l.Release(metatest.Context(t))
	}
}

func TestBoundedTally(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4000)
	var in Tally
	for range 5000 {
		in.Excluded = append(in.Excluded, long)
		in.Open = append(in.Open, long)
		in.Failed = append(in.Failed, Failure{Path: long, Reason: long})
	}
	in.LastError = long
	out := bounded(in)
	if out.ExcludedTotal != 5000 || out.OpenTotal != 5000 || out.FailedTotal != 5000 || len(out.Excluded) == 0 || len(out.Failed) == 0 {
		t.Errorf("%d %d %d names of %d", len(out.Excluded), len(out.Open), len(out.Failed), out.ExcludedTotal)
	}
	if data, err := sealTask("k", &taskRecord{Task: Task{ID: "t"}, tally: out}); err != nil || len(data) > kv.MaxRecord {
		t.Errorf("%d bytes: %v", len(data), err)
	}
	var sum Tally
	for range 2000 {
		sum.add(&Tally{Excluded: []string{"a"}, ExcludedTotal: 1})
	}
	if len(sum.Excluded) != maxNamed || sum.ExcludedTotal != 2000 || slices.Contains(sum.Excluded, "") {
		t.Errorf("%d of %d", len(sum.Excluded), sum.ExcludedTotal)
	}
}
