package bbd

import (
	"maps"
	"slices"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// openFiles has the files of a buffer that are open for writing: by the place of their entry, of
// which there is one at a time, and by their number once a generation has begun. What of a file
// its own mutex guards, the callers have locked.
type openFiles struct {
	mu struct {
		lockorder.Mutex[lockrank.OpenFiles]
		at   map[bb.Place]*openFile
		byID map[bb.FileID]*openFile
	}
}

func newOpenFiles() *openFiles {
	o := new(openFiles)
	o.mu.at, o.mu.byID = make(map[bb.Place]*openFile), make(map[bb.FileID]*openFile)
	return o
}

// at returns the file that is open at a place; nil: none is.
func (o *openFiles) at(p bb.Place) *openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.at[p]
}

// of returns the file of a number; nil: it is not open, or not begun yet.
func (o *openFiles) of(file bb.FileID) *openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.byID[file]
}

// all returns the open files, with those that are not begun.
func (o *openFiles) all() []*openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.mu.at))
}

// count returns how many there are.
func (o *openFiles) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.at)
}

// add makes f the one that is open at its place, unless another is, which it returns.
func (o *openFiles) add(f *openFile) (other *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other := o.mu.at[f.at]; other != nil {
		return other
	}
	o.mu.at[f.at] = f
	return nil
}

// begun makes a file findable by its number.
func (o *openFiles) begun(f *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.byID[f.file] = f
}

// reopened adds a file that recovery found open, whatever was open at its place.
func (o *openFiles) reopened(f *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.at[f.at], o.mu.byID[f.file] = f, f
}

// forget takes a file out. It is locked.
func (o *openFiles) forget(f *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.at[f.at] == f {
		delete(o.mu.at, f.at)
	}
	if o.mu.byID[f.file] == f {
		delete(o.mu.byID, f.file)
	}
}

// unlink takes out the file at a place whose entry is gone, and notes that. It is locked.
func (o *openFiles) unlink(p bb.Place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unlinkLocked(p)
}

// unlinkLocked is unlink where mu is held.
func (o *openFiles) unlinkLocked(p bb.Place) {
	if f := o.mu.at[p]; f != nil && !f.stub() {
		f.removed = true
		delete(o.mu.at, p)
		delete(o.mu.byID, f.file)
	}
}

// move follows a rename, in one step. What is open at the two places is locked.
func (o *openFiles) move(from, to bb.Place, path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unlinkLocked(to)
	if f := o.mu.at[from]; f != nil && !f.stub() {
		delete(o.mu.at, from)
		f.at, f.path = to, path
		f.entry.Revision = 0 // the next put looks it up again
		o.mu.at[to] = f
	}
}

// clear takes all files out, and returns them.
func (o *openFiles) clear() []*openFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.Collect(maps.Values(o.mu.at))
	o.mu.at, o.mu.byID = make(map[bb.Place]*openFile), make(map[bb.FileID]*openFile)
	return all
}
