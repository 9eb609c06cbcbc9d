package store

import (
	"fmt"
	"math"
	"slices"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Trim computes checksums for the remains of evicted extents that were partly overwritten, as if no
// more than the remains had ever been written. Then the generation has a Checksum, it may be marked
// clean, and the remains can be checked against any copy that has them. whole are bytes of the copy
// on the backing store, from an offset of the file on. Every extent that they hold whole is
// verified. Nothing comes into memory. The error is bb.Checksum if they do not agree, and bb.Busy
// if the file changed meanwhile.
func (s *Store) Trim(f bb.FileID, n bb.Generation, offset int64, whole []byte) error {
	h := s.shard(f)
	h.Lock()
	g := h.find(f, n)
	if g == nil {
		h.Unlock()
		return noGeneration("trim", f, n)
	}
	var cut []extent
	for _, e := range g.ext.evictedIn(offset, offset+int64(len(whole))) {
		from := e.off - int64(e.cut)
		if e.length != e.whole && from >= offset && from+int64(e.whole) <= offset+int64(len(whole)) {
			cut = append(cut, e)
		}
	}
	h.Unlock()
	trimmed := make([]extent, len(cut))
	for i, e := range cut {
		from := e.off - int64(e.cut) - offset
		if got := checksum.Sum(whole[from : from+int64(e.whole)]); got != e.sum {
			return bb.E(bb.Checksum, "trim", fmt.Sprintf("%s range %d+%d", fileName(f, n), from+offset, e.whole),
				fmt.Sprintf("checksum of the fetched bytes is %016x, of the evicted ones %016x", got, e.sum))
		}
		at := from + int64(e.cut)
		e.sum, e.whole, e.cut, e.offset = checksum.Sum(whole[at:at+int64(e.length)]), e.length, 0, 0
		trimmed[i] = e
	}
	var d dead
	defer func() { s.reap(d) }()
	h.Lock()
	defer h.Unlock()
	for i := range cut {
		if g.gone || !g.ext.shows(cut[i:i+1]) {
			return bb.E(bb.Busy, "trim", fileName(f, n), "the file changed meanwhile")
		}
	}
	return s.recordEvicted(g, trimmed, &d)
}

// RecordEvicted writes records of extents that Mirror only noted in memory, once the backing store
// has them. A restart then finds them, and generations may build on them. Idempotent.
func (s *Store) RecordEvicted(f bb.FileID, n bb.Generation) error {
	var d dead
	h := s.shard(f)
	h.Lock()
	defer func() { h.Unlock(); s.reap(d) }()
	g := h.find(f, n)
	if g == nil {
		return noGeneration("record", f, n)
	}
	bare := slices.DeleteFunc(g.ext.evictedIn(0, math.MaxInt64), func(e extent) bool { return e.seg != nil })
	return s.recordEvicted(g, bare, &d)
}

// recordEvicted makes evicted extents, whole ones, visible in a generation, with
// records. The caller holds the shard.
func (s *Store) recordEvicted(g *generation, list []extent, d *dead) error {
	for part := range slices.Chunk(list, 1024) {
		seg, err := s.noteEvicted(g, part)
		if err != nil {
			return err
		}
		for _, e := range part {
			e.seg = seg
			g.ext.put(e, d)
		}
		if seg.refs.Add(-1) == 0 {
			*d = append(*d, seg)
		}
	}
	return nil
}
