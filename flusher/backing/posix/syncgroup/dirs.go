package syncgroup

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Dirs groups syncs of directories. Callers that come while a directory is synced share the next
// sync of it, which begins after they came, and so has all that they renamed in it before. It is
// made on the descriptor that was opened first, as an error that another fsync(2) has reported is
// not reported to descriptors that are opened later.
type Dirs struct {
	opened atomic.Uint64

	mu   sync.Mutex
	dirs map[id]*dir // that are being synced
}

// id distinguishes directories. A path does not, since another file system may be mounted there by
// now. Neither does an inode, where a file system merges others and passes their inode numbers
// through (mergerfs, bindfs, virtiofs, 9P).
type id struct {
	dev, ino uint64
	path     string // below the store's root
}

type dir struct{ next *round }

// round is one sync, and the callers that wait for it.
type round struct {
	sync   func() error  // of the descriptor that was opened first
	opened uint64        // of that one
	begin  chan struct{} // closed when the first waiting caller is to sync
	done   chan struct{} // closed with err set
	err    error
}

// Opened is called after a directory was opened, for Sync.
func (d *Dirs) Opened() uint64 { return d.opened.Add(1) }

// Sync makes the names of a directory durable. path is its own below the store's root, opened is the result of Opened
// for f. It returns an error of the call that synced the directory.
func (d *Dirs) Sync(f *os.File, path string, opened uint64) error {
	var stat unix.Stat_t
	if err := control(f, func(fd int) error { return unix.Fstat(fd, &stat) }); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return d.share(id{uint64(stat.Dev), stat.Ino, path}, opened, f.Sync)
}

// share calls do, or waits for another caller's do that begins after this call.
func (d *Dirs) share(which id, opened uint64, do func() error) error {
	d.mu.Lock()
	one := d.dirs[which]
	if one == nil {
		if d.dirs == nil {
			d.dirs = map[id]*dir{}
		}
		d.dirs[which] = &dir{}
		d.mu.Unlock()
		defer d.hand(which)
		return do()
	}
	first := one.next == nil
	if first {
		one.next = &round{begin: make(chan struct{}), done: make(chan struct{})}
	}
	r := one.next
	if first || opened < r.opened {
		r.sync, r.opened = do, opened
	}
	d.mu.Unlock()
	if !first {
		<-r.done // with do's descriptor open, which may be the one that is synced
		return r.err
	}
	<-r.begin
	defer d.hand(which)
	r.err = r.sync()
	close(r.done)
	return r.err
}

// hand starts the first waiting caller. No other joins that round any more.
func (d *Dirs) hand(which id) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.dirs[which]
	if one.next == nil {
		delete(d.dirs, which)
		return
	}
	close(one.next.begin)
	one.next = nil
}
