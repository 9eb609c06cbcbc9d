package shared_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"forebay/internal/bb"
	"forebay/meta/nslog/shared"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/stream"
)

// A log that is made again may be empty, for its owner to fill it. Another daemon claims it late, also after an earlier
// deletion that it has seen.
func TestEmptyLogIsClaimedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &forgetful{}
		tree := shared.New(log, &ids{}, newNetwork(1, 0), shared.Options{Buffer: "buf", Node: "b", Floor: func() uint64 { return 1 }})
		defer tree.Close()
		members := []turn.Member{{Node: "b"}}
		step := func(gone bool) time.Duration {
			t.Helper()
			log.setGone(gone)
			again, err := tree.Step(t.Context(), members)
			if gone != errors.Is(err, stream.ErrGone) || !gone && err != nil {
				t.Fatal(err)
			}
			return again
		}
		first := step(false)
		step(true)
		time.Sleep(time.Hour)
		if again := step(false); again != first || again == 0 || tree.Owns() {
			t.Errorf("it is claimed after %v, and %v after an earlier deletion", first, again)
		}
	})
}
