package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/folder"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// The memory tier uses no more than its file system can provide. Files of a tmpfs are
// made without memory, so without this check the shortage would show only when a client
// writes there.

// fitIn returns how many bytes of memory a store may use that is configured for so many, where the
// file system has free bytes, and adopted regions hold held bytes, of which owed are still to be
// taken from the file system. The store's own records need log bytes more. Where it cannot have
// all, something is left for others. The file system is seldom the store's alone.
func fitIn(want, free, held, owed, log int64) int64 {
	room := free - owed - log
	room -= max(room, 0) / journalLeastShare
	if want-held <= room {
		return want
	}
	room -= min(max(free/8, 2*Unit), 64*Unit)
	return min(want, max(held+room, 0)) / Unit * Unit
}

// sizeMemory makes the options fit the file system that the regions lie on, and logs it in
// one line. Empty regions of an earlier release whose memory is not there are removed.
func (s *Store) sizeMemory() error {
	var room unix.Statfs_t
	if err := unix.Statfs(s.memDir, &room); err != nil {
		return bb.Wrap("open store", s.memDir, err)
	}
	if room.Type != unix.TMPFS_MAGIC {
		return nil // a file on a disk gets its blocks, or an error, when it is written
	}
	free, want := int64(room.Bavail)*room.Bsize, s.o.MemoryBytes
	s.wanted.memory, s.wanted.region = want, s.o.RegionBytes
	held, owed, log := s.memoryHeld(free)
	fits := fitIn(want, free, held, owed, log)
	if held > fits {
		s.dropEmpty(held - fits)
		held, owed, log = s.memoryHeld(free)
		fits = fitIn(want, free, held, owed, log)
	}
	if fits >= want {
		return nil
	}
	s.log.Warn("the memory tier is smaller than it should be: its file system has no room for more",
		"wanted", want, "used", fits, "free", free, "folder", s.memDir,
		"remedy", "mount a larger tmpfs there (a container: --shm-size), or set memory.size to the size available")
	s.o.MemoryBytes = fits
	s.o.RegionBytes = min(s.o.RegionBytes, max(2*Unit, fits/Unit*Unit), max(fits/16, 64*Unit)/Unit*Unit)
	return nil
}

// regrowEvery is the interval at which the store checks for memory that it could not have.
const regrowEvery = time.Second

// regrow makes up for memory that the file system did not have before, since clients may have kept
// deleted regions mapped, whose pages were not free until they were unmapped. It works in the
// background. The caller holds mu, and has found no room.
func (s *Store) regrow() {
	if s.wanted.memory == 0 || s.mu.replacing > 0 || s.populator.Busy() || time.Since(s.mu.regrown) < regrowEvery {
		return
	}
	s.mu.regrown = time.Now()
	var room unix.Statfs_t
	if unix.Statfs(s.memDir, &room) != nil {
		return
	}
	free := int64(room.Bavail) * room.Bsize
	for _, r := range s.mu.regions {
		if r.Tier == bb.TierMemory && !r.Log && !r.retiring && r.populated < int64(len(r.Mem)) && free > r.Owes() {
			s.populator.Add(r)
		}
	}
	held, owed, log := s.memoryHeld(free)
	missing := fitIn(s.wanted.memory, free, held, owed, log) - held
	for missing >= 2*Unit {
		size := min(s.wanted.region, missing/Unit*Unit)
		missing -= size
		s.o.MemoryBytes = max(s.o.MemoryBytes, held+size)
		held += size
		s.mu.replacing++
		s.making.Go(func() { s.makeRegion(size, reservation{}) })
	}
}

// memoryHeld returns the bytes that the regions of the memory tier hold, and the bytes that they
// still need from their file system. If there is no region of the store's own records yet, and the
// memory tier gets no more than the free bytes, it also returns the bytes that these will need.
func (s *Store) memoryHeld(free int64) (held, owed, log int64) {
	o := s.o
	o.MemoryBytes = min(o.MemoryBytes, free)
	log = o.logBytes()
	for _, r := range s.mu.regions {
		if r.Tier != bb.TierMemory {
			continue
		}
		if owed += r.Owes(); r.Log {
			log = 0
		} else {
			held += int64(len(r.Mem))
		}
	}
	return held + s.foreignBytes(bb.TierMemory), owed, log
}

// journalLeastShare is the share of a region's bytes that its journal takes at least. It may take
// more (see journalLeast).
const journalLeastShare = 64

// dropEmpty removes regions that hold nothing and were to get more than they got, until so many
// bytes are gone.
func (s *Store) dropEmpty(bytes int64) {
	s.mu.regions = slices.DeleteFunc(s.mu.regions, func(r *region) bool {
		n := int64(len(r.Mem))
		if bytes <= 0 || r.Tier != bb.TierMemory || r.Log || r.used > 0 || r.Owes() < n/2 {
			return false
		}
		if err := regionfile.Remove(r.Path); err != nil {
			s.log.Error("delete a region that there is no memory for", "path", r.Path, "error", err)
			return false
		}
		if err := r.Close(); err != nil {
			s.log.Error("unmap a region that there is no memory for", "path", r.Path, "error", err)
		}
		bytes -= n
		return true
	})
}

// setAside leaves a region out that cannot be read, with all that was found in it. The rest is
// served. Its file stays as it is.
func (s *Store) setAside(c *candidate, r *region, why error) {
	s.found.aside++
	s.damaged(Damage{Path: c.Path, Region: c.Header.ID, Segment: -1, To: c.Header.Size, What: fmt.Sprintf("%s cannot be read, and is set aside with all that is in it: %v", c.Path, why)})
	if r == nil {
		return
	}
	s.mu.regions = slices.DeleteFunc(s.mu.regions, func(o *region) bool { return o == r })
	s.found.adopted--
	for g := range s.mu.segments {
		if g.mu.region == r {
			delete(s.mu.segments, g)
		}
	}
	for key, list := range s.mu.partial {
		s.mu.partial[key] = slices.DeleteFunc(list, func(g *segment) bool { return g.mu.region == r })
	}
	if err := r.Close(); err != nil {
		s.log.Error("unmap a region that is set aside", "path", c.Path, "error", err)
	}
}

// Purge deletes the memory of a store that no process has open, below its state folder and in
// ShmDir, and its disk tier, in any state, so that a store that cannot be opened can be purged. It
// makes and mounts nothing.
func Purge(o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	mem := filepath.Join(o.StateDir, "mem")
	for _, dir := range []string{o.ShmDir, mem, o.DiskDir} {
		if _, err := os.Stat(dir); dir == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := regionfile.Purge(dir); err != nil {
			return bb.Wrap("purge", dir, err)
		}
	}
	mounted, _, err := folder.TmpfsRoot(mem)
	if err == nil && mounted {
		err = unix.Unmount(mem, unix.MNT_DETACH) // clients may still have regions mapped
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if rmErr := os.Remove(o.ShmDir); err == nil && !errors.Is(rmErr, fs.ErrNotExist) {
		err = rmErr
	}
	return bb.Wrap("purge", mem, err)
}
