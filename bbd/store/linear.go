package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"unique"

	"forebay/bbd/store/format"
	"forebay/bbd/store/linear"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Linearise moves the bytes of a sealed generation to a region of their own, in which each lies at its offset in the file
// (package linear), and verifies them there. A linear region is made in place of empty ones. Once all of its bytes
// are gone, an ordinary one is made in its place. Its segments are spilled, evicted and recovered as any others. Its
// pages never change while they are anyone's, so a reader that has them open may read them in the file's place.
//
// If the generation is linear, nothing is done. bb.NoSpace if too little memory is empty. bb.Unsupported if a file
// cannot be linear: a small or very large one, one with bytes on disk or evicted, of several users, of very many
// extents. bb.Busy if the generation is written, or while anything else is moved.
func (s *Store) Linearise(ctx context.Context, f bb.FileID, n bb.Generation) error {
	if !s.spillMu.TryLock() { // nothing is spilled meanwhile, and Close waits
		return bb.E(bb.Busy, "linearise", fileName(f, n), "another file is being moved, or memory is being spilled")
	}
	defer s.spillMu.Unlock()
	v, err := s.Snapshot(f, n)
	if err != nil {
		return err
	}
	defer v.Close()
	if err := s.mayLinearise(v); err != nil {
		return err
	}
	pinned, runs, err := v.pinSealed()
	if err != nil {
		return err
	}
	defer pinned.Release()
	m := &lineariser{s: s, v: v, shown: map[int]*segment{}}
	if done, err := m.plan(runs); done || err != nil {
		return err
	}
	r, err := s.makeLinear(m.first.uid, v.size)
	if err != nil {
		return err
	}
	err = m.copy(ctx, r)
	if err == nil {
		s.crash("linear copied")
		err = m.layOut(r)
	}
	if err == nil {
		s.crash("linear laid out")
		err = m.show()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range m.parts {
		s.freeIfDead(p.seg) // where it is not shown
	}
	s.replaceVacated(r)
	return err
}

func (s *Store) mayLinearise(v *Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return &bb.Error{Kind: bb.Unavailable, Op: "linearise", Err: errClosed}
	case s.wanted.memory == 0:
		return notLinear(v, "memory lies on no tmpfs")
	case v.size < linear.Least || v.size > linear.Most:
		return notLinear(v, fmt.Sprintf("has %d bytes", v.size))
	case s.o.DiskDir != "" && !linear.Spills(v.size, s.o.RegionBytes):
		return notLinear(v, fmt.Sprintf("regions of %d bytes on disk are too small to spill it to", s.o.RegionBytes))
	}
	return nil
}

// pinSealed is pinRuns of all of a generation that is not written any more.
func (v *Snapshot) pinSealed() (*Pinned, []run, error) {
	h := v.s.shard(v.g.file)
	h.Lock()
	sealed := v.g.sealed
	h.Unlock()
	if !sealed {
		return nil, nil, bb.E(bb.Busy, "linearise", fileName(v.File()), "is being written")
	}
	return v.pinRuns(0, v.size)
}

func notLinear(v *Snapshot, why string) error {
	return bb.E(bb.Unsupported, "linearise", fileName(v.File()), why)
}

// lineariser moves one generation.
type lineariser struct {
	s      *Store
	v      *Snapshot
	first  *segment // of the present ones
	from   *region  // of first
	runs   []run    // without holes
	pieces []linearPiece
	parts  []part
	shown  map[int]*segment // by linear.Of
}

// linearPiece is a run, or a part of one, that lies in one segment of the linear region.
type linearPiece struct {
	run  int
	mem  []byte // pinned
	item format.RecordExtent
}

// plan describes the bytes as they are to be. Done: they are linear.
func (m *lineariser) plan(runs []run) (done bool, err error) {
	done = true
	for i := range runs {
		r := &runs[i]
		if r.hole() {
			continue
		}
		if r.state == evicted {
			return false, notLinear(m.v, "is partly evicted")
		}
		if m.first == nil {
			m.first = r.seg
		}
		if r.seg.uid != m.first.uid || r.seg.buffer != m.first.buffer || r.seg.tier != bb.TierMemory {
			return false, notLinear(m.v, "is of several users, or belongs on disk")
		}
		r.seg.mu.Lock()
		from := r.seg.mu.region
		if m.from == nil {
			m.from = from
		}
		done = done && from.Linear && from == m.from && r.seg.at()+int64(r.offset) == r.off
		mem := r.seg.bytes(int64(r.offset), int64(r.length))
		r.seg.mu.Unlock()
		if from.Tier != bb.TierMemory {
			return false, notLinear(m.v, "is partly on disk")
		}
		m.runs = append(m.runs, *r)
		if err := m.cut(r, mem); err != nil {
			return false, err
		}
	}
	return done && m.first != nil, nil
}

// cut adds a run's pieces. A piece of an extent gets a checksum of its own, once the whole extent is verified.
func (m *lineariser) cut(r *run, mem []byte) error {
	items := linear.Cut(r.off, r.end(), r.sum)
	for _, item := range items {
		at := item.FileOffset - r.off
		m.pieces = append(m.pieces, linearPiece{len(m.runs) - 1, mem[at : at+int64(item.Length)], item})
	}
	if len(items) == 1 && r.length == r.whole {
		return nil
	}
	if _, err := r.verified(m.v.File()); err != nil {
		return err
	}
	return guard("linearise", "", func() error {
		for i := len(m.pieces) - len(items); i < len(m.pieces); i++ {
			m.pieces[i].item.Sum = checksum.Sum(m.pieces[i].mem)
		}
		return nil
	})
}

// copy writes the bytes to the region's pages, and verifies them there.
func (m *lineariser) copy(ctx context.Context, r *region) error {
	return guard("linearise", r.Path, func() error {
		for i := range m.pieces {
			p := &m.pieces[i]
			if err := ctx.Err(); err != nil {
				return bb.Wrap("linearise", fileName(m.v.File()), err)
			}
			at := p.item.FileOffset
			if _, err := r.File.WriteAt(p.mem, at); err != nil {
				return bb.Wrap("linearise", r.Path, err)
			}
			if got := checksum.Sum(r.Mem[at : at+int64(p.item.Length)]); got != p.item.Sum {
				return bb.E(bb.Checksum, "linearise", fmt.Sprintf("%s range %d+%d", fileName(m.v.File()), at, p.item.Length),
					fmt.Sprintf("checksum is %016x, was committed as %016x", got, p.item.Sum))
			}
		}
		return nil
	})
}

// layOut makes the segments of the region that have bytes, with room for their records.
func (m *lineariser) layOut(r *region) error {
	s := m.s
	segments, _ := linear.Layout(m.v.size)
	items := make([][]format.RecordExtent, len(segments))
	for i := range m.pieces {
		at := linear.Of(m.pieces[i].item.FileOffset)
		items[at] = append(items[at], m.pieces[i].item)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range segments {
		if len(items[i]) == 0 {
			continue
		}
		s.mu.segmentSeq++
		g := &segment{
			sequence: s.mu.segmentSeq, nonce: rand.Uint64() | 1, length: l.Units * Unit,
			uid: m.first.uid, buffer: m.first.buffer, tier: bb.TierMemory,
		}
		g.mu.state, g.mu.region, g.mu.offset = segSealed, r, l.Unit*Unit
		g.mu.start, g.mu.dataEnd = format.DataStart, format.DataStart+l.To-l.From
		g.mu.floor, g.mu.ready = g.length-format.RecordEnd, g.length
		floor := g.mu.floor - format.RecordCost(len(items[i]))
		if floor < g.mu.dataEnd || len(items[i]) > MaxExtents {
			return notLinear(m.v, "has too many extents")
		}
		err := g.reserve(floor)
		if err == nil {
			err = guard("linearise", r.Path, func() error {
				clear(g.records()[g.mu.floor:])
				r.WriteSlot(l.Unit, g.header())
				return nil
			})
		}
		if err != nil {
			return err
		}
		r.take(g, l.Unit)
		s.mu.segments[g] = struct{}{}
		m.parts, m.shown[i] = append(m.parts, part{g, items[i]}), g
	}
	return nil
}

// show writes the records, and then shows the bytes in the generation, in the state that they have there.
func (m *lineariser) show() error {
	var d dead
	f, n := m.v.File()
	h := m.s.shard(f)
	h.Lock()
	defer func() { h.Unlock(); m.s.reap(d) }()
	g := h.find(f, n)
	if g == nil || !g.sealed {
		return bb.E(bb.Busy, "linearise", fileName(f, n), "is not sealed, or dropped")
	}
	states, flags := make([]extentState, 0, len(m.runs)), uint16(format.RecordClean)
	same := true
	g.ext.walk(0, math.MaxInt64, func(e *extent) bool {
		k := len(states)
		same = k < len(m.runs) && m.runs[k].seg == e.seg && m.runs[k].off == e.off && m.runs[k].length == e.length && m.runs[k].offset == e.offset
		if states = append(states, e.state); e.state != clean {
			flags = 0
		}
		return same
	})
	if !same || len(states) != len(m.runs) {
		return bb.E(bb.Busy, "linearise", fileName(f, n), "changed meanwhile")
	}
	p := &plan{c: &Commit{File: f, Generation: n, Base: g.base, Buffer: m.first.buffer.Value()}, flags: flags, parts: m.parts, g: g}
	for _, q := range m.parts {
		q.seg.mu.Lock()
		defer q.seg.mu.Unlock()
	}
	if err := guard("linearise", "", func() error { m.s.writeRecords(p); return nil }); err != nil {
		return err
	}
	if g.buffer.Value() == "" {
		g.buffer = unique.Make(p.c.Buffer)
	}
	for _, piece := range m.pieces {
		g.ext.put(newExtent(m.shown[linear.Of(piece.item.FileOffset)], piece.item, states[piece.run]), &d)
	}
	m.s.crash("linear shown")
	return nil
}

// makeLinear makes a linear region of a user in place of empty ones.
func (s *Store) makeLinear(uid uint32, size int64) (*region, error) {
	_, journal := linear.Layout(size)
	need := (size + regionfile.JournalLeast(journal) + Unit - 1) / Unit * Unit
	taken, sum := s.takeEmpty(uid, need)
	if taken == nil {
		return nil, bb.E(bb.NoSpace, "linearise", s.memDir, fmt.Sprintf("too little memory is empty for a region of %d bytes", size))
	}
	for _, r := range taken {
		s.remove(r)
	}
	h := format.RegionHeader{
		ID: bb.RegionID(rand.Uint64() | 1), Size: journal, Pages: size, UID: uid, Instance: s.instance, Owner: s.owner,
		Flags: format.RegionLinear,
	}
	files, err := regionfile.Create(s.memDir, h)
	var r *region
	if err == nil {
		r = newRegion(files)
		r.owner = s.owner
		err = r.assign(uid, s.instance)
		sum -= need
	}
	if err == nil {
		s.made(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != nil {
		s.mu.regions = append(s.mu.regions, r)
	}
	if sum >= 2*Unit && !s.mu.closed {
		s.making.Go(func() { s.makeRegion(sum, reservation{}) })
	} else {
		s.mu.replacing--
	}
	if err != nil && r != nil {
		s.replaceVacated(r)
	}
	return r, err
}

// takeEmpty retires empty regions of so many bytes together, and returns them and their bytes, for one region that is to
// be made in their place.
func (s *Store) takeEmpty(uid uint32, need int64) (taken []*region, sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || s.mu.replacing > 0 || s.shared() && !s.admitsRegion(uid, false) {
		return nil, 0
	}
	var empty []*region
	var sizes []int64
	for _, r := range s.mu.regions {
		if r.leasable() && r.used == 0 && !r.reserved.against(uid, true) {
			empty, sizes = append(empty, r), append(sizes, r.Size)
		}
	}
	n, sum := linear.Take(need, sizes)
	if n == 0 {
		return nil, 0
	}
	for _, r := range empty[:n] {
		r.retiring = true
	}
	s.mu.replacing++
	return empty[:n], sum
}

// together returns the segments whose memory is free only when that of all of them is: those of a linear region, or
// the segment alone.
func (s *Store) together(g *segment) (all []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	r := g.mu.region
	g.mu.Unlock()
	if !r.Linear {
		return []*segment{g}
	}
	for i := int64(1); i < int64(len(r.units)); i++ {
		if in := r.units[i]; in != nil {
			all = append(all, in)
			i += in.length/Unit - 1
		}
	}
	return all
}

// removeEmptyLinear deletes linear regions that recovery found empty. The store is not open yet.
func (s *Store) removeEmptyLinear() {
	var left []*region
	for _, r := range s.mu.regions {
		if r.Linear && r.used == 0 {
			left = append(left, r)
		}
	}
	for _, r := range left {
		s.remove(r)
	}
}
