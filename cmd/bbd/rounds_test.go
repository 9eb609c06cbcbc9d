package main

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
)

// drainTime is how long a drain may take.
const drainTime = time.Minute

// rounds is a buffer in which clients work until the daemon is killed, again and again, with
// the history by which each round is judged.
type rounds struct {
	buffer  string
	root    string // of the store, if it is a folder of this machine
	past    *durabletest.History
	workers []worker
	dial    func(t *testing.T) *client.Client
	store   func(t *testing.T) map[string][]byte // the files on the store; nil: there is none
	walks   bool                                 // look at every name of the buffer, not at the workers' alone
	staged  string                               // the folder to which a stager copies; "": there is none

	stagedBy  int          // the stager's uid
	stageEnds atomic.Int64 // stages that have ended
}

// newRounds returns rounds in a buffer of a daemon on this machine, which is yet to be made. Its store
// is a new folder.
func newRounds(t *testing.T, d *bbdtest.Daemon) *rounds {
	t.Helper()
	r := &rounds{buffer: "crash", root: t.TempDir(), past: durabletest.NewHistory()}
	r.dial = func(t *testing.T) *client.Client { t.Helper(); return dial(t, d) }
	r.store = func(t *testing.T) map[string][]byte { t.Helper(); return tree(t, r.root) }
	return r
}

// worker is one client.
type worker interface {
	// run works until an operation fails, as it does when the daemon is killed.
	run(ctx context.Context, c *client.Client)
	// look reads the worker's names after a restart.
	look(ctx context.Context, b *client.Buffer, all map[string]durabletest.Found) error
	// counts returns how many operations were acknowledged, by their names.
	counts() map[string]int
}

// make creates the buffer, and a directory for each crasher.
func (r *rounds) make(t *testing.T, spec admin.BufferSpec, crashers []*crasher) {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	spec.Name = r.buffer
	if _, err := admin.CreateBuffer(t.Context(), c, spec); err != nil {
		t.Fatal(err)
	}
	for _, w := range crashers {
		w.buffer = r.buffer
		if err := c.Buffer(r.buffer).Mkdir(t.Context(), w.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// work has the clients work while something is done that ends their daemon.
func (r *rounds) work(t *testing.T, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range r.workers {
		c := r.dial(t)
		wg.Go(func() {
			defer c.Close()
			w.run(ctx, c)
		})
	}
	end()
	wg.Wait()
}

// judge ends a round. The daemon is dead. It judges the store, restarts the daemon, and judges the
// buffer.
func (r *rounds) judge(t *testing.T, fault durabletest.Event, restart func(), when string) {
	t.Helper()
	r.over(t, fault, when)
	restart()
	r.look(t, when)
	if t.Failed() {
		t.FailNow()
	}
}

// over records the fault that ended a round, and judges the store and the stage-outs.
func (r *rounds) over(t *testing.T, fault durabletest.Event, when string) {
	t.Helper()
	r.past.Over()
	r.past.Fault(fault)
	r.stored(t, when)
	r.copied(t, when)
}

// stored judges the store.
func (r *rounds) stored(t *testing.T, when string) {
	t.Helper()
	if r.store == nil {
		return
	}
	o := durabletest.Observation{Begin: r.past.Now(), Store: true, Files: map[string]durabletest.Found{}}
	for path, p := range r.store(t) {
		o.Files[path] = durabletest.Find(p)
	}
	broken(t, r.past.Observe(o), "the store "+when)
}

// look judges the content of the buffer between operations, and returns it.
func (r *rounds) look(t *testing.T, when string) durabletest.Observation {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	b := c.Buffer(r.buffer)
	o := durabletest.Observation{Begin: r.past.Now(), Files: map[string]durabletest.Found{}, Lost: lostFiles(t, c, r.buffer)}
	for _, w := range r.workers {
		if err := w.look(t.Context(), b, o.Files); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	if r.walks {
		for e, err := range b.Walk(t.Context(), "") {
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if _, looked := o.Files[e.Path]; !looked && !e.IsDir() {
				o.Files[e.Path], _ = seen(t.Context(), b, e.Path)
			}
		}
	}
	r.clean(t, c, o.Files)
	broken(t, r.past.Observe(o), when)
	return o
}

// clean records which of the files that were found are on the store under their names, as their
// state has while no rename is pending on the store.
func (r *rounds) clean(t *testing.T, c *client.Client, files map[string]durabletest.Found) {
	t.Helper()
	clean := maps.Clone(files)
	for name, f := range files {
		if !f.Version.There {
			continue
		}
		e, err := c.Buffer(r.buffer).Stat(t.Context(), name)
		f.Clean = err == nil && e.State == client.StateClean
		clean[name] = f
	}
	text, err := admin.Status(t.Context(), c, r.buffer)
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Buffers []struct {
			Name     string `json:"name"`
			StoreOps int    `json:"store_ops_pending"`
		} `json:"buffers"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		t.Fatal(err)
	}
	for _, b := range status.Buffers {
		if b.Name == r.buffer && b.StoreOps == 0 {
			maps.Copy(files, clean)
		}
	}
}

// drained drains the buffer. Then the store has the buffer's content.
func (r *rounds) drained(t *testing.T) {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	begin := r.past.Now()
	report, err := admin.Drain(t.Context(), c, r.buffer, drainTime, nil)
	if err != nil {
		t.Fatalf("%v: %+v", err, report)
	}
	r.past.Drained(begin, "", nil)
	r.stored(t, "after the drain")
}

// enough fails the test if too few operations of a kind were acknowledged for it to test anything,
// and returns how many there were of each.
func (r *rounds) enough(t *testing.T, least int, ops ...string) map[string]int {
	t.Helper()
	total := map[string]int{}
	for _, w := range r.workers {
		for op, n := range w.counts() {
			total[op] += n
		}
	}
	t.Logf("%s: operations acknowledged: %v", r.buffer, total)
	for _, op := range ops {
		if total[op] < least {
			t.Errorf("only %d of %s: the test does not test", total[op], op)
		}
	}
	return total
}
