package kernel

import (
	"sync"

	"forebay/client"
	"forebay/internal/bb"
)

// View is the kernel's idea of a file. Its methods may be called concurrently.
type View struct {
	mu   sync.Mutex
	told int64         // the kernel's size
	of   bb.Generation // whose bytes the kernel's pages are; 0: unknown
	own  bool          // the pages are the file as it is being written here
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
		v.of = g
	}
	v.own = false
}

// Wrote records that the kernel has bytes that are newer than any generation.
func (v *View) Wrote(end int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of = 0
	v.told = max(v.told, end)
}

// Agrees reports whether the view of a file agrees with its entry, and whether its pages do, which the caller then has
// the kernel keep or drop.
func (v *View) Agrees(e *client.Entry) (size, pages bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.told != e.Size {
		return false, false
	}
	pages = e.State != client.StateOpen && v.of == e.Generation
	v.of = e.Generation
	if e.State == client.StateOpen { // its generation gets more bytes
		v.of = 0
	}
	return true, pages
}
