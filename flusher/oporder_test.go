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
	"forebay/flusher/storeop"
	"forebay/internal/bb"
)

// TestOperationsPassOneThatFails: an operation that always fails holds back work on its names.
// Others, and flushes of other names, continue. Stuck ones are named.
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

// flaky is a store whose renames and removals fail at random, some always until they are repaired.
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
		var ops []storeop.Op
		for range 30 {
			op := storeop.Op{Kind: storeop.Remove, Old: names[rnd.IntN(len(names))]}
			switch rnd.IntN(5) {
			case 0, 1:
				op.Kind, op.New = storeop.Rename, names[rnd.IntN(len(names))]
			case 2:
				op.Kind, op.Tree, op.Old, op.New = storeop.Rename, true, trees[rnd.IntN(2)], "g/"+fmt.Sprint(len(ops))
			case 3:
				if rnd.IntN(3) == 0 {
					op.Tree, op.Old = true, trees[rnd.IntN(len(trees))]
				}
			}
			ops = append(ops, op)
			if err := newQueue(f, "model").carrier().Do(t.Context(), model, &op); err != nil {
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

// refusing is a store that refuses its first Put, at the test's signal.
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

// The same of a flush whose obstacle went before the drain began.
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
