package store

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
	"unique"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// nearlyFull is the room below which a segment is not worth leasing again.
const nearlyFull = 64 << 10

// ownUID is in the header of the region of the store's own records.
func ownUID() uint32 { return uint32(os.Geteuid()) }

// Lease leases a segment, or the rest of one of the same buffer and user. It never blocks. Without
// room it fails with ErrNoRoom, or ErrPopulating.
func (s *Store) Lease(r LeaseRequest) (Lease, error) {
	if r.Tier > bb.TierDisk {
		return Lease{}, bb.E(bb.Invalid, "lease", r.Tier.String(), "there is no such tier")
	}
	if err := bb.CheckBufferName(r.Buffer); err != nil {
		return Lease{}, err
	}
	want := min(max(r.Bytes, 1)+Unit-1, MaxSegment) / Unit
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return Lease{}, &bb.Error{Kind: bb.Unavailable, Op: "lease", Err: errClosed}
	}
	key := partialKey{unique.Make(r.Buffer), r.UID, r.Tier}
	if g := s.takePartial(key, r.Min); g != nil {
		return s.grant(g), nil
	}
	want = max(want, (r.Min+format.DataStart+format.RecordEnd+Unit-1)/Unit)
	if want > MaxSegment/Unit {
		return Lease{}, bb.E(bb.Invalid, "lease", r.Buffer, fmt.Sprintf("no segment has room for %d bytes", r.Min))
	}
	if err := s.allForeign(); err != nil {
		return Lease{}, err
	}
	for {
		region, unit, n, err := s.findRoom(r.UID, want, r.Fixed)
		if err == nil && n*Unit-format.DataStart-format.RecordEnd < r.Min {
			if err = ErrNoRoom; s.populator.Busy() {
				err = ErrPopulating
			}
		}
		if err == ErrNoRoom {
			s.regrow()
		}
		if err != nil {
			return Lease{}, err
		}
		g, err := s.newSegment(region, unit, n, key)
		if errors.Is(err, bb.Lost) {
			continue // elsewhere; the region is not used any more
		}
		if err != nil {
			return Lease{}, err
		}
		return s.grant(g), nil
	}
}

// maxPartial bounds the unfinished segments of a buffer and a user.
const maxPartial = 16

// takePartial takes one of the buffer's unfinished segments that has room for min
// bytes, the one released last.
func (s *Store) takePartial(key partialKey, min int64) *segment {
	list := s.mu.partial[key]
	for i, g := range slices.Backward(list) {
		g.mu.Lock()
		ok := g.mu.state == segPartial && g.room() >= min && !g.mu.region.vacating
		g.mu.Unlock()
		if ok {
			s.mu.partial[key] = slices.Delete(list, i, i+1)
			return g
		}
	}
	return nil
}

// room returns the bytes that a writer could fill. The caller holds mu.
func (g *segment) room() int64 { return g.mu.floor - align(g.mu.dataEnd) }

func (g *segment) lockedRoom() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.room()
}

// addPartial keeps an unfinished segment for the next lease, and seals the one
// with the least room when there are too many. The caller holds mu of the store.
func (s *Store) addPartial(g *segment) {
	key := partialKey{g.buffer, g.uid, g.tier}
	list := slices.DeleteFunc(append(s.mu.partial[key], g), func(p *segment) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.mu.state != segPartial // has been spilled
	})
	if len(list) > maxPartial {
		least := slices.MinFunc(list, func(a, b *segment) int { return cmp.Compare(a.lockedRoom(), b.lockedRoom()) })
		least.mu.Lock()
		least.to(segSealed)
		least.mu.Unlock()
		list = slices.DeleteFunc(list, func(p *segment) bool { return p == least })
	}
	s.mu.partial[key] = list
}

// findRoom finds units in a region of the user, or makes an unowned one theirs. Failing
// both it has an empty region of another user replaced, or, for a user with no region
// at all, makes sure that one becomes empty. The caller holds mu.
func (s *Store) findRoom(uid uint32, want int64, fixed bool) (best *region, unit, n int64, err error) {
	if s.shared() {
		return s.findShared(uid, want, fixed)
	}
	has := slices.ContainsFunc(s.mu.regions, func(r *region) bool { return r.Tier == bb.TierMemory && !r.Log && !r.Linear && r.owned && r.uid == uid })
	var unowned *region
	for _, r := range s.mu.regions {
		switch {
		case !r.leasable() || r.owned && r.uid != uid:
		case !r.owned && unowned == nil && r.populated >= 2*Unit && !r.reserved.against(uid, has):
			unowned = r
		case r.owned:
			if at, k := r.fit(want); k > n {
				best, unit, n = r, at, k
			}
		}
		if n == want {
			return best, unit, n, nil
		}
	}
	if unowned != nil {
		if err := unowned.assign(uid, s.instance); err != nil {
			return nil, 0, 0, err
		}
		unit, n = unowned.fit(want)
		return unowned, unit, n, nil
	}
	if n > 0 {
		return best, unit, n, nil
	}
	if s.replaceEmpty(uid) || s.mu.replacing > 0 || s.populator.Busy() {
		return nil, 0, 0, ErrPopulating
	}
	if !has {
		s.vacate(uid)
	}
	return nil, 0, 0, ErrNoRoom
}

// leasable reports whether segments may be made in the region.
func (r *region) leasable() bool {
	return r.Tier == bb.TierMemory && !r.Log && !r.Linear && !r.retiring && !r.vacating
}

// replaceEmpty has one empty region of another user deleted and a new one made in
// its place, in the background. The caller holds mu.
func (s *Store) replaceEmpty(uid uint32) bool {
	i := slices.IndexFunc(s.mu.regions, func(r *region) bool {
		return (r.leasable() || r.vacating && !r.retiring) && r.owned && (r.uid != uid || r.vacating) && r.used == 0
	})
	if i < 0 {
		return false
	}
	s.startReplace(s.mu.regions[i], uid)
	return true
}

// vacate chooses the region that can be emptied soonest for a user without any. No segment is
// allocated in it any more, and Evict and Spill choose its segments first. One at a time, or
// waiting users would empty the whole memory. The caller holds mu.
func (s *Store) vacate(uid uint32) {
	var choice *region
	for _, r := range s.mu.regions {
		if r.vacating && !r.retiring && !r.Log {
			return
		}
		if r.leasable() && r.owned && r.uid != uid && (choice == nil || r.used < choice.used) {
			choice = r
		}
	}
	if choice != nil {
		choice.vacating, choice.reserved.uid = true, uid
		s.log.Info("emptying a region for a user who has none", "region", choice.ID, "user", uid)
	}
}

// replaceVacated replaces a vacated region, or a linear one, once it is empty. Its room does not count as
// free, so a caller that leases only free room would never request it. The caller holds mu.
func (s *Store) replaceVacated(r *region) {
	if (r.vacating || r.Linear && s.mu.open) && !r.retiring && !r.Log && r.used == 0 && !s.mu.closed {
		s.startReplace(r, r.reserved.uid)
	}
}

// startReplace replaces an empty region in the background. The new one is reserved for a
// user. In place of a vacated region, it is for the user that the region was vacated for. The
// caller holds mu.
func (s *Store) startReplace(old *region, uid uint32) {
	if old.vacating {
		uid = old.reserved.uid
	}
	old.retiring = true
	s.mu.replacing++
	s.making.Go(func() { s.replace(old, reservation{uid, time.Now().Add(reservedFor)}) })
}

// replace deletes an empty region and makes a new one. A region's pages are only
// free once it is unmapped, so that comes first.
func (s *Store) replace(old *region, reserved reservation) {
	size := max(int64(len(old.Mem))/Unit, 2) * Unit
	s.remove(old)
	s.makeRegion(size, reserved)
}

// makeRegion makes a region of memory that counts in replacing.
func (s *Store) makeRegion(size int64, reserved reservation) {
	fresh, err := s.newRegion(bb.TierMemory, size, false)
	if err != nil {
		s.log.Error("make region: less memory will be used until there is room", "error", err)
	} else {
		fresh.reserved = reserved
		s.populator.Add(fresh) // first, so that a caller without room finds that some is coming
		s.made(fresh)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.replacing--
	if err == nil {
		s.mu.regions = append(s.mu.regions, fresh)
	}
}

// made reports a region that is not published yet to Options.RegionMade.
func (s *Store) made(r *region) {
	if s.o.RegionMade != nil {
		s.o.RegionMade(r.info(), r.Mem)
	}
}

// remove deletes an empty region that is retiring.
func (s *Store) remove(old *region) {
	if s.o.RegionGone != nil {
		s.o.RegionGone(old.ID)
	}
	s.populator.Forget(old)
	s.mu.Lock()
	s.mu.regions = slices.DeleteFunc(s.mu.regions, func(r *region) bool { return r == old })
	s.mu.Unlock()
	if err := errors.Join(regionfile.Remove(old.Path), old.Close()); err != nil {
		s.log.Error("delete region", "path", old.Path, "error", err)
	}
}

// newSegment lays a segment out. The copy of its slot and the end mark of its
// log come before the slot's magic, so a slot that is found names a valid segment. A region that
// its owner has truncated is not used any more.
func (s *Store) newSegment(r *region, unit, units int64, key partialKey) (*segment, error) {
	s.mu.segmentSeq++
	g := &segment{
		sequence: s.mu.segmentSeq, nonce: rand.Uint64() | 1, length: units * Unit,
		uid: key.uid, buffer: key.buffer, tier: key.tier,
	}
	g.mu.region, g.mu.offset = r, unit*Unit
	g.mu.dataEnd, g.mu.floor, g.mu.ready = format.DataStart, g.length-format.RecordEnd, g.length-regionfile.JournalTail
	err := guard("lease", r.Path, func() error {
		mem := g.mem()
		format.Publish(mem, g.length-format.RecordEnd, 0) // no data lies there; are there pages at all?
		clear(g.records()[g.mu.floor:])
		r.WriteSlot(unit, g.header())
		return nil
	})
	if err != nil {
		r.vacating = true
		s.replaceVacated(r)
		return nil, err
	}
	r.take(g, unit)
	s.mu.segments[g] = struct{}{}
	return g, nil
}

// grant makes a new or partial segment leased. The caller holds mu.
func (s *Store) grant(g *segment) Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.state != segLeased {
		g.to(segLeased)
	}
	s.mu.lastLease++
	id := s.mu.lastLease
	s.mu.leases[id] = g
	g.mu.lease = id
	g.mu.start = align(g.mu.dataEnd)
	return Lease{
		ID: id, Region: g.mu.region.ID, Offset: g.mu.offset, Length: g.length,
		DataStart: g.mu.start, RecordFloor: g.mu.floor, Mem: g.mem(),
	}
}

func align(n int64) int64 { return (n + DataAlign - 1) / DataAlign * DataAlign }

// Release ends a lease, since its writer has stopped writing. Uncommitted bytes are dropped. The rest of the segment
// may be leased again.
func (s *Store) Release(id bb.LeaseID) error { return s.endLease(id, false) }

// Abandon is Release for a writer that vanished and may still be copying. The rest of the segment
// is not leased again before the whole segment is free, and that is not before the writer has
// unlocked it, see package leaselock.
func (s *Store) Abandon(id bb.LeaseID) error { return s.endLease(id, true) }

func (s *Store) endLease(id bb.LeaseID, abandon bool) error {
	s.mu.Lock()
	g := s.mu.leases[id]
	if g == nil || s.mu.closed {
		s.mu.Unlock()
		return bb.E(bb.Invalid, "release", fmt.Sprint(id), "there is no such lease")
	}
	delete(s.mu.leases, id)
	g.mu.Lock()
	g.mu.lease = 0
	again := !abandon && g.room() >= nearlyFull
	if again {
		g.to(segPartial)
	} else {
		g.to(segSealed)
	}
	g.mu.left = g.mu.left || abandon
	g.mu.Unlock()
	if again {
		s.addPartial(g)
	}
	s.mu.Unlock()
	s.reap(dead{g})
	return nil
}

// reap frees those segments that nothing refers to. The caller holds no lock.
func (s *Store) reap(list dead) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range list {
		s.freeIfDead(g)
	}
}

// freeIfDead frees a segment if nothing refers to it. Nothing can refer to it again, since extents come with a lease,
// or from a view that has them already.
func (s *Store) freeIfDead(g *segment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refs.Load() != 0 || g.mu.pins != 0 || s.mu.closed || g.mu.state != segPartial && g.mu.state != segSealed || s.isWritten(g) {
		return
	}
	if g.mu.state == segPartial {
		key := partialKey{g.buffer, g.uid, g.tier}
		s.mu.partial[key] = slices.DeleteFunc(s.mu.partial[key], func(p *segment) bool { return p == g })
	}
	g.to(segFree)
	s.clearSlot(g.mu.region, g.mu.offset, g.length)
	s.giveBack(g, g.mu.region, g.mu.offset)
	delete(s.mu.segments, g)
	delete(s.mu.occupied, g)
}

// clearSlot makes units free. The caller holds mu.
func (s *Store) clearSlot(r *region, offset, length int64) {
	err := guard("free", r.Path, func() error {
		format.Publish(r.Slot(offset/Unit), 0, 0)
		return nil
	})
	if err != nil { // there is no slot any more that could name the segment
		s.log.Error("free a segment", "error", err)
	}
	r.give(offset/Unit, length/Unit)
	s.replaceVacated(r)
}

// LeasedBytes returns bytes that a writer has put into a segment it leases: n bytes
// from off of the segment on. They stay there as long as the lease is held.
func (s *Store) LeasedBytes(id bb.LeaseID, off, n int64) ([]byte, error) {
	g, err := s.leased(id)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if off < g.mu.start || n < 0 || off > g.mu.floor-n {
		return nil, bb.E(bb.Invalid, "lease", fmt.Sprint(id), fmt.Sprintf("%d bytes at %d of the segment lie outside the lease", n, off))
	}
	return g.mem()[off : off+n : off+n], nil
}
