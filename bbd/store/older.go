package store

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// A release without journals has given all of a tmpfs to its pages, perhaps, or other applications
// have filled it since. Units without a segment are nobody's: their memory is given back for the
// journal, and taken again later where there is some.

// adoptInRoom is adoptOlder that makes room for the journal where the file system has none.
func (s *Store) adoptInRoom(c *candidate, found []candidate) error {
	err := s.adoptOlder(c)
	for want := 2 * journalLeast(c.header.size); bb.KindOf(err) == bb.NoSpace && giveFree(found, c.tier, want) > 0; want *= 2 {
		err = s.adoptOlder(c)
	}
	return err
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
	for i := len(free) - 1; i >= 0 && before-r.blocks() < want; i-- {
		if unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, free[i]*Unit, Unit) != nil {
			break
		}
	}
	return before - r.blocks()
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
	table := make([]byte, len(r.units)*slotSize)
	if _, err := r.file.ReadAt(table, slotTable); err != nil {
		return nil, err
	}
	until := int64(1) // in use
	for unit := int64(1); unit < int64(len(r.units)); unit++ {
		slot := table[unit*slotSize : (unit+1)*slotSize]
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
	for _, p := range [][]byte{slot, r.mem[unit*Unit : unit*Unit+slotSize]} {
		if h, err := decodeSegmentHeader(p); err == nil && unit+h.units <= int64(len(r.units)) {
			return h.units
		}
	}
	return int64(len(r.units))
}
