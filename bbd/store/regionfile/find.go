package regionfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// Found is a region's file as found at start, not yet touched.
type Found struct {
	Path    string
	Tier    bb.Tier
	Header  format.RegionHeader
	Err     error  // why it cannot be adopted
	Mended  bool   // the header came from its copy
	Older   bool   // it has no journal; header, slots and records are in the pages
	FileUID uint32 // whose the pages are
}

// UsedSlots reports of each unit whether its slot is in use. It reads with a system call, to which
// a slot without a page is zeros. A mapped read would need a page, which a full tmpfs does not
// have.
func (r *Files) UsedSlots() ([]bool, error) {
	table := make([]byte, r.Units()*format.SlotSize)
	if _, err := r.Books.ReadAt(table, format.SlotTable); err != nil {
		return nil, bb.Wrap("adopt region", r.Path, err)
	}
	used := make([]bool, r.Units())
	for i := range used {
		used[i] = binary.LittleEndian.Uint64(table[i*format.SlotSize:]) != 0
	}
	return used, nil
}

// Find reads the headers of all regions in dir and changes nothing. If a journal has an unknown
// version, which another release wrote, it fails. Pages without a journal whose header is not one
// of an older version are set aside, since their user may have written it.
func Find(dir string, tier bb.Tier) ([]Found, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, bb.Wrap("find regions", dir, err)
	}
	var found []Found
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), Prefix) || strings.HasSuffix(n.Name(), Unfinished) {
			continue
		}
		path, isJournal := strings.CutSuffix(filepath.Join(dir, n.Name()), JournalSuffix)
		if isJournal {
			if _, err := os.Lstat(path); err == nil {
				continue // it is read with its pages
			}
		}
		c := Found{Path: path, Tier: tier}
		c.read()
		if bb.KindOf(c.Err) == bb.Unsupported {
			return nil, bb.Wrap("open store", c.Path, c.Err)
		}
		found = append(found, c)
	}
	return found, nil
}

// read reads the header of a region: the journal's or, if the pages have none, their own.
func (c *Found) read() {
	pages, size, err := openFile(c.Path, os.O_RDONLY, &c.FileUID)
	if err == nil {
		defer pages.Close()
	}
	var owner uint32
	books, journalSize, jerr := openFile(JournalOf(c.Path), os.O_RDONLY, &owner)
	if jerr == nil {
		defer books.Close()
	}
	c.Older = err == nil && errors.Is(jerr, fs.ErrNotExist)
	switch {
	case errors.Is(err, fs.ErrNotExist) && jerr == nil:
		c.Err = ErrNoPages
		return
	case err != nil:
		c.Err = err
		return
	case c.Older:
		books, journalSize = pages, size
	case jerr != nil:
		c.Err = jerr
		return
	case owner != ownUID():
		c.Err = fmt.Errorf("its journal belongs to user %d", owner)
		return
	}
	p := make([]byte, format.HeaderCopy+format.HeaderSize)
	if _, err := books.ReadAt(p, 0); err != nil {
		c.Err = fmt.Errorf("read header: %w", err)
		return
	}
	c.Header, c.Mended, c.Err = format.DecodeRegionHeader(p)
	switch {
	case c.Older && (c.Err != nil || c.Header.Version > format.PagesOnly):
		c.Err = fmt.Errorf("has no journal, and no header of a release that wrote none")
	case c.Err == nil && !c.Older && c.Header.Version != format.Version:
		c.Err = fmt.Errorf("its journal is of version %d, which has none", c.Header.Version)
	case c.Err == nil && journalSize != c.Header.Size:
		c.Err = fmt.Errorf("its journal has %d bytes, and %d by its header", journalSize, c.Header.Size)
	case c.Err == nil:
		c.Err = c.check(size)
	}
}

// ErrNoPages is why a journal alone cannot be adopted.
var ErrNoPages = errors.New("has a journal and no pages")

// openFile opens a file that is no link, without blocking.
func openFile(path string, how int, uid *uint32) (f *os.File, size int64, err error) {
	f, err = os.OpenFile(path, how|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	*uid = st.Uid
	return f, st.Size, nil
}

// check refuses a header that does not fit its pages. The user of pages of an older version
// can write the header, but not change the file's name, its folder, or whose it is.
func (c *Found) check(size int64) error {
	h, shared := &c.Header, os.Geteuid() == 0 // only root can make regions other users' files
	switch {
	case size != h.PagesSize():
		return fmt.Errorf("has %d bytes, and %d by its header", size, h.PagesSize())
	case h.Tier != c.Tier:
		return fmt.Errorf("is of the %s tier and lies in the folder of the %s tier", h.Tier, c.Tier)
	case filepath.Base(c.Path) != Prefix+h.ID.String():
		return fmt.Errorf("is of region %s by its header", h.ID)
	case h.Flags&format.RegionLog != 0 && (h.Flags&format.RegionOwned != 0 || shared && c.FileUID != ownUID()):
		return fmt.Errorf("is of the store's own records by its header, and belongs to user %d", c.FileUID)
	}
	if !c.Older && shared && h.Flags&format.RegionOwned != 0 && h.UID != c.FileUID {
		if c.FileUID != ownUID() {
			return fmt.Errorf("belongs to user %d, and to user %d by its journal", c.FileUID, h.UID)
		}
		return nil // a loss of power undid the change of owner; adopt repeats it
	}
	if shared && c.FileUID != ownUID() {
		h.Flags |= format.RegionOwned
	}
	if shared && h.Flags&format.RegionOwned != 0 {
		h.UID = c.FileUID
	}
	return nil
}

// Adopt maps a region that was found, and its journal.
func (c *Found) Adopt() (Files, error) {
	r, err := c.OpenPages()
	if err != nil {
		return Files{}, err
	}
	var uid uint32
	var size int64
	if r.Books, size, err = openFile(JournalOf(c.Path), os.O_RDWR, &uid); err == nil && size != c.Header.Size {
		err = fmt.Errorf("the journal has %d bytes", size)
	}
	if err == nil {
		err = r.mapJournal(size)
	}
	if h := &c.Header; err == nil && os.Geteuid() == 0 && h.Flags&format.RegionOwned != 0 && h.UID != c.FileUID {
		err = r.File.Chown(int(h.UID), -1)
	}
	if err != nil {
		_ = r.Close()
		return Files{}, bb.Wrap("adopt region", c.Path, err)
	}
	return r, nil
}

// OpenPages maps the pages of a region that was found.
func (c *Found) OpenPages() (Files, error) {
	f, err := os.OpenFile(c.Path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Files{}, bb.Wrap("adopt region", c.Path, err)
	}
	h := c.Header
	r := files(c.Path, f, &h)
	if err := r.mapPages(h.PagesSize()); err != nil {
		_ = r.Close()
		return Files{}, bb.Wrap("adopt region", c.Path, err)
	}
	return r, nil
}
