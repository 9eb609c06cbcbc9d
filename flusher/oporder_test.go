package flusher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
)

// TestNextOp: an operation is held back by those before it that concern the same names, and by
// no others.
func TestNextOp(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	later := now.Add(time.Second)
	remove := func(path string) *queuedOp { return &queuedOp{StoreOp: StoreOp{Kind: OpRemove, Old: path}} }
	rename := func(from, to string) *queuedOp {
		return &queuedOp{StoreOp: StoreOp{Kind: OpRename, Old: from, New: to}}
	}
	failed := func(op *queuedOp) *queuedOp {
		op.err, op.notBefore = errors.New("refused"), later
		return op
	}
	carrying := func(op *queuedOp) *queuedOp {
		op.carrying = true
		return op
	}
	var down []*queuedOp
	for i := range opsFailing {
		down = append(down, failed(remove(fmt.Sprint("f", i))))
	}
	due := append(slices.Clone(down[1:]), remove("g"), failed(remove("h")))
	due[len(due)-1].notBefore = now
	for name, test := range map[string]struct {
		ops     []*queuedOp
		blocked string
		next    int
		wake    time.Time
	}{
		"none":                         {nil, "", -1, time.Time{}},
		"the first":                    {[]*queuedOp{remove("a"), remove("b")}, "", 0, time.Time{}},
		"past one that fails":          {[]*queuedOp{failed(remove("a")), remove("a"), remove("b")}, "", 2, time.Time{}},
		"past one that is carried out": {[]*queuedOp{carrying(remove("a")), rename("b", "a"), remove("c")}, "", 2, time.Time{}},
		"below it":                     {[]*queuedOp{failed(remove("d")), remove("d/a")}, "", -1, later},
		"above it":                     {[]*queuedOp{failed(remove("d/a")), remove("d"), remove("dd")}, "", 2, time.Time{}},
		"behind what waits":            {[]*queuedOp{failed(rename("a", "b")), rename("b", "c"), remove("c")}, "", -1, later},
		"by a flight":                  {[]*queuedOp{rename("a", "b"), remove("a"), remove("c")}, "b", 2, time.Time{}},
		"all of the store":             {[]*queuedOp{remove("a"), failed(remove("")), remove("b")}, "a", -1, time.Time{}},
		"the store is down":            {append(slices.Clone(down), remove("g")), "", -1, later},
		"one is due again":             {due, "", len(due) - 2, time.Time{}},
		"no new one, but one is due":   {append(slices.Clone(down), due[len(due)-2:]...), "", len(down) + 1, time.Time{}},
	} {
		next, wake := nextOp(test.ops, now, func(path string) bool { return path == test.blocked })
		if next != test.next || !wake.Equal(test.wake) {
			t.Errorf("%s: %d at %v, want %d at %v", name, next, wake, test.next, test.wake)
		}
	}
}

// TestStuckOps: those that will not be carried out by themselves are what gave up, and whatever
// waits for that.
func TestStuckOps(t *testing.T) {
	t.Parallel()
	why := errors.New("denied")
	ops := []*queuedOp{
		{StoreOp: StoreOp{Kind: OpRemove, Old: "x"}},
		{StoreOp: StoreOp{Kind: OpRename, Old: "a", New: "b"}, err: why, gaveUp: true},
		{StoreOp: StoreOp{Kind: OpRename, Old: "b", New: "c"}},
		{StoreOp: StoreOp{Kind: OpRemove, Old: "c/d"}},
		{StoreOp: StoreOp{Kind: OpRemove, Old: "y"}, err: errors.New("passes")},
	}
	s := stuckOf(ops)
	if !slices.Equal(s.ops, ops[1:4]) || !slices.Equal(s.errs, []error{why, why, why}) {
		t.Errorf("%+v", s)
	}
	for path, want := range map[string]error{"x": nil, "y": nil, "a": why, "b/1": why, "c": why, "c/e": why, "cc": nil, "": why} {
		if got := s.at(path); got != want {
			t.Errorf("at %q: %v, want %v", path, got, want)
		}
	}
}

// TestOperationsPassOneThatFails: an operation that always fails holds back what concerns its
// names; others, and flushes of other names, go on. What is stuck is named.
func TestOperationsPassOneThatFails(t *testing.T) {
	t.Parallel()
	w, inner := newWorld(t), memStore()
	plan := fault.NewPlan()
	f := w.start(fault.Wrap(inner, plan), nil)
	for _, name := range []string{"bad", "a", "d/x"} {
		w.write(name, name)
	}
	w.expectStore(inner.Contents)
	plan.Set(fault.Rule{Op: "rename", Name: "bad", Kind: fault.Full})
	w.rename("bad", "worse")
	w.rename("a", "b")
	w.remove("d")
	w.rename("b", "c")
	behind := w.write("bad", "again")
	if err := f.Wait(t.Context(), w.write("free", "1")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"bad": "bad", "c": "a", "free": "1"}
	for ctx := t.Context(); ; {
		got := map[string]string{}
		for name, content := range inner.Contents() {
			got[name] = string(content)
		}
		s := f.BufferStats("buf")
		if maps.Equal(got, want) && s.StoreOps == 1 && s.LastError != nil && s.LastErrorPath == "bad" {
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the store has %q, want %q; %+v", got, want, s)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.Wait(ctx, behind); err == nil {
		t.Error("flushed under a name that is not free yet")
	}
	report, err := drainFor(t, f, 100*time.Millisecond)
	if err == nil || report.Ops != 1 || report.OpError == nil || report.UnsavedCount != 1 {
		t.Fatalf("%v: %+v", err, report)
	}
	if e := (*bb.Error)(nil); !errors.As(report.OpError, &e) || e.Op != "rename" || e.Path != "bad to worse" {
		t.Errorf("the drain says %v", report.OpError)
	}
	plan.Set()
	w.expectStore(inner.Contents)
}

// flaky is a store whose renames and removals fail at random, some always until they are mended.
type flaky struct {
	backing.Store
	mu     sync.Mutex
	rnd    *rand.Rand
	broken map[string]bool
}

func (s *flaky) fails(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken[name] || s.rnd.IntN(4) == 0 {
		kind := []bb.Kind{bb.Unavailable, bb.Permission, bb.NoSpace}[s.rnd.IntN(3)]
		return bb.E(kind, "test", name, "refused")
	}
	return nil
}

func (s *flaky) Rename(ctx context.Context, from, to string) error {
	if err := s.fails(from); err != nil {
		return err
	}
	return s.Store.Rename(ctx, from, to)
}

func (s *flaky) RenameIf(ctx context.Context, from, to string, is, replaces backing.Version) error {
	if err := s.fails(from); err != nil {
		return err
	}
	return s.Store.RenameIf(ctx, from, to, is, replaces)
}

func (s *flaky) Remove(ctx context.Context, name string) error {
	if err := s.fails(name); err != nil {
		return err
	}
	return s.Store.Remove(ctx, name)
}

func (s *flaky) RemoveTree(ctx context.Context, name string) error {
	if err := s.fails(name); err != nil {
		return err
	}
	return s.Store.RemoveTree(ctx, name)
}

// TestOperationsInAnyOrder carries out random operations, which overlap and fail, and compares
// the store with one that has carried them out one after the other.
func TestOperationsInAnyOrder(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d/a", "d/b", "e/a", "e/f/a"}
	trees := []string{"d", "e", "e/f", "g"}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 14))
		inner, model := memStore(), memStore()
		for _, name := range names {
			for _, s := range []backing.Store{inner, model} {
				if _, err := s.Put(t.Context(), name, backing.NewBytes([]byte(name)), backing.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		store := &flaky{Store: inner, rnd: rand.New(rand.NewPCG(seed, 15)), broken: map[string]bool{names[rnd.IntN(len(names))]: true}}
		w := newWorld(t)
		f := w.start(store, func(o *Options) { o.Backoff = [2]time.Duration{time.Microsecond, time.Millisecond} })
		var ops []StoreOp
		for range 30 {
			op := StoreOp{Kind: OpRemove, Old: names[rnd.IntN(len(names))]}
			switch rnd.IntN(5) {
			case 0, 1:
				op.Kind, op.New = OpRename, names[rnd.IntN(len(names))]
			case 2:
				op.Kind, op.Tree, op.Old, op.New = OpRename, true, trees[rnd.IntN(2)], "g/"+fmt.Sprint(len(ops))
			case 3:
				if rnd.IntN(3) == 0 {
					op.Tree, op.Old = true, trees[rnd.IntN(len(trees))]
				}
			}
			ops = append(ops, op)
			if err := newQueue(f, "model").carryOutOn(model, &op); err != nil {
				t.Fatalf("%+v: %v", op, err)
			}
			f.Apply("buf", op)
		}
		store.mu.Lock()
		clear(store.broken)
		store.mu.Unlock()
		for f.BufferStats("buf").StoreOps > 0 && t.Context().Err() == nil {
			_, _ = drainFor(t, f, time.Second)
		}
		if got, want := inner.Contents(), model.Contents(); !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("seed %d: the store has %q, want %q, after %+v", seed, got, want, ops)
		}
		f.Close()
	}
}

// A drain looks for itself: an attempt that was on its way when it began says nothing of now.
func TestFailureOfBeforeADrain(t *testing.T) {
	q := &queue{f: &Flusher{}, changed: make(chan struct{})}
	later := time.Unix(100, 0)
	for _, begun := range []bool{false, true} {
		op := &queuedOp{carrying: true}
		q.ops = []*queuedOp{op}
		if begun {
			q.retryOps()
		}
		op.failed(bb.E(bb.Exists, "rename", "a", "the store has another file there"), later)
		if op.gaveUp == begun || op.notBefore.IsZero() != begun {
			t.Errorf("a drain has begun: %v; given up: %v, tried again at %v", begun, op.gaveUp, op.notBefore)
		}
		if op.failed(bb.E(bb.Unavailable, "rename", "a", "no answer"), later); op.gaveUp || !op.notBefore.Equal(later) {
			t.Errorf("a failure that passes: given up: %v, tried again at %v", op.gaveUp, op.notBefore)
		}
	}
}

// refusing is a store that refuses its first Put, when the test says so.
type refusing struct {
	backing.Store
	first  atomic.Bool
	asked  chan struct{}
	refuse chan error
}

func (s *refusing) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	if !s.first.CompareAndSwap(false, true) {
		return s.Store.Put(ctx, name, src, opts)
	}
	s.asked <- struct{}{}
	return backing.Object{}, <-s.refuse
}

// The same of a flush: what was in its way has gone before the drain began.
func TestFlushRefusedBeforeADrain(t *testing.T) {
	t.Parallel()
	w, inner := newWorld(t), memStore()
	store := &refusing{Store: inner, asked: make(chan struct{}), refuse: make(chan error)}
	f := w.start(store, nil)
	w.write("f", "content")
	<-store.asked
	drained := make(chan error)
	go func() {
		_, err := f.Drain(t.Context(), w.buffer, nil)
		drained <- err
	}()
	for !f.BufferStats(w.buffer).Draining {
		time.Sleep(time.Millisecond)
	}
	store.refuse <- backing.Foreign("put", "f")
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if got := string(inner.Contents()["f"]); got != "content" {
		t.Errorf("the store has %q", got)
	}
}
