package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
	"forebay/internal/powertest"
)

const syncedConfig = "listen: {admin: \"127.0.0.1:0\"}\nnats: {embedded: {sync_interval: 0s}}\n"

// TestPowerCutOfNamespace: the disk of the namespace's server loses power at some step, and with it
// some unsynced writes, while clients write, rename and remove. Memory stays. If each change is
// synced before it is acknowledged, no acknowledged change is lost.
func TestPowerCutOfNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	t.Run("buckets", func(t *testing.T) {
		t.Parallel()
		powerCutsOfNamespace(t, seeds(6), withBuckets...)
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		powerCutsOfNamespace(t, seeds(6), withLog...)
	})
}

func powerCutsOfNamespace(t *testing.T, seeds uint64, args ...string) {
	total := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			for op, n := range powerCutOfNamespace(t, seed, args) {
				total[op] += n
			}
		})
	}
	t.Logf("operations acknowledged: %v", total)
	for _, op := range []string{"write", "append", "rename", "remove"} {
		if total[op] < 10 {
			t.Errorf("only %d of %s: the test does not test", total[op], op)
		}
	}
}

// meetsCut is a crasher that may fail with "not found", since nats-server reports a message as
// missing that it cannot read from its disk.
type meetsCut struct{ *crasher }

func (w meetsCut) look(ctx context.Context, b *client.Buffer, all map[string]durabletest.Found) error {
	if client.KindOf(w.failure) == client.ErrNotFound {
		w.failure = nil
	}
	return w.crasher.look(ctx, b, all)
}

func powerCutOfNamespace(t *testing.T, seed uint64, args []string) (ops map[string]int) {
	t.Helper()
	d := bbdtest.New(t, append(args, "--memory", crashMemory)...)
	d.Config = syncedConfig
	nats := filepath.Join(d.Dir, "nats")
	if err := os.Mkdir(nats, 0o700); err != nil {
		t.Fatal(err)
	}
	disk := powertest.MountJournaled(t, nats)
	d.Start()
	r := crashRounds(t, d, 3, func(i int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(i))) })
	for i, w := range r.workers {
		w := w.(*crasher)
		w.found = func(string, int64, durabletest.Found) {} // see meetsCut
		r.workers[i] = meetsCut{w}
	}
	for cut := range 3 {
		disk.CutAfter(20 + int(seed*31+uint64(cut)*17)%200)
		r.work(t, func() { killAfter(d, 300*time.Millisecond) })
		r.judge(t, durabletest.Event{}, func() {
			disk.Restart(seed + uint64(cut))
			d.Start()
		}, fmt.Sprintf("after cut %d", cut+1))
	}
	r.drained(t)
	return r.enough(t, 0)
}
