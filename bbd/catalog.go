package bbd

import (
	"context"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/lockrank"
	"forebay/bbd/readcache"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// catalog tells the flusher what to flush and hears what became durable.
type catalog struct{ d *Daemon }

var (
	_ flusher.Catalog    = catalog{}
	_ flusher.OpenLister = catalog{}
	_ flusher.Recorder   = catalog{}
	_ flusher.Previous   = (*flushJob)(nil)
	_ flusher.Attributed = (*flushJob)(nil)
	_ flusher.Attempted  = (*flushJob)(nil)
	_ flusher.Current    = (*flushJob)(nil)
)

// OpenFiles lists the files that are being written and have been committed in part.
func (c catalog) OpenFiles(ctx context.Context, buffer string) ([]string, error) {
	b, err := c.d.buffer(ctx, buffer)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range b.open.all() {
		if f.published.Load() {
			paths = append(paths, f.path)
		}
	}
	return paths, nil
}

// Begin pins a dirty file's bytes and says where it lies now.
func (c catalog) Begin(ctx context.Context, k flusher.Key) (flusher.Job, error) {
	b, err := c.d.buffer(ctx, k.Buffer)
	if err != nil {
		return nil, err
	}
	looked := time.Now()
	e, path, err := b.dirtyEntry(ctx, k)
	if bb.KindOf(err) == bb.Exists {
		// An earlier flush was recorded, and its answer got lost: what follows from it is left to do.
		if err := b.becameClean(ctx, &e, path); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if err := b.notReplaced(ctx, path); err != nil {
		return nil, err
	}
	if err := b.noneElsewhere(ctx, path); err != nil {
		return nil, err
	}
	if err := b.saveReaders(ctx, e.File, e.Generation); err != nil {
		return nil, err
	}
	snap, err := b.d.store.Snapshot(e.File, e.Generation)
	if err != nil {
		return nil, bb.Wrap("flush", b.address(path), err)
	}
	j := &flushJob{b: b, entry: e, path: path, snap: snap, looked: looked}
	j.source = snapshotSource{ctx: ctx, view: b.cache.View(&e, snap)}
	if err := j.source.pin(); err != nil {
		snap.Close()
		return nil, bb.Wrap("flush", b.address(path), err)
	}
	return j, nil
}

// notReplaced fails while a decided transaction has yet to remove what is at a path: nobody sees
// the file any more, and its flush would have a removed name come back to the store.
func (b *buffer) notReplaced(ctx context.Context, path string) error {
	id, err := b.ns.Replacing(ctx, path)
	if err != nil || id == 0 {
		return err
	}
	return bb.E(bb.Busy, "flush", b.address(path), "transaction "+id.String()+" replaces it")
}

// Recorded reports whether a queued file's entry names an object on the store.
func (c catalog) Recorded(ctx context.Context, k flusher.Key) (bool, error) {
	b, err := c.d.buffer(ctx, k.Buffer)
	if err != nil {
		return false, err
	}
	e, _, err := b.dirtyEntry(ctx, k)
	if err != nil && e.File == 0 && bb.KindOf(err) != bb.NotFound {
		return false, err
	}
	return e.Flushed.Generation != 0, nil
}

// dirtyEntry finds the entry of a queued file. bb.NotFound: there is nothing to flush
// any more, because the file was removed or has a newer generation; bb.Exists: it is
// on the store already.
func (b *buffer) dirtyEntry(ctx context.Context, k flusher.Key) (bb.Entry, string, error) {
	gone := bb.E(bb.NotFound, "flush", k.File.String(), "the file is gone")
	at, ok := b.dirtyAt(k.File)
	if !ok {
		return bb.Entry{}, "", gone
	}
	e, err := b.ns.Lookup(ctx, at.dir, at.name)
	for bb.KindOf(err) == bb.NotFound || err == nil && e.File != k.File {
		// A rename may be half way, which the namespace knows of and b does not yet. It
		// has both places locked until b does.
		b.lockPlaces(at)()
		now, ok := b.dirtyAt(k.File)
		if !ok || now == at {
			return bb.Entry{}, "", gone
		}
		at = now
		e, err = b.ns.Lookup(ctx, at.dir, at.name)
	}
	if err != nil {
		return e, "", err
	}
	path, err := b.pathAt(ctx, at)
	if err != nil {
		return e, "", err
	}
	if e.Generation == k.Generation && e.State() == bb.StateClean {
		return e, path, bb.E(bb.Exists, "flush", b.address(path), "it is on the store")
	}
	if e.Generation != k.Generation || e.State() != bb.StateDirty {
		return e, path, bb.E(bb.NotFound, "flush", b.address(path), "this generation need not be flushed any more")
	}
	if b.foreign(&e) {
		// This node was declared dead, and another one has all of it.
		b.dirty.forget(e.File, e.Generation)
		b.d.store.DropGeneration(e.File, e.Generation)
		return e, path, bb.E(bb.NotFound, "flush", b.address(path), "its home is node "+string(b.home(&e))+" now")
	}
	return e, path, nil
}

// dirtyAt returns the place of a file that waits for its flush, as far as b knows.
func (b *buffer) dirtyAt(file bb.FileID) (place, bool) {
	dirty, ok := b.dirty.of(file)
	return dirty.at, ok
}

// saveReaders brings back what readers of a file would need from the store's object, before it
// is replaced by a newer generation or removed (0). It stays until they close the file.
func (b *buffer) saveReaders(ctx context.Context, file bb.FileID, newer bb.Generation) error {
	for _, v := range b.cache.Others(file, newer) {
		if err := b.saveView(ctx, v); err != nil && b.cache.Reads(v) {
			return err // unless the reader has closed it meanwhile, and needs nothing
		}
	}
	return nil
}

// saveView brings all of a view into memory and keeps it there. Where there is a disk tier, a
// large one goes there step by step, since it may not fit into memory at once. Else it is
// kept in one step or not at all: one that does not fit takes nothing from others.
func (b *buffer) saveView(ctx context.Context, v *readcache.View) error {
	snap, stats := v.Snapshot(), b.d.store.Stats()
	step := snap.Size()
	if half := stats.Memory.Capacity / 2; step > half && stats.Disk.Capacity > 0 {
		if step > half+stats.Disk.Capacity {
			return alloc.ErrNoRoom
		}
		step = max(stats.Memory.Capacity/8, alloc.MaxExtent)
	}
	for at := int64(0); at < snap.Size(); at += step {
		pinned, _, err := v.Pin(ctx, at, step)
		if err != nil {
			return err
		}
		kept := snap.Keep(at, step) // what is pinned is not evicted before
		pinned.Release()
		if !kept {
			return bb.E(bb.Busy, "read", b.address(v.Entry().Name), "its reader has closed it")
		}
	}
	return nil
}

// flushJob is one file on its way to the store.
type flushJob struct {
	b      *buffer
	entry  bb.Entry
	path   string
	snap   *store.Snapshot
	source snapshotSource
	looked time.Time // when its entry was looked up
}

// Path returns where the file lies in the buffer, which is its name in the store.
func (j *flushJob) Path() string { return j.path }

// Source returns the file's bytes as they lie in memory.
func (j *flushJob) Source() backing.Source { return &j.source }

// Previous says what the store has under the file's name so far: of it, or of what it replaced.
func (j *flushJob) Previous() bb.Flushed { return j.entry.Stored() }

// Attempts are what may be under the file's name without a record.
func (j *flushJob) Attempts() []bb.Content { return j.entry.Unrecorded() }

// Attrs are what the file gets in stores that keep attributes.
func (j *flushJob) Attrs() *backing.Attrs { return backing.AttrsOf(&j.entry) }

// currentFor is how long what a look into the namespace has said is good enough. A node
// is not declared dead sooner after it was last heard of.
const currentFor = time.Second

// Current looks again whether this node is the file's home, if much time has passed:
// this process may have been stopped, or cut off, for all of it (recheck.go).
func (j *flushJob) Current(ctx context.Context) error {
	if j.b.d.cluster == nil || time.Since(j.looked) < currentFor {
		return nil
	}
	b := j.b
	at, ok := b.dirtyAt(j.entry.File)
	if !ok {
		return bb.E(bb.Busy, "flush", b.address(j.path), "it need not be flushed any more")
	}
	e, err := b.ns.Lookup(ctx, at.dir, at.name)
	if err == nil && (e.File != j.entry.File || e.Lost || b.foreign(&e)) {
		err = bb.E(bb.Busy, "flush", b.address(j.path), "it is not this node's any more")
	}
	return err // when it is tried again, it is found out what there is to do
}

// verifyStep is how many bytes of a file are verified between two signs of progress.
const verifyStep = 256 << 20

// Damage checks every extent.
func (j *flushJob) Damage(ctx context.Context, progress func()) error {
	size := j.snap.Size()
	for off := int64(0); off < size; off += verifyStep {
		if err := j.snap.Verify(ctx, off, min(verifyStep, size-off)); err != nil {
			return err
		}
		progress()
	}
	return nil
}

// Done records what the store confirmed. Only then is the file clean.
func (j *flushJob) Done(ctx context.Context, f bb.Flushed) error {
	b := j.b
	f.Generation = j.entry.Generation
	e, err := b.recordFlushed(ctx, &j.entry, f)
	if err != nil {
		return err
	}
	if e.Generation == j.entry.Generation && !e.Open {
		return b.becameClean(ctx, &e, j.path)
	}
	b.sayFlushed(&j.entry, j.path)
	return nil
}

func (b *buffer) sayFlushed(e *bb.Entry, path string) {
	b.d.emit(bb.Event{Kind: bb.EventFlushed, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size})
}

// becameClean is what follows from an entry that says that its content is on the store:
// memory may evict it, and its second copy is not needed. It may be called again.
func (b *buffer) becameClean(ctx context.Context, e *bb.Entry, path string) error {
	if err := b.d.store.MarkClean(e.File, e.Generation); err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	b.dirty.forget(e.File, e.Generation)
	b.discardAt(replicaOf(e), e.File, e.Generation)
	if b.foreign(e) {
		b.late(ctx, e, path)
	}
	b.d.alloc.Wake()
	b.sayFlushed(e, path)
	return nil
}

// late is the end of a flush of a file that was declared lost meanwhile. Its home is the
// node that declared it. It may have been renamed too, which held no flush of this node.
func (b *buffer) late(ctx context.Context, e *bb.Entry, path string) {
	b.d.log.Warn("a file that was declared lost has been flushed after all", "path", b.address(path), "file", e.File, "generation", e.Generation)
	b.d.store.DropGeneration(e.File, e.Generation)
	now, err := b.pathAt(ctx, place{e.Parent, e.Name})
	if err == nil && now == path {
		return
	}
	b.recheck(doubt{path: path}, false)
	if err == nil {
		b.recheck(doubt{path: now}, false)
	}
}

// recordFlushed puts what the store has into the file's entry, wherever it lies now
// and whatever generation it names.
func (b *buffer) recordFlushed(ctx context.Context, flushed *bb.Entry, f bb.Flushed) (bb.Entry, error) {
	gone := bb.E(bb.NotFound, "flush", b.address(flushed.Name), "the file is gone")
	at, ok := b.dirtyAt(flushed.File)
	if !ok {
		return bb.Entry{}, gone
	}
	return b.ns.Update(ctx, at.dir, at.name, func(e *bb.Entry) error {
		switch {
		case e.File != flushed.File:
			return gone
		case b.d.cluster == nil:
		case e.Lost && e.Generation == f.Generation && e.Size == flushed.Size && e.Checksum == flushed.Checksum:
			// It was declared lost with this node, whose flush has ended all the same.
			e.Lost, e.Reason = false, ""
		case b.home(e) != b.d.cfg.Node:
			return bb.E(bb.NotFound, "flush", b.address(flushed.Name), "its home is node "+string(b.home(e))+" now")
		case f.Generation < e.Flushed.Generation:
			return bb.E(bb.NotFound, "flush", b.address(flushed.Name), "a newer generation of it has been flushed")
		}
		e.SetFlushed(f)
		return nil
	})
}

// Close lets go of the bytes. Idempotent.
func (j *flushJob) Close() {
	j.source.close()
	j.snap.Close()
}

// snapshotSource gives a store the bytes of a snapshot, of which what is in memory is
// pinned. What is not is read past memory: were a flush to wait for room, all memory
// could be full of what only a flush makes room of.
type snapshotSource struct {
	ctx   context.Context
	view  *readcache.View
	whole bool // all of it was in memory, and is pinned

	mu     lockorder.Mutex[lockrank.Source] // guards what follows: parts are asked for in parallel
	pinned []*store.Pinned
	last   []byte // read past memory: the extent that begins at an offset of the file
	at     int64
}

// pin keeps what is in memory there, until close.
func (s *snapshotSource) pin() error {
	snap := s.view.Snapshot()
	pinned, extents, err := snap.PinExtents(0, snap.Size())
	if err != nil {
		return err
	}
	s.pinned = append(s.pinned, pinned)
	s.whole = len(readcache.EvictedOf(extents)) == 0
	return nil
}

// close lets go of what the source holds.
func (s *snapshotSource) close() {
	s.view.Close()
	for _, p := range s.pinned {
		p.Release()
	}
	s.pinned = nil
}

func (s *snapshotSource) Size() int64      { return s.view.Snapshot().Size() }
func (s *snapshotSource) Checksum() uint64 { return s.view.Entry().Checksum }

// Slices returns pieces of segments, or bytes that are the caller's alone. What others
// have brought in since pin is pinned for this source as well: theirs may end any time.
func (s *snapshotSource) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	snap := s.view.Snapshot()
	if s.whole {
		return snap.Slices(off, n, dst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pinned, extents, err := snap.PinExtents(off, n)
	if err != nil {
		return dst, err
	}
	s.pinned = append(s.pinned, pinned)
	for i := range extents {
		x := &extents[i]
		if !readcache.IsEvicted(*x) {
			if dst, err = snap.Slices(x.FileOffset, x.Length, dst); err != nil {
				return dst, err
			}
			continue
		}
		p, err := s.evicted(x)
		if err != nil {
			return dst, err
		}
		dst = append(dst, p)
	}
	return dst, nil
}

// evicted returns what is visible of an extent that is not in memory. Parts end in the
// middle of extents, so the last one is kept. s.mu is held.
func (s *snapshotSource) evicted(x *store.Extent) ([]byte, error) {
	from := x.FileOffset - x.Cut
	if s.last == nil || s.at != from || int64(len(s.last)) != x.WholeLength {
		whole, err := s.view.BypassWhole(s.ctx, x)
		if err != nil {
			return nil, err
		}
		s.last, s.at = whole, from
	}
	return s.last[x.Cut : x.Cut+x.Length : x.Cut+x.Length], nil
}
