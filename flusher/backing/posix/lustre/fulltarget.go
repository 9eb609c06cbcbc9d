package lustre

import (
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// On Lustre a write fails with ENOSPC when one of the file's targets is full, however much room the others have. The
// next attempt requests another layout, over twice as many targets, and so other objects.

// FullTargets has, by name, the layout that the next attempt requests for a file that met a full target. The zero value
// is ready for use. Its methods may be called concurrently.
type FullTargets struct {
	mu   sync.Mutex
	next map[string]Layout
}

const maxFull = 4096 // recorded names

// Note is called when an attempt with a layout met a full target. The layout is nil if it is
// unknown.
func (f *FullTargets) Note(name string, had Layout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil || len(f.next) >= maxFull {
		f.next = map[string]Layout{}
	}
	if had == nil {
		had = f.next[name]
	}
	f.next[name] = had.other()
}

// Forget is called after a successful write of the name.
func (f *FullTargets) Forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.next, name)
}

// Next returns the layout for the next attempt, or nil if none has met a full target.
func (f *FullTargets) Next(name string) Layout {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next[name]
}

// mostTargets is the number of targets from which a layout requests all.
const mostTargets = 64

// other returns a layout over twice as many targets, of the same pools, and over all of them after some doublings.
// Bytes of a part on the metadata server are on targets then.
func (l Layout) other() Layout {
	if len(l) == 0 {
		l = Layout{{}}
	}
	if l.onMDT() && len(l) > 1 {
		l = l[1:]
	}
	l = slices.Clone(l)
	for i := range l {
		c := &l[i]
		c.Made = false
		if c.Count >= 0 {
			c.Count = 2 * max(c.Count, 1)
		}
		if c.Count > mostTargets {
			c.Count = -1
		}
	}
	return l
}

// Room returns how many bytes a file system has for users that are not root.
func Room(root *os.Root) (int64, error) {
	dir, err := root.Open(".")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}
