package reassert

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd/dirty"
	"forebay/bbd/fate"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a, b := map[suspect]int64{{1, 1}: 9}, map[suspect]int64{{2, 1}: 9}
	for name, c := range map[string]struct {
		last     watched
		suspects map[suspect]int64
		again    bool
		want     step
	}{
		"nothing":                     {watched{}, nil, false, stepClear},
		"one for the first time":      {watched{}, a, false, stepNone},
		"another one":                 {watched{suspects: b}, a, false, stepNone},
		"one that stays":              {watched{suspects: a}, a, false, stepMend},
		"one that stays, just tried":  {watched{suspects: a, tried: now.Add(-time.Second)}, a, false, stepNone},
		"one that stays, tried once":  {watched{suspects: a, tried: now.Add(-watchAgain - 1)}, a, false, stepMend},
		"one that has gone":           {watched{suspects: a}, nil, false, stepClear},
		"the server, without any":     {watched{}, nil, true, stepAll},
		"the server, one that stays":  {watched{suspects: a}, a, true, stepAll},
		"the server, just tried that": {watched{suspects: a, tried: now}, a, true, stepAll},
	} {
		if got := c.last.next(c.suspects, c.again, now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestRemake(t *testing.T) {
	t.Parallel()
	held := bb.Entry{Name: "f", File: 7, Generation: 5, Size: 9, Checksum: 3, Holders: []bb.NodeID{"n1"}}
	for name, c := range map[string]struct {
		now  bb.Entry
		busy bool
		size int64 // afterwards
	}{
		"an older generation":       {bb.Entry{File: 7, Generation: 4, Size: 1}, false, 9},
		"an older one, lost":        {bb.Entry{File: 7, Generation: 4, Size: 1, Lost: true, Reason: "gone"}, false, 9},
		"it is there already":       {bb.Entry{File: 7, Generation: 5, Size: 8}, false, 8},
		"somebody wrote it anew":    {bb.Entry{File: 7, Generation: 6, Size: 1}, true, 1},
		"another file has its name": {bb.Entry{File: 8, Generation: 4, Size: 1}, true, 1},
	} {
		err := remake(&c.now, &held)
		if (bb.KindOf(err) == bb.Busy) != c.busy || c.now.Size != c.size || c.now.Lost {
			t.Errorf("%s: %v, %+v", name, err, c.now)
		}
	}
}

// world is a node n1 with the bytes of files, and a namespace that may have forgotten some of them.
type world struct {
	mu      sync.Mutex // a start settles many files at once
	rand    *rand.Rand
	memory  map[bb.FileID]*store.FileInfo
	queued  map[bb.FileID]bool
	entries map[bb.Place]bb.Entry
	removed map[bb.FileID]bool // marks
	nextID  uint64
	faults  int // calls of the namespace that will be carried out without an answer
	others  int // changes of other nodes that will come in between
	theirs  map[bb.FileID]bool
	raised  bool
	locked  map[bb.Place]bool
	loose   bool // a file was queued while a rename might have come between
}

func (w *world) id() uint64 { w.nextID++; return w.nextID }

// interfere lets another node do something, and returns the error of a call whose answer is lost.
func (w *world) interfere() error {
	if w.others > 0 && w.rand.IntN(4) == 0 {
		w.others--
		file := bb.FileID(w.id())
		at := bb.Place{Dir: bb.RootDir, Name: fmt.Sprintf("f%d", w.rand.IntN(12))}
		if _, taken := w.entries[at]; !taken {
			w.entries[at], w.theirs[file] = bb.Entry{Parent: at.Dir, Name: at.Name, Type: bb.TypeFile, File: file, Generation: 1, Holders: []bb.NodeID{"n2"}}, true
		}
	}
	if w.faults > 0 && w.rand.IntN(4) == 0 {
		w.faults--
		return bb.E(bb.Unavailable, "call", "", "the answer is lost")
	}
	return nil
}

func (w *world) ScanMarks(_ context.Context, fn func(bb.Entry) error, gone func(bb.FileID)) error {
	for _, e := range w.entries {
		if err := fn(e); err != nil {
			return err
		}
	}
	for file := range w.removed {
		gone(file)
	}
	return w.interfere()
}

func (w *world) Distrust() {}

func (w *world) queue(file bb.FileID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queued[file] = true
}

func (w *world) Lookup(_ context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.entries[bb.Place{Dir: dir, Name: name}]; ok {
		return e, nil
	}
	return bb.Entry{}, bb.NotFound
}

func (w *world) Create(_ context.Context, e bb.Entry) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.interfere()
	if !w.hasDir(e.Parent) {
		return 0, bb.NotFound
	}
	if _, ok := w.entries[e.Place()]; ok {
		return 0, bb.Exists
	}
	w.entries[e.Place()] = e
	return w.id(), before
}

func (w *world) Update(_ context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.interfere()
	e, ok := w.entries[bb.Place{Dir: dir, Name: name}]
	err := error(nil)
	if !ok {
		err = bb.NotFound
	}
	if err == nil {
		err = change(&e)
	}
	if err != nil {
		return e, err
	}
	w.entries[e.Place()] = e
	return e, before
}

func (w *world) MkdirAll(_ context.Context, path string, o namespace.Owner) (e bb.Entry, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := bb.RootDir
	e = bb.Entry{Type: bb.TypeDirectory, Dir: dir}
	names, err := bb.SplitPath(path)
	for _, name := range names {
		at := bb.Place{Dir: dir, Name: name}
		now, ok := w.entries[at]
		if !ok {
			now = bb.Entry{Parent: dir, Name: name, Type: bb.TypeDirectory, Dir: bb.DirID(w.id()), Mode: o.Mode}
			w.entries[at] = now
		}
		if !now.IsDir() {
			return e, bb.NotDirectory
		}
		e, dir = now, now.Dir
	}
	return e, err
}

func (w *world) hasDir(dir bb.DirID) bool {
	for _, e := range w.entries {
		if e.IsDir() && e.Dir == dir {
			return true
		}
	}
	return dir == bb.RootDir
}

func (w *world) PathOf(_ context.Context, dir bb.DirID) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entries {
		if e.IsDir() && e.Dir == dir {
			return e.Name, nil
		}
	}
	if dir == bb.RootDir {
		return "", nil
	}
	return "", bb.NotFound
}

// memory is the memory of n1.
type memory struct{ w *world }

func (m memory) Files() iter.Seq[store.FileInfo] {
	return func(yield func(store.FileInfo) bool) {
		for _, f := range m.w.memory {
			if !yield(*f) {
				return
			}
		}
	}
}

func (m memory) IdentityOf(file bb.FileID) (store.Identity, bool) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if f := m.w.memory[file]; f != nil && f.Identity != nil {
		return *f.Identity, true
	}
	return store.Identity{}, false
}

func (m memory) Checksum(file bb.FileID, n bb.Generation) (uint64, int64, error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return uint64(n), m.w.memory[file].Generations[0].Size, nil
}

func (m memory) MarkDirty(file bb.FileID, _ bb.Generation) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	g := &m.w.memory[file].Generations[0]
	g.Dirty = g.Resident
	return nil
}

func (m memory) Seal(bb.FileID, bb.Generation) error { return nil }
func (m memory) Drop(file bb.FileID) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	delete(m.w.memory, file)
}

// files are the files at n1.
type files struct{ w *world }

func (f files) Spec() bb.Buffer         { return bb.Buffer{Name: "b", Backing: "file:///store"} }
func (f files) Open(bb.FileID) OpenFile { return nil }
func (f files) Lock(at bb.Place) func() {
	if f.w.locked[at] {
		panic(fmt.Sprintf("%v is locked already, by its only user", at))
	}
	f.w.locked[at] = true
	return func() { delete(f.w.locked, at) }
}
func (f files) Queued(file bb.FileID) bool { return f.w.queued[file] }
func (f files) Requeue(_ context.Context, e *bb.Entry) {
	f.w.loose = f.w.loose || !f.w.locked[e.Place()]
	f.w.queue(e.File)
}
func (f files) Reopen(e *bb.Entry)                            { f.w.queue(e.File) }
func (f files) Recover(_ context.Context, e *bb.Entry) string { f.w.queue(e.File); return "" }

// newWorld makes files, of which the namespace has forgotten some, has older entries of some, and has given the
// names of some to others.
func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 1)), nextID: 100, memory: map[bb.FileID]*store.FileInfo{}, queued: map[bb.FileID]bool{},
		entries: map[bb.Place]bb.Entry{}, removed: map[bb.FileID]bool{}, theirs: map[bb.FileID]bool{}, locked: map[bb.Place]bool{},
	}
	w.faults, w.others = w.rand.IntN(3), w.rand.IntN(4)
	for i := range 12 {
		file, at, path := bb.FileID(i+1), bb.Place{Dir: bb.RootDir, Name: fmt.Sprintf("f%d", i)}, fmt.Sprintf("f%d", i)
		if w.rand.IntN(3) == 0 { // in a directory that the namespace may have forgotten as well
			at.Dir, path = 50, "d/"+path
		}
		g := store.GenerationInfo{Generation: 5, Size: 9, Resident: 9}
		switch w.rand.IntN(4) {
		case 0: // clean
		case 1:
			g.Resident, g.Evicted = 4, 5
		default:
			g.Dirty = 9
		}
		id := &store.Identity{File: file, Generation: 5, Buffer: "b", Dir: at.Dir, Name: at.Name, Path: path, Closed: true, Size: 9}
		w.memory[file] = &store.FileInfo{File: file, Buffer: "b", Generations: []store.GenerationInfo{g}, Identity: id}
		e := bb.Entry{Parent: at.Dir, Name: at.Name, Type: bb.TypeFile, File: file, Generation: 5, Size: 9, Holders: []bb.NodeID{"n1"}}
		switch w.rand.IntN(6) {
		case 0:
			w.entries[at] = e
			w.queued[file] = true
		case 1:
			e.Generation = 4
			w.entries[at] = e
		case 2:
			e.File, e.Holders = bb.FileID(w.id()), []bb.NodeID{"n2"}
			w.entries[at], w.theirs[e.File] = e, true
		case 3:
			w.removed[file] = true
		}
	}
	if w.rand.IntN(2) == 0 {
		at := bb.Place{Dir: bb.RootDir, Name: "d"}
		w.entries[at] = bb.Entry{Parent: bb.RootDir, Name: "d", Type: bb.TypeDirectory, Dir: 50}
	} else {
		for at := range w.entries { // its entries were removed with it
			if at.Dir == 50 {
				delete(w.theirs, w.entries[at].File)
				delete(w.entries, at)
			}
		}
	}
	return w
}

func (w *world) buffer() *Buffer {
	return New(Options{
		Owners: owner.Node{Self: "n1"}, Store: memory{w}, RaiseIDs: func(context.Context) error { w.raised = true; return nil },
		Unreadable: func() bool { return false }, Emit: func(bb.Event) {}, Log: slog.New(slog.DiscardHandler),
	}, "b", files{w}, w, nil, dirty.New())
}

// check returns which guarantees are broken, after entries were restored and left is not.
func (w *world) check(left []fate.Unexplained) (broken []string) {
	of := map[bb.FileID][]bb.Entry{}
	for _, e := range w.entries {
		of[e.File] = append(of[e.File], e)
	}
	for file := range w.theirs {
		if len(of[file]) != 1 || of[file][0].Holders[0] != "n2" {
			broken = append(broken, fmt.Sprintf("another node's file %d has the entries %v", file, of[file]))
		}
	}
	for file, f := range w.memory {
		g, all := f.Generations[0], of[file]
		named := slices.ContainsFunc(left, func(u fate.Unexplained) bool { return u.File == file })
		switch {
		case len(all) > 1:
			broken = append(broken, fmt.Sprintf("file %d has the entries %v", file, all))
		case g.Evicted > 0 || named: // the store has part of it, or it is named
		case w.removed[file] && len(all) == 0:
			broken = append(broken, fmt.Sprintf("file %d was removed, and is kept", file))
		case len(all) == 0 || all[0].Generation < g.Generation:
			broken = append(broken, fmt.Sprintf("file %d has the entries %v", file, all))
		case g.Dirty > 0 && !w.queued[file]:
			broken = append(broken, fmt.Sprintf("file %d is dirty and in no queue", file))
		}
	}
	return broken
}

// TestHistories: with any entries lost by the namespace, and any changes of others and lost answers meanwhile,
// each acknowledged file has its entry in the end, or is named, no file of others is touched, and another pass
// finds nothing to do. FOREBAY_SEEDS=N tries N seeds.
func TestHistories(t *testing.T) {
	t.Parallel()
	seeds := uint64(500)
	if n, err := strconv.ParseUint(os.Getenv("FOREBAY_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		for name, run := range map[string]func(*world, *Buffer) ([]fate.Unexplained, error){
			"while it serves": func(_ *world, b *Buffer) ([]fate.Unexplained, error) {
				r, err := b.Reassert(t.Context())
				return r.Left, err
			},
			"at a start": func(w *world, b *Buffer) ([]fate.Unexplained, error) {
				inv := fate.NewInventory(HeldFiles(b.o.Store)["b"])
				err := b.Scan(t.Context(), inv, func(e *bb.Entry, behind bool) {
					if !behind && e.Holders != nil && e.Holders[0] == "n1" {
						w.queued[e.File] = true
					}
				})
				if err == nil {
					_, err = b.Recover(t.Context(), inv)
				}
				return b.Unexplained(), err
			},
		} {
			w := newWorld(seed)
			acknowledged := len(w.memory) - len(w.removed)
			b := w.buffer()
			var left []fate.Unexplained
			err := error(bb.Unavailable)
			for try := 0; err != nil && try < 20; try++ {
				left, err = run(w, b)
			}
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
			w.faults, w.others = 0, 0
			broken := w.check(left)
			if w.loose {
				broken = append(broken, "a file was queued while its place was free")
			}
			if len(w.memory) < acknowledged {
				broken = append(broken, "bytes were dropped that nobody had removed")
			}
			if again, err := b.Reassert(t.Context()); err != nil || len(again.Remade)+len(again.SetAside) > 0 {
				broken = append(broken, fmt.Sprintf("another look does %v, %v", again, err))
			}
			if len(broken) > 0 {
				t.Fatalf("seed %d, %s: %s", seed, name, strings.Join(broken, "; "))
			}
		}
	}
}
