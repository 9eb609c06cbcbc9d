package store

import (
	"slices"

	"forebay/bbd/share"
	"forebay/internal/bb"
)

// Users share memory by whole regions. Package share decides. A region counts for its user while
// bytes lie in it. An empty one is free, with any former user. That user claims it again by the
// same rule as any other, and for another user it is replaced.
//
//	           Lease, within share.MayTake            the last byte goes
//	free ────────────────────────────────▶ a's ─────────────────────────────▶ free
//	                                        │ ▲                                ▲
//	         MakeRoom for b, share.Vacate   │ │ b has left the line,           │
//	                                        ▼ │ or another one is cheaper      │
//	                                   vacating: evicted at once, then         │
//	                                   flushed, or spilled first ──────────────┘
//
// Nothing of this is kept. After a restart holdings are counted from the regions that were adopted.

// Await names the users in the line for memory. The emptying of a region for a user outside the line ends.
func (s *Store) Await(users []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.awaiting = append(s.mu.awaiting[:0], users...)
	for _, r := range s.mu.regions {
		if r.lent && !r.retiring && r.used > 0 && !slices.Contains(users, r.reserved.uid) {
			r.vacating, r.lent = false, false
		}
	}
}

// Shared reports whether memory is divided among users.
func (s *Store) Shared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shared()
}

// shared is Shared. The caller holds mu.
func (s *Store) shared() bool {
	t := share.Regions{Total: s.mu.replacing}
	if !s.o.Shares {
		return false
	}
	for _, r := range s.mu.regions {
		if r.shareable() {
			t.Total++
		}
	}
	return t.Divided()
}

// shareable reports whether a region is one of those that are divided.
func (r *region) shareable() bool { return r.Tier == bb.TierMemory && !r.Log && !r.retiring }

// tenancy counts the regions by user. The caller holds mu.
func (s *Store) tenancy() share.Regions {
	t := share.Regions{Total: s.mu.replacing, Free: s.mu.replacing}
	at := make(map[uint32]int)
	of := func(uid uint32) *share.Holding {
		i, ok := at[uid]
		if !ok {
			i = len(t.Users)
			at[uid] = i
			t.Users = append(t.Users, share.Holding{User: uid})
		}
		return &t.Users[i]
	}
	for _, r := range s.mu.regions {
		switch {
		case !r.shareable():
			continue
		case r.used == 0:
			t.Free++
		default:
			of(r.uid).Regions++
		}
		t.Total++
	}
	for _, uid := range s.mu.awaiting {
		of(uid).Waits = true
	}
	return t
}

// admitsRegion reports whether a user may take a region in which nothing lies. The caller holds mu.
func (s *Store) admitsRegion(uid uint32, fixed bool) bool {
	t := s.tenancy()
	return t.MayTake(share.Demand{User: uid, Fixed: fixed})
}

// kept returns the free bytes that stay free for newcomers and root. The caller holds mu.
func (s *Store) kept() int64 {
	if !s.shared() {
		return 0
	}
	t := s.tenancy()
	return int64(min(t.Free, t.Reserve())) * s.o.RegionBytes
}

// RoomRequest is a request for room for a user in the line whom Lease has refused.
type RoomRequest struct {
	UID     uint32
	Bytes   int64
	Fixed   bool            // as in LeaseRequest
	Flushes map[string]bool // the buffers whose dirty bytes become clean by themselves
}

// Room is the result of MakeRoom.
type Room struct {
	Freed  int64 // evicted
	Moves  int64 // bytes to flush or spill before the region that is vacated for the user is empty
	Others bool  // the user waits for memory that others have; else for bytes of the user's own
}

// MakeRoom makes room for one user. Where another region is the user's due, the cheapest one is vacated.
// No more segments are made in it, and its clean ones are evicted. Room that takes longer, and any for a
// user beyond the share, comes from clean segments of the user's own.
func (s *Store) MakeRoom(q RoomRequest) (m Room) {
	s.tidyNotes()
	s.mu.Lock()
	t := s.tenancy()
	pieces, regions := s.pieces(&q)
	current := slices.IndexFunc(regions, func(r *region) bool { return r.lent })
	choice := t.Vacate(share.Demand{User: q.UID, Fixed: q.Fixed}, pieces)
	if current >= 0 && (choice < 0 || !pieces[current].Fixed && pieces[choice].Move >= pieces[current].Move/2) {
		choice = current
	}
	m.Others = t.Below(q.UID)
	var r *region
	if choice >= 0 {
		r, m.Moves = regions[choice], pieces[choice].Move
		s.lend(r, current, regions, q.UID)
		m.Others = m.Others || r.reserved.uid == q.UID
	}
	s.mu.Unlock()
	if r != nil {
		m.Freed = s.evictWhere(bb.TierMemory, q.Bytes+int64(len(r.Mem)), func(g *segment) bool { return g.liesIn(r) })
	}
	if m.Freed == 0 || m.Moves > 0 {
		m.Freed += s.evictWhere(bb.TierMemory, q.Bytes, func(g *segment) bool { return g.uid == q.UID })
	}
	return m
}

// lend begins to vacate a region for a user, in place of the one that was being vacated. The caller holds mu.
func (s *Store) lend(r *region, current int, regions []*region, uid uint32) {
	if r.lent {
		return
	}
	if current >= 0 {
		regions[current].vacating, regions[current].lent = false, false
	}
	r.vacating, r.lent, r.reserved = true, true, reservation{uid: uid}
	s.log.Info("emptying a region for a user below the share", "region", r.ID, "of", r.uid, "user", uid)
}

// pieces describes the regions with bytes. The caller holds mu.
func (s *Store) pieces(q *RoomRequest) (pieces []share.Piece, regions []*region) {
	disk := s.diskFree()
	for _, r := range s.mu.regions {
		if !r.shareable() || r.used == 0 || r.vacating && !r.lent {
			continue
		}
		p := share.Piece{User: r.uid}
		for i := int64(1); i < int64(len(r.units)); i++ {
			if g := r.units[i]; g != nil {
				g.weigh(&p, q, disk)
				i += g.length/Unit - 1
			}
		}
		p.Fixed = p.Fixed || p.Move > disk && !s.flushed(r, q)
		pieces, regions = append(pieces, p), append(regions, r)
	}
	return pieces, regions
}

// weigh adds a segment to the description of its region.
func (g *segment) weigh(p *share.Piece, q *RoomRequest, disk int64) {
	p.Use = max(p.Use, g.lastUse.Load())
	g.mu.Lock()
	leased := g.mu.state == segLeased
	held := g.mu.pins > 0 || g.mu.occupied || leased
	g.mu.Unlock()
	if held {
		p.Held += g.length
	}
	if leased || g.held.Load() > 0 { // bytes that are being written will have to be moved
		p.Move += g.length
		p.Fixed = p.Fixed || disk < g.length && !q.Flushes[g.buffer.Value()]
	}
}

// flushed reports whether all dirty bytes of a region become clean without the disk tier. The caller holds mu.
func (s *Store) flushed(r *region, q *RoomRequest) bool {
	for _, g := range r.units {
		if g != nil && g.held.Load() > 0 && !q.Flushes[g.buffer.Value()] {
			return false
		}
	}
	return true
}

// diskFree is the room on the disk tier. The caller holds mu.
func (s *Store) diskFree() int64 {
	if s.o.DiskDir == "" {
		return 0
	}
	free := s.o.DiskBytes - s.foreignBytes(bb.TierDisk)
	for _, r := range s.mu.regions {
		if r.Tier == bb.TierDisk {
			free -= int64(r.used) * Unit
		}
	}
	return max(0, free)
}

func (g *segment) liesIn(r *region) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.region == r
}

// fresh reports whether an empty region can be given to a user now, as far as the region goes.
func (r *region) fresh(uid uint32, has bool) bool {
	return r.used == 0 && r.populated >= 2*Unit && (!r.owned || r.uid == uid) && !r.reserved.against(uid, has)
}

// findShared is findRoom where users have shares. The caller holds mu.
func (s *Store) findShared(uid uint32, want int64, fixed bool) (best *region, unit, n int64, err error) {
	var fresh *region
	has := false
	for _, r := range s.mu.regions {
		if r.shareable() && r.used > 0 && r.uid == uid {
			has = true
		}
	}
	for _, r := range s.mu.regions {
		switch {
		case !r.leasable() || r.owned && r.uid != uid:
		case r.used > 0:
			if at, k := r.fit(want); k > n {
				best, unit, n = r, at, k
			}
		case r.fresh(uid, has) && (fresh == nil || r.owned && !fresh.owned):
			fresh = r
		}
		if n == want {
			return best, unit, n, nil
		}
	}
	may := s.admitsRegion(uid, fixed)
	switch {
	case may && fresh != nil:
		if !fresh.owned {
			if err := fresh.assign(uid, s.instance); err != nil {
				return nil, 0, 0, err
			}
		}
		unit, n = fresh.fit(want)
		return fresh, unit, n, nil
	case n > 0:
		return best, unit, n, nil
	case may && (s.replaceEmpty(uid) || s.mu.replacing > 0 || s.populator.Busy()):
		return nil, 0, 0, ErrPopulating
	}
	return nil, 0, 0, ErrNoRoom
}
