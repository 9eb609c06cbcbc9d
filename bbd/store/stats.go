package store

import (
	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// Stats describes the store now. It walks segments, but no extents or files except for their
// counts, so that it is cheap enough for every second.
func (s *Store) Stats() Stats {
	t := Stats{
		Instance: s.instance, MemoryDir: s.memDir, Buffers: map[string]BufferStats{}, Populating: s.populator.Busy(),
		Adopted: s.found.adopted, Recovered: s.found.recovered, Damaged: len(s.found.damage), Recovery: s.found.took,
	}
	for i := range s.shards {
		s.shards[i].Lock()
		t.Files += len(s.shards[i].files)
		s.shards[i].Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	foreign, onDisk := s.foreignBytes(bb.TierMemory), s.foreignBytes(bb.TierDisk)
	t.Memory.Capacity, t.Disk.Capacity = max(0, s.o.MemoryBytes-foreign), max(0, s.o.DiskBytes-onDisk)
	t.Foreign = foreign + onDisk
	t.Regions, t.Segments, t.Leases = len(s.mu.regions), len(s.mu.segments), len(s.mu.leases)
	for _, r := range s.mu.regions {
		if !r.Log {
			t.addRegion(r)
		}
	}
	for g := range s.mu.segments {
		t.addSegment(g)
	}
	t.Memory.Kept = min(s.kept(), t.Memory.Free)
	return t
}

func (t *Stats) tier(tier bb.Tier) *TierStats {
	if tier == bb.TierDisk {
		return &t.Disk
	}
	return &t.Memory
}

func (t *Stats) addRegion(r *region) {
	ts := t.tier(r.Tier)
	ts.Total += int64(len(r.Mem))
	if r.Linear {
		ts.Populated += int64(len(r.Mem))
		return
	}
	limit := int64(len(r.units))
	if r.Tier == bb.TierMemory {
		limit = r.populated / Unit
	}
	ts.Populated += limit * Unit
	for i := int64(1); i < limit && !r.retiring && !r.vacating; i++ {
		if r.units[i] == nil {
			ts.Free += Unit
		}
	}
}

func (t *Stats) addSegment(g *segment) {
	t.Extents += int(g.refs.Load())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.region.Log {
		return
	}
	ts := t.tier(g.mu.region.Tier)
	filled := g.mu.dataEnd - format.DataStart
	live := min(g.live.Load(), filled)
	unflushed := min(g.dirtyBytes.Load(), live)
	idle := g.mu.pins == 0 && !g.mu.occupied && (g.mu.state == segSealed || g.mu.state == segPartial)
	ts.Used += g.length
	ts.Live += live
	ts.Dirty += unflushed
	ts.Clean += live - unflushed
	if g.mu.pins > 0 {
		ts.Pinned += g.length
	}
	if g.mu.occupied {
		ts.Occupied += g.length
	}
	resident := g.length
	if g.mu.lease != 0 {
		ts.Leased += g.length
	} else {
		ts.Waste += g.length - live
		if g.mu.state == segPartial {
			ts.Waste -= g.room()
		}
		if idle && g.held.Load() == 0 {
			ts.Evictable += g.length
		}
		if idle && g.mu.region.Tier == bb.TierMemory {
			ts.Spillable += g.length
			if g.lockedMisplaced() {
				ts.Misplaced += g.length
			}
		}
	}
	b := t.Buffers[g.buffer.Value()]
	b.Resident += resident
	b.Dirty += unflushed
	t.Buffers[g.buffer.Value()] = b
}
