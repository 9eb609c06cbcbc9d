package writeback

import (
	"context"
	"time"

	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/flusher/storeop"
	"forebay/flusher/upload"
	"forebay/internal/bb"
	"forebay/internal/xattr"
)

// Catalog is the flusher's catalog of the files of all buffers. It finds the content to flush, and records
// durable content. Its methods may be called concurrently.
type Catalog struct {
	// Of returns the files of a buffer that wait for their flush. It returns bb.NotFound if there is no such buffer.
	Of func(ctx context.Context, buffer string) (*Buffer, error)
}

var (
	_ flusher.Catalog    = Catalog{}
	_ flusher.OpenLister = Catalog{}
	_ flusher.Recorder   = Catalog{}
	_ upload.Previous    = (*flushJob)(nil)
	_ upload.Attributed  = (*flushJob)(nil)
	_ upload.Attempted   = (*flushJob)(nil)
	_ upload.Current     = (*flushJob)(nil)

	_ upload.Uncompressed = (*flushJob)(nil)
	_ upload.Keeper       = (*flushJob)(nil)
)

// OpenFiles lists the files that are being written and have been committed in part.
func (c Catalog) OpenFiles(ctx context.Context, buffer string) ([]string, error) {
	b, err := c.Of(ctx, buffer)
	if err != nil {
		return nil, err
	}
	return b.files.OpenPaths(), nil
}

// Begin pins a dirty file's bytes and returns where it lies now.
func (c Catalog) Begin(ctx context.Context, k flusher.Key) (upload.Job, error) {
	b, err := c.Of(ctx, k.Buffer)
	if err != nil {
		return nil, err
	}
	looked := time.Now()
	e, path, err := b.dirtyEntry(ctx, k)
	if bb.KindOf(err) == bb.Exists {
		// An earlier flush was recorded, and its answer got lost. The steps after it are left to
		// do.
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
	if err := b.noPendingElsewhere(ctx, path); err != nil {
		return nil, err
	}
	if err := b.distinct(ctx, &e, path); err != nil {
		return nil, err
	}
	if e.Type == bb.TypeSymlink {
		return &flushJob{b: b, entry: e, path: path, source: targetOf(&e), looked: looked}, nil
	}
	if err := b.files.SaveReaders(ctx, e.File, e.Generation); err != nil {
		return nil, err
	}
	snap, err := b.o.Store.Snapshot(e.File, e.Generation)
	if err != nil {
		return nil, bb.Wrap("flush", b.address(path), err)
	}
	source, err := b.files.Pin(ctx, &e, snap)
	if err != nil {
		snap.Close()
		return nil, bb.Wrap("flush", b.address(path), err)
	}
	return &flushJob{b: b, entry: e, path: path, snap: snap, source: source, looked: looked}, nil
}

// distinct fails where the objects of a symbolic link and of a file would have one name. In a buffer with a codec the
// file's has a suffix, which the link's own name may end in. Each would replace the other.
func (b *Buffer) distinct(ctx context.Context, e *bb.Entry, path string) error {
	flushes := b.files.Spec().Codec
	if flushes == codec.None {
		return nil
	}
	other, of := e.Name+codec.Suffix(flushes), bb.TypeSymlink
	if e.Type == bb.TypeSymlink {
		plain, suffixed := codec.OfName(e.Name)
		if suffixed != flushes {
			return nil
		}
		other, of = plain, bb.TypeFile
	}
	there, err := b.names.Lookup(ctx, e.Parent, other)
	if bb.KindOf(err) == bb.NotFound || err == nil && (there.Type != of || nodeLocal(&there)) {
		return nil
	}
	if err != nil {
		return err
	}
	return bb.E(bb.Invalid, "flush", b.address(path), "on the store it would have the name of "+of.Noun()+", "+other).WithRemedy("rename one of them")
}

// notReplaced fails while a decided transaction has yet to remove the file at a path. The file has
// no readers any more, and its flush would bring a removed name back to the store.
func (b *Buffer) notReplaced(ctx context.Context, path string) error {
	id, err := b.names.Replacing(ctx, path)
	if err != nil || id == 0 {
		return err
	}
	return bb.E(bb.Busy, "flush", b.address(path), "transaction "+id.String()+" replaces it")
}

// Recorded reports whether a queued file's entry names an object on the store.
func (c Catalog) Recorded(ctx context.Context, k flusher.Key) (bool, error) {
	b, err := c.Of(ctx, k.Buffer)
	if err != nil {
		return false, err
	}
	e, _, err := b.dirtyEntry(ctx, k)
	if err != nil && e.File == 0 && bb.KindOf(err) != bb.NotFound {
		return false, err
	}
	return e.Flushed.Generation != 0, nil
}

// dirtyEntry finds the entry of a queued file. If there is nothing to flush any more, because the
// file was removed or has a newer generation, it returns bb.NotFound. If the file is on the store
// already, it returns bb.Exists.
func (b *Buffer) dirtyEntry(ctx context.Context, k flusher.Key) (bb.Entry, string, error) {
	gone := bb.E(bb.NotFound, "flush", k.File.String(), fileGone)
	at, ok := b.dirtyAt(k.File)
	if !ok {
		return bb.Entry{}, "", gone
	}
	e, err := b.names.Lookup(ctx, at.Dir, at.Name)
	for missing(&e, err, k.File) {
		// A rename may be half way, which the namespace has and b does not yet.
		unlock := b.files.Lock(at)
		_, unknown := b.files.CatchUp(k.File)
		unlock()
		if unknown != nil {
			return bb.Entry{}, "", unknown
		}
		now, ok := b.dirtyAt(k.File)
		if !ok || now == at {
			return bb.Entry{}, "", gone
		}
		at = now
		e, err = b.names.Lookup(ctx, at.Dir, at.Name)
	}
	if err != nil {
		return e, "", err
	}
	path, err := b.pathAt(ctx, at)
	if err != nil {
		return e, "", err
	}
	switch due(b.o.Owners, &e, k.Generation) {
	case isStored:
		return e, path, bb.E(bb.Exists, "flush", b.address(path), "it is on the store")
	case superseded:
		return e, path, bb.E(bb.NotFound, "flush", b.address(path), "this generation no longer needs a flush")
	case isForeign:
		b.dirty.Forget(e.File, e.Generation)
		b.o.Store.DropGeneration(e.File, e.Generation)
		return e, path, bb.E(bb.NotFound, "flush", b.address(path), "its owner is node "+string(b.o.Owners.Of(&e))+" now")
	}
	return e, path, nil
}

// missing reports whether a lookup of a place has not found a file.
func missing(e *bb.Entry, err error, file bb.FileID) bool {
	return bb.KindOf(err) == bb.NotFound || err == nil && e.File != file
}

// dirtyAt returns the place of a file that waits for its flush, as b has it.
func (b *Buffer) dirtyAt(file bb.FileID) (bb.Place, bool) {
	f, ok := b.dirty.Of(file)
	return f.At, ok
}

// target is the content of a symbolic link, which its entry has.
type target struct{ backing.Source }

func targetOf(e *bb.Entry) target { return target{backing.NewBytes([]byte(e.Target))} }

// Close does nothing, since the bytes are the entry's.
func (target) Close() {}

// flushJob is one file, or symbolic link, on its way to the store.
type flushJob struct {
	b      *Buffer
	entry  bb.Entry
	path   string
	snap   *store.Snapshot // nil: it is a link
	source Pinned
	looked time.Time // when its entry was looked up
	kept   xattr.List
}

// Kept notes the file's extended attributes that the store has.
func (j *flushJob) Kept(xattrs xattr.List) { j.kept = xattrs }

// Path returns where the file lies in the buffer, which is its name in the store.
func (j *flushJob) Path() string { return j.path }

// Source returns the file's bytes as they lie in memory.
func (j *flushJob) Source() backing.Source { return j.source }

// Previous returns the store's present object under the file's name, which is the file's or that of
// the one that it replaced.
func (j *flushJob) Previous() bb.Flushed { return j.entry.Stored() }

// Attempts are the objects that may be under the file's name without a record.
func (j *flushJob) Attempts() []bb.Content { return j.entry.Unrecorded() }

// Attrs are the file's attributes in stores that keep attributes.
func (j *flushJob) Attrs() *backing.Attrs { return backing.AttrsOf(&j.entry) }

// Uncompressed reports that the store gets a link's target as it is.
func (j *flushJob) Uncompressed() bool { return j.entry.Type == bb.TypeSymlink }

// currentFor is how long the result of a lookup in the namespace stays valid. A node
// is not declared dead sooner after the last gossip from it.
const currentFor = time.Second

// Current checks again whether this node is the file's owner, if much time has passed, since this
// process may have been stopped, or cut off, for all of it (reconcile.go).
func (j *flushJob) Current(ctx context.Context) error {
	if j.b.o.Cluster == nil || time.Since(j.looked) < currentFor {
		return nil
	}
	b := j.b
	at, ok := b.dirtyAt(j.entry.File)
	if !ok {
		return bb.E(bb.Busy, "flush", b.address(j.path), "it no longer needs a flush")
	}
	e, err := b.names.Lookup(ctx, at.Dir, at.Name)
	if err == nil && (e.File != j.entry.File || e.Lost || b.o.Owners.OwnedElsewhere(&e)) {
		err = bb.E(bb.Busy, "flush", b.address(j.path), "this node no longer owns it")
	}
	return err // the retry determines the next step
}

// verifyStep is how many bytes of a file are verified between two signs of progress.
const verifyStep = 256 << 20

// Damage checks every extent.
func (j *flushJob) Damage(ctx context.Context, progress func()) error {
	if j.snap == nil {
		return nil
	}
	size := j.snap.Size()
	for off := int64(0); off < size; off += verifyStep {
		if err := j.snap.Verify(ctx, off, min(verifyStep, size-off)); err != nil {
			return err
		}
		progress()
	}
	return nil
}

// Done records the content that the store confirmed. Only then is the file clean.
func (j *flushJob) Done(ctx context.Context, f bb.Flushed) error {
	b := j.b
	f.Generation = j.entry.Generation
	e, err := b.recordFlushed(ctx, &j.entry, f, j.kept)
	if err != nil {
		return err
	}
	if e.Generation == j.entry.Generation && !e.Open {
		return b.becameClean(ctx, &e, j.path)
	}
	b.sayFlushed(&j.entry, j.path)
	return nil
}

func (b *Buffer) sayFlushed(e *bb.Entry, path string) {
	b.o.Emit(bb.Event{Kind: bb.EventFlushed, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size})
}

// becameClean follows an entry by which the content is on the store. Memory may evict it, and its second copy is not
// needed. Idempotent.
func (b *Buffer) becameClean(ctx context.Context, e *bb.Entry, path string) error {
	if err := b.o.Store.MarkClean(e.File, e.Generation); err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	b.dirty.Forget(e.File, e.Generation)
	b.files.Discard(owner.Replica(e), e.File, e.Generation)
	if b.o.Owners.OwnedElsewhere(e) {
		b.late(ctx, e, path)
	}
	b.o.Wake()
	b.sayFlushed(e, path)
	return nil
}

// late is the end of a flush of a file that was declared lost meanwhile. Its owner is the
// node that declared it. It may have been renamed too, which held no flush of this node.
func (b *Buffer) late(ctx context.Context, e *bb.Entry, path string) {
	b.o.Log.Warn("a file that was declared lost has been flushed after all", "path", b.address(path), "file", e.File, "generation", e.Generation)
	b.o.Store.DropGeneration(e.File, e.Generation)
	now, err := b.pathAt(ctx, e.Place())
	if err == nil && now == path {
		return
	}
	b.reconcile(Uncertain{Path: path}, false)
	if err == nil {
		b.reconcile(Uncertain{Path: now}, false)
	}
}

// recordFlushed puts the flushed content into the file's entry, at its present place, of any
// generation.
func (b *Buffer) recordFlushed(ctx context.Context, flushed *bb.Entry, f bb.Flushed, kept xattr.List) (bb.Entry, error) {
	refused := func(why string) error { return bb.E(bb.NotFound, "flush", b.address(flushed.Name), why) }
	at, ok := b.dirtyAt(flushed.File)
	if !ok {
		return bb.Entry{}, refused(fileGone)
	}
	return b.names.Update(ctx, at.Dir, at.Name, func(e *bb.Entry) error {
		if why := record(b.o.Owners, e, flushed, f); why != "" {
			return refused(why)
		}
		e.Xattrs = string(xattr.List(e.Xattrs).MarkedAs(kept))
		return nil
	})
}

// Close releases the bytes. Idempotent.
func (j *flushJob) Close() {
	j.source.Close()
	if j.snap != nil {
		j.snap.Close()
	}
}

// Applied strikes a rename or removal out that the store has carried out.
func (c Catalog) Applied(ctx context.Context, name string, op storeop.Op) error {
	b, err := c.Of(ctx, name)
	if err != nil {
		return err
	}
	was, err := b.names.DoneStoreOp(ctx, op.ID)
	if err == nil && !was && b.o.Cluster != nil {
		b.o.Log.Warn("a store operation was carried out that another node has taken over", "buffer", name, "operation", op.Kind.String(), "path", op.Old)
		b.reconcileOp(&op)
	}
	return err
}

// OrphanObject decides about an object that this daemon may have left under a path, with the suffix
// of a codec. If the name has an owner now, it returns false. The object is checked again in any
// case, since another one may get the name between the answer and the removal.
func (c Catalog) OrphanObject(ctx context.Context, name, path, codecName string) (remove bool, err error) {
	b, err := c.Of(ctx, name)
	if err != nil {
		return false, err
	}
	e, err := b.names.Resolve(ctx, path)
	switch kind := bb.KindOf(err); {
	case kind == bb.NotFound || kind == bb.NotDirectory:
		remove = true
	case err != nil:
		return false, err
	default:
		remove = orphan(b.o.Owners, &e) || !isNamed(&e, b.files.Spec().Codec, codecName)
	}
	b.reconcile(Uncertain{Path: path}, remove)
	return remove, nil
}

// StillOwner reports whether an operation is still this node's to carry out.
func (c Catalog) StillOwner(ctx context.Context, name string, op storeop.Op) (bool, error) {
	b, err := c.Of(ctx, name)
	if err != nil {
		return false, err
	}
	return b.names.StoreOpPending(ctx, op.ID)
}
