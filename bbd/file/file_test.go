package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/dedup"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// world is the environment of a buffer's open files, in memory. It records operations in order.
type world struct {
	t     *testing.T
	files *Files

	mu      sync.Mutex
	steps   []string
	entries map[bb.Place]bb.Entry
	sizes   map[bb.Generation]int64
	next    uint64
	failPut error // of the next entry
	second  bb.NodeID
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, entries: map[bb.Place]bb.Entry{}, sizes: map[bb.Generation]int64{}, next: 100}
	w.files = New(t.Context(), Options{
		Owners: owner.Node{Self: "n1"}, Store: w, NextID: w.id,
		After:     func(context.Context, bb.Generation) (bb.Generation, error) { return bb.Generation(w.id()), nil },
		Elsewhere: func() bb.NodeID { return "" }, Grace: time.Second, Since: time.Now(),
		Go: func(run func()) { go run() }, Log: slog.New(slog.DiscardHandler),
	}, "b", Parts{
		CatchUp: func(bb.FileID) (bool, error) { return false, nil },
		Spec:    func() bb.Buffer { return bb.Buffer{Name: "b", Replicas: 2, Flush: []bb.FlushRule{{Pattern: "*/"}}} }, Revisions: func() bool { return false },
		Committed: func([]store.NewExtent) {}, Names: w, Paths: worldPaths{w}, Cache: worldCache{}, Replicas: w, Queue: w, Gate: w,
	})
	return w
}

func (w *world) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

// took returns the operations since the last call.
func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	steps := strings.Join(w.steps, ", ")
	w.steps = nil
	return steps
}

func (w *world) id() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return w.next
}

func (w *world) Create(_ context.Context, e bb.Entry) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.failPut; err != nil {
		w.failPut = nil
		return 0, err
	}
	if _, ok := w.entries[e.Place()]; ok {
		return 0, bb.E(bb.Exists, "create", e.Name, "it is there")
	}
	w.note("entry open=%v size=%d", e.Open, e.Size)
	w.entries[e.Place()] = e
	return 1, nil
}

func (w *world) Update(_ context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.failPut; err != nil {
		w.failPut = nil
		return bb.Entry{}, err
	}
	at := bb.Place{Dir: dir, Name: name}
	e, ok := w.entries[at]
	if !ok {
		return e, bb.E(bb.NotFound, "update", name, "it is not there")
	}
	if err := change(&e); err != nil {
		return e, err
	}
	w.note("entry open=%v size=%d", e.Open, e.Size)
	w.entries[at] = e
	return e, nil
}

func (w *world) Lookup(_ context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entries[bb.Place{Dir: dir, Name: name}]
	if !ok {
		return e, bb.E(bb.NotFound, "lookup", name, "it is not there")
	}
	return e, nil
}

func (w *world) LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	return w.Lookup(ctx, dir, name)
}

func (w *world) Removed(context.Context, bb.DirID, string, bb.FileID, uint64) (bool, error) {
	return true, nil
}

func (w *world) PathOf(context.Context, bb.DirID) (string, error) { return "", nil }

// step is one of memory's that cannot fail.
func (w *world) step(format string, args ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
	return nil
}

func (w *world) Commit(commits ...store.Commit) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range commits {
		w.note("record %d", len(c.Extents))
		for _, x := range c.Extents {
			w.sizes[c.Generation] = max(w.sizes[c.Generation], x.FileOffset+x.Length)
		}
	}
	return nil
}

func (w *world) Size(_ bb.FileID, n bb.Generation) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sizes[n], nil
}

func (w *world) Checksum(file bb.FileID, n bb.Generation) (uint64, int64, error) {
	size, err := w.Size(file, n)
	return 7, size, err
}

func (w *world) Base(bb.FileID, bb.Generation) (bb.Generation, error) { return 0, nil }
func (w *world) Seal(bb.FileID, bb.Generation) error                  { return w.step("seal") }
func (w *world) MarkClean(bb.FileID, bb.Generation) error             { return w.step("clean") }
func (w *world) Void(bb.FileID, bb.Generation) error                  { return w.step("void") }
func (w *world) DropGeneration(bb.FileID, bb.Generation)              { w.step("drop") }
func (w *world) Identify(id *store.Identity) error                    { return w.step("identify closed=%v", id.Closed) }
func (w *world) IdentityOf(bb.FileID) (id store.Identity, ok bool)    { return id, false }

func (w *world) Enter(context.Context, string) error { return nil }
func (w *world) Leave()                              {}
func (w *world) Suspect(string, []bb.Content)        {}
func (w *world) Changed(string)                      {}

func (w *world) Closed(e *bb.Entry, path string, _ bb.NodeID, _ Replica) {
	if w.files.Of(e.File) == nil {
		w.t.Errorf("%s is queued and not open any more: a look at the open files and then at the queue may miss it", path)
	}
	w.step("queue %s size=%d", path, e.Size)
}

func (w *world) Discard(node bb.NodeID, _ bb.FileID, _ bb.Generation) { w.step("discard %q", node) }

// Copy returns a second copy at the world's second node, if it has one.
func (w *world) Copy(bb.NodeID) Replica {
	if w.second == "" {
		return nil
	}
	return &worldReplica{w: w}
}

// worldReplica is a second copy. Its first commit sets its node.
type worldReplica struct {
	w   *world
	has bool
}

func (r *worldReplica) Commit(_ context.Context, _ *Generation, extents []store.NewExtent) (bb.NodeID, bool, error) {
	r.w.step("replicate %d", len(extents))
	if r.has {
		return "", false, nil
	}
	r.has = true
	return r.w.second, true, nil
}

func (r *worldReplica) Settled(int64, bb.NodeID) bool    { return r.has }
func (r *worldReplica) HasTargets(int64, bb.NodeID) bool { return true }
func (r *worldReplica) Outdate()                         { r.has = false }

type worldPaths struct{ w *world }

func (p worldPaths) Parent(_ context.Context, _ access.Caller, _, path string) (bb.Place, bool, error) {
	return bb.Place{Dir: bb.RootDir, Name: path}, true, nil
}

func (p worldPaths) MayChange(string, string) error { return nil }

func (p worldPaths) Lookup(ctx context.Context, _ access.Caller, _, path string) (bb.Entry, error) {
	return p.w.Lookup(ctx, bb.RootDir, path)
}

type worldCache struct{}

func (worldCache) Base(context.Context, *bb.Entry, string) error { return nil }

func (worldCache) SumEvicted(context.Context, *bb.Entry, bb.FileID, bb.Generation) error { return nil }

var user = access.Of(1000, 1000)

// open opens a file for writing, and makes it if it is not there.
func (w *world) open(path string) *File {
	w.t.Helper()
	f, err := w.files.Open(w.t.Context(), user, OpenOptions{Path: path, Create: true, Mode: fs.FileMode(0o644), Writer: "c"})
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// extent is one of so many bytes at the beginning of a file.
func extent(bytes int64) []store.NewExtent { return []store.NewExtent{{Length: bytes}} }

func (w *world) want(what, steps string) {
	w.t.Helper()
	if got := w.took(); got != steps {
		w.t.Errorf("%s: %s\nwant %s", what, got, steps)
	}
}

// TestOrder: records come before the entry, the entry before the answer, and a closed file is queued before it is
// not open any more.
func TestOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second        bb.NodeID
		commit, close string
	}{
		"one copy": {
			commit: "record 1, entry open=true size=0, identify closed=false",
			close:  "record 1, entry open=false size=20, identify closed=true, seal, queue x size=20",
		},
		"two copies": {
			second: "n2",
			commit: "record 1, replicate 1, entry open=true size=0, identify closed=false",
			close:  "record 1, replicate 1, entry open=false size=20, identify closed=true, seal, queue x size=20",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.second = c.second
			f := w.open("x")
			w.want("open", "")
			if _, err := f.Commit(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()}); err != nil {
				t.Fatal(err)
			}
			w.want("commit", c.commit)
			if _, err := f.Commit(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()}); err != nil {
				t.Fatal(err)
			}
			w.want("the same commit again", "")
			size, err := f.Close(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 2}, Extents: extent(20), MTime: time.Now()})
			if err != nil || size != 20 {
				t.Fatalf("closed with %d bytes, %v", size, err)
			}
			w.want("close", c.close)
			if n := w.files.Count(); n != 0 {
				t.Errorf("%d files are open", n)
			}
			e, err := w.Lookup(t.Context(), bb.RootDir, "x")
			if err != nil || c.second != "" && owner.Replica(&e) != c.second {
				t.Errorf("the entry is %+v, %v", e, err)
			}
		})
	}
}

// TestRereplicate: a second copy that is made again elsewhere is recorded in the namespace.
func TestRereplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.second = "n2"
	f := w.open("x")
	if _, err := f.Commit(t.Context(), Commit{Extents: extent(10), MTime: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.took()
	w.second = "n3"
	if bytes, err := f.Rereplicate(t.Context()); err != nil || bytes != 10 {
		t.Fatalf("%d bytes, %v", bytes, err)
	}
	w.want("rereplication", "replicate 0, entry open=true size=0, identify closed=false")
	if e, err := w.Lookup(t.Context(), bb.RootDir, "x"); err != nil || owner.Replica(&e) != "n3" {
		t.Errorf("the entry is %+v, %v", e, err)
	}
}

// TestFailedClose: a close that fails leaves the file open, and is repeated.
func TestFailedClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.open("x")
	w.failPut = bb.E(bb.Unavailable, "put", "x", "no answer")
	if _, err := f.Close(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()}); bb.KindOf(err) != bb.Unavailable {
		t.Fatalf("the close ends with %v", err)
	}
	if n := f.Writers(); n != 1 {
		t.Errorf("%d writers", n)
	}
	w.took()
	if _, err := f.Close(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.want("close", "entry open=false size=10, identify closed=true, seal, queue x size=10")
	if _, err := f.Close(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, MTime: time.Now()}); bb.KindOf(err) != bb.Invalid {
		t.Errorf("a second close ends with %v", err)
	}
}

// TestVoid: nothing is left of a file without writes.
func TestVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open("x").Abandon(t.Context())
	w.want("abandon", "")
	if n := w.files.Count(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// TestTwoWriters: the last close closes the generation, an earlier one publishes the commits.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f, g := w.open("x"), w.open("x")
	if f != g {
		t.Fatal("two generations of a file are open")
	}
	if _, err := f.Close(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.want("first close", "record 1, entry open=true size=0, identify closed=false")
	g.Abandon(t.Context())
	w.want("the other one is gone", "entry open=false size=10, identify closed=true, seal, queue x size=10")
}

// TestSuperseded: another node's generation is the file's when the first commit comes. Bytes written here are
// struck out, and the writer gets the error to continue with that one.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.open("x")
	w.entries[bb.Place{Dir: bb.RootDir, Name: "x"}] = bb.Entry{
		Parent: bb.RootDir, Name: "x", Type: bb.TypeFile, File: 9, Generation: 9, Open: true, Holders: []bb.NodeID{"n2"}, UID: 1000, GID: 1000, Mode: 0o600,
	}
	_, err := f.Commit(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()})
	if !errors.Is(err, ErrSuperseded) {
		t.Fatalf("the commit ends with %v", err)
	}
	w.want("commit", "record 1, void")
	if n := w.files.Count(); n != 0 {
		t.Errorf("%d files are open", n)
	}
	if _, err := f.Close(t.Context(), Commit{ID: dedup.ID{Writer: 1, Number: 1}, Extents: extent(10), MTime: time.Now()}); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the close ends with %v", err)
	}
	_, err = w.files.Open(t.Context(), user, OpenOptions{Path: "x", Create: true})
	if there := (*NotOwnerError)(nil); !errors.As(err, &there) || there.Node != "n2" {
		t.Errorf("the next open ends with %v", err)
	}
}

// TestRemovedAndRenamed: a file that is open follows its entry, and ends with it.
func TestRemovedAndRenamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x, y := bb.Place{Dir: bb.RootDir, Name: "x"}, bb.Place{Dir: bb.RootDir, Name: "y"}
	f, g := w.open("x"), w.open("y")
	unlock := w.files.Lock(y, x)
	w.files.Move(x, y, "y") // over the other one
	unlock()
	if _, err := g.Commit(t.Context(), Commit{Extents: extent(10), MTime: time.Now()}); bb.KindOf(err) != bb.NotFound {
		t.Errorf("a commit to a file that was replaced ends with %v", err)
	}
	if _, err := f.Close(t.Context(), Commit{Extents: extent(10), MTime: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.want("close", "record 1, entry open=false size=10, identify closed=true, seal, queue y size=10")
	if _, _, ok := f.Closed(); !ok {
		t.Error("the file that took the name is not closed")
	}
	g.Abandon(t.Context())
	if _, _, ok := g.Closed(); ok {
		t.Error("a file that was replaced is closed")
	}
	w.want("its writer is gone", "")
	if at := w.files.All(); len(at) != 0 {
		t.Errorf("%d files are open", len(at))
	}
}

// TestLock keeps others from opening a place, and leaves nothing behind.
func TestLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unlock := w.files.Lock(bb.Place{Dir: bb.RootDir, Name: "x"})
	opened := make(chan *File)
	go func() { opened <- w.open("x") }()
	for range 1000 {
		runtime.Gosched()
		if n := len(w.files.Begun()); n != 0 {
			t.Fatalf("%d files have begun at a place that is locked", n)
		}
	}
	unlock()
	f := <-opened
	if !slices.Equal(w.files.Begun(), []bb.FileID{f.ID()}) {
		t.Errorf("begun: %v", w.files.Begun())
	}
	f.Abandon(t.Context())
	if n := w.files.Count(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// TestReopened: a file that recovery found open is closed if no writer comes back, and not if one does.
func TestReopened(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]bool{"nobody comes back": false, "its writer comes back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				e := bb.Entry{
					Parent: bb.RootDir, Name: "x", Type: bb.TypeFile, File: 5, Generation: 6, Open: true, Holders: []bb.NodeID{"n1"}, UID: 1000, GID: 1000, Mode: 0o644,
				}
				w.entries[e.Place()], w.sizes[6] = e, 30
				w.files.Reopen(&e)
				w.took()
				var f *File
				if back {
					var err error
					f, _, err = w.files.Resume(t.Context(), user, OpenOptions{Path: "x", ResumeFile: 5, ResumeGeneration: 6, ResumeCommitted: true})
					if err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if !back {
					w.want("after the grace period", "entry open=false size=30, identify closed=true, seal, queue x size=30")
					return
				}
				w.want("after the grace period", "")
				if _, err := f.Close(t.Context(), Commit{MTime: time.Now()}); err != nil {
					t.Fatal(err)
				}
				w.want("close", "entry open=false size=30, identify closed=true, seal, queue x size=30")
			})
		})
	}
}

// TestResumeReadOnly: the maker of a file that nobody may write goes on writing it when the connection has broken, or
// the daemon has been killed, before or after a commit. Others may not, nor does a first open by its owner.
func TestResumeReadOnly(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *world, e *bb.Entry){
		"the generation is there": func(w *world, e *bb.Entry) {
			f, err := w.files.Open(t.Context(), user, OpenOptions{Path: "x", Create: true, Mode: e.Mode, Writer: "c"})
			if err != nil {
				t.Fatal(err)
			}
			e.File, e.Generation = f.ID(), f.Generation()
		},
		"recovery has found it open": func(w *world, e *bb.Entry) {
			w.entries[e.Place()], w.sizes[e.Generation] = *e, 30
			w.files.Reopen(e)
		},
		"its name alone is there": func(w *world, e *bb.Entry) { w.entries[e.Place()] = *e },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for uid, permitted := range map[uint32]bool{1000: true, 1001: false} {
				w := newWorld(t)
				e := bb.Entry{
					Parent: bb.RootDir, Name: "x", Type: bb.TypeFile, File: 5, Generation: 6, Open: true, Holders: []bb.NodeID{"n1"}, UID: 1000, GID: 1000, Mode: 0o444,
				}
				prepare(w, &e)
				caller := access.Of(uid, uid)
				if _, err := w.files.Open(t.Context(), caller, OpenOptions{Path: "x", Create: true, Mode: 0o644, Writer: "d"}); bb.KindOf(err) != bb.Permission {
					t.Errorf("user %d opens it first: %v", uid, err)
				}
				_, _, err := w.files.Resume(t.Context(), caller, OpenOptions{Path: "x", Create: true, Mode: 0o444, Writer: "c", ResumeFile: e.File, ResumeGeneration: e.Generation})
				if denied := bb.KindOf(err) == bb.Permission; denied == permitted || permitted && err != nil {
					t.Errorf("user %d goes on: %v", uid, err)
				}
			}
		})
	}
}

// TestFinishedLater: the end of a file that has no writer is tried again until it succeeds.
func TestFinishedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.open("x")
		if _, err := f.Commit(t.Context(), Commit{Extents: extent(10), MTime: time.Now()}); err != nil {
			t.Fatal(err)
		}
		w.took()
		w.failPut = bb.E(bb.Unavailable, "put", "x", "no answer")
		f.Abandon(t.Context())
		if w.want("abandon", ""); w.files.Count() != 1 {
			t.Error("the file is not open any more, and not closed either")
		}
		time.Sleep(maxFinishPause)
		synctest.Wait()
		w.want("later", "entry open=false size=10, identify closed=true, seal, queue x size=10")
	})
}

// TestStaged: content that the store has already makes a clean file, and a cancelled stage-in nothing.
func TestStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.open("x")
	if err := f.Stage(t.Context(), extent(10)); err != nil {
		t.Fatal(err)
	}
	f.SetFlushed(bb.Flushed{Size: 10})
	if _, err := f.Close(t.Context(), Commit{MTime: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.want("a whole stage-in", "record 1, entry open=false size=10, seal, clean")
	f = w.open("y")
	if err := f.Stage(t.Context(), extent(10)); err != nil {
		t.Fatal(err)
	}
	f.Cancel(t.Context())
	w.want("a cancelled one", "record 1, void")
}

// TestClosedByWriters: a generation is one that its writers have closed if none of them left without, or came back and
// closed it then. One that a daemon ends in their place is not.
func TestClosedByWriters(t *testing.T) {
	t.Parallel()
	type writers struct {
		t *testing.T
		w *world
	}
	commit := func(f *File) {
		t.Helper()
		if _, err := f.Commit(t.Context(), Commit{Extents: extent(10), MTime: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	closes := func(f *File) {
		t.Helper()
		if _, err := f.Close(t.Context(), Commit{MTime: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	resume := func(x writers, f *File) *File {
		x.t.Helper()
		back, _, err := x.w.files.Resume(t.Context(), user, OpenOptions{Path: "x", ResumeFile: f.ID(), ResumeGeneration: f.Generation(), ResumeCommitted: true})
		if err != nil || back == nil {
			x.t.Fatal(back, err)
		}
		return back
	}
	for name, c := range map[string]struct {
		run  func(x writers, f *File)
		want bool
	}{
		"closed":                            {func(_ writers, f *File) { closes(f) }, true},
		"abandoned":                         {func(_ writers, f *File) { f.Abandon(t.Context()) }, false},
		"two close":                         {func(x writers, f *File) { closes(x.w.open("x")); closes(f) }, true},
		"the first leaves, the last closes": {func(x writers, f *File) { x.w.open("x").Abandon(t.Context()); closes(f) }, false},
		"the first closes, the last leaves": {func(x writers, f *File) { closes(x.w.open("x")); f.Abandon(t.Context()) }, false},
		"it comes back before it is missed": {func(x writers, f *File) { closes(resume(x, f)); f.Abandon(t.Context()) }, true},
		"it comes back after it was missed": {func(x writers, f *File) { f.AwaitReconnect(); closes(resume(x, f)) }, true},
		"it comes back, and leaves again":   {func(x writers, f *File) { f.AwaitReconnect(); resume(x, f).Abandon(t.Context()) }, false},
		"it does not come back":             {func(_ writers, f *File) { f.AwaitReconnect(); f.expire(t.Context()) }, false},
		"another one ends it": {func(x writers, f *File) {
			if _, err := x.w.files.Open(t.Context(), user, OpenOptions{Path: "x", Fence: true}); err != nil {
				x.t.Fatal(err)
			}
		}, false},
		"recovery found it": {func(x writers, f *File) {
			e := x.w.entries[bb.Place{Dir: bb.RootDir, Name: "x"}]
			f.removeFromOpen()
			x.w.files.Reopen(&e)
			closes(resume(x, f))
		}, false},
		"it is closed, and written again": {func(x writers, f *File) {
			closes(f)
			commit(x.w.open("x"))
		}, false},
		"the close fails at first": {func(x writers, f *File) {
			x.w.failPut = bb.E(bb.Unavailable, "put", "x", "no answer")
			if _, err := f.Close(t.Context(), Commit{MTime: time.Now()}); err == nil {
				x.t.Error("it did not fail")
			}
			closes(f)
		}, true},
		"the close fails, and its writer leaves": {func(x writers, f *File) {
			x.w.failPut = bb.E(bb.Unavailable, "put", "x", "no answer")
			if _, err := f.Close(t.Context(), Commit{MTime: time.Now()}); err == nil {
				x.t.Error("it did not fail")
			}
			f.Abandon(t.Context())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			f := w.open("x")
			commit(f)
			c.run(writers{t, w}, f)
			e := w.entries[bb.Place{Dir: bb.RootDir, Name: "x"}]
			if got := !e.Open && e.Closed.Generation == e.Generation; got != c.want {
				t.Errorf("closed by its writers: %v, want %v: %+v", got, c.want, e)
			}
		})
	}
}
