package store

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"unique"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// batch is the planned work of one call of Commit.
type batch struct {
	commits []plan
	// floors and data ends as they will be, and the list of segments
	segments map[*segment]*space
	ordered  []*segment
}

type space struct{ floor, dataEnd int64 }

// plan is one commit with its extents grouped by segment, with a record for each. If an earlier
// extent would so overwrite a later one, a segment has several.
type plan struct {
	c     *Commit
	flags uint16
	parts []part
	g     *generation // nil: to be made
	base  *generation
	note  *segment // where the record of a commit without extents lies
}

type part struct {
	seg   *segment
	items []format.RecordExtent
}

// Commit makes each commit's extents visible, and durable against the death of this
// process. Everything is checked before anything is changed. The errors are bb.Invalid for an
// impossible commit, bb.NotFound for an unknown base, and bb.NoSpace for an empty commit without
// room for its record.
func (s *Store) Commit(commits ...Commit) error {
	b := &batch{commits: make([]plan, len(commits)), segments: map[*segment]*space{}}
	for i := range commits {
		b.commits[i].c = &commits[i]
	}
	return s.commit(b)
}

func (s *Store) commit(b *batch) error {
	if err := s.prepare(b); err != nil {
		return err
	}
	s.tidyNotes()
	var d dead
	defer func() { s.reap(d) }()
	defer s.lockShards(b)()
	if err := s.checkGenerations(b); err != nil {
		return err
	}
	err := s.noteEmpty(b)
	if err == nil {
		err = s.writeBatch(b)
	}
	for i := range b.commits {
		if err == nil {
			s.apply(&b.commits[i], &d)
		} else if n := b.commits[i].note; n != nil && n.refs.Add(-1) == 0 {
			d = append(d, n)
		}
	}
	return err
}

// noteEmpty writes the records of generations that begin without extents of their
// own. Should the batch fail after all, they are records of generations that
// never came to be, which reconciling strikes out.
func (s *Store) noteEmpty(b *batch) error {
	for i := range b.commits {
		p := &b.commits[i]
		if len(p.parts) > 0 || p.g != nil {
			continue
		}
		r := format.Record{File: p.c.File, Generation: p.c.Generation, Base: p.c.Base, Origin: p.origin(), Parts: 1}
		var err error
		if p.note, err = s.note(&r); err != nil {
			return err
		}
	}
	return nil
}

// prepare groups all extents by segment.
func (s *Store) prepare(b *batch) error {
	for i := range b.commits {
		if err := s.group(&b.commits[i], b); err != nil {
			return err
		}
	}
	b.ordered = slices.SortedFunc(maps.Keys(b.segments), func(x, y *segment) int { return cmp.Compare(x.sequence, y.sequence) })
	return nil
}

// group makes the checks that need no locks and sorts extents by segment.
func (s *Store) group(p *plan, b *batch) error {
	c := p.c
	if c.Generation == 0 || c.Base >= c.Generation {
		return invalidCommit(c, fmt.Sprintf("base %d", c.Base))
	}
	if err := bb.CheckBufferName(c.Buffer); err != nil {
		return err
	}
	for i := range c.Extents {
		e := &c.Extents[i]
		if e.Length <= 0 || e.FileOffset < 0 || e.Length > MaxSegment || e.FileOffset > bb.MaxFileSize-e.Length || e.SegmentOffset < 0 || e.SegmentOffset > MaxSegment {
			return invalidCommit(c, fmt.Sprintf("an extent of %d bytes at %d of the file, %d of the segment", e.Length, e.FileOffset, e.SegmentOffset))
		}
		g, err := s.leased(e.Lease)
		if err != nil {
			return err
		}
		item := format.RecordExtent{FileOffset: e.FileOffset, Offset: uint32(e.SegmentOffset), Length: uint32(e.Length), Sum: e.Checksum}
		k := len(p.parts) - 1
		for k >= 0 && p.parts[k].seg != g {
			k--
		}
		if k < 0 || p.hides(k, &item) {
			k = len(p.parts)
			p.parts = append(p.parts, part{seg: g})
			b.segments[g] = nil
		}
		p.parts[k].items = append(p.parts[k].items, item)
		if len(p.parts[k].items) > MaxExtents {
			return invalidCommit(c, fmt.Sprintf("more than %d extents in one segment", MaxExtents))
		}
	}
	if len(p.parts) > MaxExtents {
		return invalidCommit(c, "too many segments")
	}
	return nil
}

// hides reports whether an extent that is added to a part lies over one of a part behind
// it, which would be applied after it.
func (p *plan) hides(k int, e *format.RecordExtent) bool {
	for _, q := range p.parts[k+1:] {
		for i := range q.items {
			o := &q.items[i]
			if o.FileOffset < e.FileOffset+int64(e.Length) && e.FileOffset < o.FileOffset+int64(o.Length) {
				return true
			}
		}
	}
	return false
}

func invalidCommit(c *Commit, reason string) error {
	return bb.E(bb.Invalid, "commit", fileName(c.File, c.Generation), reason)
}

func (s *Store) leased(id bb.LeaseID) (*segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, &bb.Error{Kind: bb.Unavailable, Op: "commit", Err: errClosed}
	}
	g := s.mu.leases[id]
	if g == nil {
		return nil, bb.E(bb.Invalid, "commit", fmt.Sprintf("lease %d", id), "there is no such lease")
	}
	return g, nil
}

// lockShards locks the shards of a batch's files, and returns how to unlock them.
// They stay locked until the index has changed, so that the order of records and
// the order in which extents become visible are the same.
func (s *Store) lockShards(b *batch) (unlock func()) {
	if len(b.commits) == 1 {
		h := s.shard(b.commits[0].c.File)
		h.Lock()
		return h.Unlock
	}
	var want uint64
	for i := range b.commits {
		want |= 1 << shardOf(b.commits[i].c.File)
	}
	for i := range s.shards {
		if want&(1<<i) != 0 {
			s.shards[i].Lock()
		}
	}
	return func() {
		for i := range s.shards {
			if want&(1<<i) != 0 {
				s.shards[i].Unlock()
			}
		}
	}
}

// checkGenerations finds the generation, or the base, of every commit.
func (s *Store) checkGenerations(b *batch) error {
	for i := range b.commits {
		p := &b.commits[i]
		c, h := p.c, s.shard(p.c.File)
		if p.g = h.find(c.File, c.Generation); p.g != nil {
			if c.Whole {
				if err := p.coversAll(); err != nil {
					return err
				}
				continue
			}
			if p.g.sealed && p.flags&format.RecordClean == 0 {
				return invalidCommit(c, "the generation is sealed")
			}
			if p.g.base != c.Base || c.Fresh && p.g.origin != c.Generation {
				return invalidCommit(c, fmt.Sprintf("its base was %d, and the request names %d", p.g.base, c.Base))
			}
			if name := p.g.buffer.Value(); name != "" && name != c.Buffer {
				return invalidCommit(c, fmt.Sprintf("is in buffer %s, not in %s", name, c.Buffer))
			}
			continue
		}
		if i > 0 && slices.ContainsFunc(b.commits[:i], func(q plan) bool {
			return q.c.File == c.File && q.c.Generation == c.Generation && (q.c.Base != c.Base || q.c.Fresh != c.Fresh)
		}) {
			return invalidCommit(c, "two bases in one batch")
		}
		if c.Fresh || c.Base == 0 {
			continue
		}
		if p.base = h.find(c.File, c.Base); p.base == nil {
			return noGeneration("commit", c.File, c.Base)
		}
	}
	return nil
}

// coversAll checks that a whole commit covers all visible extents of its generation. Their records
// may be read before those of the commit after a restart, so none of them may stay visible. The
// caller holds the shard.
func (p *plan) coversAll() error {
	c := p.c
	if name := p.g.buffer.Value(); name != "" && name != c.Buffer {
		return invalidCommit(c, fmt.Sprintf("is in buffer %s, not in %s", name, c.Buffer))
	}
	runs, complete := runsOf(c.Extents), true
	p.g.ext.walk(0, math.MaxInt64, func(e *extent) bool {
		for len(runs) > 0 && runs[0].end <= e.off {
			runs = runs[1:]
		}
		complete = len(runs) > 0 && runs[0].from <= e.off && e.end() <= runs[0].end
		return complete
	})
	if !complete {
		return bb.E(bb.Exists, "commit", fileName(c.File, c.Generation), "has bytes that the whole does not")
	}
	return nil
}

// fileRun is a range of a file without a hole.
type fileRun struct{ from, end int64 }

// runsOf joins extents to the runs of the file that they cover, in order.
func runsOf(extents []NewExtent) (runs []fileRun) {
	for _, e := range slices.SortedFunc(slices.Values(extents), func(a, b NewExtent) int { return cmp.Compare(a.FileOffset, b.FileOffset) }) {
		if n := len(runs); n > 0 && e.FileOffset <= runs[n-1].end {
			runs[n-1].end = max(runs[n-1].end, e.FileOffset+e.Length)
			continue
		}
		runs = append(runs, fileRun{e.FileOffset, e.FileOffset + e.Length})
	}
	return runs
}

// writeBatch checks the space of all commits and then writes their records, with the segments
// locked, since they must get their records in order of sequence, and one below the other, since
// recovery ends at the first that is missing.
func (s *Store) writeBatch(b *batch) error {
	for _, g := range b.ordered {
		g.mu.Lock()
		defer g.mu.Unlock()
		b.segments[g] = &space{g.mu.floor, g.mu.dataEnd}
	}
	for i := range b.commits {
		if err := checkSpace(&b.commits[i], b); err != nil {
			return err
		}
	}
	for g, sp := range b.segments {
		if err := g.reserve(sp.floor); err != nil {
			return err
		}
	}
	return guard("commit", "", func() error {
		for i := range b.commits {
			s.writeRecords(&b.commits[i])
		}
		for g, sp := range b.segments {
			g.mu.dataEnd = sp.dataEnd
		}
		return nil
	})
}

// takeData takes the space of a batch's extents without records of them. Nothing else is written
// there while the segments live, and a restart finds them empty there.
func (s *Store) takeData(b *batch) error {
	for _, g := range b.ordered {
		g.mu.Lock()
		defer g.mu.Unlock()
		b.segments[g] = &space{g.mu.floor, g.mu.dataEnd}
	}
	for i := range b.commits {
		if err := checkSpace(&b.commits[i], b); err != nil {
			return err
		}
	}
	for i := range b.commits {
		for _, q := range b.commits[i].parts {
			q.seg.addFile(b.commits[i].c.File)
			q.seg.lastUse.Store(s.clock.Add(1))
		}
	}
	for g, sp := range b.segments {
		g.mu.dataEnd = sp.dataEnd
	}
	return nil
}

// checkSpace checks that a commit's extents lie within its leases and leave room for its records.
func checkSpace(p *plan, b *batch) error {
	for k := range p.parts {
		g, sp := p.parts[k].seg, b.segments[p.parts[k].seg]
		if g.buffer.Value() != p.c.Buffer {
			return invalidCommit(p.c, fmt.Sprintf("a lease of buffer %s used in buffer %s", g.buffer.Value(), p.c.Buffer))
		}
		sp.floor -= format.RecordCost(len(p.parts[k].items))
		for _, e := range p.parts[k].items {
			if int64(e.Offset) < g.mu.start {
				return invalidCommit(p.c, fmt.Sprintf("an extent at %d of the segment, before the lease's start %d", e.Offset, g.mu.start))
			}
			sp.dataEnd = max(sp.dataEnd, int64(e.Offset)+int64(e.Length))
		}
		if sp.dataEnd > sp.floor {
			return invalidCommit(p.c, fmt.Sprintf("data ends at %d of the segment, where only %d are left beside the records", sp.dataEnd, sp.floor))
		}
		if g.mu.lease == 0 || !slices.ContainsFunc(p.c.Extents, func(e NewExtent) bool { return e.Lease == g.mu.lease }) {
			return invalidCommit(p.c, "a lease ended meanwhile")
		}
	}
	return nil
}

// writeRecords writes the records of one commit. With one part, the commit exists once the record's
// word is written. With several, all are written as prepared before the first is complete. After a
// crash the commit counts if any part is complete, or if all are there. All are complete before the
// commit is acknowledged, so that later none of them needs the others.
func (s *Store) writeRecords(p *plan) {
	c := p.c
	rec := format.Record{File: c.File, Generation: c.Generation, Base: c.Base, Origin: p.origin(), Sequence: s.sequence.Add(1), Parts: uint16(len(p.parts)), Flags: p.flags}
	tops := make([]int64, len(p.parts))
	for k := range p.parts {
		r := rec
		r.Part, r.Items = uint16(k), p.parts[k].items
		g := p.parts[k].seg
		tops[k] = g.append(&r)
		g.addFile(c.File)
		g.lastUse.Store(s.clock.Add(1))
		s.crash("record written")
		if len(p.parts) > 1 {
			format.SetState(g.records(), tops[k], format.RecordPrepared, len(r.Items))
			s.crash("part prepared")
		}
	}
	for k := range p.parts {
		format.SetState(p.parts[k].seg.records(), tops[k], format.RecordComplete, len(p.parts[k].items))
		s.crash("part complete")
	}
}

func (p *plan) origin() bb.Generation {
	switch {
	case p.c.Whole:
		return p.c.Generation
	case p.g != nil:
		return p.g.origin
	case p.base != nil:
		return p.base.origin
	default:
		return p.c.Generation
	}
}

// apply changes the index. The caller holds the file's shard.
func (s *Store) apply(p *plan, d *dead) {
	c, h := p.c, s.shard(p.c.File)
	g := h.find(c.File, c.Generation) // an earlier commit of the batch may have made it
	if g == nil {
		g = &generation{file: c.File, number: c.Generation, base: c.Base, origin: p.origin(), buffer: unique.Make(c.Buffer)}
		if p.base != nil {
			g.ext = p.base.ext.copy()
		}
		h.insert(g)
	}
	if p.note != nil && h.anchors[g] == nil {
		h.anchors[g] = p.note
	} else if p.note != nil && p.note.refs.Add(-1) == 0 {
		*d = append(*d, p.note)
	}
	if g.buffer.Value() == "" {
		g.buffer = unique.Make(c.Buffer)
	}
	g.clean = g.clean && len(p.parts) == 0
	if c.Whole {
		g.base, g.origin, g.sealed, g.clean = 0, c.Generation, false, false
	}
	for k := range p.parts {
		for _, e := range p.parts[k].items {
			g.ext.put(newExtent(p.parts[k].seg, e, dirty), d)
		}
	}
}

func newExtent(g *segment, e format.RecordExtent, state extentState) extent {
	return extent{off: e.FileOffset, seg: g, sum: e.Sum, length: e.Length, offset: e.Offset, whole: e.Length, state: state}
}
