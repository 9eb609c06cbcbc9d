package store

import (
	"os"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// A release without journals may have allotted all of a tmpfs to its pages, or other applications may
// have filled it since. Units without a segment, and the first one behind its table, are free. Their
// memory is released for the journal, and allocated again later where there is some. Without any, the
// journal lies in memory of the process's own. The next start finds the pages as they are.

// adoptInRoom is adoptOlder that makes room for the journal where the file system has none.
func (s *Store) adoptInRoom(c *candidate, found []candidate) error {
	err := s.adoptOlder(c)
	for want := 2 * regionfile.JournalLeast(c.Header.Size); bb.KindOf(err) == bb.NoSpace && giveFree(found, c.Tier, want) > 0; want *= 2 {
		err = s.adoptOlder(c)
	}
	if bb.KindOf(err) != bb.NoSpace {
		return err
	}
	s.log.Error("a region of an older release has no room for its journal: its files are served, and nothing is added to it until the next start with room", "path", c.Path, "error", err)
	return s.adoptWithout(c)
}

// adoptWithout maps a region with a journal that ends with the process. Nothing may be added to the region,
// which would be lost with it. Records struck out there count again at the next start, as after a kill
// right before it. The namespace has the list of generations.
func (s *Store) adoptWithout(c *candidate) error {
	r, err := c.openPages()
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("journal", unix.MFD_CLOEXEC)
	if err == nil {
		err = r.Begin(os.NewFile(uintptr(fd), regionfile.JournalOf(c.Path)))
	}
	if err == nil {
		err = s.copyOlder(c, r)
	}
	if err != nil {
		_ = r.Close()
		return err
	}
	r.vacating, r.reserved.uid, c.without = true, r.uid, r
	return nil
}

// giveFree releases memory of free units in regions without journals, up to a number of bytes, and returns the
// bytes released.
func giveFree(found []candidate, tier bb.Tier, want int64) (freed int64) {
	for i := range found {
		c := &found[i]
		if c.Err != nil || !c.Older || c.Tier != tier || freed >= want {
			continue
		}
		if r, err := c.openPages(); err == nil { // else it is set aside when it is adopted
			freed += r.GiveFree(want - freed)
			_ = r.Close()
		}
	}
	return freed
}
