// Package reassert restores entries that the namespace has acknowledged and lost, from the bytes and identities
// of files in this node's memory. It must never depend on the writing or the flush of a file, nor decide the
// fate of bytes, as package fate does.
package reassert

import (
	"context"
	"log/slog"
	"time"

	"forebay/bbd/dirty"
	"forebay/bbd/fate"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/meta/namespace"
)

// Files are the files of a buffer at this daemon. Its methods may be called concurrently.
type Files interface {
	Spec() bb.Buffer
	// Open returns a file that is being written, or nil if none is.
	Open(file bb.FileID) OpenFile
	// Lock locks a place. It waits for operations there, and excludes others until unlock.
	Lock(at bb.Place) (unlock func())
	// Queued reports whether a file waits for its flush, or is being flushed.
	Queued(file bb.FileID) bool
	// Requeue queues a dirty file for its flush.
	Requeue(ctx context.Context, e *bb.Entry)
	// Reopen makes a file open again, for a writer that may reconnect.
	Reopen(e *bb.Entry)
	// Recover is called at a start instead of Requeue and Reopen. It compares a file's bytes in memory with
	// its entry, and describes missing ones. "" means that none are missing.
	Recover(ctx context.Context, e *bb.Entry) (missing string)
}

// OpenFile is a file that is being written. Its methods may be called concurrently.
type OpenFile interface {
	// RestoreEntry restores the entry of the generation that is being written, if the namespace had it. It
	// returns that entry, with an error if it could not be made. nil means that the file is closed or
	// removed by now, or that the namespace never had the generation.
	RestoreEntry(ctx context.Context) (e *bb.Entry, path string, err error)
}

// Names is the part of a buffer's namespace that restoring entries uses.
type Names interface {
	ScanMarks(ctx context.Context, fn func(bb.Entry) error, gone func(bb.FileID)) error
	Distrust()
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	Create(ctx context.Context, e bb.Entry) (uint64, error)
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
	MkdirAll(ctx context.Context, path string, o namespace.Owner) (bb.Entry, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Log is the additional part of a namespace that is a log.
type Log interface {
	// Covers reports whether the namespace has all changes since a revision that an entry had.
	Covers(ctx context.Context, revision uint64) (bool, error)
}

// Store is the part of package store that restoring entries uses.
type Store interface {
	Held
	IdentityOf(file bb.FileID) (store.Identity, bool)
	Checksum(file bb.FileID, n bb.Generation) (sum uint64, size int64, err error)
	MarkDirty(file bb.FileID, n bb.Generation) error
	Seal(file bb.FileID, n bb.Generation) error
	Drop(file bb.FileID)
}

// Options are the environment of all buffers of a daemon. Its functions may be called concurrently.
type Options struct {
	Owners     owner.Node
	Store      Store
	RaiseIDs   func(context.Context) error // marks this daemon's ids as claimed in the namespace
	Unreadable func() bool                 // the namespace has records that cannot be read
	Emit       func(bb.Event)
	Log        *slog.Logger
}

// Buffer compares one buffer's files in memory with the namespace. Its methods may be called
// concurrently.
type Buffer struct {
	o     Options
	name  string
	files Files
	names Names
	log   Log // nil: the namespace is none
	dirty *dirty.Files

	mu struct {
		lockorder.Mutex[lockrank.Leaf]
		unexplained []fate.Unexplained // at the last look
	}
}

// New returns the restorer of a buffer's entries. Log is nil where its namespace is none. closed has the files
// that wait for their flush.
func New(o Options, name string, files Files, names Names, log Log, closed *dirty.Files) *Buffer {
	return &Buffer{o: o, name: name, files: files, names: names, log: log, dirty: closed}
}

func (b *Buffer) address(path string) string { return bb.Address{Buffer: b.name, Path: path}.String() }

// Scan reads the namespace for an inventory. It calls fn with each entry, and whether the entry is older than the
// file's content in memory.
func (b *Buffer) Scan(ctx context.Context, inv *fate.Inventory, fn func(e *bb.Entry, behind bool)) error {
	if err := b.names.ScanMarks(ctx, func(e bb.Entry) error { fn(&e, inv.Add(&e)); return nil }, inv.Gone); err != nil || b.log == nil {
		return err
	}
	for _, h := range inv.Missing() {
		if h.Identity == nil || h.Identity.Revision == 0 {
			continue
		}
		removed, err := b.log.Covers(ctx, h.Identity.Revision)
		if err != nil {
			return err
		}
		if removed {
			inv.Gone(h.File)
		}
	}
	return nil
}

// known returns the facts about a file that fate.Decide uses.
func (b *Buffer) known(inv *fate.Inventory, h *fate.Held) fate.Known {
	return inv.Known(h, func(e *bb.Entry) bool { return !b.o.Owners.OwnedElsewhere(e) || owner.Adoptable(e) })
}

// Reassert compares a buffer's files in memory with the namespace, read from its server rather than
// from a cache, and restores lost entries. Their files are dirty and queued when it returns. Files
// that could not be restored are in Left. It reads all entries of the buffer once. It may be called
// while files are written, renamed and removed. If an entry is changed between its reading and its
// repair, it is read again, at most tries times. Then the error is bb.Busy.
func (b *Buffer) Reassert(ctx context.Context) (r fate.Reassertion, err error) {
	for range tries {
		r.Left = nil
		if err = b.reassertOnce(ctx, &r); bb.KindOf(err) != bb.Busy {
			break
		}
	}
	return r, err
}

// tries bounds the readings of Reassert.
const tries = 3

// reassertOnce is one reading. A file that is changed meanwhile does not stop the repair of others.
func (b *Buffer) reassertOnce(ctx context.Context, r *fate.Reassertion) error {
	files := HeldFiles(b.o.Store)[b.name]
	for file, h := range files {
		if h.Acked == 0 || h.Dirty == 0 && h.Evicted > 0 {
			delete(files, file) // it is being written and was never acknowledged, or the store has it
		}
	}
	inv := fate.NewInventory(files)
	if err := b.Scan(ctx, inv, func(*bb.Entry, bool) {}); err != nil {
		return err
	}
	var busy error
	distrusted := false
	for _, h := range files {
		becomes := fate.Decide(*h, b.known(inv, h))
		if becomes == fate.Adopt {
			if err := b.requeueMissed(ctx, inv, h); err != nil {
				return err
			}
			continue
		}
		if !distrusted {
			// The cache has the state that the namespace has lost.
			b.names.Distrust()
			if err := b.o.RaiseIDs(ctx); err != nil {
				return err
			}
			distrusted = true
		}
		err := b.reassertFile(ctx, inv, h, becomes, r)
		switch {
		case bb.KindOf(err) == bb.Busy:
			busy = err
		case err != nil:
			return err
		}
	}
	return busy
}

// If the namespace has a dirty file's entry, and the file is neither in a queue nor being written,
// requeueMissed queues it. An earlier attempt has made the entry, and its answer was lost.
func (b *Buffer) requeueMissed(ctx context.Context, inv *fate.Inventory, h *fate.Held) error {
	e, ok := inv.Entry(h.File)
	if !ok || h.Dirty == 0 || !b.isUnqueued(&e, h) {
		return nil
	}
	unlock := b.files.Lock(e.Place())
	now, err := b.names.Lookup(ctx, e.Parent, e.Name)
	if err != nil || now.File != h.File || !b.isUnqueued(&now, h) {
		unlock()
		if bb.KindOf(err) == bb.NotFound {
			return nil
		}
		return err
	}
	return b.resume(ctx, &now, unlock)
}

// isUnqueued reports whether the flush of an entry's generation, or its close, is due here but not queued.
func (b *Buffer) isUnqueued(e *bb.Entry, h *fate.Held) bool {
	due := e.State() == bb.StateDirty || e.State() == bb.StateOpen
	return due && e.Generation == h.Acked && !b.o.Owners.OwnedElsewhere(e) && b.files.Spec().Backing != "" &&
		b.files.Open(h.File) == nil && !b.files.Queued(h.File)
}

// resume makes a file open again, or queues it for its flush, as its entry has it. Its place is locked until it is
// queued, or else a rename would find it in no list. It is open at its place only when that is free.
func (b *Buffer) resume(ctx context.Context, e *bb.Entry, unlock func()) error {
	if e.Open {
		unlock()
		b.files.Reopen(e)
		return nil
	}
	defer unlock()
	// A file that was kept without an entry since the start was not sealed then.
	if err := b.o.Store.Seal(e.File, e.Generation); err != nil {
		return err
	}
	b.files.Requeue(ctx, e)
	return nil
}

// reassertFile settles one file, unless it was changed or removed since the reading.
func (b *Buffer) reassertFile(ctx context.Context, inv *fate.Inventory, h *fate.Held, becomes fate.Fate, r *fate.Reassertion) error {
	id := h.Identity
	if f := b.files.Open(h.File); f != nil {
		if becomes == fate.Remake {
			b.reassertOpen(ctx, f, r)
		}
		return nil
	}
	locked := bb.Place{Dir: id.Dir, Name: id.Name}
	unlock := b.files.Lock(locked)
	now, ok := b.o.Store.IdentityOf(h.File)
	if !ok || now != *id {
		unlock()
		return nil
	}
	if becomes == fate.Remake || becomes == fate.SetAside {
		// It may have been flushed, and the namespace may have lost the record of it.
		if err := b.o.Store.MarkDirty(h.File, h.Acked); err != nil {
			becomes = fate.Keep
		}
	}
	e, err := b.apply(ctx, inv, h, becomes, r)
	if err != nil || e == nil {
		unlock()
		return err
	}
	if e.Place() != locked {
		unlock()
		return b.resumeElsewhere(ctx, e)
	}
	return b.resume(ctx, e, unlock)
}

// resumeElsewhere is resume of a file whose entry is at another place than its identity. Then a
// directory was made again, the file was renamed, or it is set aside. That place could not be
// locked before the entry was there. A rename in between is bb.Busy. At the next check the entry
// has the file, and no queue does.
func (b *Buffer) resumeElsewhere(ctx context.Context, e *bb.Entry) error {
	unlock := b.files.Lock(e.Place())
	now, err := b.names.Lookup(ctx, e.Parent, e.Name)
	if err == nil && now.File == e.File && now.Generation == e.Generation {
		return b.resume(ctx, &now, unlock)
	}
	unlock()
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	return bb.E(bb.Busy, "reassert", e.Name, "it was renamed or removed meanwhile").WithRemedy("try again")
}

// reassertOpen restores the entry of a file that is being written.
func (b *Buffer) reassertOpen(ctx context.Context, f OpenFile, r *fate.Reassertion) {
	e, path, err := f.RestoreEntry(ctx)
	switch {
	case err != nil:
		r.Left = append(r.Left, fate.Unexplained{File: e.File, Generation: e.Generation, Path: path, Reason: "it is being written, and its entry cannot be made again: " + err.Error()})
	case e != nil:
		b.publishFound(e, path, "the namespace had lost its entry while it was being written")
		r.Remade = append(r.Remade, path)
	}
}

// publishFound publishes the restored entry of a file.
func (b *Buffer) publishFound(e *bb.Entry, path, reason string) {
	b.o.Log.Error("the entry of a file that the namespace had lost is restored", "buffer", b.name, "path", path, "bytes", e.Size, "file", e.File, "generation", e.Generation, "reason", reason)
	b.o.Emit(bb.Event{Kind: bb.EventFound, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size, Reason: reason})
}

// foundOpen returns the modification time of a file that was found open, as recovery sets it. The last
// commits may be in its records and not in its entry.
func foundOpen() time.Time { return time.Now() }
