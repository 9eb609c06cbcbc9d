package bbd_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// ruled is a buffer whose steps are flushed by rules.
type ruled struct {
	t     *testing.T
	n     *node
	c     *client.Client
	b     *client.Buffer
	store string // its directory
}

func newRuled(t *testing.T, n *node, spec admin.BufferSpec, rules ...string) *ruled {
	t.Helper()
	spec.Name, spec.Flush = cmp.Or(spec.Name, "ckpt"), bb.FlushRules(rules)
	c := n.dial()
	b, dir := n.buffer(c, spec)
	return &ruled{t, n, c, b, dir}
}

// save writes a step: its parts, and then the file that completes it.
func (r *ruled) save(step string, part []byte) {
	r.t.Helper()
	r.begin(step, part)
	write(r.t, r.b, step+"/.metadata", []byte(step))
}

// saveAtOnce is save of a step that is complete from its first moment on, in a buffer that keeps back new/.
func (r *ruled) saveAtOnce(step string, part []byte) {
	r.t.Helper()
	r.save("new", part)
	if err := r.b.Rename(r.t.Context(), "new", step); err != nil {
		r.t.Fatal(err)
	}
}

// begin writes the parts of a step alone.
func (r *ruled) begin(step string, part []byte) {
	r.t.Helper()
	if err := r.b.MkdirAll(r.t.Context(), step+"/deep", 0o755); err != nil {
		r.t.Fatal(err)
	}
	write(r.t, r.b, step+"/part-0", part)
	write(r.t, r.b, step+"/deep/part-1", part[:len(part)/2])
}

// stored returns the steps that the store has whole or in part, with the number of their files.
func (r *ruled) stored() string {
	r.t.Helper()
	counts := map[string]int{}
	err := filepath.WalkDir(r.store, func(p string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(r.store, p)
		step, _, _ := strings.Cut(rel, "/")
		switch {
		case errors.Is(err, fs.ErrNotExist) || strings.Contains(p, ".forebay"):
			return nil // a temporary name
		case err != nil:
			return err
		case !e.IsDir():
			counts[step]++
		case rel != ".":
			counts[step] += 0
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(counts)
}

// states returns the states of the steps' first parts, as a listing has them.
func (r *ruled) states() map[string]string {
	r.t.Helper()
	states := map[string]string{}
	for e, err := range r.b.ReadDir(r.t.Context(), "") {
		if err != nil {
			r.t.Fatal(err)
		}
		for f, err := range r.b.ReadDir(r.t.Context(), e.Path) {
			if err != nil {
				r.t.Fatal(err)
			}
			if f.Name == "part-0" {
				states[e.Name] = f.State.String()
			}
		}
	}
	return states
}

// flush drains the buffer, and returns the steps that are named as superseded.
func (r *ruled) flush() []string {
	r.t.Helper()
	report, err := admin.Drain(r.t.Context(), r.c, "ckpt", 2*time.Minute, nil)
	if err != nil {
		r.t.Fatalf("drain: %v (%+v)", err, report)
	}
	if report.SupersededTotal != int64(len(report.Superseded)) {
		r.t.Errorf("%d superseded steps, of which %q are named", report.SupersededTotal, report.Superseded)
	}
	return report.Superseded
}

func (r *ruled) buffer() (s struct {
	ruled, superseded int
	dropped           int64
},
) {
	for _, b := range r.n.status().Buffers {
		if b.Name == "ckpt" {
			s.ruled, s.superseded, s.dropped = b.HeldByRule, b.Superseded, b.Dropped
		}
	}
	return s
}

// want compares the files that a drain has flushed and named.
func (r *ruled) want(superseded []string, stored string) {
	r.t.Helper()
	if got := r.flush(); !slices.Equal(got, superseded) {
		r.t.Errorf("superseded: %q, want %q", got, superseded)
	}
	if got := r.stored(); got != stored {
		r.t.Errorf("stored: %s, want %s", got, stored)
	}
}

// TestFlushRule: of a series of steps the multiples are flushed and the others stay, at any age. A drain flushes the
// newest and names the others, which keep no buffer from its end.
func TestFlushRule(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{DirtyAge: time.Millisecond, NoFlush: []string{"new/"}}, "step-*/=every 5")
	for i := 1; i <= 7; i++ {
		r.saveAtOnce(fmt.Sprint("step-", i), random(100_000))
	}
	eventually(t, "the fifth step is flushed", func() bool { return r.stored() == "map[step-5:3]" })
	want := "map[step-1:superseded step-2:superseded step-3:superseded step-4:superseded step-5:clean step-6:superseded step-7:dirty]"
	eventually(t, "older steps are superseded", func() bool { return fmt.Sprint(r.states()) == want })
	if e, err := r.b.Stat(t.Context(), "step-6/deep/part-1"); err != nil || e.State != client.StateSuperseded || !strings.Contains(e.Reason, "step-7 is complete") {
		t.Errorf("%+v, %v", e, err)
	}
	eventually(t, "the status counts them", func() bool {
		s := r.buffer()
		return s.ruled == 18 && s.superseded == 15 && s.dropped == 0
	})
	write(t, r.b, "plain", []byte("a file of no step"))
	r.want([]string{"step-1", "step-2", "step-3", "step-4", "step-6"}, "map[plain:1 step-5:3 step-7:3]")
	if err := admin.DestroyBuffer(t.Context(), r.c, "ckpt"); err != nil {
		t.Error(err)
	}
}

// TestFlushRuleIncomplete: a step that is never completed is flushed when its dirty age is over, and does not
// supersede the one before.
func TestFlushRuleIncomplete(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{DirtyAge: 50 * time.Millisecond, NoFlush: []string{"new/"}}, "step-*/=last at end of job")
	r.saveAtOnce("step-1", random(1000))
	r.begin("step-2", random(1000))
	eventually(t, "the incomplete step is flushed", func() bool { return r.stored() == "map[step-2:2]" })
	r.become("its flush is recorded", "map[step-1:dirty step-2:clean]")
	r.want(nil, "map[step-1:3 step-2:2]")
}

// TestFlushRuleAtOnce: a drain right after the writes flushes no more than one that comes later. One of a path
// leaves other steps where they are.
func TestFlushRuleAtOnce(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 100,complete with done")
	for i := 1; i <= 4; i++ {
		step := fmt.Sprint("step-", i)
		r.save(step, random(1000)) // whose .metadata completes none
		if i < 4 {
			write(t, r.b, step+"/done", nil)
		}
	}
	for below, want := range map[string]string{"step-3": "[]", "step-1": "[step-1]"} {
		report, err := admin.DrainBelow(t.Context(), r.c, "ckpt", below, time.Minute, nil)
		if got := fmt.Sprint(report.Superseded); err != nil || got != want {
			t.Errorf("a drain of %s: %v, superseded: %s, want %s", below, err, got, want)
		}
	}
	if got := r.stored(); got != "map[step-3:4]" {
		t.Errorf("stored: %s", got)
	}
	r.want([]string{"step-1", "step-2"}, "map[step-3:4 step-4:3]")
}

// TestFlushRuleMemory: when memory is needed, superseded steps are dropped whole and named, the newest is not, and a
// reader's open files stay.
func TestFlushRuleMemory(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Store.MemoryBytes = 192 << 20 })
	eventually(t, "memory is populated: nobody waits for room", func() bool { s := n.status(); return s.Memory.Free >= 150<<20 })
	r := newRuled(t, n, admin.BufferSpec{}, "step-*/=every 1000")
	first := random(6 << 20)
	r.save("step-1", first)
	open, err := r.b.Open(t.Context(), "step-1/part-0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	named := make(chan admin.Event, 100)
	go func() {
		for e, err := range admin.Events(t.Context(), r.c, "ckpt") {
			if err == nil && e.Kind == bb.EventSuperseded {
				named <- e
			}
		}
	}()
	last := random(6 << 20)
	for i := 2; i <= 40; i++ {
		r.save(fmt.Sprint("step-", i), last)
	}
	eventually(t, "steps are dropped", func() bool { return r.buffer().dropped >= 60 })
	if e := <-named; e.Path != "step-1" || e.Bytes != int64(9<<20+len("step-1")) || !strings.Contains(e.Reason, "3 files dropped") {
		t.Errorf("the first event is %+v", e)
	}
	if got := readAll(t, open, len(first)); !slices.Equal(got, first) {
		t.Error("a reader's bytes of a dropped step are others")
	}
	wantFile(t, r.b, "step-40/part-0", last)
	eventually(t, "each step is there whole or not at all", func() bool {
		for e, err := range r.b.ReadDir(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.b.Stat(t.Context(), e.Path+"/.metadata"); err != nil {
				return false
			}
		}
		return true
	})
	r.flush()
	if got := r.stored(); !strings.Contains(got, "step-40:3") || strings.Contains(got, ":1") || strings.Contains(got, ":2") {
		t.Errorf("a step is on the store in part, or the newest is not: %s", got)
	}
}

// TestFlushRuleNoRoom: one step may fill memory, and held files are flushed when nothing can be
// dropped.
func TestFlushRuleNoRoom(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 1000")
	content := random(28 << 20)
	r.save("step-1", content)
	r.save("step-2", content) // each takes 42 of 64 MiB
	wantFile(t, r.b, "step-1/part-0", content)
	wantFile(t, r.b, "step-2/part-0", content)
}

// TestFlushRuleRestart: a restart does not change the fate of the steps.
func TestFlushRuleRestart(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	r := newRuled(t, n, admin.BufferSpec{}, "step-*/=every 5")
	for i := 3; i <= 7; i++ {
		r.save(fmt.Sprint("step-", i), random(1000))
	}
	r.c.Close()
	n.stop()
	n.start()
	r.c = n.dial()
	r.b = r.c.Buffer("ckpt")
	want := "map[step-3:superseded step-4:superseded step-5:clean step-6:superseded step-7:dirty]"
	eventually(t, "the states are those from before", func() bool { return fmt.Sprint(r.states()) == want })
	r.want([]string{"step-3", "step-4", "step-6"}, "map[step-5:3 step-7:3]")
}

// TestFlushRuleStop: a daemon that drains when it stops flushes the newest step alone.
func TestFlushRuleStop(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Flush.DrainOnStop, c.Flush.DrainTimeout = true, time.Minute })
	r := newRuled(t, n, admin.BufferSpec{}, "step-*/=every 5")
	r.save("step-1", random(1000))
	r.save("step-2", random(1000))
	r.c.Close()
	n.stop()
	if got := r.stored(); got != "map[step-2:3]" {
		t.Errorf("stored: %s", got)
	}
}

// TestFlushRuleRenamed: a step that gets another name, which no rule is about, is flushed.
func TestFlushRuleRenamed(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 5")
	for i := 1; i <= 3; i++ {
		r.save(fmt.Sprint("step-", i), random(1000))
	}
	eventually(t, "they are held back", func() bool { return r.buffer().superseded == 6 })
	if err := r.b.Rename(t.Context(), "step-2", "best"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renamed one is flushed", func() bool { return r.stored() == "map[best:3]" })
	if err := r.b.RemoveAll(t.Context(), "step-3"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an older one is the newest again", func() bool { return fmt.Sprint(r.states()) == "map[best:clean step-1:dirty]" })
	r.want(nil, "map[best:3 step-1:3]")
}

// TestFlushRuleS3: the same rule on a real S3 server.
func TestFlushRuleS3(t *testing.T) {
	n, server, bucket := s3Node(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "ckpt", Backing: server.URL(bucket, "run"), Flush: bb.FlushRules([]string{"step-*/=every 5"})})
	r := &ruled{t, n, c, b, server.File(bucket, "run")}
	for i := 4; i <= 7; i++ {
		r.save(fmt.Sprint("step-", i), random(6<<20))
	}
	r.want([]string{"step-4", "step-6"}, "map[step-5:3 step-7:3]")
}

// TestFlushRuleCluster: the namespace decides about a step whose files several nodes own. A drain
// that is requested at a node which owns none flushes the newest step, and names the others. So it
// does after the owner of some has died whose files have second copies.
func TestFlushRuleCluster(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	spec := admin.BufferSpec{Replicas: 2}
	r := newRuled(t, nodes[2], spec, "step-*/=every 5")
	saveOn := func(step string, marked bool) {
		t.Helper()
		if err := r.b.MkdirAll(t.Context(), step, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, n := range nodes[:2] {
			c := n.dial()
			write(t, c.Buffer("ckpt"), fmt.Sprint(step, "/part-", i), random(100_000))
			if i == 1 && marked {
				write(t, c.Buffer("ckpt"), step+"/checkpoint.json", []byte(step))
			}
			c.Close()
		}
	}
	for i := 4; i <= 7; i++ {
		saveOn(fmt.Sprint("step-", i), true)
	}
	want := "map[step-4:superseded step-5:clean step-6:superseded step-7:dirty]"
	eventually(t, "a node that owns nothing lists the states", func() bool { return fmt.Sprint(r.states()) == want })
	old := []string{"step-4", "step-6"}
	r.want(old, "map[step-5:3 step-7:3]")
	if j, err := admin.OperationByID(t.Context(), r.c, onlyOperation(t, r.c).ID); err != nil || !slices.Equal(j.Superseded, old) || j.SupersededTotal != 2 {
		t.Errorf("the record of the drain: %+v, %v", j, err)
	}

	saveOn("step-8", true)
	saveOn("step-9", false) // the writer of its last file has not come
	nodes[0].dead()
	if _, err := admin.ForgetNode(t.Context(), r.c, "n1"); err != nil {
		t.Fatal(err)
	}
	r.want([]string{"step-4", "step-6"}, "map[step-5:3 step-7:3 step-8:3 step-9:2]")
}

// TestFlushRuleSecondCopy: a step whose second copy is lost is flushed, by its rule.
func TestFlushRuleSecondCopy(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	r := newRuled(t, nodes[0], admin.BufferSpec{Replicas: 2}, "safe-*/=every 1000,when a second copy is gone", "step-*/=every 1000")
	r.save("safe-1", random(1000))
	r.save("step-1", random(1000))
	eventually(t, "they are held back", func() bool { return r.buffer().ruled == 6 })
	if got := r.stored(); got != "map[]" {
		t.Errorf("with second copies: stored %s", got)
	}
	nodes[1].dead()
	eventually(t, "the one is flushed", func() bool { return r.stored() == "map[safe-1:3]" })
}

// TestFlushRuleTxn: a transaction that is committed completes a step, and one that is not does not.
func TestFlushRuleTxn(t *testing.T) {
	t.Parallel()
	r := newRuled(t, startNode(t, nil), admin.BufferSpec{}, "step-*/=every 5")
	for i := 1; i <= 3; i++ {
		step := fmt.Sprint("step-", i)
		x := begin(t, r.b, client.TxnSpec{Destination: step})
		for _, name := range []string{"part-0", "checkpoint.json"} {
			dir := x.Path(name, "a")
			if err := r.b.MkdirAll(t.Context(), dir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, r.b, dir+"/"+name, random(1000))
			adopt(t, x, name, "a")
		}
		if i == 3 {
			if got := fmt.Sprint(r.states()); got != "map[step-1:superseded step-2:dirty step-3:]" && got != "map[step-1:superseded step-2:dirty]" {
				t.Errorf("before the third is committed: %s", got)
			}
		}
		if _, err := x.Commit(t.Context(), client.CommitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.want([]string{"step-1", "step-2"}, "map[step-3:2]")
}

// TestFlushRuleJob: the end of a batch job saves the newest step and counts the others as no loss.
func TestFlushRuleJob(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	store := t.TempDir()
	l, o := aJob("job-21", store)
	o.Create[0].Flush = bb.FlushRules([]string{"step-*/=every 5"})
	comeTo(t, nodes, l, o)
	r := &ruled{t, nodes[1], c, nodes[1].dial().Buffer(l.Key), store}
	for i := 4; i <= 7; i++ {
		r.save(fmt.Sprint("step-", i), random(1000))
	}
	leave(t, nodes, l.Key)
	done := wantState(t, c, l.Key, admin.LifetimeGone)
	if done.Losses.Total != 0 {
		t.Errorf("the job has lost %+v", done.Losses)
	}
	want := []bb.SupersededSteps{{Buffer: l.Key, Total: 2, Files: 6, Bytes: 3012, Steps: []bb.SupersededStep{
		{Step: "step-4", By: "step-7", Files: 3, Bytes: 1506}, {Step: "step-6", By: "step-7", Files: 3, Bytes: 1506},
	}}}
	if !reflect.DeepEqual(done.Superseded, want) {
		t.Errorf("the record has as superseded %+v, want %+v", done.Superseded, want)
	}
	if got := r.stored(); got != "map[step-5:3 step-7:3]" {
		t.Errorf("stored: %s", got)
	}
}
