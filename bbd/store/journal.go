package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// After a restart the store believes journals alone: files of its own beside the pages, with
// the same life. They are sparse. Two parts have memory before anybody needs it,
// so that a full tmpfs is an error when a region is made, and no signal later:
//
//	tables: when the region is made        the end of each unit: with the unit's pages
//	        │                              │            │
//	┌───────▼───────┬──────────────┬───────▼┬───────────▼┐
//	│███      ███   │              ██       │           ██
//	└───────────────┴──────────────┴────────┴────────────┘
//
// A segment whose records need more gets it in steps, before they are written, and gives it
// back when it is freed.
const (
	journalStep = 64 << 10
	// journalShare is the part of the memory tier beside it that journals have room for in a
	// tmpfs of the store's own. No memory is set aside for that.
	journalShare = 4
)

// journalTail is what the journal has at the end of each unit from the start.
var journalTail = int64(max(4096, os.Getpagesize()))

func journalOf(path string) string { return path + journalSuffix }

// journalLeast returns what the journal of a region of so many bytes takes at least.
func journalLeast(size int64) int64 {
	units := size / Unit
	table := (units*format.SlotSize + journalTail - 1) / journalTail * journalTail
	return 2*table + format.SlotTable + units*journalTail
}

// newJournal makes the journal of a region under its temporary name, with its tables.
func (r *region) newJournal() error {
	f, err := os.OpenFile(journalOf(r.path)+unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return r.begin(f)
}

// begin makes an empty file the journal, and its tables.
func (r *region) begin(f *os.File) error {
	r.books = f
	size := int64(len(r.mem))
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := r.mapJournal(size); err != nil {
		return err
	}
	if r.tier == bb.TierDisk { // a store into a hole of a full disk would be a signal
		if err := unix.Fallocate(int(f.Fd()), 0, 0, Unit); err != nil {
			return fmt.Errorf("allocate %d bytes: %w", Unit, err)
		}
		return nil
	}
	for _, at := range []int64{0, format.SlotCopies} {
		if err := r.populateJournal(at, at+format.SlotTable+int64(len(r.units))*format.SlotSize); err != nil {
			return err
		}
	}
	return nil
}

func (r *region) mapJournal(size int64) error {
	mem, err := unix.Mmap(int(r.books.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the journal: %w", err)
	}
	r.journal = mem
	// On a tmpfs with huge pages each touched page would take 2 MiB. A kernel without huge
	// pages refuses the advice, and needs none.
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("map the journal: madvise: %w", err)
	}
	return nil
}

// populateJournal gives bytes [from, to) of the journal memory. bb.NoSpace where its file
// system has none left.
func (r *region) populateJournal(from, to int64) error {
	from = from / journalTail * journalTail
	return r.populateIn(r.books, r.journal[from:min(to, int64(len(r.journal)))])
}

// populateTails gives the journal its memory at the ends of the units in [from, to).
func (r *region) populateTails(from, to int64) error {
	if r.tier == bb.TierDisk {
		return nil
	}
	for end := max(from/Unit+1, 2) * Unit; end <= to; end += Unit {
		if err := r.populateJournal(end-journalTail, end); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes sure that the journal has memory for records down to floor, and some more:
// one system call for hundreds of records. The caller holds mu.
func (g *segment) reserve(floor int64) error {
	if floor >= g.mu.ready {
		return nil
	}
	from := max(0, floor-journalStep) / journalTail * journalTail
	at, r := g.mu.offset, g.mu.region
	if err := r.populateJournal(at+from, at+g.mu.ready); err != nil {
		return bb.Wrap("commit", journalOf(r.path), err)
	}
	g.mu.ready = from
	return nil
}

// giveBack punches what reserve has taken out of the journal that a segment had, once its
// slot there is cleared: until then recovery would find the segment and miss records. The
// caller holds mu of the store and of the segment.
func (s *Store) giveBack(g *segment, r *region, offset int64) {
	if r.tier == bb.TierDisk || r.log {
		return
	}
	for end := g.length; end > g.mu.ready; end -= Unit {
		from := max(end-Unit, g.mu.ready)
		n := end - journalTail - from
		if n <= 0 {
			continue
		}
		if err := unix.Fallocate(int(r.books.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset+from, n); err != nil {
			s.log.Warn("give back memory of a journal", "path", r.path, "error", err)
			return
		}
	}
	g.mu.ready = g.length - journalTail
}

// writtenFrom returns from where on the journal has memory up to an offset: a read below
// that would take some. It looks no further down than from.
func (r *region) writtenFrom(from, to int64) int64 {
	if r.books == nil {
		return from
	}
	for fd, at := int(r.books.Fd()), from; ; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err != nil || data >= to {
			return to
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil || hole >= to {
			return data
		}
		at = hole
	}
}

// writeRecords writes a segment's records to the journal of a disk region, in place of what
// was there, makes them durable, and compares what the disk has with what was written.
func (r *region) writeRecords(log []byte, floor, unit int64) error {
	fd, at := int(r.books.Fd()), unit*Unit
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(len(log))); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("clear the journal: %w", err)
	}
	log, at = log[floor:], at+floor
	if _, err := r.books.WriteAt(log, at); err != nil {
		return err
	}
	if err := unix.Fdatasync(fd); err != nil {
		return fmt.Errorf("fdatasync: %w", err)
	}
	if err := unix.Fadvise(fd, at, int64(len(log)), unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("fadvise: %w", err)
	}
	got := make([]byte, len(log))
	if _, err := r.books.ReadAt(got, at); err != nil {
		return err
	}
	if checksum.Sum(got) != checksum.Sum(log) {
		return bb.E(bb.Checksum, "spill", journalOf(r.path), fmt.Sprintf("bytes %d+%d read back differ from what was written", at, len(log)))
	}
	return nil
}

// adoptOlder gives a region of a version without journals one: its header, slots and
// records are copied from the pages, once. The journal gets its name when it is whole, and
// counts from then on; killed before that, the next start begins again. Until then the pages
// stay as they are. Records that their user may have written there are believed as far as the
// release that wrote them believed them, this once.
func (s *Store) adoptOlder(c *candidate) error {
	r, err := c.openPages()
	if err != nil {
		return err
	}
	defer func() { _ = r.unmap() }() // it is adopted again, with the journal
	temp := journalOf(c.path) + unfinished
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := r.newJournal(); err != nil {
		_ = os.Remove(temp)
		return err
	}
	err = s.copyOlder(c, r)
	if err == nil && r.tier == bb.TierDisk {
		err = cmpErr(unix.Msync(r.journal, unix.MS_SYNC), unix.Fdatasync(int(r.books.Fd())))
	}
	s.crash("journal copied")
	if err == nil {
		err = os.Rename(temp, journalOf(c.path))
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	s.crash("journal named")
	if r.tier == bb.TierDisk {
		if err := syncDir(filepath.Dir(c.path)); err != nil {
			return err
		}
	}
	c.older = false
	// The old header names a version that has no journal, and there is one.
	return guard("adopt region", c.path, func() error {
		clear(r.mem[:format.HeaderSize])
		clear(r.mem[format.HeaderCopy : format.HeaderCopy+format.HeaderSize])
		return nil
	})
}

func (s *Store) copyOlder(c *candidate, r *region) error {
	h := c.header
	if s.owner.Namespace != 0 {
		h.Owner = s.owner
	}
	return guard("adopt region", c.path, func() error { return r.copyOlder(h, s.crash) })
}

// copyOlder fills a new journal from pages of an older version.
func (r *region) copyOlder(h format.RegionHeader, crash func(string)) error {
	h.Encode(r.journal[:format.HeaderSize])
	h.Encode(r.journal[format.HeaderCopy : format.HeaderCopy+format.HeaderSize])
	table := make([]byte, len(r.units)*format.SlotSize)
	if _, err := r.file.ReadAt(table, format.SlotTable); err != nil { // a mapped read may want a page
		return err
	}
	for unit := int64(1); unit < int64(len(r.units)); unit++ {
		slot := table[unit*format.SlotSize : (unit+1)*format.SlotSize]
		if binary.LittleEndian.Uint64(slot) == 0 {
			continue
		}
		own := r.mem[unit*Unit : unit*Unit+format.SlotSize]
		copy(r.slotCopy(unit), own)
		copy(r.slot(unit), slot)
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

// copyOlder copies the records of a segment, and of a damaged run what recovery reports of it.
func (g *segment) copyOlder() error {
	from, log := g.mem(), g.records()
	take := func(low, top int64) error {
		if err := g.mu.region.backJournal(g.mu.offset+low, g.mu.offset+top); err != nil {
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

// backJournal makes sure that a store into [from, to) of the journal is no signal.
func (r *region) backJournal(from, to int64) error {
	if r.tier == bb.TierDisk {
		return unix.Fallocate(int(r.books.Fd()), 0, from, to-from)
	}
	return r.populateJournal(from, to)
}
