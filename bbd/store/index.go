package store

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"unique"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// generation is one content of a file in the index. A file is the list of its
// generations, newest first. Guarded by the file's shard. With its one extent, a
// small file takes about 230 bytes, for which its fields are chosen.
type generation struct {
	file   bb.FileID
	number bb.Generation
	base   bb.Generation
	origin bb.Generation
	buffer unique.Handle[string]
	next   *generation // older
	snaps  *Snapshot   // open ones, of this generation
	ext    extentMap
	sealed bool
	clean  bool
	gone   bool // dropped, and stays for its snapshots only
}

func (s *Store) shard(f bb.FileID) *shard { return &s.shards[shardOf(f)] }

// shardOf spreads ids that count up as well as random ones.
func shardOf(f bb.FileID) int { return int(uint64(f) * 0x9E3779B97F4A7C15 >> 58) }

// find returns a generation that has not been dropped.
func (h *shard) find(f bb.FileID, n bb.Generation) *generation {
	for g := h.files[f]; g != nil; g = g.next {
		if g.number == n && !g.gone {
			return g
		}
	}
	return nil
}

// generations yields a file's generations, newest first. g may be removed meanwhile.
func (h *shard) generations(f bb.FileID) iter.Seq[*generation] {
	return func(yield func(*generation) bool) {
		for g := h.files[f]; g != nil; {
			next := g.next
			if !yield(g) {
				return
			}
			g = next
		}
	}
}

// insert puts g in its place in the list.
func (h *shard) insert(g *generation) {
	head := h.files[g.file]
	if head == nil || head.number < g.number {
		g.next = head
		h.files[g.file] = g
		return
	}
	for head.next != nil && head.next.number > g.number {
		head = head.next
	}
	g.next, head.next = head.next, g
}

// remove takes a generation out of the list, or leaves it for its snapshots.
func (h *shard) remove(g *generation, d *dead) {
	g.ext.release(d)
	if a := h.anchors[g]; a != nil {
		delete(h.anchors, g)
		if a.refs.Add(-1) == 0 {
			*d = append(*d, a)
		}
	}
	g.gone = true
	if g.snaps == nil {
		h.unlink(g)
	}
}

func (h *shard) unlink(g *generation) {
	head := h.files[g.file]
	if head == g {
		if g.next == nil {
			delete(h.files, g.file)
			return
		}
		h.files[g.file] = g.next
		return
	}
	for ; head != nil; head = head.next {
		if head.next == g {
			head.next = g.next
			return
		}
	}
}

func noGeneration(op string, f bb.FileID, n bb.Generation) error {
	return bb.E(bb.NotFound, op, fileName(f, n), "this node has nothing of it")
}

func fileName(f bb.FileID, n bb.Generation) string {
	return fmt.Sprintf("file %s generation %d", f, n)
}

// Size returns the size of a generation in bytes. It returns bb.NotFound if the store does not have it.
func (s *Store) Size(f bb.FileID, n bb.Generation) (int64, error) {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	g := h.find(f, n)
	if g == nil {
		return 0, noGeneration("size", f, n)
	}
	return g.ext.size(), nil
}

// Base returns the generation that a generation started from, or 0 if there is none. It fails with
// bb.NotFound if the store does not have the generation.
func (s *Store) Base(f bb.FileID, n bb.Generation) (bb.Generation, error) {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	g := h.find(f, n)
	if g == nil {
		return 0, noGeneration("base", f, n)
	}
	return g.base, nil
}

// Seal ends the writing of a generation. Further commits are bb.Invalid. Idempotent.
func (s *Store) Seal(f bb.FileID, n bb.Generation) error {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	g := h.find(f, n)
	if g == nil {
		return noGeneration("seal", f, n)
	}
	g.sealed = true
	return nil
}

// MarkClean records that the backing store holds this generation whole, in place of older ones. Its
// extents may be evicted, and extents that only older generations and their snapshots show may not.
// bb.Invalid for a generation that is not sealed, or that shows part of an evicted extent. Such a
// part could be checked only against the older copy, so it must be filled in before the copy is
// replaced.
func (s *Store) MarkClean(f bb.FileID, n bb.Generation) error {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	g := h.find(f, n)
	if g == nil {
		return noGeneration("mark clean", f, n)
	}
	if !g.sealed {
		return bb.E(bb.Invalid, "mark clean", fileName(f, n), "is still being written")
	}
	whole := true
	g.ext.walk(0, math.MaxInt64, func(e *extent) bool {
		whole = e.state != evicted || e.length == e.whole
		return whole
	})
	if !whole {
		return bb.E(bb.Invalid, "mark clean", fileName(f, n), "part of an evicted extent was overwritten and the rest was not filled in")
	}
	h.markClean(g)
	return nil
}

// MarkDirty takes MarkClean back. The backing store does not have the generation after all. Nothing
// of it is evicted from now on. Busy if something of it has been, or if there is no such
// generation.
func (s *Store) MarkDirty(f bb.FileID, n bb.Generation) error {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	g := h.find(f, n)
	whole := g != nil
	if whole {
		g.ext.walk(0, math.MaxInt64, func(e *extent) bool {
			whole = e.state != evicted
			return whole
		})
	}
	if !whole {
		return bb.E(bb.Busy, "mark dirty", fileName(f, n), "not all of it is in memory")
	}
	g.clean = false
	g.ext.markAll(dirty)
	return nil
}

func (h *shard) markClean(g *generation) {
	g.clean = true
	for old := range h.generations(g.file) {
		if old.number >= g.number {
			continue
		}
		old.clean = false
		if !old.gone {
			old.ext.keep()
		}
		for n := old.snaps; n != nil; n = n.next {
			n.ext.keep()
		}
	}
	// Snapshots of the same generation count too. One opened while it was being written may show
	// bytes that were overwritten since. Extents that they share with g are marked after them.
	for n := g.snaps; n != nil; n = n.next {
		n.ext.keep()
	}
	g.ext.markAll(clean)
}

// keep marks extents that may be in no copy on the backing store any more.
func (m *extentMap) keep() { m.markAll(kept) }

func (m *extentMap) markAll(state extentState) {
	m.walk(0, math.MaxInt64, func(e *extent) bool {
		e.mark(state)
		return true
	})
}

// Drop drops a file. Snapshots keep their extents, which are not evicted any more. The backing
// store loses the file, too. Idempotent. See SyncDrops.
func (s *Store) Drop(f bb.FileID) {
	s.drops.Note(f)
	s.drop(f, func(*generation) bool { return true }, (*shard).keepViews)
}

// keepViews excludes extents in views of dropped generations from eviction. The caller holds the
// shard.
func (h *shard) keepViews(f bb.FileID) {
	for g := range h.generations(f) {
		if !g.gone {
			continue
		}
		g.clean = false
		for v := g.snaps; v != nil; v = v.next {
			v.ext.keep()
		}
	}
}

// DropGeneration drops a generation that a newer one has taken the place of, and whose content the
// newer one may build on. Idempotent.
func (s *Store) DropGeneration(f bb.FileID, n bb.Generation) {
	s.drop(f, func(g *generation) bool { return g.number == n }, func(*shard, bb.FileID) {})
}

// drop removes generations of a file, and then calls a function under the same lock.
func (s *Store) drop(f bb.FileID, which func(*generation) bool, then func(*shard, bb.FileID)) {
	var d dead
	h := s.shard(f)
	h.Lock()
	for g := range h.generations(f) {
		if !g.gone && which(g) {
			h.remove(g, &d)
		}
	}
	if id, ok := h.ids[f]; ok && which(&generation{file: f, number: id.generation}) {
		delete(h.ids, f)
		s.strikeIdentity(id, &d)
	}
	then(h, f)
	h.Unlock()
	s.reap(d)
}

// Void drops an abandoned generation, which is one that never became the file's content, and that
// no other is based on. Its records are struck out, so that they do not count after a restart
// either. Idempotent.
func (s *Store) Void(f bb.FileID, n bb.Generation) error {
	err := s.strikeOut(f, n)
	s.DropGeneration(f, n)
	return err
}

// strikeOut makes the records of a generation void. One word of each changes, with
// one atomic store, so a crash between two leaves records that Adopt strikes out.
func (s *Store) strikeOut(f bb.FileID, n bb.Generation) error {
	s.mu.Lock()
	segments := make([]*segment, 0, len(s.mu.segments))
	for g := range s.mu.segments {
		segments = append(segments, g)
	}
	s.mu.Unlock()
	for _, g := range segments {
		if err := g.strikeOut(f, n); err != nil {
			return err
		}
	}
	return nil
}

func (g *segment) strikeOut(f bb.FileID, n bb.Generation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.state == segFree || !slices.Contains(g.mu.files, f) {
		return nil
	}
	return guard("void", g.mu.region.Path, func() error {
		g.scan(func(r *format.Record, top int64) {
			if r.File == f && r.Generation == n && r.State != format.RecordVoid {
				format.SetState(g.records(), top, format.RecordVoid, r.Length())
				g.mu.voids++
			}
		}, nil)
		return nil
	})
}

// Checksum returns the CRC-64/NVME of a whole generation, holes included, and its size. It combines
// the extents' checksums. It reads bytes only of extents that were partly overwritten, after
// verifying them whole. It returns bb.NotFound, bb.Checksum, and bb.Unavailable where one that was
// partly overwritten is evicted.
func (s *Store) Checksum(f bb.FileID, n bb.Generation) (sum uint64, size int64, err error) {
	snap, err := s.Snapshot(f, n)
	if err != nil {
		return 0, 0, err
	}
	defer snap.Close()
	pinned, runs, err := snap.pinRuns(0, snap.size)
	if err != nil {
		return 0, 0, err
	}
	defer pinned.Release()
	for i := range runs {
		piece, err := snap.runSum(&runs[i])
		if err != nil {
			return 0, 0, err
		}
		sum = checksum.Combine(sum, piece, runs[i].size)
	}
	return sum, snap.size, nil
}

func (v *Snapshot) runSum(r *run) (uint64, error) {
	switch {
	case r.hole():
		return checksum.Zeros(r.size), nil
	case r.length == r.whole:
		return r.sum, nil
	case r.state == evicted:
		return 0, v.unavailable(r)
	default:
		return v.pieceSum(&r.extent)
	}
}
