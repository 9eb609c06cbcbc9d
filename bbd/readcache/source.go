package readcache

import (
	"context"

	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/lockorder"
)

// Source gives a store the bytes of a view, of which what is in memory is
// pinned. What is not is read past memory: were a flush to wait for room, all memory
// could be full of what only a flush makes room of. It is a backing.Source.
type Source struct {
	ctx   context.Context
	view  *View
	whole bool // all of it was in memory, and is pinned

	mu     lockorder.Mutex[lockrank.Source] // guards what follows: parts are read in parallel
	pinned []*store.Pinned
	last   []byte // read past memory: the extent that begins at an offset of the file
	at     int64
}

// Source keeps in memory what is there of the view, until the source is closed. What is not is read with
// ctx. After an error the view is the caller's to close.
func (v *View) Source(ctx context.Context) (*Source, error) {
	pinned, extents, err := v.snap.PinExtents(0, v.snap.Size())
	if err != nil {
		return nil, err
	}
	return &Source{ctx: ctx, view: v, whole: len(EvictedOf(extents)) == 0, pinned: []*store.Pinned{pinned}}, nil
}

// View returns what the bytes are of.
func (s *Source) View() *View { return s.view }

// Close closes the view, and releases what the source has pinned. Idempotent.
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

// Slices returns pieces of segments, or bytes that are the caller's alone. What others
// have brought in since the source was made is pinned for this source as well: theirs may end any time.
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
		if err != nil {
			return dst, err
		}
		dst = append(dst, p)
	}
	return dst, nil
}

// evicted returns what is visible of an extent that is not in memory. Parts end in the
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
