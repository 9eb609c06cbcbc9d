package regionfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/folder"
	"forebay/internal/mapped"
)

// Populate allocates the pages of bytes [from, to) of the region, and the first memory of
// the journal of their units. It leaves their content as it is. bb.NoSpace where the file
// system of the region has no pages left.
func (r *Files) Populate(from, to int64) error {
	return cmpErr(r.populateIn(r.File, r.Mem[from:to]), r.populateTails(from, to))
}

// populateIn allocates the pages of mem, a mapping of one of the region's files.
func (r *Files) populateIn(f *os.File, mem []byte) error {
	err := populate(mem)
	if err == nil {
		return nil
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || int64(fs.Bavail)*fs.Bsize >= int64(len(mem)) {
		return err
	}
	return folder.Full("populate", r.Path, fmt.Sprintf("%d bytes were wanted", len(mem)))
}

// populate allocates the pages of mem and leaves their content as it is.
func populate(mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Linux before 5.14. Reading allocates pages of a tmpfs as well. Writing would race with the
	// clients of adopted regions.
	return mapped.Guard("populate", "", func() error {
		var sum byte
		for i := 0; i < len(mem); i += unix.Getpagesize() {
			sum |= mem[i]
		}
		_ = sum
		return nil
	})
}

// Owes returns the bytes that a region still needs from its file system. The store's own
// records are in the journal alone.
func (r *Files) Owes() int64 {
	size := int64(len(r.Mem))
	if r.Linear {
		return 0 // written whole, and holes stay holes
	}
	if r.Log {
		return owes(r.Books, size)
	}
	return owes(r.File, size) + owes(r.Books, JournalLeast(size))
}

func owes(f *os.File, size int64) int64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return max(0, size-st.Blocks*512)
}
