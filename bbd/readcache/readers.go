package readcache

import (
	"context"
	"slices"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// readers has the files of a buffer that are open for reading, and those whose bytes are being
// brought back, which get no readers meanwhile.
type readers struct {
	mu struct {
		lockorder.Mutex[lockrank.Readers]
		files     map[bb.FileID]*reading
		restoring map[bb.FileID]chan struct{} // closed when it has ended
	}
}

// reading is a file that is open for reading. It has the present place of the file, for evicted
// bytes that have to come back, and the views. If the object on the store were replaced, the views
// would lose these bytes.
type reading struct {
	dir     bb.DirID
	name    string
	removed bool
	views   []*View
}

func (r *readers) init() {
	r.mu.files, r.mu.restoring = make(map[bb.FileID]*reading), make(map[bb.FileID]chan struct{})
}

// add notes a reader of a file, which is removed already or lies at the place in its entry.
func (r *readers) add(v *View, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &v.entry
	f := r.mu.files[e.File]
	if f == nil {
		f = &reading{dir: e.Parent, name: e.Name, removed: removed}
		r.mu.files[e.File] = f
	}
	f.views = append(f.views, v)
}

// end ends a reader.
func (r *readers) end(v *View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.mu.files[v.entry.File]; f != nil {
		f.views = slices.DeleteFunc(f.views, func(other *View) bool { return other == v })
		if len(f.views) == 0 {
			delete(r.mu.files, v.entry.File)
		}
	}
}

// Reads reports whether a view is still open.
func (c *Cache) Reads(v *View) bool {
	c.readers.mu.Lock()
	defer c.readers.mu.Unlock()
	f := c.readers.mu.files[v.entry.File]
	return f != nil && slices.Contains(f.views, v)
}

// Others returns the views of a file that are of another generation than n.
func (c *Cache) Others(file bb.FileID, n bb.Generation) (views []*View) {
	c.readers.mu.Lock()
	defer c.readers.mu.Unlock()
	if f := c.readers.mu.files[file]; f != nil {
		for _, v := range f.views {
			if v.entry.Generation != n {
				views = append(views, v)
			}
		}
	}
	return views
}

// Where returns the place of a file that has readers, and whether it is removed. Ok is false if
// it has none.
func (c *Cache) Where(file bb.FileID) (dir bb.DirID, name string, removed, ok bool) {
	c.readers.mu.Lock()
	defer c.readers.mu.Unlock()
	if f := c.readers.mu.files[file]; f != nil {
		return f.dir, f.name, f.removed, true
	}
	return 0, "", false, false
}

// Renamed notes the new place of a file.
func (c *Cache) Renamed(file bb.FileID, dir bb.DirID, name string) {
	c.readers.mu.Lock()
	defer c.readers.mu.Unlock()
	if f := c.readers.mu.files[file]; f != nil {
		f.dir, f.name = dir, name
	}
}

// Removed notes that a file's entry is gone. Its readers keep their content.
func (c *Cache) Removed(file bb.FileID) {
	c.readers.mu.Lock()
	defer c.readers.mu.Unlock()
	if f := c.readers.mu.files[file]; f != nil {
		f.removed = true
	}
}

// BeginRestore waits until no other caller brings a file's bytes back. Until EndRestore the file
// gets no readers.
func (c *Cache) BeginRestore(ctx context.Context, file bb.FileID) error {
	r := &c.readers
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

// EndRestore admits readers of the file, and others that bring its bytes back.
func (c *Cache) EndRestore(file bb.FileID) {
	r := &c.readers
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.mu.restoring[file])
	delete(r.mu.restoring, file)
}

// unlessRestoring calls open while no restore of a file begins. bb.NotFound if the file is being
// restored. The present bytes may not be all, nor verified.
func (r *readers) unlessRestoring(file bb.FileID, open func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.restoring[file] != nil {
		return bb.NotFound
	}
	return open()
}
