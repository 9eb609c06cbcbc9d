package regionfile

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/mapped"
)

// GiveFree releases memory of units that are in no segment, in a region without a journal, up to a number of
// bytes, and returns the bytes released.
func (r *Files) GiveFree(want int64) (freed int64) {
	var free []int64
	if mapped.Guard("adopt region", r.Path, func() (err error) { free, err = r.freeOlder(); return err }) != nil {
		return 0
	}
	before := r.blocks()
	behind := (format.SlotTable + int64(r.Units())*format.SlotSize + JournalTail - 1) / JournalTail * JournalTail
	ok := r.punch(behind, format.Unit)
	for i := len(free) - 1; i >= 0 && ok && before-r.blocks() < want; i-- {
		ok = r.punch(free[i]*format.Unit, (free[i]+1)*format.Unit)
	}
	return before - r.blocks()
}

// punch releases the memory of [from, to) of the pages.
func (r *Files) punch(from, to int64) (ok bool) {
	return unix.Fallocate(int(r.File.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from) == nil
}

// blocks returns the bytes that the pages take.
func (r *Files) blocks() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(r.File.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// freeOlder lists the units of a region without a journal that are in no segment. After a slot that cannot be
// read, none counts as free.
func (r *Files) freeOlder() (free []int64, err error) {
	table := make([]byte, r.Units()*format.SlotSize)
	if _, err := r.File.ReadAt(table, format.SlotTable); err != nil {
		return nil, err
	}
	until := int64(1) // in use
	for unit := int64(1); unit < int64(r.Units()); unit++ {
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
func (r *Files) lengthOlder(slot []byte, unit int64) int64 {
	for _, p := range [][]byte{slot, r.Mem[unit*format.Unit : unit*format.Unit+format.SlotSize]} {
		if h, err := format.DecodeSegmentHeader(p); err == nil && unit+h.Units <= int64(r.Units()) {
			return h.Units
		}
	}
	return int64(r.Units())
}
