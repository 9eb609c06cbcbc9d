package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

const (
	regionPrefix  = "region-"
	journalSuffix = ".journal"
	unfinished    = ".new" // suffix of pages, or a journal, that are not whole yet
)

// region is pages, mapped by the store and their user, and a journal, mapped by the store
// alone. Guarded by Store.mu, but for its files.
type region struct {
	regionFiles
	owner format.Owner
	older bool // its header named no owner when it was found

	uid       uint32
	owned     bool
	units     []*segment // by unit; nil: free
	used      int        // units in use
	populated int64      // bytes from the front that cause no page fault
	steps     []bool     // which steps of populating are done
	retiring  bool       // is being deleted; nothing is allocated in it any more
	vacating  bool       // is to become empty for another user; nothing is allocated in it any more
	lent      bool       // vacating for the share of a user in the line, which may end: see Await
	reserved  reservation
	outlived  bb.InstanceID // of a disk region: the memory that it belonged to, which is gone, until Settle
}

// regionFiles are what of a region never changes.
type regionFiles struct {
	id      bb.RegionID
	path    string // of the pages
	file    *os.File
	mem     []byte
	books   *os.File // the journal's file
	journal []byte
	tier    bb.Tier
	log     bool // holds the store's own records
}

// reservation keeps a region that was vacated for a user from those who have
// regions already, for long enough to ask again.
type reservation struct {
	uid   uint32
	until time.Time
}

const reservedFor = 10 * time.Second

func (v reservation) against(uid uint32, has bool) bool {
	return has && v.uid != uid && time.Now().Before(v.until)
}

func (r *region) info() RegionInfo {
	return RegionInfo{ID: r.id, Path: r.path, Bytes: int64(len(r.mem)), Tier: r.tier, UID: r.uid, Owned: r.owned}
}

func (r *region) header(instance bb.InstanceID) format.RegionHeader {
	h := format.RegionHeader{ID: r.id, Size: int64(len(r.mem)), UID: r.uid, Tier: r.tier, Instance: instance, Owner: r.owner}
	if r.owned {
		h.Flags |= format.RegionOwned
	}
	if r.log {
		h.Flags |= format.RegionLog
	}
	return h
}

// writeHeader writes the header and then its copy, so that one of them is whole.
func (r *region) writeHeader(instance bb.InstanceID) {
	if r.outlived != 0 {
		instance = r.outlived
	}
	h := r.header(instance)
	h.Encode(r.journal[:format.HeaderSize])
	h.Encode(r.journal[format.HeaderCopy : format.HeaderCopy+format.HeaderSize])
}

func (r *region) slot(unit int64) []byte { return r.slotAt(format.SlotTable + unit*format.SlotSize) }

func (r *region) slotCopy(unit int64) []byte {
	return r.slotAt(format.SlotCopies + unit*format.SlotSize)
}

func (r *region) slotAt(at int64) []byte {
	return r.journal[at : at+format.SlotSize : at+format.SlotSize]
}

// writeSlot makes a segment exist: the copy first, so that a slot that is found has one.
func (r *region) writeSlot(unit int64, h format.SegmentHeader) {
	for _, slot := range [][]byte{r.slotCopy(unit), r.slot(unit)} {
		h.Encode(slot)
		format.Publish(slot, 0, format.SegmentMagic)
	}
}

// createRegion makes a region's files under temporary names, maps them and gives them their
// names once the header is whole: the pages last, since pages without a journal would be
// set aside. Pages on disk get their blocks at once: a store into a mapped hole of a full
// disk would be a signal, not an error.
func createRegion(dir string, id bb.RegionID, size int64, tier bb.Tier, log bool, instance bb.InstanceID, owner format.Owner) (*region, error) {
	path := filepath.Join(dir, regionPrefix+id.String())
	f, err := os.OpenFile(path+unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, bb.Wrap("create region", path, err)
	}
	r := &region{regionFiles: regionFiles{id: id, path: path, file: f, tier: tier, log: log}, owner: owner}
	err = func() error {
		if tier == bb.TierDisk {
			if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
				return fmt.Errorf("allocate %d bytes: %w", size, err)
			}
		} else if err := f.Truncate(size); err != nil {
			return err
		}
		if err := r.mapFile(size); err != nil {
			return err
		}
		if err := r.newJournal(); err != nil {
			return err
		}
		err := guard("create region", path, func() error { r.writeHeader(instance); return nil })
		if err = cmpErr(err, r.sync(0, Unit)); err == nil && tier == bb.TierDisk {
			err = f.Sync() // its size, and its blocks
		}
		if err != nil {
			return err
		}
		for _, p := range []string{journalOf(path), path} {
			if err := os.Rename(p+unfinished, p); err != nil {
				return err
			}
		}
		if tier != bb.TierDisk {
			return nil
		}
		return syncDir(dir) // else a loss of power may take the names, and all that is spilled by then
	}()
	if err != nil {
		_ = r.unmap() // the first error is the one to tell
		for _, p := range []string{path, journalOf(path)} {
			_ = os.Remove(p + unfinished)
			_ = os.Remove(p) // it was renamed, and nothing is in it
		}
		return nil, bb.Wrap("create region", path, err)
	}
	return r, nil
}

// removeRegion deletes a region's files. The journal goes last: without pages it is found to
// be empty, where pages without a journal would be set aside.
func removeRegion(path string) error {
	err := os.Remove(path)
	if jerr := os.Remove(journalOf(path)); !errors.Is(jerr, fs.ErrNotExist) {
		err = errors.Join(err, jerr)
	}
	return err
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return cmpErr(d.Sync(), d.Close())
}

func (r *region) mapFile(size int64) error {
	mem, err := unix.Mmap(int(r.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	r.mem = mem
	r.units = make([]*segment, size/Unit)
	r.steps = make([]bool, (size+populateStep-1)/populateStep)
	return nil
}

// sync makes part of the journal of a disk region durable; memory needs nothing.
func (r *region) sync(off, n int64) error {
	if r.tier != bb.TierDisk {
		return nil
	}
	if err := unix.Msync(r.journal[off:off+n], unix.MS_SYNC); err != nil {
		return fmt.Errorf("msync: %w", err)
	}
	return unix.Fdatasync(int(r.books.Fd()))
}

func (r *region) unmap() (err error) {
	for _, mem := range []*[]byte{&r.mem, &r.journal} {
		if *mem != nil {
			err = cmpErr(err, unix.Munmap(*mem))
			*mem = nil
		}
	}
	if r.books != nil {
		err = cmpErr(err, r.books.Close())
	}
	return cmpErr(err, r.file.Close())
}

// assign gives an unowned region to a user. The caller holds Store.mu; chown on a
// tmpfs or of an open file changes an inode in memory and does not wait.
func (r *region) assign(uid uint32, instance bb.InstanceID) error {
	if os.Geteuid() == 0 {
		if err := r.file.Chown(int(uid), -1); err != nil {
			return bb.Wrap("assign region", r.path, err)
		}
	}
	r.uid, r.owned = uid, true
	return guard("assign region", r.path, func() error { r.writeHeader(instance); return nil })
}

// fit returns the first free run of at most want units within the populated part
// of the region, as long as there is one, and its length.
func (r *region) fit(want int64) (unit, n int64) {
	limit := r.populated / Unit
	if r.tier == bb.TierDisk || r.log {
		limit = int64(len(r.units))
	}
	best, bestAt := int64(0), int64(0)
	for i := int64(1); i < limit; {
		if g := r.units[i]; g != nil {
			i += g.length / Unit // units[i] is the first unit of g: all before it were walked
			continue
		}
		end := i
		for end < limit && r.units[end] == nil && end-i < want {
			end++
		}
		if end-i > best {
			best, bestAt = end-i, i
		}
		if best == want {
			break
		}
		i = end
	}
	return bestAt, best
}

// take marks units as a segment's.
func (r *region) take(g *segment, unit int64) {
	n := g.length / Unit
	for i := unit; i < unit+n; i++ {
		r.units[i] = g
	}
	r.used += int(n)
}

func (r *region) give(unit, n int64) {
	clear(r.units[unit : unit+n])
	r.used -= int(n)
}

// candidate is a region's file as found at start, not yet touched.
type candidate struct {
	path   string
	tier   bb.Tier
	header format.RegionHeader
	err    error // why it cannot be adopted
	mended bool  // the header came from its copy
	older  bool  // it has no journal: header, slots and records are in the pages
	// without is the region with a journal that ends with the process: see adoptWithout.
	without *region
	// fileUID is whose the pages are.
	fileUID uint32
}

// usedSlots reports of each unit whether its slot is in use. It reads with a system call:
// to that a slot without a page is zeros, where a mapped read would want a page, which a
// full tmpfs does not have.
func (r *region) usedSlots() ([]bool, error) {
	table := make([]byte, len(r.units)*format.SlotSize)
	if _, err := r.books.ReadAt(table, format.SlotTable); err != nil {
		return nil, bb.Wrap("adopt region", r.path, err)
	}
	used := make([]bool, len(r.units))
	for i := range used {
		used[i] = binary.LittleEndian.Uint64(table[i*format.SlotSize:]) != 0
	}
	return used, nil
}

// findRegions reads the headers of all regions in dir and changes nothing. It fails if a
// journal has a version that is not known here: another release wrote it. Pages without a
// journal whose header is not one of an older version are set aside: their user may have
// written it.
func findRegions(dir string, tier bb.Tier) ([]candidate, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, bb.Wrap("find regions", dir, err)
	}
	var found []candidate
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), regionPrefix) || strings.HasSuffix(n.Name(), unfinished) {
			continue
		}
		path, isJournal := strings.CutSuffix(filepath.Join(dir, n.Name()), journalSuffix)
		if isJournal {
			if _, err := os.Lstat(path); err == nil {
				continue // it is read with its pages
			}
		}
		c := candidate{path: path, tier: tier}
		c.read()
		if bb.KindOf(c.err) == bb.Unsupported {
			return nil, bb.Wrap("open store", c.path, c.err)
		}
		found = append(found, c)
	}
	return found, nil
}

// read reads the header of a region: the journal's, or of pages without one their own.
func (c *candidate) read() {
	pages, size, err := openFile(c.path, os.O_RDONLY, &c.fileUID)
	if err == nil {
		defer pages.Close()
	}
	var owner uint32
	books, journalSize, jerr := openFile(journalOf(c.path), os.O_RDONLY, &owner)
	if jerr == nil {
		defer books.Close()
	}
	c.older = err == nil && errors.Is(jerr, fs.ErrNotExist)
	switch {
	case errors.Is(err, fs.ErrNotExist) && jerr == nil:
		c.err = errNoPages
		return
	case err != nil:
		c.err = err
		return
	case c.older:
		books, journalSize = pages, size
	case jerr != nil:
		c.err = jerr
		return
	case owner != ownUID():
		c.err = fmt.Errorf("its journal belongs to user %d", owner)
		return
	}
	p := make([]byte, format.HeaderCopy+format.HeaderSize)
	if _, err := books.ReadAt(p, 0); err != nil {
		c.err = fmt.Errorf("read header: %w", err)
		return
	}
	c.header, c.mended, c.err = format.DecodeRegionHeader(p)
	switch {
	case c.older && (c.err != nil || c.header.Version > format.PagesOnly):
		c.err = fmt.Errorf("has no journal, and no header of a release that wrote none")
	case c.err == nil && !c.older && c.header.Version != format.Version:
		c.err = fmt.Errorf("its journal is of version %d, which has none", c.header.Version)
	case c.err == nil && journalSize != c.header.Size:
		c.err = fmt.Errorf("its journal has %d bytes, and says %d", journalSize, c.header.Size)
	case c.err == nil:
		c.err = c.check(size)
	}
}

// errNoPages is why a journal alone cannot be adopted.
var errNoPages = errors.New("has a journal and no pages")

// openFile opens a file that is no link and waits for nobody.
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
func (c *candidate) check(size int64) error {
	h, shared := &c.header, os.Geteuid() == 0 // only root can make regions other users' files
	switch {
	case size != h.Size:
		return fmt.Errorf("has %d bytes, its header says %d", size, h.Size)
	case h.Tier != c.tier:
		return fmt.Errorf("is of the %s tier and lies in the folder of the %s tier", h.Tier, c.tier)
	case filepath.Base(c.path) != regionPrefix+h.ID.String():
		return fmt.Errorf("is of region %s by its header", h.ID)
	case h.Flags&format.RegionLog != 0 && (h.Flags&format.RegionOwned != 0 || shared && c.fileUID != ownUID()):
		return fmt.Errorf("is of the store's own records by its header, and belongs to user %d", c.fileUID)
	}
	if !c.older && shared && h.Flags&format.RegionOwned != 0 && h.UID != c.fileUID {
		if c.fileUID != ownUID() {
			return fmt.Errorf("belongs to user %d, its journal says %d", c.fileUID, h.UID)
		}
		return nil // a loss of power took the change of owner: adopt makes it again
	}
	if shared && c.fileUID != ownUID() {
		h.Flags |= format.RegionOwned
	}
	if shared && h.Flags&format.RegionOwned != 0 {
		h.UID = c.fileUID
	}
	return nil
}

// adopt maps a region that was found, and its journal.
func (c *candidate) adopt() (*region, error) {
	if c.without != nil {
		return c.without, nil
	}
	r, err := c.openPages()
	if err != nil {
		return nil, err
	}
	var uid uint32
	var size int64
	if r.books, size, err = openFile(journalOf(c.path), os.O_RDWR, &uid); err == nil && size != c.header.Size {
		err = fmt.Errorf("the journal has %d bytes", size)
	}
	if err == nil {
		err = r.mapJournal(size)
	}
	if err == nil && os.Geteuid() == 0 && r.owned && r.uid != c.fileUID {
		err = r.file.Chown(int(r.uid), -1)
	}
	if err != nil {
		_ = r.unmap()
		return nil, bb.Wrap("adopt region", c.path, err)
	}
	return r, nil
}

// openPages maps the pages of a region that was found.
func (c *candidate) openPages() (*region, error) {
	f, err := os.OpenFile(c.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, bb.Wrap("adopt region", c.path, err)
	}
	h := c.header
	r := &region{
		regionFiles: regionFiles{id: h.ID, path: c.path, file: f, tier: h.Tier, log: h.Flags&format.RegionLog != 0},
		uid:         h.UID, owned: h.Flags&format.RegionOwned != 0, owner: h.Owner, older: h.Version == format.Ownerless,
	}
	if err := r.mapFile(h.Size); err != nil {
		_ = r.unmap()
		return nil, bb.Wrap("adopt region", c.path, err)
	}
	return r, nil
}
