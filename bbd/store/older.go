package store

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// A release without journals has given all of a tmpfs to its pages, perhaps, or other applications
// have filled it since. Units without a segment, and the first one behind its table, are nobody's: their
// memory is given back for the journal, and taken again later where there is some. Without any,
// the journal lies in memory of the process's own: the next start finds the pages as they are.

// adoptInRoom is adoptOlder that makes room for the journal where the file system has none.
func (s *Store) adoptInRoom(c *candidate, found []candidate) error {
	err := s.adoptOlder(c)
	for want := 2 * journalLeast(c.header.Size); bb.KindOf(err) == bb.NoSpace && giveFree(found, c.tier, want) > 0; want *= 2 {
		err = s.adoptOlder(c)
	}
	if bb.KindOf(err) != bb.NoSpace {
		return err
	}
	s.log.Error("a region of an older release has no room for its journal: its files are served, and nothing is added to it until the next start with room", "path", c.path, "error", err)
	return s.adoptWithout(c)
}

// adoptWithout maps a region with a journal that ends with the process. Nothing may be added to the region,
// which would be lost with it. What is struck out there counts again at the next start, as
// after a kill right before it: the namespace says which generations there are.
func (s *Store) adoptWithout(c *candidate) error {
	r, err := c.openPages()
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("journal", unix.MFD_CLOEXEC)
	if err == nil {
		err = r.begin(os.NewFile(uintptr(fd), journalOf(c.path)))
	}
	if err == nil {
		err = s.copyOlder(c, r)
	}
	if err != nil {
		_ = r.unmap()
		return err
	}
	r.vacating, r.reserved.uid, c.without = true, r.uid, r
	return nil
}

// giveFree gives back memory of free units in regions without journals, until it is so many bytes, and returns
// how many it has been.
func giveFree(found []candidate, tier bb.Tier, want int64) (freed int64) {
	for i := range found {
		c := &found[i]
		if c.err != nil || !c.older || c.tier != tier || freed >= want {
			continue
		}
		if r, err := c.openPages(); err == nil { // else it is set aside when it is adopted
			freed += r.giveFree(want - freed)
			_ = r.unmap()
		}
	}
	return freed
}

func (r *region) giveFree(want int64) (freed int64) {
	var free []int64
	if guard("adopt region", r.path, func() (err error) { free, err = r.freeOlder(); return err }) != nil {
		return 0
	}
	before := r.blocks()
	behind := (format.SlotTable + int64(len(r.units))*format.SlotSize + journalTail - 1) / journalTail * journalTail
	ok := r.punch(behind, Unit)
	for i := len(free) - 1; i >= 0 && ok && before-r.blocks() < want; i-- {
		ok = r.punch(free[i]*Unit, (free[i]+1)*Unit)
	}
	return before - r.blocks()
}

// punch gives back the memory of [from, to) of the pages.
func (r *region) punch(from, to int64) (ok bool) {
	return unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from) == nil
}

// blocks returns the bytes that the pages take.
func (r *region) blocks() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(r.file.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// freeOlder lists the units of a region without a journal that are in no segment. After a slot that cannot be
// read, none counts as free.
func (r *region) freeOlder() (free []int64, err error) {
	table := make([]byte, len(r.units)*format.SlotSize)
	if _, err := r.file.ReadAt(table, format.SlotTable); err != nil {
		return nil, err
	}
	until := int64(1) // in use
	for unit := int64(1); unit < int64(len(r.units)); unit++ {
		slot := table[unit*format.SlotSize : (unit+1)*format.SlotSize]
		switch {
		case binary.LittleEndian.Uint64(slot) != 0:
			until = max(until, unit+r.lengthOlder(slot, unit))
		case unit >= until:
			free = append(free, unit)
		}
	}
	return free, nil
}

// lengthOlder returns the units of the segment with a slot.
func (r *region) lengthOlder(slot []byte, unit int64) int64 {
	for _, p := range [][]byte{slot, r.mem[unit*Unit : unit*Unit+format.SlotSize]} {
		if h, err := format.DecodeSegmentHeader(p); err == nil && unit+h.Units <= int64(len(r.units)) {
			return h.Units
		}
	}
	return int64(len(r.units))
}
