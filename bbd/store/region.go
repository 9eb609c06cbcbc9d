package store

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

const (
	regionPrefix = "region-"
	unfinished   = ".new" // suffix of a region whose header is not written yet
)

// region is one mapped file of segments. Guarded by Store.mu, but for what never
// changes: id, path, file, mem and tier.
type region struct {
	id   bb.RegionID
	path string
	file *os.File
	mem  []byte
	tier bb.Tier
	log  bool // holds the store's own records

	owner Owner
	older bool // it was of version 1 when it was found

	uid       uint32
	owned     bool
	units     []*segment // by unit; nil: free
	used      int        // units in use
	populated int64      // bytes from the front that cause no page fault
	steps     []bool     // which steps of populating are done
	retiring  bool       // is being deleted; nothing is allocated in it any more
	vacating  bool       // is to become empty for another user; nothing is allocated in it any more
	reserved  reservation
	outlived  bb.InstanceID // of a disk region: the memory that it belonged to, which is gone, until Settle
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

func (r *region) header(instance bb.InstanceID) regionHeader {
	h := regionHeader{id: r.id, size: int64(len(r.mem)), uid: r.uid, tier: r.tier, instance: instance, owner: r.owner}
	if r.owned {
		h.flags |= regionOwned
	}
	if r.log {
		h.flags |= regionLog
	}
	return h
}

// writeHeader writes the header and then its copy, so that one of them is whole.
func (r *region) writeHeader(instance bb.InstanceID) {
	if r.outlived != 0 {
		instance = r.outlived
	}
	h := r.header(instance)
	h.encode(r.mem[:headerSize])
	h.encode(r.mem[headerCopy : headerCopy+headerSize])
}

func (r *region) slot(unit int64) []byte {
	at := slotTable + unit*slotSize
	return r.mem[at : at+slotSize : at+slotSize]
}

// createRegion makes a region's file under a temporary name, maps it and gives it
// its name once its header is whole. A disk region gets its blocks at once: a
// store into a mapped hole of a full disk would be a signal, not an error.
func createRegion(dir string, id bb.RegionID, size int64, tier bb.Tier, log bool, instance bb.InstanceID, owner Owner) (*region, error) {
	path := filepath.Join(dir, regionPrefix+id.String())
	f, err := os.OpenFile(path+unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, bb.Wrap("create region", path, err)
	}
	r := &region{id: id, path: path, file: f, tier: tier, log: log, owner: owner}
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
		// All slots too: recovery reads them, and what it reads must not want memory then.
		if tier == bb.TierMemory {
			if err := r.populate(0, slotTable+int64(len(r.units))*slotSize); err != nil {
				return err
			}
		}
		err := guard("create region", path, func() error { r.writeHeader(instance); return nil })
		if err := cmpErr(err, r.sync(0, Unit)); err != nil {
			return err
		}
		if err := os.Rename(path+unfinished, path); err != nil || tier != bb.TierDisk {
			return err
		}
		return syncDir(dir) // else a loss of power may take the name, and all that is spilled by then
	}()
	if err != nil {
		_ = r.unmap() // the first error is the one to tell
		_ = os.Remove(path + unfinished)
		_ = os.Remove(path) // it was renamed, and nothing is in it
		return nil, bb.Wrap("create region", path, err)
	}
	return r, nil
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

// sync makes part of a disk region durable; memory needs nothing.
func (r *region) sync(off, n int64) error {
	if r.tier != bb.TierDisk {
		return nil
	}
	if err := unix.Msync(r.mem[off:off+n], unix.MS_SYNC); err != nil {
		return fmt.Errorf("msync: %w", err)
	}
	return unix.Fdatasync(int(r.file.Fd()))
}

func (r *region) unmap() error {
	var err error
	if r.mem != nil {
		err = unix.Munmap(r.mem)
		r.mem = nil
	}
	if cerr := r.file.Close(); err == nil {
		err = cerr
	}
	return err
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
	header regionHeader
	err    error // why it cannot be adopted
	mended bool  // the header came from its copy
	// fileUID is whose the file is.
	fileUID uint32
}

// usedSlots reports of each unit whether its slot is in use. It reads with a system call:
// to that a slot without a page is zeros, where a mapped read would want a page, which a
// full tmpfs does not have.
func (r *region) usedSlots() ([]bool, error) {
	table := make([]byte, len(r.units)*slotSize)
	if _, err := r.file.ReadAt(table, slotTable); err != nil {
		return nil, bb.Wrap("adopt region", r.path, err)
	}
	used := make([]bool, len(r.units))
	for i := range used {
		used[i] = binary.LittleEndian.Uint64(table[i*slotSize:]) != 0
	}
	return used, nil
}

// findRegions reads the headers of all regions in dir and changes nothing. It
// fails if a region of this process's own user has a version that is not known here:
// another release wrote it. What the header of another user's region says, that user may
// have written, so such a region is set aside.
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
		c := candidate{path: filepath.Join(dir, n.Name()), tier: tier}
		c.read()
		if bb.KindOf(c.err) == bb.Unsupported && c.fileUID == ownUID() {
			return nil, bb.Wrap("open store", c.path, c.err)
		}
		found = append(found, c)
	}
	return found, nil
}

// read reads the header of a region's file.
func (c *candidate) read() {
	f, err := os.OpenFile(c.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		c.err = err
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if c.err = unix.Fstat(int(f.Fd()), &st); c.err != nil {
		return
	}
	c.fileUID = st.Uid
	p := make([]byte, headerCopy+headerSize)
	if _, err := f.ReadAt(p, 0); err != nil {
		c.err = fmt.Errorf("read header: %w", err)
		return
	}
	if c.header, c.mended, c.err = decodeRegionHeader(p); c.err == nil {
		c.err = c.check(st.Size)
	}
}

// check refuses a header that does not fit its file. The user of a region can write the
// header, but not change the file's name, its folder, or whose it is.
func (c *candidate) check(size int64) error {
	h, shared := &c.header, os.Geteuid() == 0 // only root can make regions other users' files
	switch {
	case size != h.size:
		return fmt.Errorf("has %d bytes, its header says %d", size, h.size)
	case h.tier != c.tier:
		return fmt.Errorf("is of the %s tier and lies in the folder of the %s tier", h.tier, c.tier)
	case filepath.Base(c.path) != regionPrefix+h.id.String():
		return fmt.Errorf("is of region %s by its header", h.id)
	case h.flags&regionLog != 0 && (h.flags&regionOwned != 0 || shared && c.fileUID != ownUID()):
		return fmt.Errorf("is of the store's own records by its header, and belongs to user %d", c.fileUID)
	}
	if shared && c.fileUID != ownUID() {
		h.flags |= regionOwned
	}
	if shared && h.flags&regionOwned != 0 {
		h.uid = c.fileUID
	}
	return nil
}

// adopt maps a region that was found.
func (c *candidate) adopt() (*region, error) {
	f, err := os.OpenFile(c.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, bb.Wrap("adopt region", c.path, err)
	}
	h := c.header
	r := &region{
		id: h.id, path: c.path, file: f, tier: h.tier, log: h.flags&regionLog != 0,
		uid: h.uid, owned: h.flags&regionOwned != 0, owner: h.owner, older: h.version == oldVersion,
	}
	if err := r.mapFile(h.size); err != nil {
		_ = r.unmap()
		return nil, bb.Wrap("adopt region", c.path, err)
	}
	return r, nil
}
