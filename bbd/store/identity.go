package store

import (
	"math"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// identityAt is where the identity of a file lies that counts.
type identityAt struct {
	seg        *segment
	top        int64
	bytes      int64 // of its record
	generation bb.Generation
	sequence   uint64
}

// Identify writes the identity of a file, in place of the one that it had. It is memory
// alone, like a commit. It lasts until the file is dropped, or the generation that it
// names. bb.NoSpace where there is no room for more of the store's own records.
func (s *Store) Identify(id *format.Identity) error {
	s.tidyNotes()
	err := s.identify(id)
	if bb.KindOf(err) == bb.NoSpace && s.growLog() {
		err = s.identify(id)
	}
	return err
}

func (s *Store) identify(id *format.Identity) error {
	var d dead
	h := s.shard(id.File)
	h.Lock()
	err := s.noteIdentity(h, id.File, id.Generation, format.AppendIdentity(nil, id), &d)
	h.Unlock()
	s.reap(d)
	return err
}

// noteIdentity writes the record of an identity and then strikes out the one before. After a kill
// in between, the later one counts. The caller holds the shard.
func (s *Store) noteIdentity(h *shard, f bb.FileID, n bb.Generation, payload []byte, d *dead) error {
	r := format.Record{File: f, Generation: n, Origin: n, Parts: 1, Flags: format.RecordIdentity, Payload: payload}
	g, err := s.note(&r)
	if err != nil {
		return err
	}
	s.crash("identity written")
	old, had := h.ids[f]
	h.countIdentity(&r, g)
	if had {
		s.strikeIdentity(old, d)
	}
	return nil
}

// countIdentity makes a record the identity of its file. Its segment has a reference for it.
func (h *shard) countIdentity(r *format.Record, g *segment) {
	id := identityAt{seg: g, top: r.Top, bytes: format.RecordCost(r.Length()), generation: r.Generation, sequence: r.Sequence}
	h.ids[r.File] = id
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.identities++
	g.mu.identityBytes += id.bytes
}

// strikeIdentity makes an identity void that does not count any more.
func (s *Store) strikeIdentity(id identityAt, d *dead) {
	g := id.seg
	g.mu.Lock()
	err := guard("void", g.mu.region.Path, func() error { format.VoidAt(g.records(), id.top); return nil })
	g.mu.identities--
	g.mu.identityBytes -= id.bytes
	g.mu.Unlock()
	if err != nil {
		s.log.Error("strike out the identity of a file that is gone: it may come back after a restart", "error", err)
	}
	if g.refs.Add(-1) == 0 {
		*d = append(*d, g)
	}
}

// moveIdentity writes the identity of a file again if it lies in a victim. The caller
// holds the shard.
func (s *Store) moveIdentity(h *shard, f bb.FileID, victims map[*segment]bool, d *dead) error {
	id, ok := h.ids[f]
	if !ok || !victims[id.seg] {
		return nil
	}
	payload, err := id.payload()
	if err != nil {
		return err
	}
	return s.noteIdentity(h, f, id.generation, payload, d)
}

// payload reads an identity's encoding.
func (id identityAt) payload() (p []byte, err error) {
	id.seg.mu.Lock()
	defer id.seg.mu.Unlock()
	err = guard("read identity", id.seg.mu.region.Path, func() error {
		p = append(p, id.seg.records()[id.top-id.bytes:id.top-format.RecordHead]...)
		return nil
	})
	return p, err
}

// identity returns the identity of a file, or nil where it has none that can be read. The caller
// holds the shard.
func (h *shard) identity(f bb.FileID) *format.Identity {
	at, ok := h.ids[f]
	if !ok {
		return nil
	}
	p, err := at.payload()
	if err != nil {
		return nil
	}
	if id, err := format.DecodeIdentity(p); err == nil && id.File == f {
		return &id
	}
	return nil
}

// IdentityOf returns the identity of a file, if it has one.
func (s *Store) IdentityOf(f bb.FileID) (format.Identity, bool) {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	id := h.identity(f)
	if id == nil {
		return format.Identity{}, false
	}
	return *id, true
}

// logShare is the share of memory that the store's own records may take, beside it.
const logShare = 8

// mostLog bounds the regions of the store's own records.
func (o *Options) mostLog() int64 { return max(o.logBytes(), o.MemoryBytes/logShare) + o.logBytes() }

// growLog makes another region for the store's own records, if they may take more.
func (s *Store) growLog() bool {
	s.mu.Lock()
	total := s.o.logBytes()
	for _, r := range s.mu.regions {
		if r.Log {
			total += int64(len(r.Mem))
		}
	}
	closed, bytes, most := s.mu.closed, s.o.logBytes(), s.o.MemoryBytes/logShare
	s.mu.Unlock()
	if closed || total > most {
		return false
	}
	r, err := s.newRegion(bb.TierMemory, bytes, true)
	if err != nil {
		s.log.Error("make another region for the store's own records", "error", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.regions = append(s.mu.regions, r)
	return true
}

// recoverIdentities extracts the identities from the records that recovery found. Of each file the
// last one counts. The others, and unreadable ones, are struck out.
func (s *Store) recoverIdentities(records []recovered) []recovered {
	rest := records[:0]
	for i := range records {
		r := &records[i]
		if r.Flags&format.RecordIdentity == 0 {
			rest = append(rest, *r)
			continue
		}
		r.Record.Top = r.top
		if id, err := format.DecodeIdentity(r.Payload); err != nil || id.File != r.File {
			s.damaged(Damage{
				Region: r.seg.mu.region.ID, Path: r.seg.mu.region.Path, Segment: r.seg.mu.offset, From: r.top - format.RecordCost(r.Length()), To: r.top,
				What: "the identity of a file is damaged", File: r.File, Generation: r.Generation,
			})
			continue
		}
		h := s.shard(r.File)
		old, had := h.ids[r.File]
		if had && old.sequence > r.Sequence {
			if err := guard("void", r.seg.mu.region.Path, func() error { format.VoidAt(r.seg.records(), r.top); return nil }); err != nil {
				s.log.Error("strike out an identity that does not count", "error", err)
			}
			continue
		}
		r.seg.addFile(r.File)
		r.seg.refs.Add(1)
		h.countIdentity(&r.Record, r.seg)
		if had {
			var d dead // the segments that nothing refers to are found when all is rebuilt
			s.strikeIdentity(old, &d)
		}
	}
	return rest
}

// findOrigins finds the reasons why files have no identity, and drops the identities of files
// without any remains.
func (s *Store) findOrigins() {
	s.found.origins = map[bb.FileID]Origin{}
	hasLog := false
	for _, r := range s.mu.regions {
		hasLog = hasLog || r.Log
	}
	for i := range s.shards {
		h := &s.shards[i]
		for f := range h.files {
			if _, ok := h.ids[f]; ok {
				continue
			}
			switch {
			case h.ofOlder(f):
				s.found.origins[f] = OriginOlder
			case !hasLog && !s.drops.Was(f):
				s.found.origins[f] = OriginForgotten
			}
		}
		for f, id := range h.ids {
			if h.files[f] == nil {
				var d dead // found like the others
				delete(h.ids, f)
				s.strikeIdentity(id, &d)
			}
		}
	}
}

// ofOlder reports whether bytes of a file lie where an older release may have put them.
func (h *shard) ofOlder(f bb.FileID) (older bool) {
	h.views(f, func(m *extentMap) {
		m.walk(0, math.MaxInt64, func(e *extent) bool {
			older = older || e.seg != nil && e.seg.mu.region.older
			return !older
		})
	})
	for g := range h.generations(f) {
		older = older || h.anchors[g] != nil && h.anchors[g].mu.region.older
	}
	return older
}
