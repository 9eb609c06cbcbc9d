package testbed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// InParallel calls do(0) to do(n-1) from several goroutines and returns the time for all of them.
// The first error ends it.
func InParallel(ctx context.Context, n, parallel int, do func(int) error) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range parallel {
		wg.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), context.Cause(ctx)
}

// Piece returns the i-th piece of a size, counted in a circle.
func Piece(source []byte, i int, size int64) []byte {
	size = min(size, int64(len(source)))
	at := int64(i) % (int64(len(source)) / size) * size
	return source[at : at+size]
}

// FileName names the i-th file of a row.
func FileName(i int) string { return fmt.Sprintf("f%d", i) }
