package store

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// reserve makes sure that the journal has memory for records down to floor, and some more, with one
// system call for hundreds of records. The caller holds mu.
func (g *segment) reserve(floor int64) error {
	if floor >= g.mu.ready {
		return nil
	}
	from := max(0, floor-regionfile.JournalStep) / regionfile.JournalTail * regionfile.JournalTail
	at, r := g.mu.offset, g.mu.region
	if err := r.PopulateJournal(at+from, at+g.mu.ready); err != nil {
		return bb.Wrap("commit", regionfile.JournalOf(r.Path), err)
	}
	g.mu.ready = from
	return nil
}

// giveBack punches reserve's space out of a segment's journal, once its slot there is cleared.
// Until then recovery would find the segment and miss records. The caller holds mu of the store and
// of the segment.
func (s *Store) giveBack(g *segment, r *region, offset int64) {
	if r.Tier == bb.TierDisk || r.Log || r.Linear {
		return
	}
	for end := g.length; end > g.mu.ready; end -= Unit {
		from := max(end-Unit, g.mu.ready)
		n := end - regionfile.JournalTail - from
		if n <= 0 {
			continue
		}
		if err := unix.Fallocate(int(r.Books.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset+from, n); err != nil {
			s.log.Warn("give back memory of a journal", "path", r.Path, "error", err)
			return
		}
	}
	g.mu.ready = g.length - regionfile.JournalTail
}

// adoptOlder makes the journal of a region of a version without journals. Its header, slots and
// records are copied from the pages, once. The journal gets its name when it is whole, and counts
// from then on. If the daemon is killed before that, the next start begins again. Until then the
// pages stay as they are. Records that their user may have written there are accepted this once, as
// far as the release that wrote them accepted them.
func (s *Store) adoptOlder(c *candidate) error {
	r, err := c.openPages()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it is adopted again, with the journal
	temp := regionfile.JournalOf(c.Path) + regionfile.Unfinished
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := r.NewJournal(); err != nil {
		_ = os.Remove(temp)
		return err
	}
	err = s.copyOlder(c, r)
	if err == nil && r.Tier == bb.TierDisk {
		err = cmpErr(unix.Msync(r.Journal, unix.MS_SYNC), unix.Fdatasync(int(r.Books.Fd())))
	}
	s.crash("journal copied")
	if err == nil {
		err = os.Rename(temp, regionfile.JournalOf(c.Path))
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	s.crash("journal named")
	if r.Tier == bb.TierDisk {
		if err := regionfile.SyncDir(filepath.Dir(c.Path)); err != nil {
			return err
		}
	}
	c.Older = false
	// The old header names a version that has no journal, and there is one.
	return guard("adopt region", c.Path, func() error {
		clear(r.Mem[:format.HeaderSize])
		clear(r.Mem[format.HeaderCopy : format.HeaderCopy+format.HeaderSize])
		return nil
	})
}

func (s *Store) copyOlder(c *candidate, r *region) error {
	h := c.Header
	if s.owner.Namespace != 0 {
		h.Owner = s.owner
	}
	return guard("adopt region", c.Path, func() error { return r.copyOlder(h, s.crash) })
}

// copyOlder fills a new journal from pages of an older version.
func (r *region) copyOlder(h format.RegionHeader, crash func(string)) error {
	h.Encode(r.Journal[:format.HeaderSize])
	h.Encode(r.Journal[format.HeaderCopy : format.HeaderCopy+format.HeaderSize])
	table := make([]byte, len(r.units)*format.SlotSize)
	if _, err := r.File.ReadAt(table, format.SlotTable); err != nil { // a mapped read may need a page
		return err
	}
	for unit := int64(1); unit < int64(len(r.units)); unit++ {
		slot := table[unit*format.SlotSize : (unit+1)*format.SlotSize]
		if binary.LittleEndian.Uint64(slot) == 0 {
			continue
		}
		own := r.Mem[unit*Unit : unit*Unit+format.SlotSize]
		copy(r.SlotCopy(unit), own)
		copy(r.Slot(unit), slot)
		g := &segment{}
		found := false
		for _, p := range [][]byte{slot, own} {
			if sh, err := format.DecodeSegmentHeader(p); err == nil && unit+sh.Units <= int64(len(r.units)) {
				g.length, g.nonce, found = sh.Units*Unit, sh.Nonce, true
				break
			}
		}
		if !found {
			continue // recovery reports it
		}
		g.mu.region, g.mu.offset = r, unit*Unit
		if err := g.copyOlder(); err != nil {
			return err
		}
		crash("segment copied")
		unit += g.length/Unit - 1
	}
	return nil
}

// copyOlder copies the records of a segment, and recovery's report of a damaged run.
func (g *segment) copyOlder() error {
	from, log := g.mem(), g.records()
	take := func(low, top int64) error {
		if err := g.mu.region.BackJournal(g.mu.offset+low, g.mu.offset+top); err != nil {
			return err
		}
		copy(log[low:top], from[low:top])
		return nil
	}
	err := take(g.length-format.RecordEnd, g.length)
	g.scanIn(from, func(r *format.Record, top int64) {
		low := top - format.RecordCost(r.Length()) - format.RecordEnd
		err = cmpErr(err, take(max(low, 0), top))
	}, func(low, top int64, _ *format.Record) {
		err = cmpErr(err, take(max(low, top-format.RecordHead, 0), top))
	})
	return err
}
