// Package regionfile is the two files of a region, mapped: pages, which its user may map, and a journal, which
// is the store's alone. It must never depend on the content of the pages, nor on their use.
package regionfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/mapped"
)

// The names of files.
const (
	Prefix        = "region-"
	JournalSuffix = ".journal"
	Unfinished    = ".new" // suffix of pages, or a journal, that are not whole yet
)

// Files are the two files of a region, mapped: its pages, and its journal. They never change.
type Files struct {
	ID      bb.RegionID
	Path    string // of the pages
	File    *os.File
	Mem     []byte
	Books   *os.File // the journal's file
	Journal []byte
	Tier    bb.Tier
	Size    int64 // of the journal; of the pages too, unless the region is linear
	Log     bool  // holds the store's own records
	Linear  bool  // the pages are one file's bytes
}

// Units returns how many units the region has, with the first one, where its header is.
func (r *Files) Units() int64 { return r.Size / format.Unit }

// WriteHeader writes the header and then its copy, so that one of them is whole.
func (r *Files) WriteHeader(h *format.RegionHeader) {
	h.Encode(r.Journal[:format.HeaderSize])
	h.Encode(r.Journal[format.HeaderCopy : format.HeaderCopy+format.HeaderSize])
}

// Slot returns the slot of a unit.
func (r *Files) Slot(unit int64) []byte { return r.slotAt(format.SlotTable + unit*format.SlotSize) }

// SlotCopy returns the copy of the slot of a unit.
func (r *Files) SlotCopy(unit int64) []byte {
	return r.slotAt(format.SlotCopies + unit*format.SlotSize)
}

func (r *Files) slotAt(at int64) []byte {
	return r.Journal[at : at+format.SlotSize : at+format.SlotSize]
}

// WriteSlot makes a segment exist. It writes the copy first, so that every slot in use has one.
func (r *Files) WriteSlot(unit int64, h format.SegmentHeader) {
	for _, slot := range [][]byte{r.SlotCopy(unit), r.Slot(unit)} {
		h.Encode(slot)
		format.Publish(slot, 0, format.SegmentMagic)
	}
}

// Create makes a region's files under temporary names, maps them and renames them to their names
// once the header is whole. The pages come last, since pages without a journal would be set aside.
// Pages on disk get their blocks at once. A store into a mapped hole of a full disk would be a
// signal, not an error.
func Create(dir string, h format.RegionHeader) (r Files, err error) {
	path, tier, size := filepath.Join(dir, Prefix+h.ID.String()), h.Tier, h.PagesSize()
	f, err := os.OpenFile(path+Unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return Files{}, bb.Wrap("create region", path, err)
	}
	r = files(path, f, &h)
	err = func() error {
		if tier == bb.TierDisk {
			if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
				return fmt.Errorf("allocate %d bytes: %w", size, err)
			}
		} else if err := f.Truncate(size); err != nil {
			return err
		}
		if err := r.mapPages(size); err != nil {
			return err
		}
		if err := r.NewJournal(); err != nil {
			return err
		}
		err := mapped.Guard("create region", path, func() error { r.WriteHeader(&h); return nil })
		if err = cmpErr(err, r.Sync(0, format.Unit)); err == nil && tier == bb.TierDisk {
			err = f.Sync() // its size, and its blocks
		}
		if err != nil {
			return err
		}
		for _, p := range []string{JournalOf(path), path} {
			if err := os.Rename(p+Unfinished, p); err != nil {
				return err
			}
		}
		if tier != bb.TierDisk {
			return nil
		}
		return SyncDir(dir) // else a loss of power may take the names, and all that is spilled by then
	}()
	if err != nil {
		_ = r.Close() // the first error is the one to return
		for _, p := range []string{path, JournalOf(path)} {
			_ = os.Remove(p + Unfinished)
			_ = os.Remove(p) // it was renamed, and nothing is in it
		}
		return Files{}, bb.Wrap("create region", path, err)
	}
	return r, nil
}

func files(path string, f *os.File, h *format.RegionHeader) Files {
	return Files{
		ID: h.ID, Path: path, File: f, Tier: h.Tier, Size: h.Size,
		Log: h.Flags&format.RegionLog != 0, Linear: h.Flags&format.RegionLinear != 0,
	}
}

// Remove deletes a region's files. The journal goes last. Without pages it is found to be empty,
// where pages without a journal would be set aside.
func Remove(path string) error {
	err := os.Remove(path)
	if jerr := os.Remove(JournalOf(path)); !errors.Is(jerr, fs.ErrNotExist) {
		err = errors.Join(err, jerr)
	}
	return err
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmpErr(d.Sync(), d.Close())
}

func (r *Files) mapPages(size int64) error {
	mem, err := unix.Mmap(int(r.File.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	r.Mem = mem
	return nil
}

// Sync makes part of the journal of a disk region durable. Memory needs nothing.
func (r *Files) Sync(off, n int64) error {
	if r.Tier != bb.TierDisk {
		return nil
	}
	if err := unix.Msync(r.Journal[off:off+n], unix.MS_SYNC); err != nil {
		return fmt.Errorf("msync: %w", err)
	}
	return unix.Fdatasync(int(r.Books.Fd()))
}

// Close unmaps both files and closes them.
func (r *Files) Close() (err error) {
	for _, mem := range []*[]byte{&r.Mem, &r.Journal} {
		if *mem != nil {
			err = cmpErr(err, unix.Munmap(*mem))
			*mem = nil
		}
	}
	if r.Books != nil {
		err = cmpErr(err, r.Books.Close())
	}
	return cmpErr(err, r.File.Close())
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func ownUID() uint32 { return uint32(os.Geteuid()) }
