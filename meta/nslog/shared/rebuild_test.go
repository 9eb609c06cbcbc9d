package shared_test

import (
	"context"
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

// A daemon that serves a log which others find gone is asked to make it again, also if it is suspected. One that does not
// answer in time is not waited for.
func TestRouse(t *testing.T) {
	t.Parallel()
	c := inProcess(t, newNetwork(1, 0), shared.Options{})
	a, b := c.start("a", 0), c.start("b", 1)
	claim(t, a)
	prepare(t, a)
	const long = time.Minute
	for _, away := range []bb.NodeID{"", "a"} {
		c.away = away
		if roused, err := b.tree.Rouse(t.Context(), long); !roused || err != nil {
			t.Errorf("the owner, with %q away: %v (%v)", away, roused, err)
		}
	}
	a.log.all.close()
	if roused, err := b.tree.Rouse(t.Context(), 10*time.Millisecond); roused || !errors.Is(err, bb.Unavailable) {
		t.Errorf("an owner without the log: %v (%v), want that it is unavailable", roused, err)
	}
	a.log.all.open()
	a.calls.close()
	if roused, err := b.tree.Rouse(t.Context(), 10*time.Millisecond); roused || err != nil {
		t.Errorf("a daemon without an answer: %v (%v)", roused, err)
	}
	a.calls.open()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if roused, _ := b.tree.Rouse(ended, long); roused {
		t.Error("a call that has ended has roused the owner")
	}
}
