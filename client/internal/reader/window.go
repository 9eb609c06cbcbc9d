package reader

import (
	"fmt"
	"sync/atomic"

	"forebay/client/internal/region"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// span is a run of bytes [off, end) of a file.
type span struct{ off, end int64 }

func (s span) len() int64 { return s.end - s.off }

// window is a part [off, end) of a file in the daemon's answer: where its extents lie in mapped
// regions, pinned, or the bytes themselves.
type window struct {
	span
	session *session.Session
	pin     uint64 // 0: the bytes came with the answer
	parts   []part // ascending, without gaps
	regions []*region.Region
	remote  bool // all but holes is in the daemon's memory only (see fetch)

	users   int  // guarded by the reader
	dropped bool // guarded by the reader; released when the last user is done
}

// part is one run of a window: a hole, bytes that came with the answer, or the visible
// part of an extent.
type part struct {
	span
	mem      []byte // nil: a hole, or remote
	whole    []byte // the extent as it was written, which the checksum is of
	sum      uint64
	region   uint64
	at       int64       // in the region
	verified atomic.Bool // or nothing to verify

	remote *place // of the extent, where it cannot be mapped
}

// newWindow checks an answer to the question for the bytes from off on, and maps its extents.
func newWindow(a *region.Map, s *session.Session, off int64, m *wire.Extents, data []byte) (*window, error) {
	w := &window{span: span{off, off}, session: s, pin: m.Pin}
	if m.DataLength > 0 || len(data) > 0 {
		w.end = off + int64(len(data))
		w.parts = make([]part, 1)
		w.parts[0].span, w.parts[0].mem = w.span, data
		w.parts[0].verified.Store(true) // by the daemon
		return w, nil
	}
	if s != nil && s.Remote != nil {
		if err := w.setRemote(m); err != nil {
			w.release()
			return nil, err
		}
		return w, nil
	}
	regions := make(map[uint64]*region.Region, len(m.Regions))
	for _, g := range m.Regions {
		r, err := a.Acquire(g)
		if err != nil {
			w.release()
			return nil, err
		}
		regions[g.Id] = r
		w.regions = append(w.regions, r)
	}
	w.parts = make([]part, len(m.Extents))
	for i, e := range m.Extents {
		if err := w.parts[i].set(e, w.end, regions[e.Region]); err != nil {
			w.release()
			return nil, err
		}
		w.end = w.parts[i].end
	}
	return w, nil
}

// set fills a part from an extent, which must continue at off.
func (p *part) set(e *wire.Extent, off int64, r *region.Region) error {
	length := int64(-1)
	if r != nil {
		length = int64(len(r.Mem))
	}
	if hole, err := p.place(e, off, length); hole || err != nil {
		return err
	}
	p.whole = r.Mem[e.CheckOffset : e.CheckOffset+e.CheckLength]
	p.mem = r.Mem[e.Offset : e.Offset+e.Length : e.Offset+e.Length]
	return nil
}

// place checks an extent, which must continue at off and lie in a region of length
// bytes, or be a hole.
func (p *part) place(e *wire.Extent, off, length int64) (hole bool, err error) {
	if e.FileOffset != off || e.Length <= 0 || e.Length > bb.MaxFileSize-off {
		return false, bb.E(bb.Internal, "read", "", fmt.Sprintf("the daemon named an extent of %d bytes at %d, where %d follows", e.Length, e.FileOffset, off))
	}
	p.span = span{off, off + e.Length}
	if e.Region == 0 {
		p.verified.Store(true)
		return true, nil
	}
	// Not by sums, which may overflow. Lengths are compared with the rest behind offsets.
	if e.CheckOffset < 0 || e.CheckLength <= 0 || e.CheckOffset > length-e.CheckLength ||
		e.Offset < e.CheckOffset || e.Length > e.CheckLength || e.Offset-e.CheckOffset > e.CheckLength-e.Length {
		return false, bb.E(bb.Internal, "read", "", fmt.Sprintf("the daemon named an extent that is not within region %016x", e.Region))
	}
	p.region, p.at, p.sum = e.Region, e.Offset, e.Checksum
	return false, nil
}

// at returns the part that holds off, which lies in the window.
func (w *window) at(off int64) *part {
	lo, hi := 0, len(w.parts)
	for lo < hi {
		mid := (lo + hi) / 2
		if w.parts[mid].end <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return &w.parts[lo]
}

// copyTo fills dst with the bytes from off on, as far as the window goes. With check,
// no byte of an extent is copied that was not verified.
func (w *window) copyTo(dst []byte, off int64, check bool) (n int, err error) {
	for len(dst) > 0 && off < w.end {
		p := w.at(off)
		k := min(p.end-off, int64(len(dst)))
		if err := p.copyTo(dst[:k], off, check); err != nil {
			return n, err
		}
		n += int(k)
		off += k
		dst = dst[k:]
	}
	return n, nil
}

func (p *part) copyTo(dst []byte, off int64, check bool) error {
	switch {
	case p.mem == nil:
		clear(dst)
		return nil
	case len(dst) == len(p.whole) && !p.verified.Load():
		// All of the extent is requested. It is copied, and the copy is checked.
		if checksum.CopyOut(dst, p.mem, 0) != p.sum {
			return p.mismatch()
		}
		p.verified.Store(true)
		return nil
	case check:
		if err := p.verify(); err != nil {
			return err
		}
	}
	copy(dst, p.mem[off-p.off:])
	return nil
}

// verify checks the whole extent, once.
func (p *part) verify() error {
	if p.verified.Load() {
		return nil
	}
	return p.verifyNow()
}

// verifyNow checks the whole extent.
func (p *part) verifyNow() error {
	if checksum.Sum(p.whole) != p.sum {
		return p.mismatch()
	}
	p.verified.Store(true)
	return nil
}

func (p *part) mismatch() error {
	return bb.E(bb.Checksum, "read", "", fmt.Sprintf("bytes %d to %d, in region %016x, do not have the checksum that they were written with", p.off, p.end, p.region))
}

// release frees the window's memory, when it is not used any more.
func (w *window) release() {
	for _, r := range w.regions {
		r.Release()
	}
	w.regions = nil
	if w.pin != 0 && !w.session.Broken() {
		w.session.Post(wire.Type_TYPE_UNPIN, &wire.Unpin{Pins: []uint64{w.pin}}, nil)
	}
}
