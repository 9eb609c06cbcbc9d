package store

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"unique"

	"forebay/bbd/store/format"
	"forebay/bbd/store/regionfile"
	"forebay/internal/bb"
)

// recovered is a record found at start.
type recovered struct {
	format.Record
	seg *segment
	top int64
}

// recover adopts regions, reads their records and builds the index of them. All segments come back
// sealed. A client of the dead process may still be copying into segments that it had leased.
func (s *Store) recover(ctx context.Context, found []candidate) error {
	s.instance = bb.InstanceID(rand.Uint64() | 1)
	if i := foundInstance(found); i >= 0 {
		s.instance = found[i].Header.Instance
	}
	if err := s.adoptAllOlder(ctx, found); err != nil {
		return err
	}
	nonces := map[uint64]bool{}
	var records []recovered
	for i := range found {
		if err := ctx.Err(); err != nil {
			return bb.Wrap("recover", s.memDir, err)
		}
		records = append(records, s.recoverRegion(&found[i], nonces)...)
	}
	regionfile.RemoveUnfinished(s.log, s.memDir, s.o.DiskDir)
	records = s.recoverIdentities(s.decide(records, found))
	s.rebuild(records)
	s.findOrigins()
	s.found.recovered = len(records)
	s.claims()
	var d dead
	for g := range s.mu.segments {
		d = append(d, g)
	}
	if s.o.KeepUncommitted {
		s.found.uncommitted = d
		s.findWriters(d)
		return nil
	}
	s.reap(d)
	return nil
}

// adoptAllOlder makes the journals of regions of older versions, before anything else is changed.
// The first is that of the store's own records, which grows. One that cannot have any is set aside.
func (s *Store) adoptAllOlder(ctx context.Context, found []candidate) error {
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Compare(b.Header.Flags&format.RegionLog, a.Header.Flags&format.RegionLog)
	})
	for i := range found {
		c := &found[i]
		if c.Err != nil || !c.Older {
			continue
		}
		if err := ctx.Err(); err != nil {
			return bb.Wrap("recover", s.memDir, err)
		}
		if c.Err = s.adoptInRoom(c, found); c.Err == nil && c.without == nil {
			s.log.Info("gave a region of an older release a journal", "path", c.Path, "version", c.Header.Version)
		}
	}
	return nil
}

// foundInstance returns the index of the region of the memory tier that records this memory's
// instance. If there is none, it returns -1. In regions of older versions, users cannot write to
// that of the store's own records.
func foundInstance(found []candidate) int {
	of := func(log bool) int {
		return slices.IndexFunc(found, func(c candidate) bool {
			return c.Err == nil && c.Tier == bb.TierMemory && (!log || c.Header.Flags&format.RegionLog != 0)
		})
	}
	if i := of(true); i >= 0 {
		return i
	}
	return of(false)
}

// If Options.KeepUncommitted kept them, FreeUncommitted frees the segments that recovery found
// without anything committed in them and without the lock of a writer. Idempotent.
func (s *Store) FreeUncommitted() {
	s.mu.Lock()
	d := s.found.uncommitted
	s.found.uncommitted = nil
	s.mu.Unlock()
	s.reap(d)
}

// MemoryLost reports whether the disk tier has outlived the memory that it belonged to. The disk
// may lack the last commits. It is so at each start until Settle.
func (s *Store) MemoryLost() bool { return s.found.memoryLost }

// Settle makes the disk tier that of the present memory. It is called once the losses
// with the memory before are recorded elsewhere. A region that cannot be written to
// stays one of the memory before. Idempotent.
func (s *Store) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.mu.regions {
		if r.outlived == 0 || s.mu.closed {
			continue
		}
		outlived := r.outlived
		r.outlived = 0
		if err := guard("settle", r.Path, func() error { r.writeHeader(s.instance); return nil }); err != nil {
			r.outlived = outlived
			s.log.Error("settle a region of the disk tier", "error", err)
		}
	}
}

// recoverRegion adopts one region. One that cannot be read is reported and left alone, so nothing
// that is found in memory keeps the rest from being served.
func (s *Store) recoverRegion(c *candidate, nonces map[uint64]bool) []recovered {
	if c.Err == regionfile.ErrNoPages && c.RemoveEmptyJournal() {
		return nil
	}
	if c.Err != nil {
		s.found.aside++
		s.damaged(Damage{Path: c.Path, Segment: -1, To: format.HeaderCopy + format.HeaderSize, What: c.Err.Error()})
		return nil
	}
	r, err := c.adopt()
	if err != nil {
		s.setAside(c, nil, err)
		return nil
	}
	s.mu.regions = append(s.mu.regions, r)
	s.found.adopted++
	if r.Tier == bb.TierDisk && c.Header.Instance != s.instance {
		r.outlived = c.Header.Instance
		s.found.memoryLost = true
	}
	if c.Mended {
		s.damaged(Damage{Region: r.ID, Path: r.Path, Segment: -1, To: format.HeaderSize, Mended: true, What: "the header was damaged and is mended from its copy"})
	}
	records, err := s.readRegion(r, c, nonces)
	if err != nil {
		s.setAside(c, r, err)
		return nil
	}
	return records
}

// readRegion adopts the segments of a region, and returns their records.
func (s *Store) readRegion(r *region, c *candidate, nonces map[uint64]bool) (records []recovered, err error) {
	used, err := r.UsedSlots()
	if err != nil {
		return nil, err
	}
	err = guard("recover", r.Path, func() error {
		if err := s.takeOver(r, c); err != nil {
			return err
		}
		for unit := int64(1); unit < int64(len(r.units)); unit++ {
			if !used[unit] {
				continue
			}
			g := s.recoverSegment(r, unit, nonces)
			if g == nil {
				continue
			}
			records = append(records, s.recoverRecords(g)...)
			unit += g.length/Unit - 1
		}
		return nil
	})
	return records, err
}

func (s *Store) damaged(d Damage) {
	s.found.damage = append(s.found.damage, d)
	s.log.Error("damaged bytes in a region", "region", d.Region, "path", d.Path, "segment", d.Segment,
		"from", d.From, "to", d.To, "buffer", d.Buffer, "what", d.What)
}

// recoverSegment reads slot unit, or its copy where the slot is damaged. It returns nil where
// neither can be read, the segment was spilled, or it is not the region's user's.
func (s *Store) recoverSegment(r *region, unit int64, nonces map[uint64]bool) *segment {
	slot, other := r.Slot(unit), r.SlotCopy(unit)
	h, err := format.DecodeSegmentHeader(slot)
	mend := func(p []byte) {
		h.Encode(p)
		format.Publish(p, 0, format.SegmentMagic)
	}
	fits := func() bool { return unit+h.Units <= int64(len(r.units)) }
	report := func(mended bool, what string) {
		s.damaged(Damage{Region: r.ID, Path: r.Path, Segment: unit * Unit, To: format.SlotSize, Buffer: h.Buffer, Mended: mended, What: what})
	}
	if err != nil || !fits() {
		if h, err = format.DecodeSegmentHeader(other); err != nil || !fits() {
			h = format.SegmentHeader{}
			report(false, "slot of the segment and its copy are damaged: its content is lost")
			return nil
		}
		mend(slot)
		report(true, "the slot was damaged and is mended from its copy")
	} else if copied, err := format.DecodeSegmentHeader(other); err == nil && spilledWithoutTier(copied, h) {
		h = copied
		mend(slot)
	} else if err != nil || copied != h {
		mend(other)
		report(true, "the slot's copy was damaged and is mended from the slot")
	}
	if !r.Log && r.owned && h.UID != r.uid {
		report(false, fmt.Sprintf("the segment is user %d's, in a region of user %d: it is left alone", h.UID, r.uid))
		return nil
	}
	if nonces[h.Nonce] { // spilled, so both copies are whole, and the one in memory came first
		format.Publish(slot, 0, 0)
		return nil
	}
	nonces[h.Nonce] = true
	return s.adoptSegment(r, unit, h)
}

// spilledWithoutTier reports whether slot is that of a segment with header h, as releases
// wrote it that left the tier out of the slots of spilled segments.
func spilledWithoutTier(h format.SegmentHeader, slot format.SegmentHeader) bool {
	if slot.Tier != bb.TierMemory {
		return false
	}
	slot.Tier = h.Tier
	return slot == h && h.Tier == bb.TierDisk
}

func (s *Store) adoptSegment(r *region, unit int64, h format.SegmentHeader) *segment {
	g := &segment{sequence: h.Sequence, nonce: h.Nonce, length: h.Units * Unit, uid: r.uid, buffer: unique.Make(h.Buffer), tier: h.Tier}
	g.mu.region, g.mu.offset = r, unit*Unit
	g.mu.state = segSealed
	g.mu.ready = 0 // unknown, so giveBack releases all
	g.mu.left = r.Tier == bb.TierMemory && !r.Log && !r.Linear
	if r.Log && !r.vacating { // only this process writes there
		g.mu.state = segPartial
		s.mu.partial[notesKey()] = append(s.mu.partial[notesKey()], g)
	}
	r.take(g, unit)
	s.mu.segments[g] = struct{}{}
	s.mu.segmentSeq = max(s.mu.segmentSeq, h.Sequence)
	return g
}

func (s *Store) recoverRecords(g *segment) (list []recovered) {
	r := g.mu.region
	g.mu.floor, g.mu.dataEnd = g.scan(func(rec *format.Record, top int64) {
		if rec.State == format.RecordVoid {
			return
		}
		if rec.Flags&(format.RecordEvicted|format.RecordIdentity) != 0 && !r.Log {
			s.damaged(Damage{Region: r.ID, Path: r.Path, Segment: g.mu.offset, From: top - format.RecordHead, To: top, Buffer: g.buffer.Value(), What: "a record of an eviction, or an identity, in a segment of users"})
			return
		}
		list = append(list, recovered{*rec, g, top})
		s.sequence.Store(max(s.sequence.Load(), rec.Sequence))
	}, func(from, to int64, claim *format.Record) {
		s.damaged(Damage{
			Region: r.ID, Path: r.Path, Segment: g.mu.offset, From: from, To: to, Buffer: g.buffer.Value(),
			What: "a commit record is damaged", File: claim.File, Generation: claim.Generation,
		})
	})
	return list
}

// scan calls each for every record of the segment, newest last, and bad (unless
// nil) for every run of bytes that should be records. It returns the floor and the
// end of the data.
func (g *segment) scan(each func(r *format.Record, top int64), bad func(from, to int64, claim *format.Record)) (floor, dataEnd int64) {
	return g.scanIn(g.records(), each, bad)
}

// scanIn is scan of records that may also lie elsewhere, as those of an older version in the pages.
func (g *segment) scanIn(mem []byte, each func(r *format.Record, top int64), bad func(from, to int64, claim *format.Record)) (floor, dataEnd int64) {
	return format.Scan(mem, g.length, g.nonce, func(top int64) int64 {
		if &mem[0] != &g.records()[0] {
			return 0
		}
		return g.mu.region.WrittenFrom(g.mu.offset, g.mu.offset+top) - g.mu.offset
	}, each, bad)
}

// decide settles commits of several parts. They count if any part is complete, or if all are there.
// Records of other commits are struck out. It returns the records without those of regions that
// cannot be written to, which are set aside.
func (s *Store) decide(records []recovered, found []candidate) []recovered {
	type commit struct{ parts, seen, complete int }
	open := map[uint64]*commit{}
	for i := range records {
		if r := &records[i]; r.Parts > 1 {
			c := open[r.Sequence]
			if c == nil {
				c = &commit{parts: int(r.Parts)}
				open[r.Sequence] = c
			}
			c.seen++
			if r.State == format.RecordComplete {
				c.complete++
			}
		}
	}
	faulty := map[*region]bool{}
	for i := range records {
		r := &records[i]
		if r.State != format.RecordPrepared {
			continue
		}
		r.State = format.RecordComplete
		if c := open[r.Sequence]; c != nil && c.complete == 0 && c.seen < c.parts {
			r.State = format.RecordVoid
		}
		region := r.seg.mu.region
		if faulty[region] {
			continue
		}
		err := guard("recover", region.Path, func() error {
			format.SetState(r.seg.records(), r.top, r.State, r.Length())
			return nil
		})
		if err != nil {
			faulty[region] = true
			c := found[slices.IndexFunc(found, func(c candidate) bool { return c.Path == region.Path })]
			s.setAside(&c, region, err)
		}
	}
	return slices.DeleteFunc(records, func(r recovered) bool { return faulty[r.seg.mu.region] })
}

// rebuild makes the index of the records, in the order in which they were written.
func (s *Store) rebuild(records []recovered) {
	order := make([]*recovered, 0, len(records))
	for i := range records {
		if records[i].State != format.RecordVoid {
			order = append(order, &records[i])
		}
	}
	slices.SortFunc(order, func(a, b *recovered) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Generation, b.Generation),
			cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Part, b.Part))
	})
	var d dead
	var g *generation
	for _, r := range order {
		h := s.shard(r.File)
		if g == nil || g.file != r.File || g.number != r.Generation {
			g = h.recoverGeneration(r)
		}
		g.replay(h, r, &d)
	}
}

// recoverGeneration makes a generation that starts as its base, as far as there
// are records of that. Where there are none, all of the base's own extents were
// overwritten by generations that build on it, and the next older one counts,
// down to the one that started from nothing.
func (h *shard) recoverGeneration(r *recovered) *generation {
	g := &generation{file: r.File, number: r.Generation, base: r.Base, origin: r.Origin, buffer: r.seg.buffer}
	for b := h.files[r.File]; b != nil && r.Origin != r.Generation; b = b.next {
		if b.number <= r.Base && b.number >= r.Origin {
			g.ext = b.ext.copy()
			break
		}
	}
	h.insert(g)
	return g
}

func (g *generation) replay(h *shard, r *recovered, d *dead) {
	if name := r.seg.buffer; g.buffer.Value() == "" && name.Value() != "" {
		g.buffer = name
	}
	r.seg.addFile(r.File)
	r.seg.lastUse.Store(int64(r.seg.sequence) - math.MaxInt32)
	if len(r.Items) == 0 && h.anchors[g] == nil {
		h.anchors[g] = r.seg
		r.seg.refs.Add(1)
	}
	for _, item := range r.Items {
		state := dirty
		switch {
		case r.Flags&format.RecordEvicted != 0:
			state = evicted
		case r.Flags&format.RecordClean != 0:
			state = clean
		}
		g.ext.put(newExtent(r.seg, item, state), d)
	}
}

func (s *Store) claims() {
	s.found.claimed = map[bb.FileID][]bb.Generation{}
	for _, d := range s.found.damage {
		if d.File != 0 {
			s.found.claimed[d.File] = append(s.found.claimed[d.File], d.Generation)
		}
	}
}

// Adopt makes a generation of a file the true one after a restart. Older ones are dropped, and
// those that are not part of the true one are void, since they belong to commits that were never
// acknowledged. It returns bb.NotFound if nothing of the generation is here. It returns bb.Lost if
// a damaged record claims to be of it. Size and Checksum, compared with the namespace's entry, show
// whether all of a closed file is here.
func (s *Store) Adopt(f bb.FileID, n bb.Generation) error { return s.adoptAs(f, n, false) }

// AdoptClean is Adopt of a generation that the backing store holds. The generation is sealed.
func (s *Store) AdoptClean(f bb.FileID, n bb.Generation) error { return s.adoptAs(f, n, true) }

func (s *Store) adoptAs(f bb.FileID, n bb.Generation, isClean bool) error {
	h := s.shard(f)
	h.Lock()
	g := h.find(f, n)
	if g == nil {
		h.Unlock()
		return noGeneration("adopt", f, n)
	}
	if isClean {
		g.sealed = true // on the backing store is a closed one. The writer of a dirty one may continue
		h.markClean(g)
	}
	others := h.others(g)
	h.Unlock()
	for number, void := range others {
		if void {
			if err := s.Void(f, number); err != nil {
				return err
			}
		} else {
			s.DropGeneration(f, number)
		}
	}
	if slices.ContainsFunc(s.found.claimed[f], func(c bb.Generation) bool { return c <= n && c >= g.origin }) {
		return bb.E(bb.Lost, "adopt", fileName(f, n), "a damaged commit record claims to be of it").
			WithRemedy("compare size and checksum with the entry: a file with both equal is whole")
	}
	return nil
}

// others returns a file's generations besides g, and whether they are void, that is, not in the
// chain of bases that g builds on.
func (h *shard) others(g *generation) map[bb.Generation]bool {
	others := map[bb.Generation]bool{}
	next := g.base
	if g.origin == g.number {
		next = 0
	}
	for o := range h.generations(g.file) { // newest first
		if o == g || o.gone {
			continue
		}
		onChain := o.number <= next && o.number >= g.origin
		if onChain {
			next = o.base
		}
		others[o.number] = !onChain && (o.number > g.number || o.number >= g.origin)
	}
	return others
}

// Files lists the store's files, in no order. Files that change meanwhile may be missed.
func (s *Store) Files() iter.Seq[FileInfo] {
	return func(yield func(FileInfo) bool) {
		for i := range s.shards {
			for _, info := range s.shards[i].infos() {
				if info.Identity == nil {
					info.Origin = s.found.origins[info.File]
				}
				if !yield(info) {
					return
				}
			}
		}
	}
}

// FileIDs returns the files of Files, in no order, without the cost of their identities.
func (s *Store) FileIDs() (list []bb.FileID) {
	for i := range s.shards {
		h := &s.shards[i]
		h.Lock()
		for f := range h.files {
			for g := range h.generations(f) {
				if !g.gone {
					list = append(list, f)
					break
				}
			}
		}
		h.Unlock()
	}
	return list
}

func (h *shard) infos() []FileInfo {
	h.Lock()
	defer h.Unlock()
	list := make([]FileInfo, 0, len(h.files))
	for f := range maps.Keys(h.files) {
		info := FileInfo{File: f, Identity: h.identity(f)}
		for g := range h.generations(f) {
			if g.gone {
				continue
			}
			info.Generations = append(info.Generations, g.info())
			if info.Buffer == "" {
				info.Buffer = g.buffer.Value()
			}
		}
		slices.Reverse(info.Generations)
		if len(info.Generations) > 0 {
			list = append(list, info)
		}
	}
	return list
}

func (g *generation) info() GenerationInfo {
	i := GenerationInfo{Generation: g.number, Base: g.base, Size: g.ext.size(), Sealed: g.sealed, Clean: g.clean}
	g.ext.walk(0, math.MaxInt64, func(e *extent) bool {
		n := int64(e.length)
		switch e.state {
		case evicted:
			i.Evicted += n
		case dirty:
			i.Dirty += n
			i.Resident += n
		default:
			i.Resident += n
		}
		if e.state != evicted && !slices.Contains(i.UIDs, e.seg.uid) {
			i.UIDs = append(i.UIDs, e.seg.uid)
		}
		return true
	})
	return i
}

// Damage lists the records that recovery could not read.
func (s *Store) Damage() []Damage { return slices.Clone(s.found.damage) }
