package bbd

import (
	"maps"

	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// dirtyFiles has the closed files of a buffer that wait for their flush; in a scratch buffer of a
// cluster, where nothing is flushed, all closed files, since they may have to move.
//
// A file that is closed is added here before it leaves openFiles. Who wants to know whether a file
// is in either looks there first, and then here.
type dirtyFiles struct {
	mu struct {
		lockorder.Mutex[lockrank.DirtyFiles]
		files   map[bb.FileID]dirtyFile
		failing map[bb.FileID]string // why the last flush failed
	}
}

// dirtyFile is where a file lies that waits for its flush, and what of it is flushed.
type dirtyFile struct {
	at         place
	generation bb.Generation
	near       bb.NodeID           // the other node that opened it last; "": none has
	second     cluster.Incarnation // of its second copy; zero: there is none
}

func newDirtyFiles() *dirtyFiles {
	d := new(dirtyFiles)
	d.mu.files, d.mu.failing = make(map[bb.FileID]dirtyFile), make(map[bb.FileID]string)
	return d
}

// add adds a file, or a newer generation of it.
func (d *dirtyFiles) add(file bb.FileID, f dirtyFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.files[file] = f
}

// of returns what is known of a file, and whether it is there.
func (d *dirtyFiles) of(file bb.FileID) (dirtyFile, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.mu.files[file]
	return f, ok
}

// all returns a copy of all there are.
func (d *dirtyFiles) all() map[bb.FileID]dirtyFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.mu.files)
}

// change changes what is known of a file, if it is there. The function is called under the lock.
func (d *dirtyFiles) change(file bb.FileID, how func(*dirtyFile)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.mu.files[file]; ok {
		how(&f)
		d.mu.files[file] = f
	}
}

// forget takes a file out, unless a newer generation has been added since.
func (d *dirtyFiles) forget(file bb.FileID, n bb.Generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.files[file].generation <= n {
		delete(d.mu.files, file)
		delete(d.mu.failing, file)
	}
}

// failed notes why the last flush of a file failed; "": it did not.
func (d *dirtyFiles) failed(file bb.FileID, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reason == "" {
		delete(d.mu.failing, file)
	} else {
		d.mu.failing[file] = reason
	}
}

// reason returns what failed has noted.
func (d *dirtyFiles) reason(file bb.FileID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.failing[file]
}

// clear takes all files out.
func (d *dirtyFiles) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.mu.files)
}
