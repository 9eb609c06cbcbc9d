package bbd

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// errNoName says that a file has no name in the store any more.
var errNoName = errors.New("the file was removed, and its evicted bytes with it")

// fetch brings evicted extents of a snapshot back into memory, from the store or from
// the file's home. Each is checked against the checksum that its writer computed.
// alloc.ErrNoRoom: some may be there, the others have to go past memory.
func (b *buffer) fetch(ctx context.Context, t *tap, snap *store.Snapshot, e *bb.Entry, evicted []store.Extent) error {
	file, generation := snap.File()
	if c := b.copies.of(copyKey{file, generation}); c != nil {
		there, err := b.orStored(ctx, c, func() error { return c.fetch(ctx, t, snap, evicted) })
		if there == nil {
			return err
		}
		e = there
	}
	for _, x := range wholesOf(evicted) {
		err := b.fill(ctx, t, e, snap, x)
		if bb.KindOf(err) == bb.Checksum {
			err = b.fill(ctx, t, e, snap, x) // see tap
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run is bytes [from, to) of a file.
type run struct{ from, to int64 }

// wholesOf returns what has to be read to check evicted extents, in order: of one that
// was partly overwritten the whole, once for all of its pieces.
func wholesOf(evicted []store.Extent) []run {
	var runs []run
	for _, x := range evicted {
		from := x.FileOffset - x.Cut
		if n := len(runs); n == 0 || runs[n-1].from != from {
			runs = append(runs, run{from, from + x.WholeLength})
		}
	}
	return runs
}

// fill brings one extent in from the store.
func (b *buffer) fill(ctx context.Context, t *tap, e *bb.Entry, snap *store.Snapshot, x run) error {
	w := b.writers.Of(b.Spec().UID, bb.TierMemory)
	room, err := t.reserve(ctx, w, x.to-x.from)
	if err != nil {
		return err
	}
	defer w.Done(room)
	if err := t.read(ctx, b, e, room.Mem, x.from); err != nil {
		return err
	}
	err = snap.Fill(store.FillExtent{
		Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: x.from, Length: x.to - x.from,
	})
	switch bb.KindOf(err) {
	case bb.Busy:
		return nil // another reader was faster, or more was evicted: the caller looks again
	case bb.Invalid:
		return alloc.ErrNoRoom // eviction has joined it with others since this snapshot was opened
	case bb.Checksum:
		t.doubt()
	}
	return err
}

// restore brings a clean file back of which this node holds nothing, as after a
// restart: what was evicted is not among what recovery finds. The whole content is
// checked against the entry's checksum before anybody sees a byte of it.
//
// Of a file whose home is another node, a copy is made instead, which is brought in as
// it is read; if that node does not answer, what the store has will do.
func (b *buffer) restore(ctx context.Context, e *bb.Entry, path string) error {
	if err := b.readers.beginRestore(ctx, e.File); err != nil {
		return err
	}
	defer b.readers.endRestore(e.File)
	if b.has(e) {
		return nil
	}
	if b.foreign(e) {
		_, err := b.mirror(ctx, e, path)
		if bb.KindOf(err) == bb.Exists && b.has(e) {
			return nil // it was given to this node meanwhile, as a second copy
		}
		if err == nil || e.State() != bb.StateClean || ctx.Err() != nil || bb.KindOf(err) != bb.Unavailable {
			return bb.Wrap("read", b.address(path), err)
		}
	}
	b.readers.restores.Lock()
	defer b.readers.restores.Unlock()
	if e.Flushed.Generation != e.Generation {
		return bb.E(bb.Lost, "read", b.address(path), "its bytes are neither in memory nor on the store")
	}
	err := b.readBack(ctx, e, path, trust)
	if bb.KindOf(err) == bb.Checksum {
		err = b.readBack(ctx, e, path, distrust)
	}
	return err
}

// readBack reads all of a file from the store: into memory, where there is room for it.
func (b *buffer) readBack(ctx context.Context, e *bb.Entry, path string, names naming) error {
	if e.Size > b.d.store.Stats().Memory.Capacity/2 {
		return b.survey(ctx, e, path, names)
	}
	err := b.bringBack(ctx, e, path, names)
	if err != nil {
		// That generation alone: memory may hold a newer one that the namespace has forgotten.
		b.d.store.DropGeneration(e.File, e.Generation)
	}
	if errors.Is(err, alloc.ErrNoRoom) {
		return b.survey(ctx, e, path, names)
	}
	return err
}

// survey reads a file from the store once, and keeps of it what is checked when it is
// read again, extent by extent. It takes no memory that anybody else could want.
func (b *buffer) survey(ctx context.Context, e *bb.Entry, path string, names naming) error {
	from, err := b.object(ctx, e, 0, names)
	if err != nil {
		return err
	}
	defer from.Close()
	var (
		extents []store.MirrorExtent
		sum     uint64
		p       = make([]byte, min(e.Size, alloc.MaxExtent))
	)
	for offset := int64(0); offset < e.Size; offset += int64(len(p)) {
		p = p[:min(e.Size-offset, alloc.MaxExtent)]
		if _, err := io.ReadFull(from, p); err != nil {
			return truncated(err)
		}
		x := store.MirrorExtent{FileOffset: offset, Length: int64(len(p)), Checksum: checksum.Sum(p)}
		extents, sum = append(extents, x), checksum.Combine(sum, x.Checksum, x.Length)
	}
	if sum != e.Checksum {
		return bb.E(bb.Checksum, "read", b.address(path), "the store's object is not what was flushed to it")
	}
	return b.d.store.Mirror(e.File, e.Generation, b.name, extents)
}

func (b *buffer) bringBack(ctx context.Context, e *bb.Entry, path string, names naming) error {
	from, err := b.object(ctx, e, 0, names)
	if err != nil {
		return err
	}
	defer from.Close()
	w := alloc.NewWriter(b.d.alloc, memoryBuffer{b}, b.Spec().UID, bb.TierMemory)
	w.Patience = patience
	defer w.ReleaseIdle()
	if err := b.absorb(ctx, w, from, e.File, e.Generation, e.Size); err != nil {
		return err
	}
	sum, size, err := b.d.store.Checksum(e.File, e.Generation)
	if err != nil {
		return err
	}
	if sum != e.Checksum || size != e.Size {
		return bb.E(bb.Checksum, "read", b.address(path), "the store's object is not what was flushed to it")
	}
	if err := b.d.store.Seal(e.File, e.Generation); err != nil {
		return err
	}
	return b.d.store.MarkClean(e.File, e.Generation)
}

// has reports whether the generation is in this node's store, in memory or as
// evicted extents whose checksums are known.
func (b *buffer) has(e *bb.Entry) bool {
	_, err := b.d.store.Size(e.File, e.Generation)
	return err == nil
}

// orStored asks the home of a copy. If that does not have it any more, or does not
// answer, but the store has it, it returns the entry that says so.
func (b *buffer) orStored(ctx context.Context, c *fileCopy, ask func() error) (there *bb.Entry, err error) {
	err = ask()
	if kind := bb.KindOf(err); err == nil || ctx.Err() != nil || kind != bb.Unavailable && kind != bb.NotFound {
		return nil, err
	}
	if c.private {
		return nil, err
	}
	now, lookupErr := b.ns.Lookup(ctx, c.entry.Parent, c.entry.Name)
	if lookupErr != nil || now.File != c.entry.File || now.Flushed.Generation != c.entry.Generation {
		return nil, err
	}
	return &now, nil
}

// absorb writes a stream of size bytes into segments as one generation of a file.
func (b *buffer) absorb(ctx context.Context, w *alloc.Writer, from io.Reader, file bb.FileID, generation bb.Generation, size int64) error {
	commit := func(extents ...store.NewExtent) error {
		return b.d.store.Commit(store.Commit{File: file, Generation: generation, Buffer: b.name, Extents: extents})
	}
	if size == 0 {
		return commit()
	}
	for offset := int64(0); offset < size; {
		n := min(size-offset, alloc.MaxExtent)
		room, err := w.Reserve(ctx, n)
		if err != nil {
			return err
		}
		got, sum, err := room.Fill(from)
		if err == nil {
			err = commit(store.NewExtent{
				Lease: room.Lease, SegmentOffset: room.Offset, FileOffset: offset, Length: got, Checksum: sum,
			})
		}
		w.Done(room)
		if err != nil {
			return truncated(err)
		}
		offset += n
	}
	return nil
}

func truncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return bb.E(bb.Checksum, "read", "", "the store's object is shorter than what was flushed to it")
	}
	return err
}

// naming says whether a file's object has the file's name on the store.
type naming bool

// Names on the store follow those here a little later. What has a file's name meanwhile may
// be what a rename replaces: it is another file's, and has the wrong checksum. To ask
// for what is yet to be renamed costs more than most reads, so it is done when that was seen.
const (
	trust    naming = false
	distrust naming = true
)

// object opens the content of a file in the store from an offset on, decompressed.
// Where the file lies now decides the object's name.
func (b *buffer) object(ctx context.Context, e *bb.Entry, offset int64, named naming) (io.ReadCloser, error) {
	for missing := ""; ; {
		at, err := b.whereabouts(e)
		if err != nil {
			return nil, bb.Wrap("read", b.address(e.Name), err)
		}
		path, err := b.pathAt(ctx, at)
		if err != nil {
			return nil, err
		}
		if named == trust || path == missing {
			from, err := b.d.flusher.Read(ctx, b.name, path, e.Flushed.Codec, offset)
			if bb.KindOf(err) != bb.NotFound || path == missing {
				return from, err
			}
		}
		// A rename of it may be under way, or left over by a daemon that is gone.
		names, away, opsErr := b.unrenamed(ctx, path)
		if opsErr != nil {
			return nil, opsErr
		}
		if away != "" {
			if from, err := b.unrenamedObject(ctx, e, path, names, offset); bb.KindOf(err) != bb.NotFound {
				return from, err
			}
			return nil, bb.E(bb.Unavailable, "read", b.address(path), "node "+string(away)+", which has yet to rename what the store has of it, does not answer").
				WithRemedy("wait for it; if it is gone for good: bbctl node forget " + string(away))
		}
		if len(names) == 0 {
			missing = path // unless the rename has ended before this look
			continue
		}
		select {
		case <-time.After(settling):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// unrenamedObject opens the content of a file under a name from before renames that a
// daemon which is away has to carry out. While it has not, nobody flushes another file
// under that name; so it must not have when the object is open.
func (b *buffer) unrenamedObject(ctx context.Context, e *bb.Entry, path string, names []string, offset int64) (io.ReadCloser, error) {
	for _, name := range names {
		from, err := b.d.flusher.Read(ctx, b.name, name, e.Flushed.Codec, offset)
		if bb.KindOf(err) == bb.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if now, _, err := b.unrenamed(ctx, path); err != nil || !slices.Equal(now, names) {
			return nil, errors.Join(err, from.Close(), bb.E(bb.Unavailable, "read", b.address(path), "it is being renamed on the store").WithRemedy("read it again"))
		}
		return from, nil
	}
	return nil, bb.NotFound
}

// settling is how long a read waits before it looks again for a renamed object.
const settling = 20 * time.Millisecond

// whereabouts finds where a file lies that may have been renamed since e was read.
func (b *buffer) whereabouts(e *bb.Entry) (place, error) {
	at, removed, ok := b.readers.where(e.File)
	switch {
	case removed:
		return place{}, bb.E(bb.NotFound, "read", e.Name, errNoName.Error())
	case ok:
		return at, nil
	}
	return place{e.Parent, e.Name}, nil
}

// pathAt returns the path of a place now.
func (b *buffer) pathAt(ctx context.Context, at place) (string, error) {
	dir, err := b.ns.PathOf(ctx, at.dir)
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(dir+"/"+at.name, "/"), nil
}
