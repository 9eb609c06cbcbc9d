package store

import (
	"fmt"
	"slices"
	"unique"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Two routes lead from the backing store back into memory:
//
//	Fill           a generation that counts: with records, so that a restart finds the bytes
//	Snapshot.Fill  the same; and, of a generation that was dropped or for extents that a view
//	               alone shows, into views, without a record. A restart ends all views: a
//	               record would be that of an old generation, beside the newer one that counts

// Fill puts bytes fetched from the backing store back in place of evicted extents. The caller has
// copied them into segments it leases. Each evicted extent that a FillExtent touches must be
// covered by it whole. See Extent for the whole of a partly overwritten one. All are checked first.
// bb.Checksum names the differing extent, and bb.Busy means that the file changed meanwhile and a
// second try may succeed. Where nothing is evicted any more, nothing is done. The extents become
// clean.
func (s *Store) Fill(f bb.FileID, n bb.Generation, fill ...FillExtent) error {
	h := s.shard(f)
	h.Lock()
	g := h.find(f, n)
	if g == nil {
		h.Unlock()
		return noGeneration("fill", f, n)
	}
	c := &Commit{File: f, Generation: n, Base: g.base, Fresh: g.base != 0 && g.origin == n}
	wanted := make([][]extent, len(fill))
	for i, e := range fill {
		wanted[i] = g.ext.evictedIn(e.FileOffset, e.FileOffset+max(e.Length, 0))
	}
	h.Unlock()
	var pieces []extent
	for i := range fill {
		if len(wanted[i]) == 0 {
			continue // another caller filled it
		}
		if err := s.checkFill(c, &fill[i], wanted[i]); err != nil {
			return err
		}
		pieces = append(pieces, wanted[i]...)
	}
	if len(pieces) == 0 {
		return nil
	}
	return s.commitFill(c, pieces)
}

// Fill is Store.Fill of the extents that the view shows. It serves views of generations that were
// dropped, too, since their bytes are in memory until the last view of them is closed or they are
// evicted again. bb.Invalid on a closed view.
func (v *Snapshot) Fill(fill ...FillExtent) error {
	f, n := v.File()
	h := v.s.shard(f)
	h.Lock()
	if g := h.find(f, n); g != nil {
		for _, e := range fill {
			if len(g.ext.evictedIn(e.FileOffset, e.FileOffset+max(e.Length, 0))) > 0 {
				h.Unlock()
				return v.s.Fill(f, n, fill...)
			}
		}
	}
	wanted := make([][]extent, len(fill))
	for i, e := range fill {
		wanted[i] = v.ext.evictedIn(e.FileOffset, e.FileOffset+max(e.Length, 0))
	}
	closed := v.closed
	h.Unlock()
	if closed {
		return bb.E(bb.Invalid, "fill", fileName(f, n), "the snapshot is closed")
	}
	c := &Commit{File: f, Generation: n}
	var pieces []extent
	for i := range fill {
		if len(wanted[i]) == 0 {
			continue // another caller filled it
		}
		if err := v.s.checkFill(c, &fill[i], wanted[i]); err != nil {
			return err
		}
		pieces = append(pieces, wanted[i]...)
	}
	if len(pieces) == 0 {
		return nil
	}
	return v.showFilled(c, pieces)
}

// showFilled shows pieces in every view that has the same evicted extents. Not in generations,
// since those would lose the records of the evictions and get none of the bytes.
func (v *Snapshot) showFilled(c *Commit, pieces []extent) error {
	s := v.s
	b := &batch{commits: []plan{{c: c}}, segments: map[*segment]*space{}}
	if err := s.prepare(b); err != nil {
		return err
	}
	var d dead
	defer func() { s.reap(d) }()
	defer s.lockShards(b)()
	if v.closed || !v.ext.shows(pieces) {
		return bb.E(bb.Busy, "fill", fileName(c.File, c.Generation), "the file changed meanwhile")
	}
	if err := s.takeData(b); err != nil {
		return err
	}
	state := kept
	if v.g.clean {
		state = clean
	}
	for g := range s.shard(c.File).generations(c.File) {
		for view := g.snaps; view != nil; view = view.next {
			view.ext.fill(&b.commits[0], pieces, state, &d)
		}
	}
	return nil
}

// fill shows a commit's extents in place of those pieces that the map shows as evicted.
func (m *extentMap) fill(p *plan, pieces []extent, state extentState, d *dead) {
	for _, q := range p.parts {
		for _, item := range q.items {
			e := newExtent(q.seg, item, state)
			k := slices.IndexFunc(pieces, func(p extent) bool { return p.off == e.off })
			if m.shows(pieces[k : k+1]) {
				m.put(e, d)
			}
		}
	}
}

func (m *extentMap) evictedIn(from, to int64) (list []extent) {
	m.walk(from, to, func(e *extent) bool {
		if e.state == evicted {
			list = append(list, *e)
		}
		return true
	})
	return list
}

// checkFill compares the fetched bytes with the evicted extents, and adds to c the
// visible piece of each extent, with a checksum of its own.
func (s *Store) checkFill(c *Commit, fill *FillExtent, wanted []extent) error {
	g, err := s.leased(fill.Lease)
	if err != nil {
		return err
	}
	c.Buffer = g.buffer.Value() // after a restart, evicted extents alone do not name it
	g.mu.Lock()
	inside := fill.SegmentOffset >= g.mu.start && fill.Length <= g.length && fill.SegmentOffset <= g.mu.floor-fill.Length
	var mem []byte
	if inside {
		mem = g.mem()[fill.SegmentOffset : fill.SegmentOffset+fill.Length]
	}
	path := g.mu.region.Path
	g.mu.Unlock()
	if !inside {
		return invalidCommit(c, fmt.Sprintf("%d bytes at %d of the segment lie outside the lease", fill.Length, fill.SegmentOffset))
	}
	return guard("fill", path, func() error {
		for _, e := range wanted {
			whole := e.off - int64(e.cut)
			from := whole - fill.FileOffset
			if from < 0 || from+int64(e.whole) > fill.Length {
				return invalidCommit(c, fmt.Sprintf("evicted range %d+%d is not covered by %d+%d", whole, e.whole, fill.FileOffset, fill.Length))
			}
			if got := checksum.Sum(mem[from : from+int64(e.whole)]); got != e.sum {
				return bb.E(bb.Checksum, "fill", fmt.Sprintf("%s range %d+%d", fileName(c.File, c.Generation), whole, e.whole),
					fmt.Sprintf("checksum of the fetched bytes is %016x, of the evicted ones %016x", got, e.sum))
			}
			at := from + int64(e.cut)
			c.Extents = append(c.Extents, NewExtent{
				Lease: fill.Lease, SegmentOffset: fill.SegmentOffset + at, FileOffset: e.off,
				Length: int64(e.length), Checksum: checksum.Sum(mem[at : at+int64(e.length)]),
			})
		}
		return nil
	})
}

// commitFill writes records of the pieces and shows them in every view that has
// the same evicted extents.
func (s *Store) commitFill(c *Commit, pieces []extent) error {
	b := &batch{commits: []plan{{c: c, flags: format.RecordClean}}, segments: map[*segment]*space{}}
	p := &b.commits[0]
	if err := s.prepare(b); err != nil {
		return err
	}
	var d dead
	defer func() { s.reap(d) }()
	defer s.lockShards(b)()
	if err := s.checkGenerations(b); err != nil {
		return err
	}
	if p.g == nil || !p.g.ext.shows(pieces) {
		return bb.E(bb.Busy, "fill", fileName(c.File, c.Generation), "the file changed meanwhile")
	}
	if err := s.writeBatch(b); err != nil {
		return err
	}
	if p.g.buffer.Value() == "" {
		p.g.buffer = unique.Make(c.Buffer)
	}
	s.shard(c.File).views(c.File, func(m *extentMap) { m.fill(p, pieces, clean, &d) })
	return nil
}

// shows reports whether all of the pieces are there, evicted, just so.
func (m *extentMap) shows(pieces []extent) bool {
	for i := range pieces {
		want, same := &pieces[i], false
		m.walk(want.off, want.end(), func(e *extent) bool {
			same = e.state == evicted && e.off == want.off && e.length == want.length &&
				e.cut == want.cut && e.whole == want.whole && e.sum == want.sum
			return false
		})
		if !same {
			return false
		}
	}
	return true
}
