// Package dirty has the closed files of a buffer that wait for their flush, with the places of their
// entries. It must never depend on the flush of a file, nor on other open files.
package dirty

import (
	"maps"

	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Files has the closed files of a buffer that wait for their flush. In a scratch buffer of a cluster,
// where nothing is flushed, it has all closed files, since they may have to move. Its methods may be
// called concurrently.
//
// A file that is closed is added here before it leaves the open files. A search for a file in
// either begins there, and continues here.
type Files struct {
	mu struct {
		lockorder.Mutex[lockrank.DirtyFiles]
		files   map[bb.FileID]File
		failing map[bb.FileID]string // why the last flush failed
	}
}

// File is the place of a file that waits for its flush, and the generation to flush.
type File struct {
	At         bb.Place
	Generation bb.Generation
	Near       bb.NodeID           // the other node that opened it last; "": none has
	Second     cluster.Incarnation // of its second copy; zero: there is none
	Unsure     cluster.Incarnation // of one that was made, which the namespace may have; zero: there is none
	Bare       bool                // a symbolic link, which has no bytes to copy or to move
}

// New returns the files of a buffer that has none.
func New() *Files {
	d := new(Files)
	d.mu.files, d.mu.failing = make(map[bb.FileID]File), make(map[bb.FileID]string)
	return d
}

// Add adds a file, or a newer generation of it. An older one changes nothing, since it was looked up before
// the file was closed anew, and must not replace the one that has yet to be flushed.
func (d *Files) Add(file bb.FileID, f File) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.files[file].Generation <= f.Generation {
		d.mu.files[file] = f
	}
}

// Of returns the record of a file, and whether it is there.
func (d *Files) Of(file bb.FileID) (File, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.mu.files[file]
	return f, ok
}

// All returns a copy of all there are.
func (d *Files) All() map[bb.FileID]File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.mu.files)
}

// Change changes the record of a file, if it is there. The function is called under the lock.
func (d *Files) Change(file bb.FileID, how func(*File)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.mu.files[file]; ok {
		how(&f)
		d.mu.files[file] = f
	}
}

// Forget takes a file out, unless a newer generation has been added since.
func (d *Files) Forget(file bb.FileID, n bb.Generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.files[file].Generation <= n {
		delete(d.mu.files, file)
		delete(d.mu.failing, file)
	}
}

// Failed notes why the last flush of a file failed, or "" if it did not.
func (d *Files) Failed(file bb.FileID, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reason == "" {
		delete(d.mu.failing, file)
	} else {
		d.mu.failing[file] = reason
	}
}

// Reason returns the note of Failed.
func (d *Files) Reason(file bb.FileID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.failing[file]
}

// Clear takes all files out.
func (d *Files) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.files)
}
