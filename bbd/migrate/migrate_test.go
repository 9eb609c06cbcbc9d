package migrate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/bbd/transfer"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// world is the state of the tests' daemon n1, and the nodes beside it. Calls has the calls made.
type world struct {
	spec     bb.Buffer
	entries  map[string]*bb.Entry // of the files in the root directory
	sizes    map[bb.FileID]int64  // of files in memory
	stats    store.Stats
	replica  bool                              // n1 has the second copy of each file
	locked   error                             // of waiting for a file's lock
	fetch    error                             // of files brought in
	fetched  func()                            // called when it is
	lost     int                               // so many changes of entries from now on have no answer
	done     bool                              // those are carried out
	open     []string                          // being written
	draining bool                              // n1 is being emptied
	nodes    []bb.NodeID                       // in the order in which they get requests
	ask      func(bb.NodeID, *wire.Take) error // of a node; nil: it accepts
	mu       *sync.Mutex                       // guards the next fields
	calls    []string
}

func (w *world) did(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w *world) Lookup(_ context.Context, _ bb.DirID, name string) (bb.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[name]; e != nil {
		return *e, nil
	}
	return bb.Entry{}, bb.NotFound
}

func (w *world) PathOf(context.Context, bb.DirID) (string, error) { return "d", nil }

func (w *world) Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error) {
	e, err := w.Lookup(ctx, dir, name)
	if err == nil {
		err = change(&e)
	}
	if err == nil && w.lost > 0 {
		if w.lost--; w.done {
			w.entries[name] = &e
		}
		lost := bb.E(bb.Unavailable, "update", name, "the answer is lost")
		lost.Unknown = true
		return bb.Entry{}, lost
	}
	if err == nil {
		w.entries[name] = &e
	}
	return e, err
}

func (w *world) ScanAll(_ context.Context, visit func(bb.Entry) error) error {
	for _, e := range w.entries {
		if err := visit(*e); err != nil {
			return err
		}
	}
	return nil
}

// readers are those of n1.
type readers struct{ w *world }

func (readers) BeginRestore(context.Context, bb.FileID) error               { return nil }
func (readers) EndRestore(bb.FileID)                                        {}
func (readers) DropCopies(bb.FileID) error                                  { return nil }
func (readers) SaveReaders(context.Context, bb.FileID, bb.Generation) error { return nil }

// files are the files at n1.
type files struct{ w *world }

func (f files) Hold(_ context.Context, path string) (func(), error) {
	f.w.did("hold %s", path)
	return func() { f.w.did("resume %s", path) }, nil
}

func (f files) Reserve(at bb.Place, _ string) (func(), bool) {
	if slices.Contains(f.w.open, at.Name) {
		return nil, false
	}
	f.w.did("reserve %s", at.Name)
	return func() { f.w.did("release %s", at.Name) }, true
}

func (f files) Fetch(_ context.Context, e *bb.Entry) error {
	f.w.did("fetch %d/%d", e.File, e.Generation)
	if f.w.fetched != nil {
		f.w.fetched()
	}
	return f.w.fetch
}

func (f files) Lock(_ context.Context, file bb.FileID) (func(), error) {
	f.w.did("lock %d", file)
	return func() { f.w.did("unlock %d", file) }, f.w.locked
}

func (f files) Complete(e *bb.Entry) bool {
	f.w.did("look at %d/%d", e.File, e.Generation)
	return f.w.replica
}

func (f files) Promote(_ context.Context, _ *bb.Entry, file bb.FileID, n bb.Generation) error {
	f.w.did("promote %d/%d", file, n)
	return nil
}

func (f files) Requeue(_ context.Context, e *bb.Entry) {
	f.w.did("requeue %d/%d", e.File, e.Generation)
}

func (f files) Flush(context.Context) error {
	f.w.did("flush")
	return nil
}

// memory is n1's.
type memory struct{ w *world }

func (m memory) Stats() store.Stats { return m.w.stats }
func (m memory) Size(file bb.FileID, _ bb.Generation) (int64, error) {
	return m.w.sizes[file], nil
}

func (m memory) MarkClean(file bb.FileID, n bb.Generation) error {
	m.w.did("clean %d/%d", file, n)
	return nil
}

func (m memory) DropGeneration(file bb.FileID, n bb.Generation) { m.w.did("drop %d/%d", file, n) }
func (m memory) Wake()                                          { m.w.did("wake") }
func (m memory) Evict(bytes int64) int64 {
	m.w.did("evict %d", bytes)
	return bytes
}

// cluster are the nodes beside n1.
type cluster struct{ w *world }

func (c cluster) Candidates(int64, bb.NodeID) []bb.NodeID { return c.w.nodes }
func (c cluster) CandidatesAmong(_ int64, nodes []bb.NodeID) []bb.NodeID {
	return nodes
}
func (c cluster) Sending(bb.NodeID, int64) func(error) { return func(error) {} }
func (c cluster) Ask(_ context.Context, node bb.NodeID, _ access.Caller, _ wire.Type, m, _ proto.Message) error {
	take := m.(*wire.Take)
	c.w.did("%s takes %s", node, take.Name)
	if c.w.ask == nil {
		return nil
	}
	return c.w.ask(node, take)
}

// start returns the mover of n1's files.
func (w *world) start(t *testing.T) (*Buffer, *dirty.Files) {
	t.Helper()
	w.mu = new(sync.Mutex)
	closed := dirty.New()
	return New(t.Context(), Options{
		Owners: owner.Node{Self: "n1"}, Cluster: cluster{w}, Store: memory{w}, Alloc: memory{w}, Flush: time.Minute,
		Forget: func(k flusher.Key) { w.did("forget %d/%d", k.File, k.Generation) }, Draining: func() bool { return w.draining },
		Log: slog.New(slog.DiscardHandler),
	}, "b", Parts{
		Spec: func() bb.Buffer { return w.spec }, Files: files{w}, Open: files{w}, Replicas: files{w}, Queue: files{w}, Readers: readers{w}, Names: w, Dirty: closed,
	}), closed
}

// file returns the entry of generation 5 of a file of 9 bytes.
func file(id bb.FileID, name string, holders ...bb.NodeID) *bb.Entry {
	return &bb.Entry{Type: bb.TypeFile, Parent: 1, Name: name, File: id, Generation: 5, Size: 9, Holders: holders}
}

func changed(e *bb.Entry, change func(*bb.Entry)) *bb.Entry {
	change(e)
	return e
}

func TestRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		free, evictable int64
		populating      bool
		evict           int64
		fits            bool
	}{
		"twice its size is free":       {free: 20, fits: true},
		"its size is free":             {free: 12, evict: 8, fits: true},
		"it may be evicted":            {evictable: 10, evict: 20, fits: true},
		"both together":                {free: 4, evictable: 6, evict: 16, fits: true},
		"too little":                   {free: 4, evictable: 5},
		"too little, which is growing": {free: 4, populating: true, evict: 16, fits: true},
	} {
		var stats store.Stats
		stats.Memory.Free, stats.Memory.Evictable, stats.Populating = c.free, c.evictable, c.populating
		if evict, fits := room(&stats, 10); evict != c.evict || fits != c.fits {
			t.Errorf("%s: evict %d, %v; want %d, %v", name, evict, fits, c.evict, c.fits)
		}
	}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	was := file(7, "f", "n2", "n3")
	for name, c := range map[string]struct {
		now  *bb.Entry
		want []bb.NodeID // nil: it has changed
	}{
		"as it was":                        {file(7, "f", "n2"), []bb.NodeID{"n1"}},
		"with a second copy":               {file(7, "f", "n2", "n3"), []bb.NodeID{"n1", "n3"}},
		"whose second copy is this node's": {file(7, "f", "n2", "n1"), []bb.NodeID{"n1"}},
		"another file":                     {file(8, "f", "n2"), nil},
		"a newer generation":               {changed(file(7, "f", "n2"), func(e *bb.Entry) { e.Generation = 6 }), nil},
		"open":                             {changed(file(7, "f", "n2"), func(e *bb.Entry) { e.Open = true }), nil},
		"lost":                             {changed(file(7, "f", "n2"), func(e *bb.Entry) { e.Lost = true }), nil},
		"moved":                            {file(7, "f", "n3"), nil},
	} {
		before := slices.Clone(c.now.Holders)
		ok := assign(owner.Node{Self: "n1"}, c.now, was)
		if want := c.want; ok != (want != nil) || ok && !slices.Equal(c.now.Holders, want) || !ok && !slices.Equal(c.now.Holders, before) {
			t.Errorf("%s: %v, %q, want %q", name, ok, c.now.Holders, want)
		}
	}
}

// TestAccept brings in a file that its owner offers, and drops it if it has changed meanwhile. No
// other code decides about the bytes from the check of the local ones until the file has been
// queued.
func TestAccept(t *testing.T) {
	t.Parallel()
	const free = 100
	locked := func(calls ...string) []string {
		return append(append([]string{"lock 7", "look at 7/5"}, calls...), "unlock 7")
	}
	clean := func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 5}) }
	for name, c := range map[string]struct {
		world world
		asks  bb.NodeID
		copy  bool // the second copy is to be promoted
		moved bool // meanwhile
		kind  bb.Kind
		calls []string
	}{
		"dirty":                      {world: world{entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", calls: locked("fetch 7/5", "reserve f", "requeue 7/5", "release f")},
		"whose answer is lost":       {world: world{lost: 2, done: true, entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", calls: locked("fetch 7/5", "reserve f", "requeue 7/5", "release f")},
		"whose change is lost":       {world: world{lost: 2, entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", calls: locked("fetch 7/5", "reserve f", "requeue 7/5", "release f")},
		"clean":                      {world: world{entries: map[string]*bb.Entry{"f": changed(file(7, "f", "n2"), clean)}}, asks: "n2", calls: locked("fetch 7/5", "reserve f", "clean 7/5", "release f")},
		"its second copy is here":    {world: world{replica: true, entries: map[string]*bb.Entry{"f": file(7, "f", "n2", "n1")}}, asks: "n2", calls: locked("reserve f", "requeue 7/5", "release f")},
		"its place is being changed": {world: world{open: []string{"f"}, entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", kind: bb.Busy, calls: locked("fetch 7/5", "drop 7/5")},
		"to be promoted":             {world: world{entries: map[string]*bb.Entry{"f": file(7, "f", "n2", "n1")}}, asks: "n3", copy: true, calls: []string{"promote 7/5"}},
		"promoted while emptied":     {world: world{draining: true, entries: map[string]*bb.Entry{"f": file(7, "f", "n2", "n1")}}, asks: "n3", copy: true, calls: []string{"promote 7/5"}},
		"not its owner":              {world: world{entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n3", kind: bb.Busy},
		"open":                       {world: world{entries: map[string]*bb.Entry{"f": changed(file(7, "f", "n2"), func(e *bb.Entry) { e.Open = true })}}, asks: "n2", kind: bb.Busy},
		"removed":                    {asks: "n2", kind: bb.NotFound},
		"while this node is emptied": {world: world{draining: true, entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", kind: bb.Busy},
		"too large":                  {world: world{entries: map[string]*bb.Entry{"f": changed(file(7, "f", "n2"), func(e *bb.Entry) { e.Size = free + 1 })}}, asks: "n2", kind: bb.NoSpace},
		"other bytes came":           {world: world{fetch: bb.Checksum, entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", kind: bb.Checksum, calls: locked("fetch 7/5", "drop 7/5")},
		"never locked":               {world: world{locked: bb.Cancelled, entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", kind: bb.Cancelled, calls: []string{"lock 7"}},
		"removed meanwhile":          {world: world{entries: map[string]*bb.Entry{"f": file(7, "f", "n2")}}, asks: "n2", moved: true, kind: bb.NotFound, calls: locked("fetch 7/5", "reserve f", "drop 7/5", "release f")},
	} {
		w := &c.world
		w.stats.Memory.Free = free
		if c.moved {
			w.fetched = func() { delete(w.entries, "f") }
		}
		b, _ := w.start(t)
		err := b.Accept(t.Context(), c.asks, &wire.Take{Name: "f", File: 7, Generation: 5, Replica: c.copy})
		if c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
		if !slices.Equal(w.calls, c.calls) {
			t.Errorf("%s: %q, want %q", name, w.calls, c.calls)
		}
		if e := w.entries["f"]; err == nil && !c.copy && e.Holders[0] != "n1" {
			t.Errorf("%s: its owner is %s", name, e.Holders[0])
		}
	}
}

// TestMove tries one node after the other. The bytes go once the namespace has another owner, after any
// answer.
func TestMove(t *testing.T) {
	t.Parallel()
	asked := func(calls ...string) []string {
		return append(append([]string{"hold d/f", "reserve f"}, calls...), "release f", "resume d/f")
	}
	gone := []string{"lock 7", "forget 7/5", "drop 7/5", "wake", "unlock 7"} // no copy is recorded meanwhile
	for name, c := range map[string]struct {
		open  bool
		ask   func(w *world, node bb.NodeID) error
		kind  bb.Kind
		calls []string
	}{
		"accepted": {calls: asked(append([]string{"n2 takes f"}, gone...)...)},
		"refused by the first": {
			ask: func(_ *world, node bb.NodeID) error {
				if node == "n2" {
					return bb.NoSpace
				}
				return nil
			},
			calls: append(asked("n2 takes f"), asked(append([]string{"n3 takes f"}, gone...)...)...),
		},
		"refused by all": {
			ask: func(*world, bb.NodeID) error { return bb.NoSpace }, kind: bb.NoSpace,
			calls: append(asked("n2 takes f"), asked("n3 takes f")...),
		},
		"accepted, and the answer is lost": {
			ask: func(w *world, node bb.NodeID) error {
				w.entries["f"] = file(7, "f", node)
				return bb.Unavailable
			},
			calls: asked(append([]string{"n2 takes f"}, gone...)...),
		},
		"open": {open: true, kind: bb.Busy, calls: []string{"hold d/f", "resume d/f", "hold d/f", "resume d/f"}},
	} {
		w := &world{entries: map[string]*bb.Entry{"f": file(7, "f", "n1")}}
		if c.open {
			w.open = []string{"f"}
		}
		if c.ask != nil {
			w.ask = func(node bb.NodeID, _ *wire.Take) error { return c.ask(w, node) }
		}
		b, closed := w.start(t)
		closed.Add(7, dirty.File{At: bb.Place{Dir: 1, Name: "f"}, Generation: 5})
		err := b.moveToOne(t.Context(), w.entries["f"], []bb.NodeID{"n2", "n3"})
		if c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(w.calls, c.calls) {
			t.Errorf("%s: %q, want %q", name, w.calls, c.calls)
		}
		if _, ok := closed.Of(7); ok == (err == nil) {
			t.Errorf("%s: it waits for its flush here: %v", name, ok)
		}
	}
}

// TestFree moves the largest files first, until enough is on its way.
func TestFree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes, moved int64
		nodes        []bb.NodeID
		names        []string // that are moved
	}{
		{1, 30, []bb.NodeID{"n2"}, []string{"large"}},
		{31, 50, []bb.NodeID{"n2"}, []string{"large", "middle"}},
		{1000, 60, []bb.NodeID{"n2"}, []string{"large", "middle", "small"}},
		{1000, 0, nil, nil},
	} {
		w := &world{
			entries: map[string]*bb.Entry{"small": file(1, "small", "n1"), "large": file(2, "large", "n1"), "middle": file(3, "middle", "n1"), "newer": file(4, "newer", "n1")},
			sizes:   map[bb.FileID]int64{1: 10, 2: 30, 3: 20, 4: 40, 5: 0}, nodes: c.nodes,
		}
		b, closed := w.start(t)
		for name, e := range w.entries {
			closed.Add(e.File, dirty.File{At: bb.Place{Dir: 1, Name: name}, Generation: 5})
		}
		w.sizes[4], w.entries["newer"].Generation = 0, 6 // it has gone from memory
		if got := Free(t.Context(), cluster{w}, []*Buffer{b}, c.bytes); got != c.moved {
			t.Errorf("%d bytes: %d were moved, want %d", c.bytes, got, c.moved)
		}
		var names []string
		for name, e := range w.entries {
			if _, ok := closed.Of(e.File); !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, c.names) {
			t.Errorf("%d bytes: %q were moved, want %q", c.bytes, names, c.names)
		}
	}
}

// TestEmpty flushes, moves the rest, and names files that can be neither flushed nor moved.
func TestEmpty(t *testing.T) {
	t.Parallel()
	w := &world{
		spec: bb.Buffer{Backing: "file:///data"}, nodes: []bb.NodeID{"n2"},
		entries: map[string]*bb.Entry{
			"f": file(1, "f", "n1"), "refused": file(2, "refused", "n1"), "open": changed(file(3, "open", "n1"), func(e *bb.Entry) { e.Open = true }),
			"clean": changed(file(4, "clean", "n1"), func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 5}) }), "another": file(5, "another", "n2"),
			"lost": changed(file(6, "lost", "n1"), func(e *bb.Entry) { e.Lost = true }),
		},
	}
	w.ask = func(_ bb.NodeID, m *wire.Take) error {
		if m.Name == "refused" {
			return bb.NoSpace
		}
		return nil
	}
	b, closed := w.start(t)
	closed.Add(1, dirty.File{Generation: 5})
	var open, failed []string
	heard := func(now *wire.Progress) {
		for _, f := range now.Failed {
			failed = append(failed, f.Path)
		}
		open = append(open, now.Open...)
	}
	p := transfer.NewProgress(func(now *wire.Progress) error {
		heard(now)
		return nil
	})
	if err := b.Empty(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
	sum := p.Done()
	heard(sum)
	slices.Sort(open)
	open = slices.Compact(open)
	if sum.FilesTotal != 3 || sum.FilesDone != 1 || !slices.Equal(open, []string{"bb://b/d/open"}) || !slices.Equal(failed, []string{"bb://b/d/refused"}) {
		t.Errorf("%v, open %q, failed %q", sum, open, failed)
	}
	if !slices.Contains(w.calls, "flush") || !slices.Contains(w.calls, "drop 1/5") || slices.Contains(w.calls, "drop 2/5") {
		t.Errorf("%q", w.calls)
	}
}
