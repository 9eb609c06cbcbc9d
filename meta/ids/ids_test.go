package ids

import (
	"sync"
	"testing"

	"forebay/meta/conn"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
)

func TestNextIDs(t *testing.T) {
	t.Parallel()
	s := metatest.StartServer(t, t.TempDir())
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 4 {
		ids := New(kvtest.Bucket(t, kvtest.Dial(t, conn.Options{InProcess: s}), "ids"))
		wg.Go(func() {
			for range 20 {
				block, err := ids.Claim(metatest.Context(t))
				if err != nil {
					t.Error(err)
				}
				id, err := ids.NewFileID(metatest.Context(t))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				if seen[block<<32] || seen[uint64(id)] || block == 0 {
					t.Errorf("block %d or id %v came twice", block, id)
				}
				seen[block<<32], seen[uint64(id)] = true, true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
