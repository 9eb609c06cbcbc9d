package flusher

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/storeop"
	"forebay/flusher/upload"
	"forebay/internal/bb"
)

// world is a namespace in memory that uses a Flusher as a daemon does.
type world struct {
	t      *testing.T
	f      *Flusher
	buffer string
	slow   bool   // Begin takes its time
	begun  func() // called by Begin when it has the path; nil: nothing

	ahead time.Duration // of the clock of files' times
	mu    struct {
		sync.Mutex
		files  map[string]*file // by path
		byID   map[bb.FileID]*file
		lastID bb.FileID
		done   error // the result of Done
		unsaid error // the result of Done after it has recorded the flush
		damage error // of the bytes in memory
		pinned int
		open   []string
	}
}

type file struct {
	id         bb.FileID
	generation bb.Generation
	path       string
	content    []byte
	flushed    bb.Flushed
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, buffer: "buf"}
	w.mu.files, w.mu.byID = map[string]*file{}, map[bb.FileID]*file{}
	return w
}

// start starts a flusher over a store, which is closed when the test ends.
func (w *world) start(store backing.Store, change func(*Options)) *Flusher {
	opts := Options{
		Catalog: w, Node: "n1", Idle: -1, Workers: 4, Backoff: [2]time.Duration{time.Millisecond, 4 * time.Millisecond},
		Stores: func(context.Context, string) (backing.Store, error) { return store, nil },
		Applied: func(_ context.Context, buffer string, op storeop.Op) error {
			if op.Internal {
				w.t.Errorf("told of an operation that nobody wrote down: %+v", op)
			}
			return nil
		},
	}
	if change != nil {
		change(&opts)
	}
	w.f = New(opts)
	w.t.Cleanup(func() { w.f.Close() })
	return w.f
}

func (w *world) Begin(_ context.Context, key Key) (upload.Job, error) {
	j, err := w.begin(key)
	if w.begun != nil {
		w.begun()
	}
	if w.slow {
		time.Sleep(time.Duration(rand.IntN(400)) * time.Microsecond) // long enough for a rename to come in between
	}
	return j, err
}

func (w *world) begin(key Key) (upload.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.mu.byID[key.File]
	if f == nil || f.generation != key.Generation {
		return nil, bb.E(bb.NotFound, "flush", key.File.String(), "is gone")
	}
	if f.flushed.Generation == f.generation {
		return nil, bb.E(bb.Exists, "flush", key.File.String(), "is flushed already")
	}
	w.mu.pinned++
	return &job{w: w, id: f.id, path: f.path, content: f.content, before: f.flushed, generation: f.generation}, nil
}

func (w *world) Recorded(_ context.Context, key Key) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.mu.byID[key.File]
	return f != nil && f.flushed.Generation != 0, nil
}

func (w *world) OpenFiles(context.Context, string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.open, nil
}

type job struct {
	w          *world
	id         bb.FileID
	path       string
	content    []byte
	before     bb.Flushed
	generation bb.Generation
}

func (j *job) Path() string         { return j.path }
func (j *job) Previous() bb.Flushed { return j.before }

func (j *job) Source() backing.Source {
	if src := backing.NewBytes(j.content); j.Damage(context.Background(), nil) == nil {
		return src
	} else {
		return damagedSource{src}
	}
}

func (j *job) Damage(context.Context, func()) error {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	return j.w.mu.damage
}

// damagedSource has other bytes than those of its checksum.
type damagedSource struct{ backing.Source }

func (s damagedSource) Checksum() uint64 { return ^s.Source.Checksum() }

func (j *job) Done(ctx context.Context, f bb.Flushed) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	if j.w.mu.done != nil {
		return j.w.mu.done
	}
	file := j.w.mu.byID[j.id]
	if file == nil {
		return bb.E(bb.NotFound, "flush", j.path, "is gone")
	}
	if file.path != j.path {
		j.w.t.Errorf("%s was renamed to %s in the middle of its flush", j.path, file.path)
	}
	f.Generation = j.generation
	file.flushed = f
	return j.w.mu.unsaid
}

func (j *job) Close() {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.w.mu.pinned--
}

// write makes a new generation of a file and queues it.
func (w *world) write(path, content string) Key {
	w.mu.Lock()
	f := w.mu.files[path]
	if f == nil {
		w.mu.lastID++
		f = &file{id: w.mu.lastID, path: path}
		w.mu.files[path], w.mu.byID[f.id] = f, f
	}
	f.generation++
	f.content = []byte(content)
	key := Key{Buffer: w.buffer, File: f.id, Generation: f.generation}
	w.mu.Unlock()
	item := Item{Key: key, Size: int64(len(content))}
	if w.ahead != 0 {
		item.DirtySince, item.ClosedAt = time.Now().Add(w.ahead), time.Now().Add(w.ahead)
	}
	w.f.Enqueue(item)
	return key
}

// rename moves a file or a tree, as a daemon does.
func (w *world) rename(from, to string) {
	held, err := w.f.HoldRename(w.t.Context(), w.buffer, from, to)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer held.Release()
	w.mu.Lock()
	defer w.mu.Unlock()
	var moved []*file
	for _, f := range w.mu.files {
		if bb.Within(f.path, from) {
			moved = append(moved, f)
		}
	}
	if len(moved) == 0 {
		return
	}
	tree := moved[0].path != from
	if !tree {
		held.Renamed(moved[0].id, moved[0].flushed, w.f.opts.Policy(w.buffer).Codec)
	}
	op := storeop.Op{Kind: storeop.Rename, Old: from, New: to, Tree: tree}
	apply := tree
	if !tree {
		op.Codec = moved[0].flushed.Codec
		apply = moved[0].flushed.Generation != 0
		if replaced := w.mu.files[to]; replaced != nil {
			if !apply && replaced.flushed.Generation != 0 {
				apply, op = true, storeop.Op{Kind: storeop.Remove, Old: to, Codec: replaced.flushed.Codec}
			}
			delete(w.mu.byID, replaced.id)
			w.f.Forget(Key{w.buffer, replaced.id, replaced.generation})
		}
	}
	for _, f := range moved {
		delete(w.mu.files, f.path)
	}
	for _, f := range moved {
		f.path = to + f.path[len(from):]
		w.mu.files[f.path] = f
	}
	if apply {
		w.f.Apply(w.buffer, op)
	}
}

// remove removes a file or a tree, as a daemon does.
func (w *world) remove(name string) {
	held, err := w.f.Hold(w.t.Context(), w.buffer, name)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer held.Release()
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, f := range w.mu.files {
		if !bb.Within(p, name) {
			continue
		}
		delete(w.mu.files, p)
		delete(w.mu.byID, f.id)
		w.f.Forget(Key{w.buffer, f.id, f.generation})
		if f.flushed.Generation != 0 {
			w.f.Apply(w.buffer, storeop.Op{Kind: storeop.Remove, Old: p, Codec: f.flushed.Codec})
		}
	}
}

// contents returns the expected content of the store by the namespace.
func (w *world) contents() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]string{}
	for p, f := range w.mu.files {
		all[p] = string(f.content)
	}
	return all
}

func (w *world) hasDir(dir string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.mu.files {
		if strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// expectStore drains, and compares the store with the namespace, name by name.
func (w *world) expectStore(contents func() map[string][]byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	report, err := w.f.Drain(ctx, w.buffer, nil)
	if err != nil {
		w.t.Fatalf("drain: %v\n%+v\n%+v", err, report, w.f.BufferStats(w.buffer))
	}
	got, want := contents(), w.contents()
	for name := range got {
		if _, ok := want[name]; !ok {
			w.t.Errorf("the store has %q, which does not exist", name)
		}
	}
	for name, content := range want {
		if stored, ok := got[name]; !ok || string(stored) != content {
			w.t.Errorf("the store has %q under %q (there: %v), should have %q", stored, name, ok, content)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.pinned != 0 {
		w.t.Errorf("%d jobs were not closed", w.mu.pinned)
	}
	for p, f := range w.mu.files {
		if f.flushed.Generation != f.generation {
			w.t.Errorf("%s: generation %d is recorded, %d is current", p, f.flushed.Generation, f.generation)
		}
	}
}
