package store

import (
	"context"
	"fmt"
	"sync"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Snapshot is an immutable view of the committed extents of a generation. Commits,
// drops, eviction and spilling do not change the bytes it shows, only their place. Safe
// for concurrent use.
type Snapshot struct {
	s      *Store
	g      *generation
	size   int64
	ext    extentMap // guarded by the shard, as are next and closed
	next   *Snapshot
	closed bool
}

// Snapshot opens a view of a generation's present commits. bb.NotFound.
func (s *Store) Snapshot(f bb.FileID, n bb.Generation) (*Snapshot, error) {
	h := s.shard(f)
	h.Lock()
	defer h.Unlock()
	g := h.find(f, n)
	if g == nil {
		return nil, noGeneration("open", f, n)
	}
	v := &Snapshot{s: s, g: g, ext: g.ext.copy(), size: g.ext.size(), next: g.snaps}
	g.snaps = v
	return v, nil
}

// Size returns the bytes of the file as of the snapshot.
func (v *Snapshot) Size() int64 { return v.size }

// File returns the file and generation of the view.
func (v *Snapshot) File() (bb.FileID, bb.Generation) { return v.g.file, v.g.number }

// Close ends the view. Pinned ranges stay pinned until released. Idempotent.
func (v *Snapshot) Close() {
	var d dead
	h := v.s.shard(v.g.file)
	h.Lock()
	if !v.closed {
		v.closed = true
		v.ext.release(&d)
		for p := &v.g.snaps; *p != nil; p = &(*p).next {
			if *p == v {
				*p = v.next
				break
			}
		}
		if v.g.gone && v.g.snaps == nil {
			h.unlink(v.g)
		}
	}
	h.Unlock()
	v.s.reap(d)
}

// Keep excludes [off, off+n) from eviction for as long as the view is open. The backing store's
// copy of it is about to be replaced or removed. It reports false, and changes nothing, where
// something of the range is evicted, or the view is closed. Spilling moves the bytes all the same.
func (v *Snapshot) Keep(off, n int64) bool {
	var d dead
	h := v.s.shard(v.g.file)
	h.Lock()
	defer func() { h.Unlock(); v.s.reap(d) }()
	if v.closed {
		return false
	}
	whole := true
	var fresh []extent
	from, to := v.clip(off, n)
	v.ext.walk(from, to, func(e *extent) bool {
		whole = e.state != evicted
		if e.state == clean {
			fresh = append(fresh, *e)
		}
		return whole
	})
	if !whole {
		return false
	}
	for _, e := range fresh {
		e.state = kept
		v.ext.put(e, &d) // in this view alone; extents of others may be evicted from those
	}
	return true
}

// run is an extent of a view, or a hole between two (no segment and not evicted).
type run struct {
	extent
	size int64
}

func (r *run) hole() bool { return r.seg == nil && r.state != evicted }

// extents returns at most max runs (0: all) that cover [off, off+n), cut at the
// end of the file. bb.Invalid on a closed snapshot.
func (v *Snapshot) extents(off, n int64, max int) ([]run, error) {
	h := v.s.shard(v.g.file)
	h.Lock()
	defer h.Unlock()
	return v.runs(off, n, max)
}

// runs is extents for a caller that holds the shard.
func (v *Snapshot) runs(off, n int64, max int) ([]run, error) {
	if v.closed {
		return nil, bb.E(bb.Invalid, "read", fileName(v.g.file, v.g.number), "the snapshot is closed")
	}
	off, end := v.clip(off, n)
	var runs []run
	hole := func(to int64) {
		if to > off {
			runs = append(runs, run{extent{off: off}, to - off})
		}
	}
	v.ext.walk(off, end, func(e *extent) bool {
		hole(e.off)
		piece := e.piece(off, end)
		runs = append(runs, run{piece, int64(piece.length)})
		off = piece.end()
		return max == 0 || len(runs) < max
	})
	if max > 0 && len(runs) >= max {
		return runs[:max], nil
	}
	hole(end)
	return runs, nil
}

// clip cuts a range at the end of the file.
func (v *Snapshot) clip(off, n int64) (from, to int64) {
	from = min(max(off, 0), v.size)
	return from, from + min(max(n, 0), v.size-from)
}

// Extents returns at most max extents (0: all) that cover [off, off+n) cut at the end of the file,
// in order, holes included. A closed snapshot has none. For ranges that were pinned before the
// call, regions and offsets stay valid until the release (see PinExtents).
func (v *Snapshot) Extents(off, n int64, max int) []Extent {
	runs, err := v.extents(off, n, max)
	if err != nil {
		return nil
	}
	return public(runs)
}

func public(runs []run) []Extent {
	list := make([]Extent, len(runs))
	for i := range runs {
		list[i] = runs[i].public()
	}
	return list
}

func (r *run) public() Extent {
	e := Extent{FileOffset: r.off, Length: r.size, Checksum: r.sum, WholeLength: int64(r.whole), Cut: int64(r.cut)}
	switch {
	case r.hole():
		e.State, e.WholeLength = Hole, r.size
		e.Checksum = checksum.Zeros(r.size)
	case r.state == evicted:
		e.State = Evicted
	default:
		r.seg.mu.Lock()
		e.Tier, e.Region = r.seg.mu.region.Tier, r.seg.mu.region.ID
		e.RegionOffset = r.seg.at() + int64(r.offset)
		r.seg.mu.Unlock()
		e.WholeOffset = e.RegionOffset - e.Cut
	}
	return e
}

// Pinned keeps segments where they are. They are neither spilled, evicted nor used again. Release
// it before the store is closed.
type Pinned struct {
	s    *Store
	once sync.Once
	segs []*segment
}

// Pin keeps the resident bytes of [off, off+n) in their place until released. Evicted
// bytes stay so: PinExtents returns them. bb.Invalid on a closed snapshot.
func (v *Snapshot) Pin(off, n int64) (*Pinned, error) {
	h := v.s.shard(v.g.file)
	h.Lock()
	defer h.Unlock()
	return v.pin(off, n)
}

// PinExtents is Pin, and Extents of the same moment. The extents that it returns as resident are
// pinned. That is uncertain for the result of a later Extents, since evicted bytes come back.
func (v *Snapshot) PinExtents(off, n int64) (*Pinned, []Extent, error) {
	p, runs, err := v.pinRuns(off, n)
	return p, public(runs), err
}

func (v *Snapshot) pinRuns(off, n int64) (*Pinned, []run, error) {
	h := v.s.shard(v.g.file)
	h.Lock()
	defer h.Unlock()
	p, err := v.pin(off, n)
	if err != nil {
		return nil, nil, err
	}
	runs, err := v.runs(off, n, 0)
	return p, runs, err // of a snapshot that is open
}

// pin is Pin for a caller that holds the shard.
func (v *Snapshot) pin(off, n int64) (*Pinned, error) {
	if v.closed {
		return nil, bb.E(bb.Invalid, "pin", fileName(v.g.file, v.g.number), "the snapshot is closed")
	}
	p := &Pinned{s: v.s}
	use := v.s.clock.Add(1)
	from, to := v.clip(off, n)
	v.ext.walk(from, to, func(e *extent) bool {
		if e.state != evicted {
			p.add(e.seg)
			e.seg.lastUse.Store(use)
		}
		return true
	})
	return p, nil
}

// Bytes returns how long the segments are together.
func (p *Pinned) Bytes() (n int64) {
	seen := make(map[*segment]bool, len(p.segs))
	for _, g := range p.segs {
		if !seen[g] {
			seen[g] = true
			n += g.length
		}
	}
	return n
}

// Release ends it. Idempotent.
func (p *Pinned) Release() {
	p.once.Do(func() {
		var d dead
		for _, g := range p.segs {
			g.mu.Lock()
			g.mu.pins--
			if g.mu.pins == 0 && g.refs.Load() == 0 {
				d = append(d, g)
			}
			g.mu.Unlock()
		}
		p.s.reap(d)
	})
}

// zeros has the bytes of holes.
var zeros [1 << 20]byte

// Slices appends to dst the memory of [off, off+n), cut at the end of the file, in order. Holes are
// slices of zeros. Nothing is copied and nothing is verified. The range must be pinned (bb.Invalid)
// for as long as the slices are used, and resident (bb.Unavailable).
func (v *Snapshot) Slices(off, n int64, dst [][]byte) ([][]byte, error) {
	runs, err := v.extents(off, n, 0)
	if err != nil {
		return dst, err
	}
	for i := range runs {
		r := &runs[i]
		if r.state == evicted {
			return dst, v.unavailable(r)
		}
		if r.hole() {
			for left := r.size; left > 0; left -= min(left, int64(len(zeros))) {
				dst = append(dst, zeros[:min(left, int64(len(zeros)))])
			}
			continue
		}
		r.seg.mu.Lock()
		pinned := r.seg.mu.pins > 0
		mem := r.seg.bytes(int64(r.offset), int64(r.length))
		r.seg.mu.Unlock()
		if !pinned {
			return dst, bb.E(bb.Invalid, "read", v.rangeName(r), "is not pinned")
		}
		dst = append(dst, mem)
	}
	return dst, nil
}

func (v *Snapshot) rangeName(r *run) string {
	return fmt.Sprintf("%s range %d+%d", fileName(v.g.file, v.g.number), r.off, r.size)
}

func (v *Snapshot) unavailable(r *run) error {
	return bb.E(bb.Unavailable, "read", v.rangeName(r), "is evicted").WithRemedy("fetch it from the backing store and fill it in")
}

// Verify checks the resident extents of [off, off+n) against their checksums, each
// whole. bb.Checksum names file, range and region.
func (v *Snapshot) Verify(ctx context.Context, off, n int64) error {
	p, runs, err := v.pinRuns(off, n)
	if err != nil {
		return err
	}
	defer p.Release()
	var last extent
	for _, r := range runs {
		if r.hole() || r.state == evicted || r.seg == last.seg && r.offset-r.cut == last.offset-last.cut {
			continue
		}
		if err := ctx.Err(); err != nil {
			return bb.Wrap("verify", fileName(v.g.file, v.g.number), err)
		}
		if _, err := r.verified(v.g.file, v.g.number); err != nil {
			return err
		}
		last = r.extent
	}
	return nil
}

// pieceSum verifies the whole extent and returns the checksum of its visible
// piece. The extent is pinned.
func (v *Snapshot) pieceSum(e *extent) (sum uint64, err error) {
	whole, err := e.verified(v.g.file, v.g.number)
	if err != nil {
		return 0, err
	}
	err = guard("verify", "", func() error {
		sum = checksum.Sum(whole[e.cut : e.cut+e.length])
		return nil
	})
	return sum, err
}

// verified returns the bytes of the whole extent after checking them. The caller
// keeps the segment from being freed or moved.
func (e *extent) verified(f bb.FileID, n bb.Generation) ([]byte, error) {
	e.seg.mu.Lock()
	start := e.offset - e.cut
	whole, r, at := e.seg.bytes(int64(start), int64(e.whole)), e.seg.mu.region, e.seg.at()
	e.seg.mu.Unlock()
	return whole, guard("verify", r.Path, func() error {
		if got := checksum.Sum(whole); got != e.sum {
			return bb.E(bb.Checksum, "verify",
				fmt.Sprintf("%s range %d+%d", fileName(f, n), e.off-int64(e.cut), e.whole),
				fmt.Sprintf("checksum is %016x, was committed as %016x, at %d of region %s (%s)", got, e.sum, at+int64(start), r.ID, r.Path))
		}
		return nil
	})
}
