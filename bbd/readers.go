package bbd

import (
	"context"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// readers has the files of a buffer that are open for reading, and those whose bytes are being
// brought back, which nobody may begin to read meanwhile.
type readers struct {
	restores lockorder.Mutex[lockrank.Restores] // held while a file is read back from the store: one at a time

	mu struct {
		lockorder.Mutex[lockrank.Readers]
		files     map[bb.FileID]*reading
		restoring map[bb.FileID]chan struct{} // closed when it has ended
	}
}

// reading is a file that somebody has open for reading: where it lies now, should
// evicted bytes have to come back, and who would lose them if the store's object
// were replaced.
type reading struct {
	at      place
	removed bool
	snaps   map[*store.Snapshot]bb.Entry
}

// view is what one reader has of a file.
type view struct {
	snap  *store.Snapshot
	entry bb.Entry
}

func newReaders() *readers {
	r := new(readers)
	r.mu.files, r.mu.restoring = make(map[bb.FileID]*reading), make(map[bb.FileID]chan struct{})
	return r
}

// add notes a reader of a file, which is removed already or lies where its entry says.
func (r *readers) add(e *bb.Entry, snap *store.Snapshot, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.mu.files[e.File]
	if f == nil {
		f = &reading{at: place{e.Parent, e.Name}, removed: removed, snaps: make(map[*store.Snapshot]bb.Entry)}
		r.mu.files[e.File] = f
	}
	f.snaps[snap] = *e
}

// end takes a reader away.
func (r *readers) end(file bb.FileID, snap *store.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.mu.files[file]; f != nil {
		delete(f.snaps, snap)
		if len(f.snaps) == 0 {
			delete(r.mu.files, file)
		}
	}
}

// has reports whether somebody still reads a snapshot of a file.
func (r *readers) has(file bb.FileID, snap *store.Snapshot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.mu.files[file]
	if f == nil {
		return false
	}
	_, ok := f.snaps[snap]
	return ok
}

// others returns the views of a file that are of another generation than n.
func (r *readers) others(file bb.FileID, n bb.Generation) (views []view) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.mu.files[file]; f != nil {
		for snap, entry := range f.snaps {
			if entry.Generation != n {
				views = append(views, view{snap, entry})
			}
		}
	}
	return views
}

// where returns the place of a file that somebody reads, and whether it is removed. ok is false if
// nobody reads it.
func (r *readers) where(file bb.FileID) (at place, removed, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.mu.files[file]; f != nil {
		return f.at, f.removed, true
	}
	return place{}, false, false
}

// move follows a rename.
func (r *readers) move(file bb.FileID, to place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.mu.files[file]; f != nil {
		f.at = to
	}
}

// unlink notes that a file's entry is gone. Its readers keep what they have.
func (r *readers) unlink(file bb.FileID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.mu.files[file]; f != nil {
		f.removed = true
	}
}

// beginRestore waits until nobody else restores a file.
func (r *readers) beginRestore(ctx context.Context, file bb.FileID) error {
	for {
		r.mu.Lock()
		other := r.mu.restoring[file]
		if other == nil {
			r.mu.restoring[file] = make(chan struct{})
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endRestore lets others read the file, or restore it.
func (r *readers) endRestore(file bb.FileID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.mu.restoring[file])
	delete(r.mu.restoring, file)
}

// unlessRestoring calls open while nobody begins to restore a file. bb.NotFound if somebody
// restores it: what there is of it may not be all, nor verified.
func (r *readers) unlessRestoring(file bb.FileID, open func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.restoring[file] != nil {
		return bb.NotFound
	}
	return open()
}
