// Package region maps the files in which a daemon on this node keeps its memory, each once for all
// its users. It must never depend on their content.
package region

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Map holds the region files that this client has mapped, each once. It may be used
// concurrently.
type Map struct {
	mu struct {
		sync.Mutex
		maps   map[uint64]*Region
		closed bool
	}
}

// Region is one mapped region file. It stays mapped as long as it has a user, and
// after that while the file exists and the client is not closed.
type Region struct {
	regions *Map
	id      uint64
	path    string
	is      fileID
	File    *os.File // open as long as it is mapped, since locks of leases are on it
	Mem     []byte

	users int  // guarded by regions.mu
	stale bool // guarded by regions.mu; not in the map any more
}

type fileID struct{ dev, ino uint64 }

// Acquire maps a region, unless it is mapped already. Release it after use.
func (a *Map) Acquire(m *wire.Region) (*Region, error) {
	if r := a.find(m); r != nil {
		return r, nil
	}
	a.Sweep()
	r, err := mapRegion(m)
	if err != nil {
		return nil, &bb.Error{Kind: bb.Unavailable, Op: "map", Path: m.Path, Err: err}
	}
	r.regions = a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.maps == nil {
		a.mu.maps = make(map[uint64]*Region)
	}
	if other := a.mu.maps[r.id]; other != nil {
		if other.is == r.is {
			r.unmap()
			other.users++
			return other, nil
		}
		other.evict()
	}
	a.mu.maps[r.id] = r
	r.users++
	return r, nil
}

func (a *Map) find(m *wire.Region) *Region {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.mu.maps[m.Id]
	if r == nil || r.path != m.Path || int64(len(r.Mem)) < m.Length {
		return nil
	}
	r.users++
	return r
}

// mapRegion maps a region's file for reading and writing. It checks the file's length,
// for touching a page behind its end is a fault.
func mapRegion(m *wire.Region) (*Region, error) {
	if m.Path == "" || m.Length <= 0 {
		return nil, fmt.Errorf("the daemon names no file for region %016x", m.Id)
	}
	f, err := os.OpenFile(m.Path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	r := &Region{id: m.Id, path: m.Path, File: f}
	if err := r.mapFile(m.Length); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func (r *Region) mapFile(length int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.File.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Size < length {
		return fmt.Errorf("region %016x has %d bytes, its file only %d", r.id, length, st.Size)
	}
	mem, err := unix.Mmap(int(r.File.Fd()), 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	r.is, r.Mem = fileID{st.Dev, st.Ino}, mem
	return nil
}

// Is reports whether it is the region with an id.
func (r *Region) Is(id uint64) bool { return r.id == id }

// unmap ends the use of a region. It fails only for memory that is not mapped.
func (r *Region) unmap() {
	unix.Munmap(r.Mem) //nolint:errcheck // see above
	r.File.Close()
}

// Release ends one use.
func (r *Region) Release() {
	r.regions.mu.Lock()
	defer r.regions.mu.Unlock()
	if r.users--; r.users == 0 && r.stale {
		r.unmap()
	}
}

// evict takes a region out of the map. Its last user unmaps it. The map is locked.
func (r *Region) evict() {
	delete(r.regions.mu.maps, r.id)
	if r.stale = true; r.users == 0 {
		r.unmap()
	}
}

// Sweep evicts regions whose files are gone or are others now, since their pages would stay in
// memory for as long as they are mapped.
func (a *Map) Sweep() {
	a.mu.Lock()
	all := make([]*Region, 0, len(a.mu.maps))
	for _, r := range a.mu.maps {
		all = append(all, r)
	}
	a.mu.Unlock()
	for _, r := range all {
		var st unix.Stat_t
		if err := unix.Lstat(r.path, &st); err == nil && r.is == (fileID{st.Dev, st.Ino}) {
			continue
		}
		a.mu.Lock()
		if !r.stale {
			r.evict()
		}
		a.mu.Unlock()
	}
}

// Len is the number of mapped regions, without those that only wait for their last user.
func (a *Map) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.mu.maps)
}

// Close unmaps unused regions, and the rest after their last use.
func (a *Map) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.mu.maps {
		r.evict()
	}
}
