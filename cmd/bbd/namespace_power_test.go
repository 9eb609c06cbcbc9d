package main

import (
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

// TestPowerCutOfNamespace: the disk of the namespace's server loses power at some step, and
// with it some of what was not synced, while clients write, rename and remove; memory stays.
// If each change is synced before it is acknowledged, nothing of what was acknowledged is
// forgotten.
func TestPowerCutOfNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	total := map[string]int{}
	for seed := range seeds(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			for op, n := range powerCutOfNamespace(t, seed) {
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

// failedWith forgives a failure of a kind. nats-server calls a message missing that it
// cannot read from its disk, so what meets the cut may fail with "not found".
func failedWith(w *crasher, kind client.Kind) {
	if client.KindOf(w.failure) == kind {
		w.failure = nil
	}
}

func powerCutOfNamespace(t *testing.T, seed uint64) (ops map[string]int) {
	t.Helper()
	store := t.TempDir()
	d := bbdtest.New(t, "--memory", crashMemory)
	d.Config = syncedConfig
	nats := filepath.Join(d.Dir, "nats")
	if err := os.Mkdir(nats, 0o700); err != nil {
		t.Fatal(err)
	}
	disk := powertest.MountJournaled(t, nats)
	d.Start()
	ctx := t.Context()
	c := dial(t, d)
	if _, err := c.CreateBuffer(ctx, client.BufferSpec{Name: "crash", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	past := durabletest.NewHistory()
	crashers := make([]*crasher, 3)
	for i := range crashers {
		crashers[i] = newCrasher(t, i, past)
		crashers[i].rng = rand.New(rand.NewPCG(seed, uint64(i)))
		crashers[i].found = func(string, int64, durabletest.Found) {} // see failedWith
		if err := c.Buffer("crash").Mkdir(ctx, crashers[i].dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	ops = map[string]int{}
	for cut := range 3 {
		disk.CutAfter(20 + int(seed*31+uint64(cut)*17)%200)
		runUntilKilled(t, d, crashers, 300*time.Millisecond)
		past.Over()
		past.Fault(durabletest.Event{})
		disk.Restart(seed + uint64(cut))
		d.Start()
		c := dial(t, d)
		found := durabletest.Observation{Begin: past.Now(), Files: map[string]durabletest.Found{}}
		for _, w := range crashers {
			failedWith(w, client.ErrNotFound)
			if err := w.look(ctx, c.Buffer("crash"), found.Files); err != nil {
				t.Errorf("after cut %d: %v", cut+1, err)
			}
		}
		broken(t, past.Observe(found), fmt.Sprintf("after cut %d", cut+1))
		c.Close()
		if t.Failed() {
			t.FailNow()
		}
	}
	drained(t, d, store, past)
	for _, w := range crashers {
		for op, n := range w.ops {
			ops[op] += n
		}
	}
	return ops
}
