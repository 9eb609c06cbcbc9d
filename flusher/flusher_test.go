package flusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"forebay/flusher/backing"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/mem"
	"forebay/flusher/codec"
	"forebay/flusher/plan"
	"forebay/flusher/receipt"
	"forebay/flusher/spool"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var owner = backing.Owner{Instance: 1, Life: 1}

func memStore() *mem.Store { return mem.New(owner, nil) }

func drainAll(t *testing.T, f *Flusher) (Report, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	return f.Drain(ctx, "buf", nil)
}

func TestFlush(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	var mu sync.Mutex
	var receipts []receipt.Receipt
	f := w.start(store, func(o *Options) {
		o.Observe = func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == EventFlushed {
				receipts = append(receipts, *e.Receipt)
			}
		}
	})
	for i := range 300 {
		w.write(fmt.Sprintf("d%d/f%d", i%7, i), strings.Repeat("x", i*13))
	}
	w.expectStore(store.Contents)
	mu.Lock()
	defer mu.Unlock()
	s := f.BufferStats("buf")
	if len(receipts) != 300 || s.Flushed != 300 || s.Queued != 0 || s.QueuedBytes != 0 || !s.OldestDirty.IsZero() || s.Rate <= 0 {
		t.Fatalf("%d receipts, %+v", len(receipts), s)
	}
}

// TestOnceEach flushes unchanged files exactly once.
func TestOnceEach(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	f := w.start(store, nil)
	key := w.write("a", "content")
	for range 3 {
		if err := f.Wait(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		f.Enqueue(Item{Key: key, Size: 7}) // a daemon may have missed that it is clean
	}
	w.expectStore(store.Contents)
	if n := store.Puts("a"); n != 1 {
		t.Fatalf("stored %d times", n)
	}
}

// TestStoreDownThenUp loses nothing, reports the reason and the time, and recovers by itself.
func TestStoreDownThenUp(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Refused, fault.Reset, fault.Full, fault.Busy, fault.WrongChecksum, fault.Truncated} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, inner, plan := newWorld(t), memStore(), fault.NewPlan(fault.Rule{Op: "put", Kind: kind})
				f := w.start(fault.Wrap(inner, plan), func(o *Options) { o.Backoff = [2]time.Duration{} })
				defer f.Close()
				begin := time.Now()
				var keys []Key
				for i := range 20 {
					keys = append(keys, w.write(fmt.Sprint("f", i), fmt.Sprint("content ", i)))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				err := f.Wait(ctx, keys[3])
				s := f.BufferStats("buf")
				if !errors.Is(err, bb.Unavailable) || !strings.Contains(err.Error(), "failed attempts: put: f3: ") {
					t.Fatalf("waiting ended with %v", err)
				}
				if s.Queued != 20 || s.Failing != 20 || !s.OldestDirty.Equal(begin) || s.LastErrorAttempts < 10 || s.LastErrorAttempts > 30 || time.Since(s.LastErrorAt) > time.Minute {
					t.Fatalf("%+v", s)
				}
				if kind != fault.Reset && len(inner.Contents()) != 0 {
					t.Fatalf("something got through: %q", inner.Contents())
				}
				plan.Set()
				synctest.Wait()
				if err := f.Wait(t.Context(), keys[3]); err != nil {
					t.Fatal(err)
				}
				w.expectStore(inner.Contents)
				if s := f.BufferStats("buf"); s.LastError != nil || s.Failing != 0 {
					t.Fatalf("still said to fail: %+v", s)
				}
			})
		})
	}
}

// TestKilledAtEachStep dies around a Put and in Done, and begins a new run over the remains.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	died := bb.E(bb.Internal, "put", "", "killed")
	for _, step := range []mem.Step{"begin", mem.StepBegun, mem.StepWritten, mem.StepVisible, "done"} {
		t.Run(string(step), func(t *testing.T) {
			w := newWorld(t)
			reached := make(chan struct{}, 100)
			store := mem.New(owner, func(_ context.Context, _ string, at mem.Step) error {
				if at == step {
					reached <- struct{}{}
					return died
				}
				return nil
			})
			if step == "begin" || step == "done" {
				w.set(func() { w.mu.done = died })
				reached <- struct{}{}
			}
			f := w.start(store, func(o *Options) { o.Backoff[0] = time.Hour })
			w.write("d/a", "the content")
			<-reached
			if step == "done" {
				for store.Puts("d/a") == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			f.Close()

			w.set(func() { w.mu.done = nil })
			next := store.Reopen(backing.Owner{Instance: 1, Life: 2})
			if _, err := next.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			f = w.start(next, nil)
			w.mu.Lock()
			file := w.mu.files["d/a"]
			item := Item{Key: Key{"buf", file.id, file.generation}, Size: int64(len(file.content)), Path: file.path, Suspect: true}
			w.mu.Unlock()
			f.Enqueue(item)
			w.expectStore(next.Contents)
		})
	}
}

// TestKilledThenRenamed removes, after a crash, the object that a flush may have left under the old
// name.
func TestKilledThenRenamed(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"rename", "rename directory", "remove"} {
		w, store := newWorld(t), memStore()
		if _, err := store.Put(t.Context(), "d/a", backing.NewBytes([]byte("the content")), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		f := w.start(store, nil)
		f.Pause("buf")
		key := w.write("d/a", "the content")
		f.Forget(key)
		f.Enqueue(Item{Key: key, Size: 11, Path: "d/a", Suspect: true})
		switch change {
		case "rename":
			w.rename("d/a", "d/b")
		case "rename directory":
			w.rename("d", "e")
		case "remove":
			w.remove("d/a")
		}
		f.Resume("buf")
		w.expectStore(store.Contents)
	}
}

// TestReplacedBeforeItsRecord has a crash come between a Put and its record, and another file be
// renamed to the name. The object stays until the flush of that file, and goes with its name.
func TestReplacedBeforeItsRecord(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"flush", "remove", "rename"} {
		t.Run(then, func(t *testing.T) {
			w, inner := newWorld(t), memStore()
			if _, err := inner.Put(t.Context(), "d/a", backing.NewBytes([]byte("old")), backing.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			full := fault.NewPlan(fault.Rule{Op: "put", Kind: fault.Full})
			f := w.start(fault.Wrap(inner, full), func(o *Options) { o.Backoff = [2]time.Duration{time.Millisecond, time.Millisecond} })
			f.Pause("buf")
			key := w.write("d/a", "old")
			f.Forget(key)
			f.Enqueue(Item{Key: key, Size: 3, Path: "d/a", Suspect: true})
			w.write("d/b", "new")
			w.rename("d/b", "d/a")
			f.Resume("buf")
			for failed := false; !failed; time.Sleep(time.Millisecond) {
				failed = full.Hits() > 0 // the flush of the new file
			}
			if got := string(inner.Contents()["d/a"]); got != "old" {
				t.Errorf("the store has %q before the flush of what replaces it", got)
			}
			switch then {
			case "remove":
				w.remove("d/a")
			case "rename":
				w.rename("d/a", "d/c")
			}
			full.Set()
			w.expectStore(inner.Contents)
		})
	}
}

// TestOpenedBeforeItsRecord opens a file for writing between a Put and its record, so that it is
// not queued any more. Its object goes with its name, or is replaced by its next flush.
func TestOpenedBeforeItsRecord(t *testing.T) {
	t.Parallel()
	for _, crashed := range []bool{false, true} {
		for _, then := range []string{"remove", "rename", "replace", "flush"} {
			t.Run(fmt.Sprintf("%s, after a crash: %v", then, crashed), func(t *testing.T) {
				w, inner := newWorld(t), memStore()
				if _, err := inner.Put(t.Context(), "d/a", backing.NewBytes([]byte("old")), backing.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				f := w.start(inner, nil)
				f.Pause("buf")
				key := w.write("d/a", "old")
				f.Forget(key)
				if crashed {
					f.Suspect("buf", "d/a", nil)
				} else {
					f.Enqueue(Item{Key: key, Size: 3, Path: "d/a", Suspect: true})
					f.Forget(key)
				}
				switch then {
				case "remove":
					w.remove("d/a")
				case "rename":
					w.rename("d/a", "d/c")
					w.remove("d/c")
				case "replace":
					w.write("d/b", "new")
					w.rename("d/b", "d/a")
				case "flush":
					w.write("d/a", "newer")
				}
				f.Resume("buf")
				w.expectStore(inner.Contents)
				if then == "flush" || then == "replace" { // the object on the store is recorded now, and moves
					w.rename("d/a", "d/c")
					w.expectStore(inner.Contents)
				}
			})
		}
	}
}

// TestRenamesAndRemovalsDuringFlushes changes names at random while a store that
// fails now and then is written, and compares it with the namespace at the end.
func TestRenamesAndRemovalsDuringFlushes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			w.slow = seed%2 == 1
			inner := mem.New(owner, func(ctx context.Context, _ string, step mem.Step) error {
				if rand.IntN(3) == 0 {
					time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				}
				return nil
			})
			var rules []fault.Rule
			for i := range 60 { // lost answers, to puts and operations
				rules = append(rules, fault.Rule{Op: []string{"put", "rename", "remove"}[i%3], Kind: []fault.Kind{fault.Reset, fault.Busy}[i%2], Skip: 4, Count: 1})
			}
			f := w.start(fault.Wrap(inner, fault.NewPlan(rules...)), nil)
			r := rand.New(rand.NewPCG(seed, 1))
			names := func() string { return fmt.Sprintf("d%d/f%d", r.IntN(3), r.IntN(4)) }
			for i := range 300 {
				switch r.IntN(8) {
				case 0, 1, 2, 3:
					w.write(names(), fmt.Sprintf("content %d %s", i, strings.Repeat("x", r.IntN(5000))))
				case 4, 5:
					if from, to := names(), names(); from != to {
						w.rename(from, to)
					}
				case 6:
					w.remove(names())
				case 7:
					from, to := fmt.Sprint("d", r.IntN(3)), fmt.Sprint("e", r.IntN(2))
					if r.IntN(4) == 0 {
						w.remove(from)
					} else if !w.hasDir(to) {
						w.rename(from, to)
						w.rename(to, from)
					}
				}
				if r.IntN(4) == 0 {
					time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
				}
			}
			w.expectStore(inner.Contents)
			if n := len(f.queueOf("buf").suspect); n != 0 {
				t.Errorf("%d entries are still suspect", n)
			}
		})
	}
}

func (f *Flusher) queueOf(buffer string) *queue {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.queues[buffer]
}

// TestRemovedDoesNotComeBack holds a flush in flight, removes its file, and looks.
func TestRemovedDoesNotComeBack(t *testing.T) {
	t.Parallel()
	for _, step := range []mem.Step{mem.StepBegun, mem.StepWritten, mem.StepVisible} {
		w := newWorld(t)
		reached := make(chan struct{})
		store := mem.New(owner, func(ctx context.Context, _ string, at mem.Step) error {
			if at == step {
				close(reached)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.start(store, nil)
		w.write("a", "content")
		<-reached
		w.remove("a")
		w.expectStore(store.Contents)
	}
}

func TestKeptBack(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	f := w.start(store, func(o *Options) {
		o.DirtyAge = time.Nanosecond // even overdue
		o.Policy = func(string) Policy { return Policy{NoFlush: bb.DefaultNoFlush()} }
	})
	w.write("out/_temporary/0/part-0", "zero")
	w.write("out/_temporary/0/part-1", "one")
	w.write("ckpt.tmp", "checkpoint")
	w.write("plain", "plain")
	report, err := drainAll(t, f) // "plain" may have been flushed before, by its age
	want := []string{"ckpt.tmp", "out/_temporary/0/part-0", "out/_temporary/0/part-1"}
	if !errors.Is(err, bb.Busy) || !slices.Equal(report.Excluded, want) || report.ExcludedCount != 3 || report.UnsavedCount != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if got := store.Contents(); len(got) != 1 || string(got["plain"]) != "plain" {
		t.Fatalf("stored: %q", got)
	}
	w.rename("ckpt.tmp", "ckpt")
	w.rename("out/_temporary/0/part-0", "out/part-0")
	w.remove("out/_temporary")
	w.expectStore(store.Contents)
	if s := f.BufferStats("buf"); s.Excluded != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestFlushRules: files of steps that a rule holds back stay where they are, overdue or not, are no
// failure of a drain, and are flushed once the policy allows it and they are reconsidered. Files
// that are renamed out of a step are flushed at once.
func TestFlushRules(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	var steps atomic.Pointer[plan.Steps]
	steps.Store(&plan.Steps{Rules: bb.FlushRules([]string{"step-*/=every 5"})})
	f := w.start(store, func(o *Options) {
		o.DirtyAge = time.Nanosecond
		o.Policy = func(string) Policy { return Policy{Steps: steps.Load()} }
	})
	for _, name := range []string{"step-1/a", "step-1/b", "step-10/a", "step-11/a", "plain"} {
		w.write(name, name)
	}
	report, err := drainAll(t, f)
	if err != nil || report.ExcludedCount != 0 || len(report.Excluded) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	want := func(names ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(store.Contents())); !slices.Equal(got, names) {
			t.Fatalf("stored: %q, want %q", got, names)
		}
	}
	want("plain", "step-10/a")
	if s := f.BufferStats("buf"); s.Ruled != 3 || s.Excluded != 0 || s.Queued != 0 || !s.OldestDirty.IsZero() {
		t.Fatalf("%+v", s)
	}
	f.Reconsider("buf", []string{"step-1"})
	f.Reconsider("none", []string{"step-1"})
	if _, err := drainAll(t, f); err != nil {
		t.Fatal(err)
	}
	want("plain", "step-10/a")
	steps.Store(&plan.Steps{Rules: steps.Load().Rules, States: map[string]plan.StepState{"step-1": plan.StepFlushed}})
	f.Reconsider("buf", []string{"step-1"})
	if _, err := drainAll(t, f); err != nil {
		t.Fatal(err)
	}
	want("plain", "step-1/a", "step-1/b", "step-10/a")
	w.rename("step-11/a", "best")
	w.expectStore(store.Contents)
	if s := f.BufferStats("buf"); s.Ruled != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestDrainSaysWhatItCouldNotSave(t *testing.T) {
	t.Parallel()
	w, inner := newWorld(t), memStore()
	denied := bb.E(bb.Permission, "put", "secret", "access denied")
	f := w.start(failing{inner, map[string]error{"secret": denied}}, nil)
	w.write("secret", "x")
	w.write("fine", "y")
	w.set(func() { w.mu.open = []string{"being/written"} })
	report, err := drainAll(t, f)
	if !errors.Is(err, bb.Permission) || !strings.Contains(err.Error(), "access denied") {
		t.Fatal(err)
	}
	if report.UnsavedCount != 1 || report.Unsaved[0].Path != "secret" || report.Unsaved[0].Err != denied || report.OpenCount != 1 {
		t.Fatalf("%+v", report)
	}
	if got := inner.Contents()["fine"]; string(got) != "y" {
		t.Fatalf("the other file: %q", got)
	}
	if s := f.BufferStats("buf"); s.Queued != 1 || s.Draining {
		t.Fatalf("the file was dropped: %+v", s)
	}
}

// TestDrainEndsWithItsContext while the store hangs.
func TestDrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.start(fault.Wrap(memStore(), fault.NewPlan(fault.Rule{Op: "put", Kind: fault.Slow, Delay: 1000 * time.Hour})), nil)
		defer f.Close()
		w.write("a", "content")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		calls := 0
		report, err := f.Drain(ctx, "buf", func(p Progress) {
			calls++
			if p.FilesTotal != 1 || p.BytesTotal != 7 || p.FilesDone != 0 {
				t.Errorf("%+v", p)
			}
		})
		if err == nil || report.UnsavedCount != 1 || report.UnsavedBytes != 7 || calls < 100 {
			t.Fatalf("%+v, %v, %d calls", report, err, calls)
		}
	})
}

// failing fails Puts of some names.
type failing struct {
	backing.Store
	names map[string]error
}

func (s failing) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	if err := s.names[name]; err != nil {
		return backing.Object{}, err
	}
	return s.Store.Put(ctx, name, src, opts)
}

// TestDamagedMemory: damaged bytes get no name on the store, compressed or not, and the error names the piece.
func TestDamagedMemory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{codec.None, "zstd"} {
		t.Run("codec "+name, func(t *testing.T) { damagedMemory(t, name) })
	}
}

func damagedMemory(t *testing.T, name string) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	f := w.start(store, func(o *Options) { o.Policy = func(string) Policy { return Policy{Codec: name} } })
	w.set(func() { w.mu.damage = bb.E(bb.Checksum, "verify", "a", "extent 3 is damaged") })
	w.write("a", "content")
	report, err := drainFor(t, f, 200*time.Millisecond)
	if !errors.Is(err, bb.Checksum) || !strings.Contains(err.Error(), "extent 3") || len(store.Contents()) != 0 || report.UnsavedCount != 1 {
		t.Fatalf("%v, %q", err, store.Contents())
	}
	w.set(func() { w.mu.damage = nil })
	if name == codec.None {
		w.expectStore(store.Contents)
	} else if report, err := f.Drain(t.Context(), "buf", nil); err != nil || store.Contents()["a.zst"] == nil {
		t.Errorf("once its memory is mended: %v, %+v", err, report)
	}
}

func drainFor(t *testing.T, f *Flusher, limit time.Duration) (Report, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return f.Drain(ctx, "buf", nil)
}

// TestCodecs stores compressed, reads back, and takes the old object away when the codec changes.
func TestCodecs(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	name := codec.None
	var mu sync.Mutex
	f := w.start(store, func(o *Options) {
		o.SpoolDir = t.TempDir()
		o.Policy = func(string) Policy {
			mu.Lock()
			defer mu.Unlock()
			return Policy{Codec: name}
		}
	})
	noise := make([]byte, spool.Memory+spool.Step)
	rand.NewChaCha8([32]byte{}).Read(noise)
	contents := map[string]string{"text": strings.Repeat("a burst ", 10_000), "noise": string(noise), "empty": ""}
	for _, c := range []string{codec.Zstd, codec.None, codec.S2, codec.Zstd} {
		mu.Lock()
		name = c
		mu.Unlock()
		var want []string
		for path, content := range contents {
			w.write(path, content)
			want = append(want, path+codec.Suffix(c))
		}
		if _, err := drainAll(t, f); err != nil {
			t.Fatal(err)
		}
		var got []string
		for object := range store.Contents() {
			got = append(got, object)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%q: stored %q", c, got)
		}
		for path, content := range contents {
			for _, offset := range []int64{0, int64(len(content) / 2)} {
				r, err := f.Read(t.Context(), "buf", path, c, offset)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(r)
				if err != nil || r.Close() != nil || string(b) != content[offset:] {
					t.Fatalf("%s in %q from %d: %d bytes, %v", path, c, offset, len(b), err)
				}
			}
		}
		w.rename("text", "renamed")
		w.rename("renamed", "text")
	}
	if left, err := os.ReadDir(f.opts.SpoolDir); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

// TestOneBufferDoesNotStopAnother has one store hang for ever.
func TestOneBufferDoesNotStopAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := fault.Wrap(memStore(), fault.NewPlan(fault.Rule{Kind: fault.Slow, Delay: time.Hour}))
	fine := memStore()
	f := w.start(nil, func(o *Options) {
		o.Stores = func(_ context.Context, buffer string) (backing.Store, error) {
			if buffer == "stuck" {
				return stuck, nil
			}
			return fine, nil
		}
	})
	w.buffer = "stuck"
	for i := range 20 {
		w.write(fmt.Sprint("s", i), "x")
	}
	w.buffer = "buf"
	for i := range 100 {
		w.write(fmt.Sprint("f", i), "x")
	}
	if _, err := drainAll(t, f); err != nil {
		t.Fatal(err)
	}
	if n := len(fine.Contents()); n != 100 {
		t.Fatalf("%d stored", n)
	}
	for f.Stats()["stuck"].InFlight < 3 { // those not begun before the others
		time.Sleep(time.Millisecond)
	}
	if s := f.Stats(); s["stuck"].InFlight != 3 || s["stuck"].Queued != 20 || s["buf"].Flushed != 100 {
		t.Fatalf("%+v", s)
	}
}

// TestRewrittenWhileFlying continues with the newer generation, and reports it to waiters.
func TestRewrittenWhileFlying(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reached, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	store := mem.New(owner, func(_ context.Context, _ string, at mem.Step) error {
		once.Do(func() { close(reached); <-proceed })
		return nil
	})
	f := w.start(store, nil)
	first := w.write("a", "old")
	<-reached
	second := w.write("a", "new")
	close(proceed)
	if err := f.Wait(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := f.Wait(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if got := string(store.Contents()["a"]); got != "new" {
		t.Fatalf("stored %q", got)
	}
	w.expectStore(store.Contents)
}

func TestWaitForWhatGoesAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.start(memStore(), nil)
	f.Pause("")
	key := w.write("a", "content")
	result := make(chan error, 1)
	go func() { result <- f.Wait(t.Context(), key) }()
	for f.waiters("buf") == 0 {
		time.Sleep(time.Millisecond)
	}
	w.remove("a")
	if err := <-result; !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
}

func (f *Flusher) waiters(buffer string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.mu.queues[buffer].entries {
		n += len(e.waiters)
	}
	return n
}

// TestClose ends everything that waits, with a reason, and keeps nothing running.
func TestClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hang := fault.Wrap(memStore(), fault.NewPlan(fault.Rule{Kind: fault.Slow, Delay: time.Hour}))
	f := w.start(hang, nil)
	key := w.write("a", "content")
	f.Apply("buf", storeop.Op{Kind: storeop.Remove, Old: "b"})
	results := make(chan error, 2)
	go func() { results <- f.Wait(t.Context(), key) }()
	go func() { _, err := f.Drain(t.Context(), "buf", nil); results <- err }()
	for f.waiters("buf") == 0 || !f.BufferStats("buf").Draining || f.BufferStats("buf").InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-results; !errors.Is(err, bb.Unavailable) {
			t.Fatal(err)
		}
	}
	if _, err := f.Hold(t.Context(), "buf", "x"); !errors.Is(err, bb.Unavailable) {
		t.Fatal(err)
	}
	if _, err := f.Drain(t.Context(), "buf", nil); !errors.Is(err, bb.Unavailable) {
		t.Fatal(err)
	}
	f.Enqueue(Item{Key: key})
	f.Apply("buf", storeop.Op{Kind: storeop.Remove, Old: "b"})
	f.Forget(key)
}

func TestForgetBuffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hang := fault.Wrap(memStore(), fault.NewPlan(fault.Rule{Kind: fault.Slow, Delay: time.Hour}))
	f := w.start(hang, nil)
	for i := range 10 {
		w.write(fmt.Sprint("f", i), "x")
	}
	held, err := f.Hold(t.Context(), "buf", "")
	if err != nil {
		t.Fatal(err)
	}
	f.ForgetBuffer("buf")
	held.Release()
	held.Release()
	if s := f.Stats(); len(s) != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestHoldGivesUp when its context ends before a flush does, and holds nothing then.
func TestHoldGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stubborn, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	store := mem.New(owner, func(context.Context, string, mem.Step) error {
		once.Do(func() { close(reached); <-stubborn })
		return nil
	})
	f := w.start(store, nil)
	w.write("a", "content")
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Hold(ctx, "buf", "a"); !errors.Is(err, bb.Cancelled) {
		t.Fatal(err)
	}
	close(stubborn)
	w.expectStore(store.Contents)
}

// TestRenameWhileThePathIsLookedUp: a flush that begins while a rename holds its name,
// and looks the path up before the rename and takes off after it, must not use it.
func TestRenameWhileThePathIsLookedUp(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	looking, renamed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.begun = func() { once.Do(func() { close(looking); <-renamed }) }
	f := w.start(store, nil)
	held, err := f.Hold(t.Context(), "buf", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	w.write("a", "content") // its flush begins, and finds the path a
	<-looking
	w.mu.Lock()
	moved := w.mu.files["a"]
	moved.path = "b"
	delete(w.mu.files, "a")
	w.mu.files["b"] = moved
	w.mu.Unlock()
	held.Release()
	close(renamed)
	w.expectStore(store.Contents)
}

// TestOperationsThatFail are repeated, in order, and hold back only files that they concern.
func TestOperationsThatFail(t *testing.T) {
	t.Parallel()
	w, inner := newWorld(t), memStore()
	plan := fault.NewPlan()
	f := w.start(fault.Wrap(inner, plan), nil)
	w.write("a", "first")
	w.write("other", "1")
	w.expectStore(inner.Contents)
	plan.Set(fault.Rule{Op: "rename", Kind: fault.Refused})
	w.rename("a", "b")
	w.rename("b", "c")
	blocked, free := w.write("a", "second"), w.write("other", "2")
	if err := f.Wait(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Wait(ctx, blocked); err == nil {
		t.Fatal("flushed under a name that is not free yet")
	}
	s := f.BufferStats("buf")
	if s.StoreOps != 2 || s.LastError == nil || s.LastErrorPath != "a" || string(inner.Contents()["a"]) != "first" {
		t.Fatalf("%+v", s)
	}
	plan.Set()
	w.expectStore(inner.Contents)
	if s := f.BufferStats("buf"); s.StoreOps != 0 || s.LastError != nil {
		t.Fatalf("%+v", s)
	}
}

// TestOperationsAreIdempotent carries the same ones out twice, as after a crash.
func TestOperationsAreIdempotent(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	f := w.start(store, nil)
	w.write("a", "x")
	w.write("t/1", "y")
	w.expectStore(store.Contents)
	for range 2 {
		f.Apply("buf", storeop.Op{Kind: storeop.Rename, Old: "a", New: "b"})
		f.Apply("buf", storeop.Op{Kind: storeop.Rename, Old: "t", New: "u", Tree: true})
		f.Apply("buf", storeop.Op{Kind: storeop.Remove, Old: "c"})
		if _, err := drainAll(t, f); err != nil {
			t.Fatal(err)
		}
	}
	if got := store.Contents(); len(got) != 2 || string(got["b"]) != "x" || string(got["u/1"]) != "y" {
		t.Fatalf("%q", got)
	}
}

// TestDeadline begins to flush a file within its dirty age, though nothing is ever idle.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store := newWorld(t), memStore()
		f := w.start(store, func(o *Options) { o.Idle = time.Hour; o.DirtyAge = 5 * time.Minute })
		defer f.Close()
		begin := time.Now()
		for time.Since(begin) < 20*time.Minute {
			w.write("log", time.Now().String())
			synctest.Wait()
			if oldest := f.BufferStats("buf").OldestDirty; !oldest.IsZero() && time.Since(oldest) > 5*time.Minute+10*time.Second {
				t.Fatalf("dirty since %v ago", time.Since(oldest))
			}
			time.Sleep(7 * time.Second) // not a divisor of the dirty age
		}
		if n := store.Puts("log"); n < 3 || n > 5 {
			t.Fatalf("stored %d times in 20 minutes", n)
		}
	})
}

// TestDue: of two buffers with a slow store, the one that would not be clean in time gets most of
// it, and the pace is right.
func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stores := map[string]*mem.Store{"job": memStore(), "other": memStore()}
		begin := time.Now()
		f := w.start(nil, func(o *Options) {
			o.Workers = 1
			o.Stores = func(_ context.Context, buffer string) (backing.Store, error) {
				return fault.Wrap(stores[buffer], fault.NewPlan(fault.Rule{Op: "put", Kind: fault.Slow, Delay: time.Second})), nil
			}
			o.Policy = func(buffer string) Policy {
				if buffer == "job" {
					return Policy{Due: begin.Add(time.Minute)}
				}
				return Policy{}
			}
		})
		defer f.Close()
		for i := range 100 {
			for _, w.buffer = range []string{"job", "other"} {
				w.write(fmt.Sprint(w.buffer, i), strings.Repeat("x", 1000))
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		job, other := len(stores["job"].Contents()), len(stores["other"].Contents())
		if job < 45 || job+other < 55 {
			t.Errorf("%d files of the job were flushed, and %d others", job, other)
		}
		if s := f.BufferStats("job"); !s.PaceKnown || s.Pace < 700 || s.Pace > 1000 {
			t.Errorf("1000 bytes a second are flushed, and it seems to be %v (%v)", s.Pace, s.PaceKnown)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if s := f.BufferStats("job"); s.PaceKnown || s.Queued != 0 {
			t.Errorf("with nothing left: %+v", s)
		}
	})
}

// TestLargeBesideBurst: a large file is flushed when it was left alone for long enough, though small files of a burst, which
// wait for its end, are older than it.
func TestLargeBesideBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store := newWorld(t), memStore()
		f := w.start(store, func(o *Options) { o.Idle, o.Workers, o.SmallPerWorker = time.Second, 2, 4 })
		defer f.Close()
		small := func(from, to int) {
			for i := from; i < to; i++ {
				w.write(fmt.Sprint("small", i), "x")
			}
		}
		small(0, 1000)
		time.Sleep(time.Millisecond)
		w.write("large", strings.Repeat("x", 100<<10))
		for i := range 30 { // the burst goes on
			time.Sleep(100 * time.Millisecond)
			small(1000+20*i, 1020+20*i)
		}
		synctest.Wait()
		if got := store.Contents(); len(got) != 1 || len(got["large"]) != 100<<10 {
			t.Errorf("%d files were flushed, of the large one %d bytes", len(got), len(got["large"]))
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := store.Contents(); len(got) != 1601 {
			t.Errorf("after the burst, %d files are flushed", len(got))
		}
	})
}

// TestClockAhead: a file with a time of writing that is, by another clock, an hour ahead is flushed
// in time.
func TestClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store := newWorld(t), memStore()
		f := w.start(store, func(o *Options) { o.Idle = time.Second; o.DirtyAge = 5 * time.Minute })
		defer f.Close()
		w.ahead = time.Hour
		w.write("log", "x")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := store.Puts("log"); n != 1 {
			t.Errorf("stored %d times", n)
		}
	})
}

// TestManyFiles keeps the cost of a file from growing with their number.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	f := w.start(store, nil)
	f.Pause("buf")
	for i := range 20_000 {
		w.write(fmt.Sprintf("d%d/f%d", i%100, i), "x")
	}
	for i := range 500 {
		w.rename(fmt.Sprintf("d%d/f%d", i%100, i), fmt.Sprintf("e/f%d", i))
	}
	f.Resume("buf")
	w.expectStore(store.Contents)
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	var mu sync.Mutex
	var lines []byte
	w.start(store, func(o *Options) {
		o.Policy = func(string) Policy { return Policy{Codec: codec.Zstd} }
		o.Observe = func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == EventFlushed {
				var err error
				if lines, err = e.Receipt.Append(lines); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 5 {
		w.write(fmt.Sprint("f", i), strings.Repeat("text ", 100*i))
	}
	if _, err := drainAll(t, w.f); err != nil {
		t.Fatal(err)
	}
	w.write("f0", "again")
	if _, err := drainAll(t, w.f); err != nil {
		t.Fatal(err)
	}
	verify := func(depth receipt.Depth) (bad []string) {
		t.Helper()
		verdict, err := receipt.Verify(t.Context(), store, bytes.NewReader(lines), depth, func(f receipt.Finding) {
			if f.Err != nil {
				bad = append(bad, f.Receipt.Path+": "+bb.KindOf(f.Err).String())
			}
		})
		if err != nil || verdict.Good+verdict.Bad != 5 || verdict.Bad != len(bad) {
			t.Fatal(verdict, err)
		}
		return bad
	}
	if bad := slices.Concat(verify(receipt.Names), verify(receipt.Deep)); len(bad) != 0 {
		t.Fatal(bad)
	}
	if err := errors.Join(store.Damage("f1.zst"), store.Remove(t.Context(), "f2.zst")); err != nil {
		t.Fatal(err)
	}
	if bad := verify(receipt.Names); !slices.Equal(bad, []string{"f2: not found"}) {
		t.Fatal(bad)
	}
	if bad := verify(receipt.Deep); len(bad) != 2 || !slices.Contains(bad, "f1: checksum") || !slices.Contains(bad, "f2: not found") {
		t.Fatal(bad)
	}
	lines = append(lines, "not a receipt\n{\"path\":"...)
	var invalid int
	if _, err := receipt.Verify(t.Context(), store, bytes.NewReader(lines), receipt.Names, func(f receipt.Finding) {
		if errors.Is(f.Err, bb.Invalid) {
			invalid++
		}
	}); err != nil || invalid != 2 {
		t.Fatal(invalid, err)
	}
}

// TestRenamedAfterAnUncertainRecord renames a file after its flush was recorded without an answer.
// The object is not an orphan, the rename takes it along.
func TestRenamedAfterAnUncertainRecord(t *testing.T) {
	t.Parallel()
	w, store := newWorld(t), memStore()
	f := w.start(store, func(o *Options) { o.Backoff = [2]time.Duration{time.Hour, time.Hour} })
	w.mu.unsaid = bb.E(bb.Unavailable, "flush", "", "the answer was lost")
	w.write("old", "content")
	for f.BufferStats("buf").Failing == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the flush does not fail")
		}
		time.Sleep(time.Millisecond)
	}
	w.mu.Lock()
	w.mu.unsaid = nil
	w.mu.Unlock()

	w.rename("old", "new")
	if report, err := drainAll(t, f); err != nil {
		t.Fatalf("%v: %+v", err, report)
	}
	w.expectStore(store.Contents)
}

// While many small files are in flight, one decision about the next flushes is made for many landings.
func TestDecisionsAreForManyLandings(t *testing.T) {
	t.Parallel()
	const files = 3000
	w, store := newWorld(t), memStore()
	var decisions atomic.Int64
	f := w.start(store, func(o *Options) {
		o.Workers, o.SmallPerWorker = 8, 24
		o.Pressure = func() bool {
			decisions.Add(1)
			return false
		}
	})
	f.Pause("buf")
	for i := range files {
		w.write(fmt.Sprint("f", i), "x")
	}
	before := decisions.Load()
	f.Resume("buf")
	w.expectStore(store.Contents)
	if n := decisions.Load() - before; n > files/4 {
		t.Errorf("%d decisions for %d files", n, files)
	}
}
