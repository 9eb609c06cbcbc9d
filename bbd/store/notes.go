package store

import (
	"slices"
	"unique"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// note writes one of the store's own records and returns where it lies, with a
// reference that keeps it. The caller holds the shard of the record's file.
func (s *Store) note(r *format.Record) (*segment, error) {
	s.own.Lock()
	defer s.own.Unlock()
	for {
		old := s.own.current
		if old != nil {
			ok, err := old.noteIn(s, r)
			if err != nil {
				s.own.current = nil
				s.sealNotes(old) // recovery reads no further than where this one failed
				return nil, err
			}
			if ok {
				return old, nil
			}
		}
		g, err := s.newNotes()
		if err != nil {
			return nil, err
		}
		s.own.current = g
		if old != nil {
			s.sealNotes(old)
		}
	}
}

func (s *Store) sealNotes(g *segment) {
	g.mu.Lock()
	g.to(segSealed)
	g.mu.Unlock()
	s.mu.Lock()
	s.freeIfDead(g)
	s.mu.Unlock()
}

// noteIn reports whether the record fits into the segment, and writes it there.
func (g *segment) noteIn(s *Store, r *format.Record) (ok bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.floor-format.RecordCost(r.Length()) < format.DataStart+format.RecordEnd {
		return false, nil
	}
	r.Sequence = s.sequence.Add(1)
	err = guard("commit", g.mu.region.Path, func() error {
		r.Top = g.append(r)
		format.SetState(g.records(), r.Top, format.RecordComplete, r.Length())
		return nil
	})
	if err != nil {
		return false, err
	}
	g.addFile(r.File)
	g.refs.Add(1)
	return true, nil
}

// newNotes finds, or makes, a segment for the store's own records. It is leased for as long as
// records are written to it. The journal is sparse, so the segment gets its memory here. Where the
// tmpfs is full, that is an error and no signal.
//
// The caller has the log, so no other caller uses units of its region or segments in
// it.
func (s *Store) newNotes() (*segment, error) {
	g, r, unit, err := s.findNotes()
	if err != nil {
		return nil, err
	}
	at := unit * Unit
	if err := r.PopulateJournal(at, at+Unit); err != nil {
		if g != nil {
			s.releaseNotes(g)
		}
		return nil, bb.Wrap("commit", r.Path, err)
	}
	if g != nil {
		return g, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, &bb.Error{Kind: bb.Unavailable, Op: "commit", Err: errClosed}
	}
	return s.newSegment(r, unit, 1, notesKey())
}

// findNotes takes a segment that was begun (g), or finds a free unit, for records to come.
func (s *Store) findNotes() (g *segment, r *region, unit int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, nil, 0, &bb.Error{Kind: bb.Unavailable, Op: "commit", Err: errClosed}
	}
	if g := s.takePartial(notesKey(), nearlyFull); g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.to(segLeased)
		return g, g.mu.region, g.mu.offset / Unit, nil
	}
	for _, r := range s.mu.regions {
		if !r.Log || r.vacating {
			continue
		}
		if r.used+2 >= len(r.units) { // this one is the last but one, with the header
			s.own.scarce.Store(true)
		}
		if unit, n := r.fit(1); n == 1 {
			return nil, r, unit, nil
		}
	}
	s.own.scarce.Store(true)
	return nil, nil, 0, bb.E(bb.NoSpace, "commit", "", "the region of the store's own records is full").
		WithRemedy("remove files that were evicted, or give the store more memory")
}

// releaseNotes keeps a segment for the next attempt to write to it.
func (s *Store) releaseNotes(g *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	g.to(segPartial)
	g.mu.Unlock()
	s.addPartial(g)
	s.freeIfDead(g)
}

// notesKey is the key of segments of the store's own records. No buffer has that name.
func notesKey() partialKey { return partialKey{unique.Make(""), ownUID(), bb.TierMemory} }

// tidyNotes makes room among the store's own records when that gets scarce. The segment with the
// fewest that still count has those written again elsewhere. The caller holds no lock.
func (s *Store) tidyNotes() {
	if !s.own.scarce.CompareAndSwap(true, false) {
		return
	}
	victim, files := s.sparsestNotes()
	if victim != nil {
		s.evictFiles(files, map[*segment]bool{victim: true})
	}
}

// sparsestNotes returns the full segment of the store's own records with the fewest bytes that
// count. If none has less than half of its capacity, it returns nil.
func (s *Store) sparsestNotes() (victim *segment, files []bb.FileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := int64(Unit / 2)
	for g := range s.mu.segments {
		g.mu.Lock()
		counts := (g.refs.Load()-g.mu.identities)*format.RecordCost(1) + g.mu.identityBytes
		if g.mu.region.Log && g.mu.state == segSealed && counts < least {
			victim, least, files = g, counts, slices.Clone(g.mu.files)
		}
		g.mu.Unlock()
	}
	return victim, files
}
