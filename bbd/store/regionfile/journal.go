package regionfile

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// After a restart the store relies on journals alone. They are files of its own beside the pages,
// with the same life. They are sparse. Two parts have memory before it is needed, so that a full
// tmpfs is an error when a region is made, and no signal later:
//
//	tables: when the region is made        the end of each unit: with the unit's pages
//	        │                              │            │
//	┌───────▼───────┬──────────────┬───────▼┬───────────▼┐
//	│███      ███   │              ██       │           ██
//	└───────────────┴──────────────┴────────┴────────────┘
//
// A segment whose records need more gets it in steps, before they are written, and releases
// it when it is freed.
const (
	JournalStep = 64 << 10
	// JournalShare is the part of the memory tier beside it that journals have room for in a
	// tmpfs of the store's own. No memory is set aside for that.
	JournalShare = 4
)

// JournalTail is the memory that the journal has at the end of each unit from the start.
var JournalTail = int64(max(4096, os.Getpagesize()))

// JournalOf returns the path of the journal of pages.
func JournalOf(path string) string { return path + JournalSuffix }

// JournalLeast returns the least memory of the journal of a region of so many bytes.
func JournalLeast(size int64) int64 {
	units := size / format.Unit
	table := (units*format.SlotSize + JournalTail - 1) / JournalTail * JournalTail
	return 2*table + format.SlotTable + units*JournalTail
}

// NewJournal makes the journal of a region under its temporary name, with its tables.
func (r *Files) NewJournal() error {
	f, err := os.OpenFile(JournalOf(r.Path)+Unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return r.Begin(f)
}

// Begin makes an empty file the journal, and its tables.
func (r *Files) Begin(f *os.File) error {
	r.Books = f
	size := r.Size
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := r.mapJournal(size); err != nil {
		return err
	}
	if r.Tier == bb.TierDisk { // a store into a hole of a full disk would be a signal
		if err := unix.Fallocate(int(f.Fd()), 0, 0, format.Unit); err != nil {
			return fmt.Errorf("allocate %d bytes: %w", format.Unit, err)
		}
		return nil
	}
	for _, at := range []int64{0, format.SlotCopies} {
		if err := r.PopulateJournal(at, at+format.SlotTable+int64(r.Units())*format.SlotSize); err != nil {
			return err
		}
	}
	return nil
}

func (r *Files) mapJournal(size int64) error {
	mem, err := unix.Mmap(int(r.Books.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the journal: %w", err)
	}
	r.Journal = mem
	// On a tmpfs with huge pages each touched page would take 2 MiB. A kernel without huge
	// pages refuses the advice, and needs none.
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("map the journal: madvise: %w", err)
	}
	return nil
}

// PopulateJournal allocates the memory of bytes [from, to) of the journal. bb.NoSpace
// where its file system has none left.
func (r *Files) PopulateJournal(from, to int64) error {
	from = from / JournalTail * JournalTail
	return r.populateIn(r.Books, r.Journal[from:min(to, int64(len(r.Journal)))])
}

// populateTails allocates the journal's memory at the ends of the units in [from, to).
func (r *Files) populateTails(from, to int64) error {
	if r.Tier == bb.TierDisk {
		return nil
	}
	for end := max(from/format.Unit+1, 2) * format.Unit; end <= to; end += format.Unit {
		if err := r.PopulateJournal(end-JournalTail, end); err != nil {
			return err
		}
	}
	return nil
}

// WrittenFrom returns the offset from which the journal has memory up to another one. A read below
// it would allocate some. The search goes no further down than from.
func (r *Files) WrittenFrom(from, to int64) int64 {
	if r.Books == nil {
		return from
	}
	for fd, at := int(r.Books.Fd()), from; ; {
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

// WriteRecords writes a segment's records to the journal of a disk region, in place of the
// old ones, makes them durable, reads them back from the disk and compares.
func (r *Files) WriteRecords(log []byte, floor, unit int64) error {
	fd, at := int(r.Books.Fd()), unit*format.Unit
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(len(log))); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("clear the journal: %w", err)
	}
	log, at = log[floor:], at+floor
	if _, err := r.Books.WriteAt(log, at); err != nil {
		return err
	}
	if err := unix.Fdatasync(fd); err != nil {
		return fmt.Errorf("fdatasync: %w", err)
	}
	if err := unix.Fadvise(fd, at, int64(len(log)), unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("fadvise: %w", err)
	}
	got := make([]byte, len(log))
	if _, err := r.Books.ReadAt(got, at); err != nil {
		return err
	}
	if checksum.Sum(got) != checksum.Sum(log) {
		return bb.E(bb.Checksum, "spill", JournalOf(r.Path), fmt.Sprintf("bytes %d+%d read back differ from those written", at, len(log)))
	}
	return nil
}

// BackJournal makes sure that a store into [from, to) of the journal is no signal.
func (r *Files) BackJournal(from, to int64) error {
	if r.Tier == bb.TierDisk {
		return unix.Fallocate(int(r.Books.Fd()), 0, from, to-from)
	}
	return r.PopulateJournal(from, to)
}

// pagesStep is written and read back at once.
const pagesStep = 8 << 20

// WritePages writes pages of a disk region from an offset on, in one sequential stream, makes them durable, reads
// them back from the disk and compares. It calls step after each part that it has written.
func (r *Files) WritePages(mem []byte, from int64, step func(string)) error {
	fd, at := int(r.File.Fd()), from
	for part := range slices.Chunk(mem, pagesStep) {
		if _, err := r.File.WriteAt(part, at); err != nil {
			return err
		}
		at += int64(len(part))
		step("spill writing")
	}
	if err := unix.Fdatasync(fd); err != nil {
		return fmt.Errorf("fdatasync: %w", err)
	}
	// Without this the comparison would see the page cache and not the disk.
	if err := unix.Fadvise(fd, from, int64(len(mem)), unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("fadvise: %w", err)
	}
	at = from
	buf := make([]byte, min(pagesStep, len(mem)))
	for part := range slices.Chunk(mem, pagesStep) {
		if _, err := r.File.ReadAt(buf[:len(part)], at); err != nil {
			return err
		}
		if checksum.Sum(buf[:len(part)]) != checksum.Sum(part) {
			return bb.E(bb.Checksum, "spill", r.Path, fmt.Sprintf("bytes %d+%d read back differ from those written", at, len(part)))
		}
		at += int64(len(part))
	}
	return nil
}
