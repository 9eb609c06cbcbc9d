package kernel

import (
	"sync"

	"forebay/client"
	"forebay/internal/bb"
)

// View is the kernel's idea of a file. Its methods may be called concurrently.
type View struct {
	mu      sync.Mutex
	told    int64         // the kernel's size
	of      bb.Generation // whose bytes the kernel's pages are; 0: unknown
	own     bool          // the pages are the file as it is being written here
	changes uint64        // of what the pages are, counted
}

// Opening is an open at which the kernel drops its pages. The zero value is one of which nothing is known.
type Opening struct {
	of      bb.Generation
	changes uint64
}

// Tell records the size that is reported to the kernel.
func (v *View) Tell(size int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = size
}

// Writing records that the file is open for writing, which begins with the content of a generation, 0: nothing.
func (v *View) Writing(base bb.Generation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.own = base == 0 || v.of == base
}

// Closed records the generation that has what was written, and nothing of others. 0: none is known.
func (v *View) Closed(g bb.Generation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.own {
		v.become(g)
	}
	v.own = false
}

// Wrote records that the kernel has bytes that are newer than any generation.
func (v *View) Wrote(end int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.become(0)
	v.told = max(v.told, end)
}

// Passed records that bytes up to end were written past the kernel's pages, so that these may be older.
func (v *View) Passed(end int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.become(0)
	v.own = false
	v.told = max(v.told, end)
}

// Forget records that the kernel's pages may differ from what was written, since a change of bytes has failed.
func (v *View) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.become(0)
	v.own = false
}

// Agrees reports whether the view of a file agrees with its entry, and whether its pages do, so that the kernel may keep
// them. Otherwise the caller has the kernel drop them, which it does at some time after the answer, and passes the opening to Dropped.
func (v *View) Agrees(e *client.Entry) (size, pages bool, o Opening) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if size = v.told == e.Size; size && e.State != client.StateOpen && v.of == e.Generation {
		return true, true, Opening{}
	}
	v.become(0)
	if size && e.State != client.StateOpen { // one that is open gets more bytes
		o = Opening{e.Generation, v.changes}
	}
	return size, false, o
}

// Dropped records that the kernel has dropped its pages at an opening, which a later request of the same handle shows. So
// its pages are younger, and those of one generation, unless they have become others meanwhile.
func (v *View) Dropped(o Opening) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if o.of != 0 && o.changes == v.changes {
		v.of = o.of
	}
}

// become changes what the pages are.
func (v *View) become(of bb.Generation) {
	v.of = of
	v.changes++
}

// Saved returns the size that the kernel has, and the generation of its pages, 0 if that is unknown.
func (v *View) Saved() (told int64, of bb.Generation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.told, v.of
}

// Restore is the inverse of Saved.
func (v *View) Restore(told int64, of bb.Generation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told, v.of = told, of
}
