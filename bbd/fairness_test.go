package bbd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
)

// While memory is short, a buffer with one writer gets its share beside a buffer with four. Room is
// given out fairly among buffers, not among writers, which would give it 20 %.
func TestSingleWriterIsNotStarved(t *testing.T) {
	// They have to wait for the store, not for the processors, of which one writer alone gets less.
	n := startNode(t, func(cfg *bbd.Config) { cfg.Flush.Limit = 24 << 20 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	content := random(2 << 20)
	var wg sync.WaitGroup
	var written [2]atomic.Int64 // bytes by buffer
	writer := func(c *client.Client, which, w int) {
		b := c.Buffer(fmt.Sprint("b", which))
		for i := 0; ctx.Err() == nil; i++ {
			err := b.WriteFile(ctx, fmt.Sprintf("w%d-%d", w, i), content, 0o644)
			if err != nil && ctx.Err() == nil {
				t.Errorf("writer %d of buffer %d: %v", w, which, err)
			}
			if err != nil {
				return
			}
			written[which].Add(int64(len(content)))
		}
	}
	for which, writers := range []int{4, 1} {
		n.buffer(n.dial(), admin.BufferSpec{Name: fmt.Sprint("b", which)})
		for w := range writers {
			c := n.dial()
			wg.Go(func() { writer(c, which, w) })
		}
	}
	total := func() int64 { return written[0].Load() + written[1].Load() }
	eventually(t, "memory has been filled", func() bool { return total() > 128<<20 })
	greedy, single := written[0].Load(), written[1].Load()
	eventually(t, "it was filled twice more", func() bool { return total() > 256<<20 })
	greedy, single = written[0].Load()-greedy, written[1].Load()-single
	cancel()
	wg.Wait()
	if share := float64(single) / float64(greedy+single); share < 0.28 {
		t.Errorf("the single writer wrote %d MiB and the four %d MiB: a share of %.0f %%", single>>20, greedy>>20, 100*share)
	} else {
		t.Logf("a share of %.0f %%", 100*share)
	}
}
