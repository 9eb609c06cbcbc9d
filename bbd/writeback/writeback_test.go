package writeback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/backing/mem"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/meta/gossip"
	"forebay/meta/namespace"
)

// world is a daemon's files, namespace, memory and flusher, as far as the tests need them. Calls has the
// calls on them.
type world struct {
	Names
	spec    bb.Buffer
	entries map[bb.Place]bb.Entry
	ops     []namespace.StoreOp
	noted   []namespace.StoreOp  // not read yet
	unread  error                // of Read
	unsaid  error                // of Update, once, after it has changed the entry
	reading chan struct{}        // Read waits for it, unless it is nil
	txn     bb.TxnID             // which replaces all files
	changed func()               // called once when a place is locked, for a change under way there
	rename  func()               // carried out once after Update, when the place is free
	catchUp func() (bool, error) // nil: no exchange is late
	locked  map[bb.Place]bool
	marked  func()       // called by MarkDirty, unless it is nil
	look    func() error // called by Lookup and Resolve, unless it is nil
	updated bool         // an entry has been changed
	locks   []string     // names of places that were locked
	calls   []string
	later   []func() // functions started in the background, which are left to the test
}

func (w *world) did(format string, args ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w *world) Lookup(_ context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	if w.look != nil {
		if err := w.look(); err != nil {
			return bb.Entry{}, err
		}
	}
	if e, ok := w.entries[bb.Place{Dir: dir, Name: name}]; ok {
		return e, nil
	}
	return bb.Entry{}, bb.NotFound
}

func (w *world) ScanAll(_ context.Context, visit func(bb.Entry) error) error {
	for _, e := range w.entries {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Resolve(ctx context.Context, path string) (bb.Entry, error) {
	return w.Lookup(ctx, bb.RootDir, path)
}

func (w *world) PathOf(context.Context, bb.DirID) (string, error) { return "", nil }

func (w *world) Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error) {
	e, err := w.Lookup(ctx, dir, name)
	if err == nil {
		err = cmp.Or(ctx.Err(), change(&e))
	}
	if err == nil {
		w.entries[bb.Place{Dir: dir, Name: name}] = e
		err, w.unsaid = w.unsaid, nil
		w.updated = true
		w.whenFree(bb.Place{Dir: dir, Name: name})
	}
	return e, err
}

func (w *world) Replacing(context.Context, string) (bb.TxnID, error)      { return w.txn, nil }
func (w *world) StoreOps(context.Context) ([]namespace.StoreOp, error)    { return w.ops, nil }
func (w *world) PendingOps() namespace.OpReader                           { return w }
func (w *world) StoreOpPending(context.Context, uint64) (bool, error)     { return true, nil }
func (w *world) TakeOverStoreOps(context.Context, bb.NodeID) (int, error) { return 0, nil }
func (w *world) Read(context.Context) (came, went []namespace.StoreOp, err error) {
	if w.reading != nil {
		<-w.reading
	}
	if w.unread != nil {
		return nil, nil, w.unread
	}
	came, w.noted = w.noted, nil
	return came, nil, nil
}

func (w *world) DoneStoreOp(_ context.Context, revision uint64) (bool, error) {
	w.did("done %d", revision)
	return true, nil
}

// files are the world's files at this daemon.
type files struct{ *world }

func (f files) Spec() bb.Buffer     { return f.spec }
func (f files) OpenPaths() []string { return nil }

func (f files) CatchUp(bb.FileID) (bool, error) {
	if f.catchUp != nil {
		return f.catchUp()
	}
	return false, nil
}

func (f files) Lock(at bb.Place) (unlock func()) {
	if f.locked == nil {
		f.world.locked = map[bb.Place]bool{}
	}
	f.locks = append(f.locks, at.Name)
	if f.changed != nil {
		f.changed()
		f.world.changed = nil
	}
	f.locked[at] = true
	return func() {
		delete(f.locked, at)
		f.whenFree(at)
	}
}

// whenFree carries a rename out that waits for a place.
func (w *world) whenFree(at bb.Place) {
	if rename := w.rename; rename != nil && w.updated && !w.locked[at] {
		w.rename = nil
		rename()
	}
}

func (f files) SaveReaders(_ context.Context, file bb.FileID, newer bb.Generation) error {
	f.did("save readers of %d before %d", file, newer)
	return nil
}

func (f files) Pin(context.Context, *bb.Entry, *store.Snapshot) (Pinned, error) {
	return nil, errors.New("there is no memory")
}

func (f files) Discard(node bb.NodeID, file bb.FileID, n bb.Generation) {
	f.did("discard %d/%d at %s", file, n, node)
}

func (f files) ReportLost(context.Context, *bb.Entry) error { return nil }
func (f files) Destroyed(context.Context) bool              { return false }

// memory is the world's memory, which has no file.
type memory struct{ *world }

func (m memory) Snapshot(bb.FileID, bb.Generation) (*store.Snapshot, error) { return nil, bb.NotFound }

func (m memory) DropGeneration(file bb.FileID, n bb.Generation) { m.did("drop %d/%d", file, n) }

func (m memory) MarkDirty(bb.FileID, bb.Generation) error {
	if m.marked != nil {
		m.marked()
	}
	return nil
}

func (m memory) MarkClean(file bb.FileID, n bb.Generation) error {
	m.did("clean %d/%d", file, n)
	return nil
}

// queue is the world's flusher, whose store has nothing.
type queue struct {
	Flusher
	w *world
}

func (q queue) Enqueue(i flusher.Item) { q.w.did("enqueue %d/%d", i.Key.File, i.Key.Generation) }
func (q queue) Apply(_ string, op storeop.Op) {
	q.w.did("apply %v %s %s", op.Kind, op.Old, op.New)
}

func (q queue) RemoveOrphan(_, path string) { q.w.did("remove orphan %s", path) }

// background runs the functions started in the background.
func (w *world) background() {
	later := w.later
	w.later = nil
	for _, f := range later {
		f()
	}
}

// start returns the write-back of w's files, at a daemon that has no cluster.
func (w *world) start(t *testing.T, owners owner.Node) (*Buffer, *dirty.Files) {
	t.Helper()
	waiting := dirty.New()
	holds := flusher.New(flusher.Options{}) // never has a file
	t.Cleanup(func() { holds.Close() })
	b := New(t.Context(), Options{
		Owners: owners, Flusher: queue{Flusher: holds, w: w}, Store: memory{w}, Wake: func() { w.did("wake") },
		Open: func(context.Context, string) (backing.Store, error) { return mem.New(backing.Owner{}, nil), nil },
		Emit: func(e bb.Event) { w.did("%v %s", e.Kind, e.Path) }, Go: func(f func()) { w.later = append(w.later, f) }, Log: slog.New(slog.DiscardHandler),
	}, "b", files{w}, w, waiting)
	return b, waiting
}

func (b *Buffer) catalog() Catalog {
	return Catalog{Of: func(context.Context, string) (*Buffer, error) { return b, nil }}
}

func place(name string) bb.Place { return bb.Place{Dir: bb.RootDir, Name: name} }

// TestLateExchange: a queued file that is not at its place is found where a late exchange has put it, and stays queued while
// that is not known.
func TestLateExchange(t *testing.T) {
	t.Parallel()
	other := changed(file("n2"), func(e *bb.Entry) { e.File = 8 })
	moved := changed(file("n1"), func(e *bb.Entry) { e.Name = "g" })
	w := &world{entries: map[bb.Place]bb.Entry{place("f"): other, place("g"): moved}}
	b, waiting := w.start(t, owner.Node{Self: "n1"})
	waiting.Add(moved.File, dirty.File{At: place("f"), Generation: moved.Generation})
	key := flusher.Key{Buffer: "b", File: moved.File, Generation: moved.Generation}
	w.catchUp = func() (bool, error) { return false, bb.Unavailable }
	if _, _, err := b.dirtyEntry(t.Context(), key); !errors.Is(err, bb.Unavailable) {
		t.Errorf("while the namespace does not answer: %v", err)
	}
	w.catchUp = func() (bool, error) {
		waiting.Change(moved.File, func(f *dirty.File) { f.At = place("g") })
		return true, nil
	}
	if e, _, err := b.dirtyEntry(t.Context(), key); err != nil || e.Name != "g" {
		t.Errorf("after the exchange: %q, %v", e.Name, err)
	}
	w.catchUp = nil
	waiting.Change(moved.File, func(f *dirty.File) { f.At = place("f") })
	if _, _, err := b.dirtyEntry(t.Context(), key); !errors.Is(err, bb.NotFound) {
		t.Errorf("replaced, without an exchange: %v", err)
	}
}

// TestBegin begins flushes that end before any byte of the file is read.
func TestBegin(t *testing.T) {
	t.Parallel()
	clean := changed(file("n1"), func(e *bb.Entry) {
		e.Holders = append(e.Holders, "n2")
		e.SetFlushed(bb.Flushed{Generation: 5})
	})
	for name, c := range map[string]struct {
		world world
		kind  bb.Kind
		gone  bool // it waits no more
		calls []string
	}{
		"its flush was recorded": {
			world{entries: map[bb.Place]bb.Entry{place("f"): clean}},
			bb.Exists, true,
			[]string{"clean 7/5", "discard 7/5 at n2", "wake", string(bb.EventFlushed) + " f"},
		},
		"another node's": {
			world{entries: map[bb.Place]bb.Entry{place("f"): file("n2")}}, bb.NotFound, true, []string{"drop 7/5"},
		},
		"removed": {world{}, bb.NotFound, false, nil},
		"the name of another": {
			world{entries: map[bb.Place]bb.Entry{place("f"): changed(file("n1"), func(e *bb.Entry) { e.File = 8 })}}, bb.NotFound, false, nil,
		},
		"replaced by a transaction": {
			world{entries: map[bb.Place]bb.Entry{place("f"): file("n1")}, txn: 9}, bb.Busy, false, nil,
		},
		"to be flushed": {
			world{entries: map[bb.Place]bb.Entry{place("f"): file("n1")}}, bb.NotFound, false, []string{"save readers of 7 before 5"},
		},
	} {
		w := &c.world
		b, waiting := w.start(t, owner.Node{Self: "n1"})
		waiting.Add(7, dirty.File{At: place("f"), Generation: 5})
		_, err := b.catalog().Begin(t.Context(), flusher.Key{Buffer: "b", File: 7, Generation: 5})
		if bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
		if !slices.Equal(w.calls, c.calls) {
			t.Errorf("%s: %q, want %q", name, w.calls, c.calls)
		}
		if _, ok := waiting.Of(7); ok == c.gone {
			t.Errorf("%s: the file waits: %v", name, ok)
		}
	}
}

// TestBeginDuringRename: the namespace has a rename already, and the daemon follows while the flush waits.
func TestBeginDuringRename(t *testing.T) {
	t.Parallel()
	e := changed(file("n1"), func(e *bb.Entry) { e.Name = "g"; e.SetFlushed(bb.Flushed{Generation: 5}) })
	w := &world{entries: map[bb.Place]bb.Entry{place("g"): e}}
	b, waiting := w.start(t, owner.Node{Self: "n1"})
	waiting.Add(7, dirty.File{At: place("f"), Generation: 5})
	w.changed = func() { waiting.Change(7, func(f *dirty.File) { f.At = place("g") }) }
	_, err := b.catalog().Begin(t.Context(), flusher.Key{Buffer: "b", File: 7, Generation: 5})
	if bb.KindOf(err) != bb.Exists || !slices.Contains(w.calls, string(bb.EventFlushed)+" g") {
		t.Errorf("%v, %q", err, w.calls)
	}
}

// TestEnqueue: a buffer without a store has no queue, and alone nowhere to move files to.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	for _, backing := range []string{"", "file:///data"} {
		w := &world{spec: bb.Buffer{Backing: backing}}
		b, waiting := w.start(t, owner.Node{Self: "n1", Alone: true})
		e := file("n1")
		b.Enqueue(e, flusher.Item{Key: b.key(&e)})
		f, ok := waiting.Of(7)
		if want := backing != ""; ok != want || len(w.calls) == 1 != want || ok && f != (dirty.File{At: place("f"), Generation: 5}) {
			t.Errorf("backing %q: %q, waiting %v %+v", backing, w.calls, ok, f)
		}
	}
}

// flushed returns the entry of a file that is on the store by its entry.
func flushed(owner bb.NodeID) bb.Entry {
	return changed(file(owner), func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 5, ETag: "tag"}) })
}

// TestReconcileAlone: a daemon that is alone owns a file all the same whose entry names the node that it had
// been before, or one of a cluster that it was part of.
func TestReconcileAlone(t *testing.T) {
	t.Parallel()
	w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): flushed("before")}}
	b, _ := w.start(t, owner.Node{Self: "n1", Alone: true})
	if err := b.reconcileNow(t.Context(), Uncertain{Path: "f"}, true); err != nil {
		t.Fatal(err)
	}
	if want := []string{"enqueue 7/5"}; !slices.Equal(w.calls, want) {
		t.Errorf("%q, want %q: the store has nothing under the name", w.calls, want)
	}
}

// TestReconcileUnsaid: the namespace makes the file dirty, and its answer is lost. The file is queued, once, though the
// namespace may not answer the next look either.
func TestReconcileUnsaid(t *testing.T) {
	t.Parallel()
	for _, looks := range []error{nil, bb.Unavailable} {
		w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): flushed("n1")}, unsaid: bb.Unavailable}
		w.look = func() error {
			if w.updated {
				return looks
			}
			return nil
		}
		b, waiting := w.start(t, owner.Node{Self: "n1", Alone: true})
		if err := b.ReconcileHere(t.Context(), Uncertain{Path: "f"}); bb.KindOf(err) != bb.KindOf(looks) {
			t.Fatalf("%v, want %v", err, looks)
		}
		w.look = nil
		want := []string{"enqueue 7/5"}
		if _, ok := waiting.Of(7); !ok || !slices.Equal(w.calls, want) {
			t.Fatalf("waits: %v, %q, want %q", ok, w.calls, want)
		}
		waiting.Forget(7, 5)
		for range 2 { // it is in no queue
			if err := b.ReconcileHere(t.Context(), Uncertain{Path: "f"}); err != nil {
				t.Fatal(err)
			}
			if _, ok := waiting.Of(7); !ok {
				t.Fatal("it is in no queue")
			}
		}
	}
}

// TestReconcileFails: the namespace does not change the entry of a file that memory has dirty already. Memory has it
// clean again, or would keep it for good. Where the namespace does not return the entry, the flusher finds it out.
func TestReconcileFails(t *testing.T) {
	t.Parallel()
	for _, looks := range []error{nil, bb.Unavailable} {
		w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): flushed("n1")}}
		marked := false
		w.marked = func() { marked = true }
		asked := 0
		w.look = func() error {
			if !marked {
				return nil
			}
			if asked++; asked == 1 { // by Update
				return bb.Unavailable
			}
			return looks
		}
		b, waiting := w.start(t, owner.Node{Self: "n1", Alone: true})
		if err := b.ReconcileHere(t.Context(), Uncertain{Path: "f"}); bb.KindOf(err) != bb.Unavailable {
			t.Fatal(err)
		}
		want := []string{"clean 7/5"}
		if looks != nil {
			want = []string{"enqueue 7/5"}
		}
		if !slices.Equal(w.calls, want) {
			t.Fatalf("%q, want %q", w.calls, want)
		}
		if looks == nil {
			continue
		}
		w.look = nil
		if _, err := b.catalog().Begin(t.Context(), flusher.Key{Buffer: "b", File: 7, Generation: 5}); bb.KindOf(err) != bb.Exists {
			t.Fatal(err)
		}
		if _, ok := waiting.Of(7); ok || w.calls[1] != "clean 7/5" {
			t.Fatalf("waits: %v, %q", ok, w.calls)
		}
	}
}

// TestReconcileRename: a rename waits for the place of a file whose entry a reconciliation changes. The file is queued, and
// waits under its new name.
func TestReconcileRename(t *testing.T) {
	t.Parallel()
	w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): flushed("n1")}}
	b, waiting := w.start(t, owner.Node{Self: "n1", Alone: true})
	w.rename = func() {
		e := w.entries[place("f")]
		delete(w.entries, place("f"))
		e.Name = "g"
		w.entries[place("g")] = e
		waiting.Change(7, func(f *dirty.File) { f.At = place("g") })
	}
	if err := b.ReconcileHere(t.Context(), Uncertain{Path: "f"}); err != nil {
		t.Fatal(err)
	}
	if f, ok := waiting.Of(7); !ok || f.At != place("g") || !slices.Equal(w.calls, []string{"enqueue 7/5"}) {
		t.Errorf("waits: %v at %v, %q", ok, f.At, w.calls)
	}
}

// TestEnqueueFoundRenamed: a file that waits under its new name was found under the old one. It keeps its place.
func TestEnqueueFoundRenamed(t *testing.T) {
	t.Parallel()
	w := &world{entries: map[bb.Place]bb.Entry{place("g"): changed(file("n1"), func(e *bb.Entry) { e.Name = "g" })}}
	b, waiting := w.start(t, owner.Node{Self: "n1"})
	waiting.Add(7, dirty.File{At: place("g"), Generation: 5})
	seen := file("n1")
	b.EnqueueFound(t.Context(), &seen)
	if f, ok := waiting.Of(7); !ok || f.At != place("g") || !slices.Equal(w.calls, []string{"enqueue 7/5"}) {
		t.Errorf("waits: %v at %v, %q", ok, f.At, w.calls)
	}
}

// TestReconcileGone: a dirty file in no queue leaves the node while it is checked. It is none of
// the dirty files.
func TestReconcileGone(t *testing.T) {
	t.Parallel()
	w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): file("n2")}}
	b, waiting := w.start(t, owner.Node{Self: "n1"})
	seen := file("n1")
	if err := b.reconcileFile(t.Context(), &seen, "f"); err != nil {
		t.Fatal(err)
	}
	if _, ok := waiting.Of(7); ok || len(w.calls) > 0 {
		t.Errorf("waits: %v, %q", ok, w.calls)
	}
}

// TestReconcileRemoved: a dirty file in no queue is removed while it is checked, and is none of the
// dirty files. Renamed meanwhile, it is queued.
func TestReconcileRemoved(t *testing.T) {
	t.Parallel()
	another := changed(file("n1"), func(e *bb.Entry) { e.File = 8 })
	for name, entries := range map[string]map[bb.Place]bb.Entry{
		"removed": {}, "removed, and its name is another's": {place("f"): another},
	} {
		for _, renamed := range []bool{false, true} {
			w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: entries}
			b, waiting := w.start(t, owner.Node{Self: "n1"})
			var want []string
			if renamed {
				want = []string{"enqueue 7/5"}
				w.changed = func() { waiting.Change(7, func(f *dirty.File) { f.At = place("g") }) }
			}
			seen := file("n1")
			if err := b.reconcileFile(t.Context(), &seen, "f"); err != nil {
				t.Fatal(err)
			}
			if _, ok := waiting.Of(7); ok != renamed || !slices.Equal(w.calls, want) {
				t.Errorf("%s, or renamed: %v: waits: %v, %q, want %q", name, renamed, ok, w.calls, want)
			}
		}
	}
}

// TestReconcileClosed: a file that a reconciliation has made dirty is closed with a newer generation before it is among the
// dirty files. The newer one stays there.
func TestReconcileClosed(t *testing.T) {
	t.Parallel()
	newer := changed(file("n1"), func(e *bb.Entry) { e.Generation = 6 })
	w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): newer}}
	b, waiting := w.start(t, owner.Node{Self: "n1"})
	b.Enqueue(newer, flusher.Item{Key: b.key(&newer)})
	seen := file("n1")
	b.EnqueueFound(t.Context(), &seen)
	if f, ok := waiting.Of(7); !ok || f.Generation != 6 {
		t.Errorf("waits: %v, %+v", ok, f)
	}
	if want := []string{"enqueue 7/6"}; !slices.Equal(w.calls, want) {
		t.Errorf("%q, want %q", w.calls, want)
	}
}

// TestReconcileCutShort: the requesting daemon is gone when the file is about to become dirty.
func TestReconcileCutShort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{spec: bb.Buffer{Backing: "file:///data"}, entries: map[bb.Place]bb.Entry{place("f"): flushed("n1")}, marked: cancel}
	b, _ := w.start(t, owner.Node{Self: "n1", Alone: true})
	if err := b.ReconcileHere(ctx, Uncertain{Path: "f"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"enqueue 7/5"}; !slices.Equal(w.calls, want) {
		t.Errorf("%q, want %q", w.calls, want)
	}
}

// alone are the members of a cluster of which node n1 alone answers.
type alone struct{}

func (alone) Member(node bb.NodeID) (m gossip.Member, seen bool) {
	return gossip.Member{Node: node, State: gossip.Dead}, true
}

func (alone) Members() []gossip.Member {
	return []gossip.Member{{Node: "n1"}, {Node: "n2", State: gossip.Dead}}
}
func (alone) Addr() string { return "" }

// TestReconcileTreeAway: a tree is checked again until the nodes that are away have checked their files.
func TestReconcileTreeAway(t *testing.T) {
	t.Parallel()
	lost := changed(flushed("n2"), func(e *bb.Entry) { e.Lost = true })
	for _, c := range []struct {
		path  string
		entry bb.Entry
		away  bool
	}{
		{"d/f", flushed("n2"), true},
		{"d/f", flushed("n1"), false},
		{"d/f", lost, false},
		{"dd/f", flushed("n2"), false},
	} {
		c.entry.Name = c.path
		w := &world{entries: map[bb.Place]bb.Entry{place(c.path): c.entry}}
		b, _ := w.start(t, owner.Node{Self: "n1"})
		b.o.Cluster = cluster.New(cluster.Options{Node: "n1", Members: alone{}})
		defer b.o.Cluster.Close()
		err := b.reconcileNow(t.Context(), Uncertain{Path: "d", Tree: true}, false)
		if away := bb.KindOf(err) == bb.Unavailable; away != c.away || !away && err != nil {
			t.Errorf("%s of %s: %v; its owner has to be waited for: %v", c.path, c.entry.Holders, err, c.away)
		}
	}
}

// TestReconcileRetried: during the check of a name whose object was removed, something comes late
// under it. The check fails, and the next one removes that.
func TestReconcileRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		b, _ := w.start(t, owner.Node{Self: "n1", Alone: true})
		w.look = func() error {
			w.look = nil
			b.reconcile(Uncertain{Path: "f"}, false)
			return bb.Unavailable
		}
		b.uncertain.running = true // by the test
		b.reconcile(Uncertain{Path: "f"}, true)
		b.reconcileAll()
		if want := []string{"remove orphan f"}; !slices.Equal(w.calls, want) {
			t.Errorf("%q, want %q", w.calls, want)
		}
	})
}

// TestReplay submits noted operations once, in their order. An older release's note of a rename over a
// flushed file ends in the entry.
func TestReplay(t *testing.T) {
	t.Parallel()
	replaced := bb.Flushed{Generation: 2}
	w := &world{entries: map[bb.Place]bb.Entry{place("c"): changed(file("n1"), func(e *bb.Entry) { e.Name = "c" })}, noted: []namespace.StoreOp{
		{Op: namespace.OpRemove, OldPath: "a", Flushed: bb.Flushed{Generation: 1}, Revision: 2, Seq: 2},
		{Op: namespace.OpRename, OldPath: "x", NewPath: "a", Flushed: bb.Flushed{Generation: 1}, Revision: 1, Seq: 1},
		{Op: namespace.OpRename, OldPath: "c.tmp", NewPath: "c", Replaced: replaced, Revision: 3, Seq: 3},
		{Op: namespace.OpRename, OldPath: "d.tmp", NewPath: "d", Replaced: replaced, Revision: 4, Seq: 4},
	}}
	b, _ := w.start(t, owner.Node{Self: "n1", Alone: true})
	for range 2 {
		if err := b.ReplayStoreOps(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"apply rename x a", "apply remove a ", "done 3", "apply remove d "}
	if !slices.Equal(w.calls, want) {
		t.Errorf("%q, want %q", w.calls, want)
	}
	if e := w.entries[place("c")]; e.Replaced() != replaced {
		t.Errorf("the entry has replaced %+v, want %+v", e.Replaced(), replaced)
	}
}

// TestReplayFails: operations that could not be submitted are submitted later. Until then nothing is flushed
// that they concern, although this daemon is alone.
func TestReplayFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			entries: map[bb.Place]bb.Entry{}, unread: bb.Unavailable,
			noted: []namespace.StoreOp{{Op: namespace.OpRename, OldPath: "a", NewPath: "b", Flushed: bb.Flushed{Generation: 4}, Revision: 1, Seq: 1}},
		}
		b, waiting := w.start(t, owner.Node{Self: "n1", Alone: true})
		for id, name := range []string{"b", "c"} {
			w.entries[place(name)] = changed(file("n1"), func(e *bb.Entry) { e.File, e.Name = bb.FileID(id), name })
			waiting.Add(bb.FileID(id), dirty.File{At: place(name), Generation: 5})
		}
		begin := func(id bb.FileID, want bb.Kind) {
			t.Helper()
			if _, err := b.catalog().Begin(t.Context(), flusher.Key{Buffer: "b", File: id, Generation: 5}); bb.KindOf(err) != want {
				t.Errorf("the flush of %s: %v, want %v", []string{"b", "c"}[id], err, want)
			}
		}
		begin(0, bb.NotFound) // memory has no file; it began up to there
		if err := b.ReplayStoreOps(t.Context()); bb.KindOf(err) != bb.Unavailable {
			t.Fatal(err)
		}
		begin(0, bb.Unavailable)
		w.unread = nil
		begin(0, bb.Busy)
		begin(1, bb.NotFound)
		w.calls = nil
		w.background()
		if want := []string{"apply rename a b"}; !slices.Equal(w.calls, want) {
			t.Errorf("%q, want %q", w.calls, want)
		}
		begin(0, bb.NotFound)
		if b.pending.behind() {
			t.Error("a failure is left after a replay that succeeded")
		}
	})
}

// TestReplayGivenUp: if a caller stops waiting for the run after the present one, that run is still
// left to make up for.
func TestReplayGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{reading: make(chan struct{})}
		b, _ := w.start(t, owner.Node{Self: "n1", Alone: true})
		var first error
		go func() { first = b.ReplayStoreOps(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.ReplayStoreOps(ctx); bb.KindOf(err) != bb.Cancelled {
			t.Fatal(err)
		}
		w.reading <- struct{}{}
		synctest.Wait()
		if first != nil || !b.pending.behind() {
			t.Errorf("%v; nothing is left to make up for: %v", first, !b.pending.behind())
		}
		close(w.reading)
		w.background()
		if b.pending.behind() {
			t.Error("the next replay has not made up for it")
		}
	})
}

// TestFormerNames goes back through the renames that the store has yet to follow.
func TestFormerNames(t *testing.T) {
	t.Parallel()
	w := &world{ops: []namespace.StoreOp{
		{Op: namespace.OpRename, OldPath: "a/f", NewPath: "a/g", Seq: 1},
		{Op: namespace.OpRename, IsDir: true, OldPath: "a", NewPath: "b", Seq: 2},
		{Op: namespace.OpRemove, OldPath: "b/h", Seq: 3},
		{Op: namespace.OpRename, OldPath: "bb/g", NewPath: "c", Seq: 4},
	}}
	b, _ := w.start(t, owner.Node{Self: "n1", Alone: true})
	names, away, err := b.FormerNames(t.Context(), "b/g")
	if want := []string{"a/g", "a/f"}; err != nil || away != "" || !slices.Equal(names, want) {
		t.Errorf("%q, %q, %v; want %q", names, away, err, want)
	}
}
