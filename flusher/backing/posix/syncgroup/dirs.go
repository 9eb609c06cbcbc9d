package syncgroup

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Dirs groups syncs of directories: callers that come while a directory is synced share the next sync of it, which
// begins after they came, and so has all that they renamed in it before.
type Dirs struct {
	mu   sync.Mutex
	dirs map[id]*dir // that are being synced
}

// id tells directories apart. A path does not: another file system may be mounted there by now.
type id struct{ dev, ino uint64 }

type dir struct{ next *round }

// round is one sync, and who waits for it.
type round struct {
	begin chan struct{} // closed when the first who waits is to sync
	done  chan struct{} // closed with err set
	err   error
}

// Sync makes durable which names a directory has. It returns an error of whoever synced the directory.
func (d *Dirs) Sync(f *os.File) error {
	var stat unix.Stat_t
	if err := control(f, func(fd int) error { return unix.Fstat(fd, &stat) }); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return d.share(id{uint64(stat.Dev), stat.Ino}, f.Sync)
}

// share calls do, or waits for another caller's do that begins after this call.
func (d *Dirs) share(which id, do func() error) error {
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
	d.mu.Unlock()
	if !first {
		<-r.done
		return r.err
	}
	<-r.begin
	defer d.hand(which)
	r.err = do()
	close(r.done)
	return r.err
}

// hand lets the first who waits begin; nobody joins that round any more.
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
