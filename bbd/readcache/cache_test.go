package readcache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/bbd/alloc"
	"forebay/bbd/origin"
	"forebay/bbd/share"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const memory = 16 << 20

// bed is a cache in front of a store of bytes, and of objects by name.
type bed struct {
	*Cache
	t         *testing.T
	store     *store.Store
	alloc     *alloc.Allocator
	objects   map[string][]byte
	opened    atomic.Int64
	elsewhere atomic.Bool
	opening   atomic.Pointer[func()] // is called once when an object is opened
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "forebay-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bed{t: t, objects: map[string][]byte{}}
	b.store, err = store.Open(t.Context(), store.Options{
		StateDir: filepath.Join(dir, "state"), Mount: store.MountOff, ShmDir: filepath.Join(dir, "shm"),
		MemoryBytes: memory, RegionBytes: 8 << 20, PopulateThreads: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.store.Close() })
	for b.store.Stats().Populating {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.alloc = alloc.New(ctx, alloc.Options{
		Store: b.store, Waiters: share.NewPool(100), High: 0.9, Low: 0.8, Events: b, Log: slog.New(slog.DiscardHandler),
		Buffers: func() []alloc.Buffer { return []alloc.Buffer{b} }, Pressure: func(bool) {},
	})
	var ran sync.WaitGroup
	ran.Go(b.alloc.Run)
	t.Cleanup(func() { cancel(); ran.Wait() })
	var ids atomic.Uint64
	b.Cache = New(Options{
		Buffer: b, Store: b.store, Alloc: b.alloc, Writers: alloc.NewWriters(b.alloc, b), Bypass: NewBypass(),
		Sources:        origin.New(ctx, origin.Options{Buffer: "b", Objects: b, Go: ran.Go}),
		OwnedElsewhere: func(*bb.Entry) bool { return b.elsewhere.Load() }, NextID: func() uint64 { return ids.Add(1) }, Go: ran.Go,
	})
	return b
}

func (b *bed) Spec() bb.Buffer        { return bb.Buffer{Name: "b", UID: uint32(os.Geteuid())} }
func (b *bed) Blocked(time.Duration)  {}
func (b *bed) ReleaseIdle()           { b.o.Writers.ReleaseIdle() }
func (b *bed) Flushes() bool          { return true }
func (b *bed) Waited(time.Duration)   {}
func (b *bed) Evicted(bb.Tier, int64) {}
func (b *bed) Spilled(int64)          {}

func (b *bed) Path(_ context.Context, e *bb.Entry) (string, error) { return e.Name, nil }

func (b *bed) FormerNames(context.Context, string) ([]string, bb.NodeID, error) { return nil, "", nil }

func (b *bed) Open(_ context.Context, path, _ string, offset int64) (io.ReadCloser, error) {
	b.opened.Add(1)
	if opening := b.opening.Swap(nil); opening != nil {
		var other sync.WaitGroup // as a flush, which holds no lock of the reader
		other.Go(*opening)
		other.Wait()
	}
	p, ok := b.objects[path]
	if !ok {
		return nil, bb.NotFound
	}
	return io.NopCloser(bytes.NewReader(p[offset:])), nil
}

// stored makes a file that the store of objects alone has.
func (b *bed) stored(name string, file bb.FileID, size int) (*bb.Entry, []byte) {
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(file)}).Read(content)
	b.objects[name] = content
	e := &bb.Entry{Name: name, Type: bb.TypeFile, File: file, Generation: 1, Size: int64(size), Checksum: checksum.Sum(content)}
	e.Flushed.Generation = 1
	return e, content
}

// read reads all that a view shows, as a client does.
func read(ctx context.Context, v *View) (all []byte, past int, err error) {
	for size := v.Snapshot().Size(); int64(len(all)) < size; {
		r, err := v.Reach(ctx, int64(len(all)), size-int64(len(all)))
		if err != nil {
			return all, past, err
		}
		if r.Pinned == nil {
			all, past = append(all, r.Data...), past+1
			continue
		}
		for i := range r.Extents {
			pieces, err := v.Snapshot().Slices(r.Extents[i].FileOffset, r.Extents[i].Length, nil)
			if err != nil {
				return all, past, err
			}
			all = append(all, slices.Concat(pieces...)...)
		}
		r.Pinned.Release()
	}
	return all, past, nil
}

func (b *bed) open(e *bb.Entry) *View {
	b.t.Helper()
	v, err := b.Cache.Open(b.t.Context(), e, e.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// TestRestored: files of all sizes, also those that memory has no room for, equal the store's, in
// memory and after they were evicted.
func TestRestored(t *testing.T) {
	b := newBed(t)
	for i, size := range []int{0, 1, 100_000, alloc.MaxExtent, alloc.MaxExtent + 1, memory/2 + 1, 2 * memory} {
		e, content := b.stored("f", bb.FileID(i+1), size)
		v := b.open(e)
		for range 2 {
			if got, _, err := read(t.Context(), v); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes: %d, or others: %v", size, len(got), err)
			}
			b.store.Evict(bb.TierMemory, memory)
		}
		v.Close()
	}
}

// TestRestoreFails leaves nothing of a file whose object is not the file's.
func TestRestoreFails(t *testing.T) {
	b := newBed(t)
	for i, size := range []int{1000, memory} {
		for name, change := range map[string]func(e *bb.Entry){
			"other bytes": func(e *bb.Entry) { b.objects["f"][size/2]++ },
			"too short":   func(e *bb.Entry) { b.objects["f"] = b.objects["f"][:size-1] },
			"no object":   func(*bb.Entry) { delete(b.objects, "f") },
			"not flushed": func(e *bb.Entry) { e.Flushed.Generation = 0 },
		} {
			e, _ := b.stored("f", bb.FileID(i+1), size)
			change(e)
			want := map[string]bb.Kind{"no object": bb.NotFound, "not flushed": bb.Lost}[name]
			if want == 0 {
				want = bb.Checksum
			}
			if _, err := b.Cache.Open(t.Context(), e, "f"); bb.KindOf(err) != want {
				t.Errorf("%s of %d bytes: %v", name, size, err)
			}
			if b.has(e) {
				t.Errorf("%s of %d bytes: there is some of it", name, size)
			}
		}
	}
}

// TestPastMemory: a reader that finds no room reads past memory, and a request that needs all of a
// file there is refused.
func TestPastMemory(t *testing.T) {
	b := newBed(t)
	full := b.open(first(b.stored("full", 1, memory/2)))
	defer full.Close()
	e, content := b.stored("f", 2, memory/2+1)
	v := b.open(e)
	defer v.Close()
	pinned, _, err := full.Pin(t.Context(), 0, memory/2)
	if err != nil {
		t.Fatal(err)
	}
	got, past, err := read(t.Context(), v)
	if err != nil || !bytes.Equal(got, content) || past == 0 {
		t.Errorf("%d bytes, %d times past memory: %v", len(got), past, err)
	}
	if _, _, err := v.Pin(t.Context(), 0, e.Size); !errors.Is(err, bb.NoSpace) {
		t.Errorf("pinned beside half of memory: %v", err)
	}
	pinned.Release()
}

func first(e *bb.Entry, _ []byte) *bb.Entry { return e }

// TestBypassChecks: bytes that bypass memory are verified.
func TestBypassChecks(t *testing.T) {
	b := newBed(t)
	e, content := b.stored("f", 1, 3<<20)
	v := b.open(e)
	defer v.Close()
	b.store.Evict(bb.TierMemory, memory)
	evicted := EvictedOf(v.Snapshot().Extents(0, e.Size, 0))
	if len(evicted) == 0 {
		t.Fatal("nothing is evicted")
	}
	if p, err := v.Bypass(t.Context(), &evicted[0]); err != nil || !bytes.Equal(p, content[:evicted[0].Length]) {
		t.Errorf("%d bytes: %v", len(p), err)
	}
	b.objects["f"] = make([]byte, len(content))
	v.object.Close()
	if _, err := v.Bypass(t.Context(), &evicted[0]); bb.KindOf(err) != bb.Checksum {
		t.Errorf("other bytes: %v", err)
	}
}

// TestReplacedWhileRead replaces the store's object with another file's while evicted bytes are read from it, after
// SaveReaders as always. The reader gets its own bytes.
func TestReplacedWhileRead(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, v *View, size int64) ([]byte, error){
		"reached": func(ctx context.Context, v *View, _ int64) ([]byte, error) {
			p, _, err := read(ctx, v)
			return p, err
		},
		"pinned": func(ctx context.Context, v *View, size int64) ([]byte, error) {
			pinned, _, err := v.Pin(ctx, 0, size)
			if err != nil {
				return nil, err
			}
			defer pinned.Release()
			pieces, err := v.Snapshot().Slices(0, size, nil)
			return slices.Concat(pieces...), err
		},
		"past memory": func(ctx context.Context, v *View, size int64) (all []byte, err error) {
			for _, x := range v.Snapshot().Extents(0, size, 0) {
				p, err := v.Bypass(ctx, &x)
				if err != nil {
					return nil, err
				}
				all = append(all, p...)
			}
			return all, nil
		},
		"flushed": func(ctx context.Context, v *View, size int64) ([]byte, error) {
			s, err := v.Source(ctx)
			if err != nil {
				return nil, err
			}
			pieces, err := s.Slices(nil, 0, size)
			all := slices.Concat(pieces...)
			for _, p := range s.pinned { // the view is the caller's
				p.Release()
			}
			return all, err
		},
	} {
		for object, other := range map[string][]byte{"replaced": make([]byte, 3<<20), "shorter": {1}, "removed": nil} {
			t.Run(name+", "+object, func(t *testing.T) {
				b := newBed(t)
				e, content := b.stored("f", 1, 3<<20)
				v := b.open(e)
				defer v.Close()
				b.store.Evict(bb.TierMemory, memory)
				if len(EvictedOf(v.Snapshot().Extents(0, e.Size, 0))) == 0 {
					t.Fatal("nothing is evicted")
				}
				replace := func() {
					if err := b.SaveReaders(t.Context(), e.File, 2); err != nil {
						t.Error(err)
					}
					delete(b.objects, "f")
					if other != nil {
						b.objects["f"] = other
					}
				}
				b.opening.Store(&replace)
				got, err := read(t.Context(), v, e.Size)
				if err != nil || !bytes.Equal(got, content) {
					t.Errorf("%d bytes: %v", len(got), err)
				}
				if b.opening.Load() != nil {
					t.Error("nothing was read from the store: the test does not test")
				}
			})
		}
	}
}

// TestRestoredOnce: readers that come while a file is brought back wait for it, and it is read once.
func TestRestoredOnce(t *testing.T) {
	b := newBed(t)
	e, content := b.stored("f", 1, 5<<20)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			mine := *e
			v, err := b.Cache.Open(t.Context(), &mine, "f")
			if err != nil {
				t.Error(err)
				return
			}
			defer v.Close()
			if got, _, err := read(t.Context(), v); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
		})
	}
	group.Wait()
	if n := b.opened.Load(); n != 1 {
		t.Errorf("the object was opened %d times", n)
	}
	if err := b.BeginRestore(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.snapshotNow(e); bb.KindOf(err) != bb.NotFound {
		t.Errorf("a file that is being brought back is shown: %v", err)
	}
	b.EndRestore(1)
	b.open(e).Close()
}

// TestReaders: the readers of a file, its place, and readers of another generation.
func TestReaders(t *testing.T) {
	b := newBed(t)
	e, _ := b.stored("f", 1, 1000)
	e.Parent = 3
	if _, _, _, ok := b.Where(1); ok {
		t.Error("a file that nobody reads has a place")
	}
	v, w := b.open(e), b.open(e)
	if dir, name, removed, ok := b.Where(1); dir != 3 || name != "f" || removed || !ok {
		t.Error(dir, name, removed, ok)
	}
	b.Renamed(1, 4, "g")
	b.Removed(1)
	if dir, name, removed, ok := b.Where(1); dir != 4 || name != "g" || !removed || !ok {
		t.Error(dir, name, removed, ok)
	}
	if views := b.Others(1, 2); len(views) != 2 || len(b.Others(1, 1)) != 0 || len(b.Others(2, 1)) != 0 {
		t.Errorf("%d views of other generations", len(views))
	}
	v.Close()
	if b.Reads(v) || !b.Reads(w) {
		t.Errorf("the first reads: %v, the second: %v", b.Reads(v), b.Reads(w))
	}
	w.Close()
	if _, _, _, ok := b.Where(1); ok {
		t.Error("a file that nobody reads any more has a place")
	}
}

// copyOf adds a copy without an owner, as of a file of another node.
func (b *bed) copyOf(file bb.FileID, size int64, private bool) *copied {
	b.t.Helper()
	f := &copied{owner: &origin.Owner{}, file: file, generation: 1, size: size, private: private}
	if err := b.store.Mirror(file, 1, "b", []store.MirrorExtent{{Length: 1}}); err != nil {
		b.t.Fatal(err)
	}
	b.copies.add(f)
	return f
}

// TestIdleCopies: copies without a reader stay as long as there is room for them, the latest first.
// One of a file that is being written goes with its reader, and one that is read stays.
func TestIdleCopies(t *testing.T) {
	b := newBed(t)
	const half = memory/idleCopyShare/2 - 10
	read := func(file bb.FileID) (end func()) {
		snap, err := b.copies.snapshot(copyKey{file, 1})
		if err != nil {
			t.Fatal(err)
		}
		return b.add(&bb.Entry{File: file, Generation: 1}, snap, false).Close
	}
	b.copyOf(1, half, false)
	b.copyOf(2, half, false)
	b.copyOf(3, half, false)
	b.copyOf(4, 1, true)
	ends := map[bb.FileID]func(){}
	for file := range bb.FileID(4) {
		ends[file+1] = read(file + 1)
	}
	if b.ForgetIdle(1, 1) || bb.KindOf(b.DropCopies(1)) != bb.Busy {
		t.Error("a copy that is read is forgotten, or dropped")
	}
	for _, file := range []bb.FileID{1, 2, 4} {
		ends[file]()
	}
	for file, want := range map[bb.FileID]bool{1: true, 2: true, 3: true, 4: false} {
		if got := b.has(&bb.Entry{File: file, Generation: 1}); got != want {
			t.Errorf("copy %d is there: %v", file, got)
		}
	}
	ends[3]()
	if b.has(&bb.Entry{File: 1, Generation: 1}) || !b.has(&bb.Entry{File: 3, Generation: 1}) {
		t.Error("the copy that was idle for longest is there, or the latest is not")
	}
	if !b.ForgetIdle(2, 1) || b.copies.of(copyKey{2, 1}) != nil || !b.has(&bb.Entry{File: 2, Generation: 1}) {
		t.Error("a forgotten copy is one, or its bytes are gone")
	}
	if err := b.DropCopies(3); err != nil || b.has(&bb.Entry{File: 3, Generation: 1}) {
		t.Errorf("dropped: %v", err)
	}
}
