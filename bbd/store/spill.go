package store

import (
	"context"
	"fmt"
	"slices"

	"forebay/internal/bb"
)

// Spill moves unpinned segments that no writer has to the disk tier, least recently used first, and
// returns the bytes of memory freed. It returns bb.NoSpace when the disk tier is full, and
// bb.Unsupported without one. Segments that were moved before an error stay moved.
//
// A crash or a loss of power anywhere in between is safe. A segment and its records are written and
// fsynced, read back and compared before its slot is published. The slot is fsynced before the
// index and, last, the slot in memory change. While both slots are there, both copies are whole and
// equal, and recovery uses the one in memory.
func (s *Store) Spill(ctx context.Context, bytes int64) (freed int64, err error) {
	return s.spill(ctx, bytes, func(g *segment) bool { return g.idle(bb.TierMemory) })
}

// SpillMisplaced is Spill of the finished segments that belong on disk alone.
func (s *Store) SpillMisplaced(ctx context.Context, bytes int64) (freed int64, err error) {
	return s.spill(ctx, bytes, (*segment).misplaced)
}

// SpillFor is Spill for a user in the line, of the region that is being vacated first, then of the
// user's own segments.
func (s *Store) SpillFor(ctx context.Context, uid uint32, bytes int64) (freed int64, err error) {
	return s.spill(ctx, bytes, func(g *segment) bool {
		if !g.idle(bb.TierMemory) {
			return false
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.uid == uid || g.mu.region.vacating
	})
}

func (s *Store) spill(ctx context.Context, bytes int64, which func(*segment) bool) (freed int64, err error) {
	if s.o.DiskDir == "" {
		return 0, bb.E(bb.Unsupported, "spill", "", "there is no disk tier").WithRemedy("configure a folder for it")
	}
	s.spillMu.Lock()
	defer s.spillMu.Unlock()
	for _, g := range s.leastUsed(which) {
		if freed >= bytes {
			break
		}
		if err := ctx.Err(); err != nil {
			return freed, bb.Wrap("spill", "", err)
		}
		if s.isOccupied(g) || slices.ContainsFunc(s.together(g), func(g *segment) bool { return !g.idle(bb.TierMemory) }) {
			continue
		}
		moved, err := s.spillOne(g)
		if err != nil {
			return freed, err
		}
		if moved {
			freed += g.length
		}
	}
	return freed, nil
}

// spillOne moves a segment unless it is in use by now.
func (s *Store) spillOne(g *segment) (moved bool, err error) {
	to, unit, err := s.diskRoom(g)
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	ok := g.mu.pins == 0 && !g.mu.left && (g.mu.state == segSealed || g.mu.state == segPartial)
	if ok {
		g.to(segSpilling)
	}
	voids, log, floor, path := g.mu.voids, g.records(), g.mu.floor, g.mu.region.Path
	mem, from := g.toSpill()
	g.mu.Unlock()
	if ok {
		err = guard("spill", path, func() error {
			if err := to.WritePages(mem, unit*Unit+from, s.crash); err != nil {
				return err
			}
			return to.WriteRecords(log, floor, unit)
		})
		if err == nil {
			err = to.publishSegment(g, unit)
		}
		s.crash("spill published")
		moved = s.finishSpill(g, to, unit, voids, err == nil)
		s.crash("spill switched")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !moved {
		s.clearSlot(to, unit*Unit, g.length)
		err = cmpErr(err, to.Sync(0, Unit))
	}
	s.freeIfDead(g)
	return moved, bb.Wrap("spill", to.Path, err)
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// finishSpill makes the disk copy the segment, unless it has been pinned or
// changed meanwhile.
func (s *Store) finishSpill(g *segment, to *region, unit int64, voids uint32, good bool) (moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to(segSealed)
	if !good || g.mu.pins > 0 || g.mu.voids != voids || s.mu.closed {
		return false
	}
	from, at := g.mu.region, g.mu.offset
	g.mu.region, g.mu.offset = to, unit*Unit
	s.clearSlot(from, at, g.length)
	s.giveBack(g, from, at)
	return true
}

// diskRoom reserves units of a disk region of the segment's owner. If no such region has room, it
// makes one, as far as the options leave room, or in place of an empty one of another user. The
// caller holds spillMu, so no other caller allocates on disk meanwhile.
func (s *Store) diskRoom(g *segment) (r *region, unit int64, err error) {
	r, unit, empty, err := s.takeDisk(g)
	if r != nil || err != nil {
		return r, unit, err
	}
	if empty != nil {
		s.remove(empty)
	}
	if r, err = s.newRegion(bb.TierDisk, s.o.RegionBytes, false); err != nil {
		return nil, 0, err
	}
	if err = cmpErr(r.assign(g.uid, s.instance), r.Sync(0, Unit)); err != nil {
		return nil, 0, cmpErr(err, r.Close())
	}
	s.made(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.regions = append(s.mu.regions, r)
	r.take(g, 1)
	return r, 1, nil
}

// takeDisk reserves units of a region that exists. Else, without an error, a region may
// be made, and empty is the one to delete first.
func (s *Store) takeDisk(g *segment) (r *region, unit int64, empty *region, err error) {
	units := g.length / Unit
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, 0, nil, &bb.Error{Kind: bb.Unavailable, Op: "spill", Err: errClosed}
	}
	total := s.foreignBytes(bb.TierDisk)
	for _, r := range s.mu.regions {
		if r.Tier != bb.TierDisk || r.retiring {
			continue
		}
		total += int64(len(r.Mem))
		if r.used == 0 && r.uid != g.uid {
			empty = r
		}
		if r.owned && r.uid == g.uid {
			if unit, n := r.fit(units); n == units {
				r.take(g, unit)
				return r, unit, nil, nil
			}
		}
	}
	if total+s.o.RegionBytes <= s.o.DiskBytes {
		empty = nil
	} else if empty != nil {
		total -= int64(len(empty.Mem))
	}
	if total+s.o.RegionBytes > s.o.DiskBytes || units >= s.o.RegionBytes/Unit {
		return nil, 0, nil, bb.E(bb.NoSpace, "spill", s.o.DiskDir, fmt.Sprintf("the disk tier of %d bytes is full", s.o.DiskBytes))
	}
	if empty != nil {
		empty.retiring = true
	}
	return nil, 0, empty, nil
}

// publishSegment writes the slot and makes it durable.
func (r *region) publishSegment(g *segment, unit int64) error {
	err := guard("spill", r.Path, func() error {
		r.WriteSlot(unit, g.header())
		return nil
	})
	return cmpErr(err, r.Sync(0, Unit))
}
