package store

import (
	"cmp"
	"math"
	"slices"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Evict frees clean, unpinned, unleased segments of a tier, least recently used first, and returns
// the bytes freed, which may be less or more than requested. The lengths and checksums of the
// evicted extents stay in the index, joined where they adjoin, and in the region of the store's own
// records. So an evicted extent hides older ones that are still in memory, also after a restart.
// Files stay whole or go piece by piece. Reading them meanwhile is safe.
func (s *Store) Evict(tier bb.Tier, bytes int64) (freed int64) {
	s.tidyNotes()
	return s.evictWhere(tier, bytes, func(*segment) bool { return true })
}

// evictWhere is Evict of some segments alone.
func (s *Store) evictWhere(tier bb.Tier, bytes int64, which func(*segment) bool) (freed int64) {
	victims := map[*segment]bool{}
	var files []bb.FileID
	var want int64
	for _, g := range s.leastUsed(func(g *segment) bool { return g.evictable(tier) && which(g) }) {
		if want >= bytes {
			break
		}
		group := s.together(g)
		if victims[g] || slices.ContainsFunc(group, func(g *segment) bool { return !g.evictable(tier) || !which(g) || s.isOccupied(g) }) {
			continue
		}
		for _, g := range group {
			want += g.length
			victims[g] = true
			g.mu.Lock()
			files = append(files, g.mu.files...)
			g.mu.Unlock()
		}
	}
	s.evictFiles(files, victims)
	for g := range victims {
		g.mu.Lock()
		if g.mu.state == segFree {
			freed += g.length
		}
		g.mu.Unlock()
	}
	return freed
}

func (s *Store) evictFiles(files []bb.FileID, victims map[*segment]bool) {
	slices.Sort(files)
	for _, f := range slices.Compact(files) {
		if err := s.evictFile(f, victims); err != nil {
			s.log.Error("evict", "file", f, "error", err)
		}
	}
}

// leastUsed returns the segments for which f is true: those of regions that are to
// become empty, then those that belong on disk, then the others, least recently used
// first.
func (s *Store) leastUsed(f func(*segment) bool) []*segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	type aged struct {
		g    *segment
		rank int
		use  int64
	}
	var list []aged
	for g := range s.mu.segments {
		if !f(g) {
			continue
		}
		a := aged{g, 2, g.lastUse.Load()}
		g.mu.Lock()
		switch {
		case g.mu.region.vacating:
			a.rank = 0
		case g.tier == bb.TierDisk:
			a.rank = 1
		}
		g.mu.Unlock()
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b aged) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.use, b.use))
	})
	segments := make([]*segment, len(list))
	for i, a := range list {
		segments[i] = a.g
	}
	return segments
}

// idle reports whether a segment may be moved or freed now.
func (g *segment) idle(tier bb.Tier) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.mu.region
	return r.Tier == tier && !r.Log && g.mu.pins == 0 && !g.mu.occupied && (g.mu.state == segSealed || g.mu.state == segPartial) && g.refs.Load() > 0
}

// misplaced reports whether a segment of memory is finished and belongs on disk.
func (g *segment) misplaced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lockedMisplaced()
}

func (g *segment) lockedMisplaced() bool {
	return g.tier == bb.TierDisk && g.mu.region.Tier == bb.TierMemory && g.mu.state == segSealed && g.mu.pins == 0 && !g.mu.occupied && g.refs.Load() > 0
}

func (g *segment) evictable(tier bb.Tier) bool { return g.held.Load() == 0 && g.idle(tier) }

// cutPiece is a visible piece of a partly overwritten extent. Its own checksum has
// to be known before its bytes go.
type cutPiece struct {
	seg            *segment
	offset, length uint32
}

// evictFile replaces a file's extents in the victims by evicted ones. Checksums of pieces are
// computed without a lock. Pieces that were cut meanwhile are left alone.
func (s *Store) evictFile(f bb.FileID, victims map[*segment]bool) error {
	sums, err := s.cutSums(f, victims)
	if err != nil {
		return err
	}
	var d dead
	h := s.shard(f)
	h.Lock()
	if err = s.moveIdentity(h, f, victims, &d); err != nil {
		h.Unlock()
		s.reap(d)
		return err
	}
	ordered := slices.Collect(h.generations(f))
	slices.Reverse(ordered) // oldest first, since a record of a base counts for generations that build on it
	for _, g := range ordered {
		if !g.gone {
			if err = s.moveAnchor(h, g, victims, &d); err == nil {
				err = s.evictView(&g.ext, g, victims, sums, &d)
			}
			if err != nil {
				break
			}
		}
		for v := g.snaps; v != nil && err == nil; v = v.next {
			err = s.evictView(&v.ext, nil, victims, sums, &d)
		}
	}
	h.Unlock()
	s.reap(d)
	return err
}

// views calls f for every map of extents that a file has. The caller holds the shard.
func (h *shard) views(file bb.FileID, f func(*extentMap)) {
	for g := range h.generations(file) {
		f(&g.ext)
		for v := g.snaps; v != nil; v = v.next {
			f(&v.ext)
		}
	}
}

func (s *Store) cutSums(f bb.FileID, victims map[*segment]bool) (map[cutPiece]uint64, error) {
	pieces := map[cutPiece]extent{}
	var pins Pinned
	pins.s = s
	h := s.shard(f)
	h.Lock()
	h.views(f, func(m *extentMap) {
		m.walk(0, math.MaxInt64, func(e *extent) bool {
			if e.state == clean && e.length != e.whole && victims[e.seg] {
				pieces[cutPiece{e.seg, e.offset, e.length}] = *e
				pins.add(e.seg)
			}
			return true
		})
	})
	h.Unlock()
	defer pins.Release()
	sums := make(map[cutPiece]uint64, len(pieces))
	for key, e := range pieces {
		whole, err := e.verified(f, 0)
		if err != nil {
			return nil, err
		}
		err = guard("evict", "", func() error {
			sums[key] = checksum.Sum(whole[e.cut : e.cut+e.length])
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// evictView replaces the clean extents of one view that lie in victims. g is nil
// for a snapshot, whose evictions need no record.
func (s *Store) evictView(m *extentMap, g *generation, victims map[*segment]bool, sums map[cutPiece]uint64, d *dead) error {
	joined := m.joinEvicted(victims, sums)
	for part := range slices.Chunk(joined, 1024) {
		var seg *segment
		if g != nil {
			var err error
			if seg, err = s.noteEvicted(g, part); err != nil {
				return err
			}
		}
		s.crash("eviction recorded")
		for _, e := range part {
			e.seg = seg
			m.put(e, d)
		}
		if seg != nil && seg.refs.Add(-1) == 0 {
			*d = append(*d, seg)
		}
	}
	return nil
}

// joinEvicted returns the extents to put in place of those in victims, each joined
// with its neighbours that are evicted, or are going to be.
func (m *extentMap) joinEvicted(victims map[*segment]bool, sums map[cutPiece]uint64) (joined []extent) {
	var run extent
	fresh := false // the run holds something that is not evicted yet
	flush := func() {
		if fresh {
			joined = append(joined, run)
		}
		run, fresh = extent{}, false
	}
	m.walk(0, math.MaxInt64, func(e *extent) bool {
		sum, isNew, ok := e.evictedSum(victims, sums)
		if !ok {
			flush()
			return true
		}
		if run.length > 0 && run.end() == e.off && int64(run.length)+int64(e.length) <= MaxEvictedPart {
			run.sum = checksum.Combine(run.sum, sum, int64(e.length))
			run.length += e.length
			run.whole = run.length
		} else {
			flush()
			run = extent{off: e.off, length: e.length, whole: e.length, sum: sum, state: evicted}
		}
		fresh = fresh || isNew
		return true
	})
	flush()
	return joined
}

// evictedSum returns the checksum of the visible part of an extent that is, or is
// going to be, evicted.
func (e *extent) evictedSum(victims map[*segment]bool, sums map[cutPiece]uint64) (sum uint64, isNew, ok bool) {
	switch {
	case e.state == evicted: // its record moves if the segment of that is a victim
		return e.sum, victims[e.seg], e.length == e.whole
	case e.state != clean || !victims[e.seg] || e.seg.pinned():
		return 0, false, false
	case e.length == e.whole:
		return e.sum, true, true
	default:
		sum, ok = sums[cutPiece{e.seg, e.offset, e.length}]
		return sum, true, ok
	}
}

// pinned reports whether the segment has readers. Pins are acquired with the shard of
// the file locked, so no new pin of that file's appears as long as it is.
func (g *segment) pinned() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.pins > 0
}

// noteEvicted records evictions and returns where, with a reference.
func (s *Store) noteEvicted(g *generation, part []extent) (*segment, error) {
	r := format.Record{
		File: g.file, Generation: g.number, Base: g.base, Origin: g.origin,
		Parts: 1, Flags: format.RecordEvicted, Items: make([]format.RecordExtent, len(part)),
	}
	for i, e := range part {
		r.Items[i] = format.RecordExtent{FileOffset: e.off, Length: e.length, Sum: e.sum}
	}
	return s.note(&r)
}

// add pins a segment. The caller holds the shard of a file that has extents in it.
func (p *Pinned) add(g *segment) {
	if n := len(p.segs); n > 0 && p.segs[n-1] == g {
		return
	}
	g.mu.Lock()
	g.mu.pins++
	g.mu.Unlock()
	p.segs = append(p.segs, g)
}

// moveAnchor writes the record of an empty commit again if it lies in a victim.
func (s *Store) moveAnchor(h *shard, g *generation, victims map[*segment]bool, d *dead) error {
	old := h.anchors[g]
	if !victims[old] {
		return nil
	}
	r := format.Record{File: g.file, Generation: g.number, Base: g.base, Origin: g.origin, Parts: 1}
	fresh, err := s.note(&r)
	if err != nil {
		return err
	}
	h.anchors[g] = fresh
	if old.refs.Add(-1) == 0 {
		*d = append(*d, old)
	}
	return nil
}
