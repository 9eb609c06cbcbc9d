package backing

import (
	"context"

	"golang.org/x/sync/errgroup"

	"forebay/internal/checksum"
)

// InParts calls do for the consecutive parts of size bytes, at most parallel at a time. do returns
// the checksum of its part, and InParts that of the whole. The first error cancels the others'
// context and is returned after all have ended.
func InParts(ctx context.Context, size, part int64, parallel int,
	do func(ctx context.Context, index int, off, n int64) (uint64, error),
) (uint64, error) {
	if size > 0 && size <= part {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return do(ctx, 0, 0, size)
	}
	sums := make([]uint64, (size+part-1)/part)
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, parallel))
	for i := range sums {
		off := int64(i) * part
		g.Go(func() (err error) {
			if err = groupCtx.Err(); err != nil {
				return err
			}
			sums[i], err = do(groupCtx, i, off, min(part, size-off))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	var whole uint64
	for i, sum := range sums {
		whole = checksum.Combine(whole, sum, min(part, size-int64(i)*part))
	}
	return whole, nil
}
