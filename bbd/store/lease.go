package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"unique"

	"forebay/internal/bb"
)

// nearlyFull is the room below which a segment is not worth leasing again.
const nearlyFull = 64 << 10

// ownUID is in the header of the region of the store's own records.
func ownUID() uint32 { return uint32(os.Geteuid()) }

// Lease hands out a segment, or what is left of one of the same buffer and user.
// It never blocks: without room it fails with ErrNoRoom, or ErrPopulating.
func (s *Store) Lease(r LeaseRequest) (Lease, error) {
	if r.Tier != bb.TierMemory {
		return Lease{}, bb.E(bb.Unsupported, "lease", r.Tier.String(), "only memory is leased; disk is filled by spilling")
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
	key := partialKey{unique.Make(r.Buffer), r.UID}
	if g := s.takePartial(key); g != nil {
		return s.grant(g), nil
	}
	region, unit, n, err := s.findRoom(r.UID, want)
	if err != nil {
		return Lease{}, err
	}
	return s.grant(s.newSegment(region, unit, n, key)), nil
}

// takePartial takes the fullest of the buffer's unfinished segments, so that few stay open.
func (s *Store) takePartial(key partialKey) *segment {
	list := s.mu.partial[key]
	for len(list) > 0 {
		g := list[len(list)-1]
		list = list[:len(list)-1]
		g.mu.Lock()
		ok := g.mu.state == segPartial
		g.mu.Unlock()
		if ok {
			s.mu.partial[key] = list
			return g
		}
	}
	delete(s.mu.partial, key)
	return nil
}

// findRoom finds units in a region of the user, or makes an unowned one theirs.
// Failing both it has an empty region of somebody else replaced.
func (s *Store) findRoom(uid uint32, want int64) (best *region, unit, n int64, err error) {
	var unowned *region
	for _, r := range s.mu.regions {
		if r.tier != bb.TierMemory || r.log || r.retiring {
			continue
		}
		if !r.owned {
			if unowned == nil && r.populated >= 2*Unit {
				unowned = r
			}
			continue
		}
		if r.uid != uid {
			continue
		}
		if at, k := r.fit(want); k > n {
			best, unit, n = r, at, k
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
	if s.replaceEmpty(uid) || s.populate.busy() {
		return nil, 0, 0, ErrPopulating
	}
	return nil, 0, 0, ErrNoRoom
}

// replaceEmpty has one empty region of another user deleted and a new one made in
// its place, in the background. The caller holds mu.
func (s *Store) replaceEmpty(uid uint32) bool {
	i := slices.IndexFunc(s.mu.regions, func(r *region) bool {
		return r.owned && r.uid != uid && r.used == 0 && !r.log && !r.retiring && r.tier == bb.TierMemory
	})
	if i < 0 {
		return false
	}
	old := s.mu.regions[i]
	old.retiring = true
	s.retire.Go(func() { s.replace(old) })
	return true
}

// replace deletes an empty region and makes a new one. A region's pages are only
// free once it is unmapped, so that comes first.
func (s *Store) replace(old *region) {
	if s.o.RegionGone != nil {
		s.o.RegionGone(old.id)
	}
	s.populate.forget(old)
	s.mu.Lock()
	s.mu.regions = slices.DeleteFunc(s.mu.regions, func(r *region) bool { return r == old })
	s.mu.Unlock()
	size := int64(len(old.mem))
	if err := errors.Join(os.Remove(old.path), old.unmap()); err != nil {
		s.log.Error("delete region", "path", old.path, "error", err)
	}
	fresh, err := s.newRegion(bb.TierMemory, size, false)
	if err != nil {
		s.log.Error("replace region: less memory will be used", "error", err)
		return
	}
	s.mu.Lock()
	s.mu.regions = append(s.mu.regions, fresh)
	s.mu.Unlock()
	s.populate.add(fresh)
}

// newSegment lays a segment out. The segment's own header and the end mark of its
// log come before the slot's magic: a slot that is found names a valid segment.
func (s *Store) newSegment(r *region, unit, units int64, key partialKey) *segment {
	s.mu.segmentSeq++
	g := &segment{
		sequence: s.mu.segmentSeq, nonce: rand.Uint64() | 1, length: units * Unit,
		uid: key.uid, buffer: key.buffer,
	}
	g.mu.region, g.mu.offset = r, unit*Unit
	g.mu.dataEnd, g.mu.floor = dataStart, g.length-recordEnd
	r.take(g, unit)
	s.mu.segments[g] = struct{}{}
	h := segmentHeader{units: units, nonce: g.nonce, sequence: g.sequence, uid: g.uid, buffer: g.buffer.Value()}
	mem := g.mem()
	clear(mem[g.mu.floor:])
	h.encode(mem[:slotSize])
	publish(mem, 0, segmentMagic)
	h.encode(r.slot(unit))
	publish(r.slot(unit), 0, segmentMagic)
	return g
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
		ID: id, Region: g.mu.region.id, Offset: g.mu.offset, Length: g.length,
		DataStart: g.mu.start, RecordFloor: g.mu.floor, Mem: g.mem(),
	}
}

func align(n int64) int64 { return (n + DataAlign - 1) / DataAlign * DataAlign }

// Release gives a lease back: its writer has stopped writing. What was not
// committed is forgotten; the rest of the segment may be leased again.
func (s *Store) Release(id bb.LeaseID) error { return s.endLease(id, false) }

// Abandon is Release for a writer that vanished and may still be copying: the rest
// of the segment is not leased again before the whole segment is free, so that
// nothing the writer does reaches bytes of others. A caller that wants it to
// reach nothing at all abandons the lease when the writer's process is gone.
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
	if abandon || g.mu.floor-align(g.mu.dataEnd) < nearlyFull {
		g.to(segSealed)
	} else {
		g.to(segPartial)
		key := partialKey{g.buffer, g.uid}
		s.mu.partial[key] = append(s.mu.partial[key], g)
	}
	g.mu.Unlock()
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

// freeIfDead frees a segment if nothing refers to it. Nothing can refer to it
// again: extents come with a lease, or from a view that has them already.
func (s *Store) freeIfDead(g *segment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refs.Load() != 0 || g.mu.pins != 0 || s.mu.closed || g.mu.state != segPartial && g.mu.state != segSealed {
		return
	}
	if g.mu.state == segPartial {
		key := partialKey{g.buffer, g.uid}
		s.mu.partial[key] = slices.DeleteFunc(s.mu.partial[key], func(p *segment) bool { return p == g })
	}
	g.to(segFree)
	s.clearSlot(g.mu.region, g.mu.offset, g.length)
	delete(s.mu.segments, g)
}

// clearSlot makes units free. The caller holds mu.
func (s *Store) clearSlot(r *region, offset, length int64) {
	publish(r.slot(offset/Unit), 0, 0)
	r.give(offset/Unit, length/Unit)
}
