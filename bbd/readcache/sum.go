package readcache

import (
	"context"

	"forebay/internal/bb"
)

// SumEvicted adds to memory the checksums of the rest of evicted extents of a generation that were partly
// overwritten. They are read from the store's copy of the generation that this one builds on. E is the file's entry
// with its present place.
func (c *Cache) SumEvicted(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error {
	s := c.o.Store
	snap, err := s.Snapshot(file, n)
	if err != nil {
		return err
	}
	defer snap.Close()
	view := c.View(e, snap)
	defer view.Close()
	from := int64(-1)
	for _, x := range EvictedOf(snap.Extents(0, snap.Size(), 0)) {
		if x.Length == x.WholeLength || x.FileOffset-x.Cut == from {
			continue // another piece of the same
		}
		from = x.FileOffset - x.Cut
		whole, err := view.BypassWhole(ctx, &x)
		if err == nil {
			err = s.Trim(file, n, from, whole)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
