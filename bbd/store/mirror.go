package store

import (
	"unique"

	"forebay/internal/bb"
)

// MirrorExtent is one run of a file's bytes that lie elsewhere.
type MirrorExtent struct {
	FileOffset int64
	Length     int64 // at most MaxSegment
	Checksum   uint64
}

// Mirror makes a sealed, clean generation without any bytes here yet. Each extent is as if it had
// been evicted, and Fill fetches it from any place that has it. It leaves no record. A restart
// finds only the extents that had been filled in. bb.Exists if the store has the generation.
func (s *Store) Mirror(f bb.FileID, n bb.Generation, buffer string, extents []MirrorExtent) error {
	for i := range extents {
		e := &extents[i]
		if e.FileOffset < 0 || e.Length <= 0 || e.Length > MaxSegment || e.FileOffset > bb.MaxFileSize-e.Length {
			return bb.E(bb.Invalid, "mirror", fileName(f, n), "an extent is out of bounds")
		}
	}
	var d dead
	h := s.shard(f)
	h.Lock()
	defer func() { h.Unlock(); s.reap(d) }()
	if h.find(f, n) != nil {
		return bb.E(bb.Exists, "mirror", fileName(f, n), "this node has it")
	}
	g := &generation{file: f, number: n, origin: n, buffer: unique.Make(buffer), sealed: true, clean: true}
	for i := range extents {
		e := &extents[i]
		g.ext.put(extent{
			off: e.FileOffset, length: uint32(e.Length), whole: uint32(e.Length), sum: e.Checksum, state: evicted,
		}, &d)
	}
	h.insert(g)
	return nil
}

// PieceSum returns the checksum of an extent of the snapshot that shows a piece of one write. The
// write's bytes are verified whole and the piece is summed. The range is pinned.
func (v *Snapshot) PieceSum(e *Extent) (sum uint64, err error) {
	if e.State == Hole || e.Length == e.WholeLength {
		return e.Checksum, nil
	}
	runs, err := v.extents(e.FileOffset, e.Length, 0)
	if err != nil {
		return 0, err
	}
	if len(runs) != 1 || runs[0].hole() || runs[0].state == evicted {
		return 0, v.unavailable(&run{extent: extent{off: e.FileOffset}, size: e.Length})
	}
	return v.pieceSum(&runs[0].extent)
}
