package readcache

import (
	"context"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/lockorder"
)

// Source serves a store the bytes of a view, of which the part in memory is
// pinned. The rest is read past memory. If a flush waited for room, all memory could be full of
// bytes that only a flush can free. It is a backing.Source.
type Source struct {
	ctx   context.Context
	view  *View
	whole bool // all of it was in memory, and is pinned

	mu     lockorder.Mutex[lockrank.Source] // guards the fields below, since parts are read in parallel
	pinned []*store.Pinned
	last   []byte // read past memory; the extent that begins at an offset of the file
	at     int64
}

// Source keeps the view's present bytes in memory, until the source is closed. The rest is read with
// ctx. After an error the view is the caller's to close.
func (v *View) Source(ctx context.Context) (*Source, error) {
	pinned, extents, err := v.snap.PinExtents(0, v.snap.Size())
	if err != nil {
		return nil, err
	}
	return &Source{ctx: ctx, view: v, whole: len(EvictedOf(extents)) == 0, pinned: []*store.Pinned{pinned}}, nil
}

// View returns the view of the bytes.
func (s *Source) View() *View { return s.view }

// Close closes the view, and releases the source's pins. Idempotent.
func (s *Source) Close() {
	s.view.Close()
	for _, p := range s.pinned {
		p.Release()
	}
	s.pinned = nil
}

// Size returns how many bytes the file has.
func (s *Source) Size() int64 { return s.view.snap.Size() }

// Checksum returns the checksum of all of them, which the file's entry names.
func (s *Source) Checksum() uint64 { return s.view.entry.Checksum }

// Slices returns pieces of segments, or bytes that are the caller's alone. Bytes that others have brought in
// since the source was made are pinned for this source as well, since their pins may end any time.
func (s *Source) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	snap := s.view.snap
	if s.whole {
		return snap.Slices(off, n, dst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pinned, extents, err := snap.PinExtents(off, n)
	if err != nil {
		return dst, err
	}
	s.pinned = append(s.pinned, pinned)
	for i := range extents {
		x := &extents[i]
		if !IsEvicted(*x) {
			if dst, err = snap.Slices(x.FileOffset, x.Length, dst); err != nil {
				return dst, err
			}
			continue
		}
		p, err := s.evicted(x)
		if err == nil {
			dst = append(dst, p)
			continue
		}
		saved := s.view.saved(s.ctx, x.FileOffset, x.Length)
		if saved == nil {
			return dst, err
		}
		s.pinned = append(s.pinned, saved)
		if dst, err = snap.Slices(x.FileOffset, x.Length, dst); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// evicted returns the visible part of an extent that is not in memory. Parts end in the
// middle of extents, so the last one is kept. s.mu is held.
func (s *Source) evicted(x *store.Extent) ([]byte, error) {
	from := x.FileOffset - x.Cut
	if s.last == nil || s.at != from || int64(len(s.last)) != x.WholeLength {
		whole, err := s.view.BypassWhole(s.ctx, x)
		if err != nil {
			return nil, err
		}
		s.last, s.at = whole, from
	}
	return s.last[x.Cut : x.Cut+x.Length : x.Cut+x.Length], nil
}
