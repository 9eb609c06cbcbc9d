package store

import (
	"forebay/internal/bb"
)

// Claim names the memory that a writer that waits for room keeps from becoming free: leases, which
// are neither evicted nor spilled, and files that are open, which are not flushed.
type Claim struct {
	Leases []bb.LeaseID
	Files  []bb.FileID
}

// Claimed is how much of the tiers a claim is about, in bytes.
type Claimed struct {
	Leased int64 // segments in memory that it leases
	Open   int64 // segments in memory with bytes of its files alone, some of which are not flushed
	Dirty  int64 // of its files
}

// Unclaimed is the rest of the tiers, in bytes of segments.
type Unclaimed struct {
	Memory, Disk int64
	Growing      bool // more memory is about to be there
}

// Claims divides the used bytes of both tiers among claims and others. A segment with bytes of two
// claims counts as one of others.
func (s *Store) Claims(claims []Claim) ([]Claimed, Unclaimed) {
	of, rest := make([]Claimed, len(claims)), Unclaimed{}
	leases := make(map[bb.LeaseID]int)
	refs := make([]map[*segment]int64, len(claims))
	for i := range claims {
		refs[i] = make(map[*segment]int64)
		for _, id := range claims[i].Leases {
			leases[id] = i
		}
		for _, f := range claims[i].Files {
			of[i].Dirty += s.countRefs(f, refs[i])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest.Growing = s.mu.replacing > 0 || s.populator.Busy()
	for g := range s.mu.segments {
		g.mu.Lock()
		r, lease := g.mu.region, g.mu.lease
		g.mu.Unlock()
		leasedBy, leased := leases[lease]
		i := g.onlyOf(refs)
		switch {
		case r.Log:
		case lease != 0 && leased && r.Tier == bb.TierMemory:
			of[leasedBy].Leased += g.length
		case lease == 0 && i >= 0 && r.Tier == bb.TierMemory:
			of[i].Open += g.length
		case lease == 0 && i >= 0:
		case r.Tier == bb.TierMemory:
			rest.Memory += g.length
		default:
			rest.Disk += g.length
		}
	}
	return of, rest
}

// onlyOf returns the claim that has all references to a segment that cannot be evicted, or -1.
func (g *segment) onlyOf(refs []map[*segment]int64) int {
	for i := range refs {
		if n := refs[i][g]; n > 0 && n == g.refs.Load() && g.held.Load() > 0 {
			return i
		}
	}
	return -1
}

// countRefs counts the references of a file to each segment, and returns its dirty bytes.
func (s *Store) countRefs(f bb.FileID, refs map[*segment]int64) (unflushed int64) {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	seen := make(map[*chunk]bool) // generations share them
	for g := range h.generations(f) {
		if a := h.anchors[g]; a != nil {
			refs[a]++
		}
		for _, c := range g.ext.chunks {
			for i := range c.items {
				e := &c.items[i]
				if e.seg == nil || seen[c] {
					continue
				}
				refs[e.seg]++
				if e.state == dirty {
					unflushed += int64(e.length)
				}
			}
			seen[c] = true
		}
	}
	return unflushed
}
