package readcache

import (
	"context"

	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
)

// LayoutPage is the number of extents that an answer holds. They fit a message.
const LayoutPage = 8192

// Layout describes the visible extents from an offset on, with checksums, for a daemon that makes a copy.
func (v *View) Layout(ctx context.Context, offset int64) (*wire.Extents, error) {
	answer := &wire.Extents{Size: v.snap.Size()}
	extents := v.snap.Extents(offset, bb.MaxFileSize, LayoutPage)
	for i := range extents {
		e := &extents[i]
		m := &wire.Extent{FileOffset: e.FileOffset, Length: e.Length}
		if e.State != store.Hole {
			sum, err := v.pieceSum(ctx, e)
			if err != nil {
				return nil, err
			}
			m.Region, m.Checksum = 1, sum // any region, so that it is not a hole
		}
		answer.Extents = append(answer.Extents, m)
		if i+1 == LayoutPage {
			break
		}
	}
	return answer, nil
}

// pieceSum returns the checksum of the visible part of an extent.
func (v *View) pieceSum(ctx context.Context, e *store.Extent) (uint64, error) {
	if e.Length == e.WholeLength {
		return e.Checksum, nil
	}
	if e.State == store.Evicted {
		data, err := v.Bypass(ctx, e)
		return checksum.Sum(data), err
	}
	pinned, err := v.snap.Pin(e.FileOffset, e.Length)
	if err != nil {
		return 0, err
	}
	defer pinned.Release()
	sum, err := v.snap.PieceSum(e)
	if bb.KindOf(err) != bb.Unavailable {
		return sum, err
	}
	data, err := v.Bypass(ctx, e) // it was evicted meanwhile
	return checksum.Sum(data), err
}
