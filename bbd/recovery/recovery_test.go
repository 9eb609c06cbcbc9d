package recovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd/fate"
	"forebay/bbd/owner"
	"forebay/bbd/reassert"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
)

// world is all that recovery uses besides, of which it records the calls. Memory has a file's checksum
// from sums, and ten bytes.
type world struct {
	sync.Mutex
	sums    map[bb.FileID]uint64
	lost    bool // memory is not that of the last life
	damage  []store.Damage
	remakes error
	puts    error
	entries []bb.Entry
	behind  bb.FileID // whose entry is behind memory
	scanned error
	found   reassert.Recovered

	did    []string
	queued []flusher.Item
	events []bb.Event
	bytes  int64 // counted as lost
	stale  []bb.FileID
}

func (w *world) record(what string) { w.Lock(); w.did = append(w.did, what); w.Unlock() }

func (w *world) Adopt(file bb.FileID, _ bb.Generation) error {
	w.record("adopt")
	if _, ok := w.sums[file]; !ok {
		return bb.NotFound
	}
	return nil
}

func (w *world) AdoptClean(file bb.FileID, n bb.Generation) error {
	err := w.Adopt(file, n)
	w.did[len(w.did)-1] = "adopt clean"
	return err
}

func (w *world) Checksum(file bb.FileID, _ bb.Generation) (uint64, int64, error) {
	return w.sums[file], 10, nil
}
func (w *world) Seal(bb.FileID, bb.Generation) error    { w.record("seal"); return nil }
func (w *world) Void(bb.FileID, bb.Generation) error    { w.record("void"); return nil }
func (w *world) Drop(bb.FileID)                         { w.record("drop") }
func (w *world) MemoryLost() bool                       { return w.lost }
func (w *world) Damage() []store.Damage                 { return w.damage }
func (w *world) Reopen(*bb.Entry)                       { w.record("reopen") }
func (w *world) Remake(*bb.Entry) error                 { w.record("remake"); return w.remakes }
func (w *world) IdentifyFound(_ *bb.Entry, path string) { w.record("identify " + path) }
func (w *world) PromoteLater(*bb.Entry)                 { w.record("promote") }
func (w *world) Enqueue(_ bb.Entry, i flusher.Item) {
	w.record("queue")
	w.queued = append(w.queued, i)
}
func (w *world) PathOf(context.Context, bb.DirID) (string, error) { return "dir", nil }

func (w *world) ReconcileStale(_ context.Context, files []bb.Entry, _ map[bb.FileID]bb.Generation) {
	for i := range files {
		w.stale = append(w.stale, files[i].File)
	}
}

func (w *world) Put(_ context.Context, e bb.Entry) (uint64, error) {
	if !e.Lost || e.Open {
		return 0, errors.New("put of an entry that is not lost")
	}
	w.record("put")
	return 1, w.puts
}

func (w *world) Scan(_ context.Context, _ *fate.Inventory, fn func(*bb.Entry, bool)) error {
	for _, e := range w.entries {
		fn(&e, e.File == w.behind)
	}
	return w.scanned
}

func (w *world) Recover(context.Context, *fate.Inventory) (reassert.Recovered, error) {
	return w.found, nil
}

var made = time.Unix(1000, 0)

// buffer returns the recovery of buffer "b" at node n1.
func (w *world) buffer() *Buffer {
	return New(Options{
		Owners: owner.Node{Self: "n1"}, Store: w, Log: slog.New(slog.DiscardHandler),
		Lost: func(bytes int64) { w.Lock(); w.bytes += bytes; w.Unlock() },
		Emit: func(e bb.Event) { w.Lock(); w.events = append(w.events, e); w.Unlock() },
	}, "b", Parts{Spec: func() bb.Buffer { return bb.Buffer{Name: "b", Created: made} }, Open: w, Queue: w, Replicas: w, Entries: w, Names: w})
}

// dirty is the entry of a closed file of ten bytes with the checksum 7, at node n1.
var dirty = bb.Entry{Parent: 3, Name: "x", Type: bb.TypeFile, File: 5, Generation: 6, Size: 10, Checksum: 7, MTime: time.Unix(2000, 0), Holders: []bb.NodeID{"n1"}}

func with(e bb.Entry, change func(*bb.Entry)) bb.Entry {
	change(&e)
	return e
}

func isOpen(e *bb.Entry)  { e.Open = true }
func isClean(e *bb.Entry) { e.Flushed.Generation = e.Generation }
func isEmpty(e *bb.Entry) { e.Size, e.Checksum = 0, 0 }

// TestRecoverFile: the fate of a file follows from its entry and from its bytes in memory.
func TestRecoverFile(t *testing.T) {
	t.Parallel()
	whole := map[bb.FileID]uint64{5: 7}
	for name, c := range map[string]struct {
		entry   bb.Entry
		memory  *world
		did     string
		missing string // part of it
	}{
		"dirty":                     {entry: dirty, memory: &world{sums: whole}, did: "adopt, seal, identify dir/x, queue"},
		"dirty, gone":               {entry: dirty, did: "adopt", missing: "was lost before they were flushed"},
		"dirty, another sum":        {entry: dirty, memory: &world{sums: map[bb.FileID]uint64{5: 8}}, did: "adopt", missing: "some of its 10 bytes"},
		"dirty, empty, gone":        {entry: with(dirty, isEmpty), did: "adopt, drop, remake, seal, identify dir/x, queue"},
		"dirty, empty, not remade":  {entry: with(dirty, isEmpty), memory: &world{remakes: bb.NoSpace}, did: "adopt, drop, remake", missing: "was lost"},
		"open":                      {entry: with(dirty, isOpen), memory: &world{sums: whole}, did: "adopt, reopen"},
		"open, other memory":        {entry: with(dirty, isOpen), memory: &world{sums: whole, lost: true}, did: "adopt", missing: "was open when node n1 lost its memory"},
		"open, damage here":         {entry: with(dirty, isOpen), memory: &world{sums: whole, damage: []store.Damage{{Buffer: "b", What: "a torn record"}}}, did: "adopt", missing: "a torn record"},
		"open, damage elsewhere":    {entry: with(dirty, isOpen), memory: &world{sums: whole, damage: []store.Damage{{Buffer: "c", What: "a torn record"}}}, did: "adopt, reopen"},
		"open, nothing committed":   {entry: with(with(dirty, isEmpty), isOpen), did: "adopt", missing: "was lost"},
		"clean":                     {entry: with(dirty, isClean), memory: &world{sums: whole}, did: "adopt clean"},
		"clean, evicted":            {entry: with(dirty, isClean), did: "adopt clean, drop"},
		"lost, with something left": {entry: with(dirty, func(e *bb.Entry) { e.Lost = true }), memory: &world{sums: whole}, did: "drop"},
	} {
		w := cmp.Or(c.memory, new(world))
		missing := w.buffer().RecoverFile(t.Context(), &c.entry)
		if did := strings.Join(w.did, ", "); did != c.did {
			t.Errorf("%s: %s; not %s", name, did, c.did)
		}
		if !strings.Contains(missing, c.missing) || (missing == "") != (c.missing == "") {
			t.Errorf("%s: missing is %q, not %q", name, missing, c.missing)
		}
	}
}

// TestRequeue: a file that was found counts as dirty since it was closed, though not since before its
// buffer was made.
func TestRequeue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ changed, since time.Time }{
		"changed after the buffer was made": {dirty.MTime, dirty.MTime},
		"time set back":                     {time.Unix(1, 0), made},
	} {
		w := new(world)
		e := with(dirty, func(e *bb.Entry) { e.MTime = c.changed })
		w.buffer().Requeue(t.Context(), &e)
		want := flusher.Item{
			Key: flusher.Key{Buffer: "b", File: 5, Generation: 6}, Size: 10, DirtySince: c.since, ClosedAt: c.since, Path: "dir/x", Suspect: true, Attempts: []bb.Content{{Size: 10, Checksum: 7}},
		}
		if len(w.queued) != 1 || !reflect.DeepEqual(w.queued[0], want) {
			t.Errorf("%s: queued %+v, not %+v", name, w.queued, want)
		}
	}
}

// TestRecover: files of this node stay in memory, also those that the namespace had lost. Of other nodes'
// files, second copies of dirty ones stay. Missing bytes are reported, or left to their second copy.
func TestRecover(t *testing.T) {
	t.Parallel()
	file := func(n bb.FileID, change func(*bb.Entry)) bb.Entry {
		e := dirty
		e.File = n
		change(&e)
		return e
	}
	of := func(holders ...bb.NodeID) func(*bb.Entry) { return func(e *bb.Entry) { e.Holders = holders } }
	w := &world{
		sums: map[bb.FileID]uint64{1: 7, 3: 7},
		entries: []bb.Entry{
			file(1, of("n1")),       // whole
			file(2, of("n1")),       // gone
			file(3, of("n2", "n1")), // of another node, with its second copy here
			file(4, of("n2", "n1")), // the same, and the copy is gone
			file(6, of("n2")),       // of another node by now
			file(8, of("n1", "n2")), // gone, with its second copy at another node
			file(9, of("n1")),       // behind memory
			{Type: bb.TypeDirectory, Dir: 7},
		},
		behind: 9,
		found:  reassert.Recovered{Kept: []bb.FileID{11}, Gone: []bb.Entry{file(12, of("n1"))}},
	}
	start := &Start{Known: make(map[bb.FileID]struct{}), Dirty: map[bb.FileID]bb.Generation{6: 2}}
	if err := w.buffer().Recover(t.Context(), nil, start); err != nil {
		t.Fatal(err)
	}
	if known := slices.Sorted(maps.Keys(start.Known)); !slices.Equal(known, []bb.FileID{1, 2, 3, 8, 11}) {
		t.Errorf("files %v stay", known)
	}
	if !slices.Equal(w.stale, []bb.FileID{6}) {
		t.Errorf("files %v are reconciled with their owners", w.stale)
	}
	if len(w.queued) != 1 || w.queued[0].Key.File != 1 {
		t.Errorf("queued: %+v", w.queued)
	}
	if n := count(w.did, "promote"); n != 1 {
		t.Errorf("%d second copies are promoted", n)
	}
	if len(w.events) != 2 || w.bytes != 20 || count(w.did, "put") != 2 {
		t.Errorf("events %+v, %d bytes, calls %v", w.events, w.bytes, w.did)
	}
	for _, e := range w.events {
		if e.Kind != bb.EventLost || e.Buffer != "b" || e.Path != "dir/x" {
			t.Errorf("event %+v", e)
		}
	}
}

func count(all []string, what string) (n int) {
	for _, s := range all {
		if s == what {
			n++
		}
	}
	return n
}

// TestRecoverFails: a scan that fails ends the recovery, and an entry that cannot be marked lost does.
// Neither publishes a loss.
func TestRecoverFails(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*world{
		"scan":   {entries: []bb.Entry{dirty}, scanned: bb.Unavailable},
		"report": {entries: []bb.Entry{dirty}, puts: bb.Unavailable},
	} {
		start := &Start{Known: make(map[bb.FileID]struct{})}
		if err := w.buffer().Recover(t.Context(), nil, start); bb.KindOf(err) != bb.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if len(w.events) != 0 || w.bytes != 0 {
			t.Errorf("%s: events %+v, %d bytes", name, w.events, w.bytes)
		}
	}
}

// TestYield: the rest of an open generation is struck out before the second copy is promoted.
func TestYield(t *testing.T) {
	t.Parallel()
	w := &world{entries: []bb.Entry{with(dirty, func(e *bb.Entry) { e.Open, e.Holders = true, []bb.NodeID{"n1", "n2"} })}}
	if err := w.buffer().Recover(t.Context(), nil, &Start{Known: make(map[bb.FileID]struct{})}); err != nil {
		t.Fatal(err)
	}
	if did := strings.Join(w.did, ", "); did != "adopt, void, drop, promote" {
		t.Error(did)
	}
}

// TestDirtyGenerations: the newest generation with dirty bytes counts, and files that are all clean do not.
func TestDirtyGenerations(t *testing.T) {
	t.Parallel()
	files := []store.FileInfo{
		{File: 1, Generations: []store.GenerationInfo{{Generation: 4, Dirty: 1}, {Generation: 3, Dirty: 1}, {Generation: 5}}},
		{File: 2, Generations: []store.GenerationInfo{{Generation: 9}}},
	}
	got := DirtyGenerations(slices.Values(files))
	if len(got) != 1 || got[1] != 4 {
		t.Error(got)
	}
}
