package flusher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/spool"
	"forebay/flusher/upload"
	"forebay/internal/bb"
)

// hung is a store whose Puts do not return before it is released, even if it is cancelled, as
// write(2) on a file system whose server is away.
type hung struct {
	backing.Store
	named bool // it hangs when the object is about to get its name, else before
	only  string
	back  chan struct{}
	begun atomic.Int32
	once  sync.Once
}

func newHung(inner backing.Store) *hung { return &hung{Store: inner, back: make(chan struct{})} }

func (h *hung) release() { h.once.Do(func() { close(h.back) }) }

func (h *hung) Put(ctx context.Context, name string, src backing.Source, o backing.PutOptions) (backing.Object, error) {
	if h.only != "" && h.only != name {
		return h.Store.Put(ctx, name, src, o)
	}
	h.begun.Add(1)
	if !h.named {
		<-h.back
		return h.Store.Put(context.WithoutCancel(ctx), name, src, o)
	}
	last := o.Last
	o.Last = func(ctx context.Context) error {
		if last != nil {
			if err := last(ctx); err != nil {
				return err
			}
		}
		<-h.back
		return nil
	}
	return h.Store.Put(context.WithoutCancel(ctx), name, src, o)
}

// plainJob is a file of one byte that is always there.
type plainJob struct{ key Key }

func (j plainJob) Path() string                           { return fmt.Sprintf("f%d", j.key.File) }
func (j plainJob) Damage(context.Context, func()) error   { return nil }
func (j plainJob) Source() backing.Source                 { return backing.NewBytes([]byte("x")) }
func (j plainJob) Done(context.Context, bb.Flushed) error { return nil }
func (j plainJob) Close()                                 {}

type plainCatalog struct{}

func (plainCatalog) Begin(_ context.Context, k Key) (upload.Job, error) { return plainJob{k}, nil }

func enqueue(f *Flusher, buffer string, files int) {
	for i := range files {
		f.Enqueue(Item{Key: Key{Buffer: buffer, File: bb.FileID(i + 1), Generation: 1}, Size: 1})
	}
}

// TestHungStoresDoNotStopOthers has three buffers on two stores that do not answer.
func TestHungStoresDoNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lustre, nfs := newHung(memStore()), newHung(memStore())
		stores := map[string]backing.Store{"a": lustre, "b": lustre, "c": nfs, "works": memStore()}
		f := New(Options{
			Catalog: plainCatalog{}, Idle: -1,
			Stores: func(_ context.Context, b string) (backing.Store, error) { return stores[b], nil },
			Policy: func(b string) Policy { return Policy{Store: map[string]string{"a": "lustre", "b": "lustre"}[b]} },
		})
		defer f.Close()
		defer nfs.release()
		defer lustre.release()
		for _, b := range []string{"a", "b", "c"} {
			enqueue(f, b, 20)
		}
		synctest.Wait() // the stores that hang have all workers
		enqueue(f, "works", 50)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := f.Drain(ctx, "works", nil); err != nil {
			t.Fatalf("the buffer whose store works: %v", err)
		}
		time.Sleep(time.Hour) // in the bubble, where all that ever begins has begun
		if n := lustre.begun.Load(); n != 7 {
			t.Errorf("%d requests are left to one store, want as many as it may have: 7", n)
		}
		a, b, works := f.BufferStats("a"), f.BufferStats("b"), f.BufferStats("works")
		if a.Stalled+b.Stalled != 7 || time.Since(a.StalledAt) < time.Hour || works.Stalled != 0 {
			t.Errorf("stalled: %d since %v, %d, %d", a.Stalled, a.StalledAt, b.Stalled, works.Stalled)
		}
		report, err := f.Drain(ctx, "a", nil)
		if err == nil || !strings.Contains(report.Unsaved[0].Err.Error(), "not answered") {
			t.Errorf("a drain that ends before the store answers: %v, %+v", err, report.Unsaved[0])
		}
		begun := 0
		for _, u := range report.Unsaved {
			if u.Err == nil {
				t.Fatalf("a file without a reason: %+v", u)
			}
			if !strings.Contains(u.Err.Error(), "has not begun: 7 flushes have had no answer of the store") {
				begun++
			}
		}
		if len(report.Unsaved) != 20 || begun != a.InFlight || bb.KindOf(report.Unsaved[19].Err) != bb.Unavailable {
			t.Errorf("%d files of 20, %d with a flush that began, of %d: %v", len(report.Unsaved), begun, a.InFlight, report.Unsaved[19].Err)
		}
		lustre.release()
		nfs.release()
		for _, b := range []string{"a", "b", "c"} {
			if report, err := f.Drain(t.Context(), b, nil); err != nil {
				t.Errorf("%s, when its store answers again: %v, %+v", b, err, report)
			}
		}
	})
}

// TestSmallFilesShareWorkers has more small files than workers on their way at a time, and large files as many as there
// are workers. A store that hangs leaves a worker to others.
func TestSmallFilesShareWorkers(t *testing.T) {
	for _, c := range []struct {
		size int64
		want int32
	}{{4 << 10, 7 * 8}, {1 << 20, 7}} {
		synctest.Test(t, func(t *testing.T) {
			away, works := newHung(memStore()), memStore()
			f := New(Options{
				Catalog: plainCatalog{}, Idle: -1, SmallPerWorker: 8, PerBuffer: 8,
				Stores: func(_ context.Context, b string) (backing.Store, error) {
					if b == "away" {
						return away, nil
					}
					return works, nil
				},
				Policy: func(b string) Policy { return Policy{Store: b} },
			})
			defer f.Close()
			defer away.release()
			for i := range 200 {
				f.Enqueue(Item{Key: Key{Buffer: "away", File: bb.FileID(i + 1), Generation: 1}, Size: c.size})
			}
			time.Sleep(time.Second) // decisions wait for landings, up to a millisecond
			synctest.Wait()
			if n := away.begun.Load(); n != c.want {
				t.Errorf("files of %d bytes: %d on their way, want %d", c.size, n, c.want)
			}
			enqueue(f, "works", 50)
			if _, err := f.Drain(t.Context(), "works", nil); err != nil {
				t.Error(err)
			}
			away.release()
			if _, err := f.Drain(t.Context(), "away", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOvertaken renames and removes files whose stores do not answer, and puts others in their
// places. Late results change nothing.
func TestOvertaken(t *testing.T) {
	for name, change := range map[string]func(*world){
		"renamed":  func(w *world) { w.rename("d/p", "d/q") },
		"moved":    func(w *world) { w.rename("d", "e") },
		"removed":  func(w *world) { w.remove("d/p") },
		"replaced": func(w *world) { w.rename("x", "d/p") },
		"made anew": func(w *world) {
			w.rename("d/p", "d/q")
			w.write("d/p", "another")
		},
		"removed and made anew": func(w *world) {
			w.remove("d/p")
			w.write("d/p", "another")
		},
		"written again": func(w *world) { w.write("d/p", "newer") },
		"only held": func(w *world) {
			held, err := w.f.Hold(w.t.Context(), w.buffer, "d/p")
			if err != nil {
				w.t.Fatal(err)
			}
			held.Release()
		},
	} {
		for _, named := range []bool{false, true} {
			for _, before := range []string{"", "older"} {
				t.Run(fmt.Sprintf("%s named=%v before=%s", name, named, before), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { overtaken(t, change, named, before) })
				})
			}
		}
	}
}

func overtaken(t *testing.T, change func(*world), named bool, before string) {
	w, store := newWorld(t), memStore()
	h := newHung(store)
	h.named = named
	f := w.start(h, nil)
	defer f.Close()
	h.only = "none"
	w.write("x", "x")
	if before != "" {
		w.write("d/p", before)
	}
	w.expectStore(store.Contents)
	f.Pause("buf")
	synctest.Wait()
	h.only = "d/p"
	w.write("d/p", "content")
	f.Resume("buf")
	synctest.Wait()
	if n := h.begun.Load(); n != 1 {
		t.Fatalf("%d requests hang", n)
	}
	change(w) // returns although the store does not
	time.Sleep(time.Minute)
	if n := h.begun.Load(); n != 1 {
		t.Errorf("%d requests for one name, of which none has ended", n)
	}
	h.release()
	w.expectStore(store.Contents)
}

// TestCloseDoesNotWaitForAHungStore stops a flusher whose store does not answer.
func TestCloseDoesNotWaitForAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memStore()
		h := newHung(inner)
		f := New(Options{
			Catalog: plainCatalog{}, Idle: -1,
			Stores: func(context.Context, string) (backing.Store, error) { return h, nil },
		})
		enqueue(f, "b", 3)
		synctest.Wait()
		begun := time.Now()
		if err := f.Close(); bb.KindOf(err) != bb.Unavailable || !strings.Contains(err.Error(), "3 requests") {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("Close took %v", took)
		}
		h.release()
		synctest.Wait()
		if got := inner.Contents(); len(got) != 0 {
			t.Errorf("after Close, the store got %v", got)
		}
	})
}

// slowJob is a large file: its verification, and each piece of it, takes a while.
type slowJob struct {
	plainJob
	bytes    backing.Source
	patience time.Duration
}

// Damage takes long, and finds the damage, if the bytes are damaged at all.
func (j slowJob) Damage(ctx context.Context, progress func()) error {
	for range slowPieces {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(j.patience / 2):
		}
		progress()
	}
	return errDamaged
}

var errDamaged = bb.E(bb.Checksum, "verify", "", "extent 3 is damaged")

type slowSource struct {
	backing.Source
	each time.Duration
}

func (s slowSource) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	time.Sleep(s.each)
	return s.Source.Slices(dst, off, n)
}

const slowPieces = 8

func (j slowJob) Source() backing.Source { return j.bytes }

type slowCatalog struct {
	patience time.Duration
	damaged  bool
}

func (c slowCatalog) Begin(_ context.Context, k Key) (upload.Job, error) {
	bytes := backing.NewBytes(make([]byte, slowPieces*spool.Step))
	if c.damaged {
		return slowJob{plainJob{k}, damagedSource{bytes}, c.patience}, nil
	}
	return slowJob{plainJob{k}, slowSource{bytes, c.patience / 2}, c.patience}, nil
}

// TestLargeFilesAreNoHang has a file that takes longer to compress, and one in which it takes longer
// to find the damage, than a store may be silent. The store is not to blame.
func TestLargeFilesAreNoHang(t *testing.T) {
	for codec, want := range map[string]error{"zstd": nil, "": bb.Checksum} {
		t.Run("codec "+codec, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const patience = 2 * time.Second
				store := memStore()
				f := New(Options{
					Catalog: slowCatalog{patience, want != nil}, Idle: -1, Patience: patience,
					Stores: func(context.Context, string) (backing.Store, error) { return store, nil },
					Policy: func(string) Policy { return Policy{Codec: codec} },
				})
				defer f.Close()
				began := time.Now()
				enqueue(f, "b", 1)
				drained := make(chan struct{})
				go func() {
					for {
						select {
						case <-drained:
							return
						case <-time.After(patience / 4):
						}
						if s := f.BufferStats("b"); s.Stalled > 0 {
							t.Errorf("after %v the store is said to be silent since %v", time.Since(began), s.StalledAt)
						}
					}
				}()
				defer close(drained)
				ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
				defer cancel()
				if report, err := f.Drain(ctx, "b", nil); !errors.Is(err, want) {
					t.Errorf("the drain: %v, %+v", err, report)
				}
				if took := time.Since(began); took < 2*patience {
					t.Errorf("it took %v: nothing was tested", took)
				}
			})
		})
	}
}

// TestHungStoresOfOneRound has as many stores as there are workers that hang from the first flush
// on, and one file of another. Nothing but their silence makes the dispatcher look again.
func TestHungStoresOfOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, works := newHung(memStore()), memStore()
		const workers = 4
		f := New(Options{
			Catalog: plainCatalog{}, Idle: -1, Workers: workers,
			Stores: func(_ context.Context, b string) (backing.Store, error) {
				if b == "works" {
					return works, nil
				}
				return hangs, nil
			},
		})
		defer f.Close()
		defer hangs.release()
		f.Pause("")
		for i := range workers { // before "works", by name
			enqueue(f, fmt.Sprint("hangs", i), 1)
		}
		enqueue(f, "works", 1)
		synctest.Wait() // the dispatcher has looked at all of them
		f.Resume("")
		time.Sleep(time.Minute) // in the bubble
		if n := f.BufferStats("works").Flushed; n != 1 {
			t.Errorf("of the store that works, %d files are flushed after a minute, want 1", n)
		}
		if n := hangs.begun.Load(); n != workers {
			t.Errorf("%d flushes hang, want %d: the test shows nothing", n, workers)
		}
	})
}

// TestBurst closes small files one after the other. Their flush waits for the end of the burst, or ten seconds.
func TestBurst(t *testing.T) {
	for length, want := range map[time.Duration]int32{9 * time.Second: 0, 11 * time.Second: 7} {
		synctest.Test(t, func(t *testing.T) {
			store := newHung(memStore())
			f := New(Options{
				Catalog: plainCatalog{}, SmallPerWorker: 1, PerBuffer: 8,
				Stores: func(context.Context, string) (backing.Store, error) { return store, nil },
				Policy: func(b string) Policy { return Policy{Store: b} },
			})
			defer f.Close()
			defer store.release()
			for i := range length / time.Millisecond {
				f.Enqueue(Item{Key: Key{Buffer: "b", File: bb.FileID(i + 1), Generation: 1}, Size: 4 << 10})
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if n := store.begun.Load(); n != want {
				t.Errorf("in a burst of %v, %d flushes have begun, not %d", length, n, want)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if store.begun.Load() == 0 {
				t.Error("no flush has begun after the burst")
			}
		})
	}
}
