package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
)

// series is a job that writes one step after the other through kills of its daemon, as a training job does: two parts,
// and then the file that completes the step.
type series struct {
	t        *testing.T
	d        *bbdtest.Daemon
	complete int // the newest step of which the last close has returned
}

const (
	seriesEvery = 5
	seriesKills = 4
	seriesPart  = 3 << 20 // of 64 MiB of memory
)

// part is the content of a step's parts.
func (s *series) part(step int) []byte {
	p := make([]byte, seriesPart)
	rand.NewChaCha8([32]byte{byte(step), byte(step >> 8)}).Read(p)
	return p
}

func stepDir(step int) string { return fmt.Sprint("run/step-", step) }

// write writes steps until something fails.
func (s *series) write(ctx context.Context, c *client.Client) {
	b := c.Buffer("b")
	for ctx.Err() == nil {
		step := s.complete + 1
		dir := stepDir(step)
		err := b.MkdirAll(ctx, dir, 0o755)
		for i := 0; i < 2 && err == nil; i++ {
			err = b.WriteFile(ctx, fmt.Sprint(dir, "/part-", i), s.part(step), 0o644)
		}
		if err == nil {
			err = b.WriteFile(ctx, dir+"/.metadata", []byte(dir), 0o644)
		}
		if err != nil {
			return
		}
		s.complete = step
	}
}

// whole reports whether all of a step can be read as it was written.
func (s *series) whole(c *client.Client, step int) error {
	b, want := c.Buffer("b"), s.part(step)
	for i := range 2 {
		got, err := b.ReadFile(s.t.Context(), fmt.Sprint(stepDir(step), "/part-", i))
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("part %d of step %d: %d bytes, %w", i, step, len(got), err)
		}
	}
	_, err := b.ReadFile(s.t.Context(), stepDir(step)+"/.metadata")
	return err
}

// check compares the files after a kill. Each step that is complete by its last file is whole, and
// the newest that was acknowledged is there.
func (s *series) check(c *client.Client) {
	s.t.Helper()
	for e, err := range c.Buffer("b").ReadDir(s.t.Context(), "run") {
		if err != nil {
			s.t.Fatal(err)
		}
		step := 0
		fmt.Sscanf(e.Name, "step-%d", &step)
		if _, err := c.Buffer("b").Stat(s.t.Context(), stepDir(step)+"/.metadata"); err != nil {
			continue
		}
		if err := s.whole(c, step); err != nil {
			if _, now := c.Buffer("b").Stat(s.t.Context(), stepDir(step)+"/.metadata"); now == nil { // else it was dropped meanwhile
				s.t.Errorf("%v", err)
			}
		}
	}
	if s.complete == 0 {
		return
	}
	if err := s.whole(c, s.complete); err != nil {
		s.t.Errorf("the newest step is not there: %v", err)
	}
}

// TestFlushRuleKilled: the daemon is killed at random moments while steps are written and dropped. The newest step that was
// acknowledged can always be read, no step is there in part with the file that completes it, and at the end the
// store has the multiples and the newest step, each whole.
func TestFlushRuleKilled(t *testing.T) {
	store := t.TempDir()
	s := &series{t: t, d: bbdtest.Start(t, "--memory", "64MiB")}
	c := dial(t, s.d)
	spec := admin.BufferSpec{Name: "b", Backing: "file://" + store, Flush: bb.FlushRules([]string{fmt.Sprint("step-*/=every ", seriesEvery)})}
	if _, err := admin.CreateBuffer(t.Context(), c, spec); err != nil {
		t.Fatal(err)
	}
	for range seriesKills {
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			s.write(ctx, c)
		}()
		killAfter(s.d, time.Duration(200+rand.IntN(1500))*time.Millisecond)
		cancel()
		<-done
		c.Close()
		s.d.Start()
		c = dial(t, s.d)
		s.check(c)
	}
	t.Log("steps:", s.complete)
	report, err := admin.Drain(t.Context(), c, "b", drainTime, nil)
	if err != nil {
		t.Fatalf("%v: %+v", err, report)
	}
	s.checkStore(tree(t, store), report.Superseded)
}

func (s *series) checkStore(files map[string][]byte, superseded []string) {
	s.t.Helper()
	counts := map[int]int{}
	for name := range files {
		step := 0
		fmt.Sscanf(name, "run/step-%d/", &step)
		counts[step]++
		if strings.Contains(name, "/part-") && !slices.Equal(files[name], s.part(step)) {
			s.t.Errorf("%s is not as it was written", name)
		}
	}
	for step := seriesEvery; step <= s.complete; step += seriesEvery {
		if counts[step] != 3 {
			s.t.Errorf("of step %d, the store has %d files", step, counts[step])
		}
	}
	if counts[s.complete] != 3 {
		s.t.Errorf("of step %d, which is the newest, the store has %d files", s.complete, counts[s.complete])
	}
	for _, dir := range superseded {
		step := 0
		fmt.Sscanf(dir, "run/step-%d", &step)
		if counts[step] > 0 || step%seriesEvery == 0 || step >= s.complete {
			s.t.Errorf("%s is named as superseded; the store has %d files of it", dir, counts[step])
		}
	}
}
