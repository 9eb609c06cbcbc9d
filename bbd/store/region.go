package store

import (
	"os"
	"time"

	"forebay/bbd/store/format"
	"forebay/bbd/store/populate"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// region is pages, mapped by the store and their user, and a journal, mapped by the store
// alone. Guarded by Store.mu, but for its files.
type region struct {
	regionfile.Files
	owner format.Owner
	older bool // its header named no owner when it was found

	uid       uint32
	owned     bool
	units     []*segment // by unit; nil: free
	used      int        // units in use
	populated int64      // bytes from the front that cause no page fault
	steps     []bool     // which steps of populating are done
	retiring  bool       // is being deleted, so nothing is allocated in it any more
	vacating  bool       // is to become empty for another user, so nothing is allocated in it any more
	lent      bool       // vacating for the share of a user in the line, which may end (see Await)
	reserved  reservation
	outlived  bb.InstanceID // of a disk region: the memory that it belonged to, which is gone, until Settle
}

// reservation keeps a region that was vacated for a user from users that have regions
// already, for long enough to retry.
type reservation struct {
	uid   uint32
	until time.Time
}

const reservedFor = 10 * time.Second

func (v reservation) against(uid uint32, has bool) bool {
	return has && v.uid != uid && time.Now().Before(v.until)
}

func (r *region) info() RegionInfo {
	return RegionInfo{ID: r.ID, Path: r.Path, Bytes: int64(len(r.Mem)), Tier: r.Tier, UID: r.uid, Owned: r.owned}
}

func (r *region) header(instance bb.InstanceID) format.RegionHeader {
	h := format.RegionHeader{ID: r.ID, Size: r.Size, UID: r.uid, Tier: r.Tier, Instance: instance, Owner: r.owner}
	if r.owned {
		h.Flags |= format.RegionOwned
	}
	if r.Log {
		h.Flags |= format.RegionLog
	}
	if r.Linear {
		h.Flags |= format.RegionLinear
		h.Pages = int64(len(r.Mem))
	}
	return h
}

// writeHeader writes the header and then its copy, so that one of them is whole.
func (r *region) writeHeader(instance bb.InstanceID) {
	if r.outlived != 0 {
		instance = r.outlived
	}
	h := r.header(instance)
	r.WriteHeader(&h)
}

// assign makes a user the owner of an unowned region. The caller holds Store.mu. Chown on a tmpfs
// or of an open file changes an inode in memory and does not wait.
func (r *region) assign(uid uint32, instance bb.InstanceID) error {
	if os.Geteuid() == 0 {
		if err := r.File.Chown(int(uid), -1); err != nil {
			return bb.Wrap("assign region", r.Path, err)
		}
	}
	r.uid, r.owned = uid, true
	return guard("assign region", r.Path, func() error { r.writeHeader(instance); return nil })
}

// fit returns the first of the longest free runs of at most want units within the populated part of
// the region, and its length.
func (r *region) fit(want int64) (unit, n int64) {
	limit := r.populated / Unit
	if r.Tier == bb.TierDisk || r.Log {
		limit = int64(len(r.units))
	}
	best, bestAt := int64(0), int64(0)
	for i := int64(1); i < limit; {
		if g := r.units[i]; g != nil {
			i += g.length / Unit // units[i] is the first unit of g; all before it were walked
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

// newRegion is a region whose files are mapped, of which nothing is in use.
func newRegion(files regionfile.Files) *region {
	r := &region{
		Files: files, units: make([]*segment, files.Units()), steps: make([]bool, (len(files.Mem)+populate.Step-1)/populate.Step),
	}
	if r.Linear {
		r.populated = int64(len(r.Mem))
	}
	return r
}

// candidate is a region that was found at start.
type candidate struct {
	regionfile.Found
	// without is the region with a journal that ends with the process (see adoptWithout).
	without *region
}

// findRegions is regionfile.Find.
func findRegions(dir string, tier bb.Tier) ([]candidate, error) {
	found, err := regionfile.Find(dir, tier)
	all := make([]candidate, len(found))
	for i := range found {
		all[i].Found = found[i]
	}
	return all, err
}

// adopt maps a region that was found, and its journal.
func (c *candidate) adopt() (*region, error) {
	if c.without != nil {
		return c.without, nil
	}
	return c.region(c.Adopt())
}

// openPages maps the pages of a region that was found.
func (c *candidate) openPages() (*region, error) { return c.region(c.OpenPages()) }

func (c *candidate) region(files regionfile.Files, err error) (*region, error) {
	if err != nil {
		return nil, err
	}
	r, h := newRegion(files), &c.Header
	r.uid, r.owned, r.owner, r.older = h.UID, h.Flags&format.RegionOwned != 0, h.Owner, h.Version == format.Ownerless
	return r, nil
}
