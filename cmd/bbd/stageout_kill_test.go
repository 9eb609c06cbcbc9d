package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/durabletest"
)

// stager stages out the directories of crashers, to one folder.
type stager struct {
	buffer string
	to     string // the folder
	uid    int    // user of the stage-out
	dirs   int    // of crashers
	rng    *rand.Rand
	past   *durabletest.History
	ops    map[string]int
	ends   *atomic.Int64 // counts stages that have ended

	failure error // that a killed daemon does not explain
}

// stages adds to rounds of crashers a client that stages their directories out to a folder, as a user.
func (r *rounds) stages(to string, uid int, rng *rand.Rand) {
	r.staged, r.stagedBy = to, uid
	r.workers = append(r.workers, &stager{
		buffer: r.buffer, to: r.staged, uid: uid, dirs: len(r.workers), rng: rng, past: r.past, ops: map[string]int{}, ends: &r.stageEnds,
	})
}

func (s *stager) counts() map[string]int { return s.ops }

func (s *stager) run(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		dir := fmt.Sprintf("w%d", s.rng.IntN(s.dirs))
		if s.rng.IntN(2) == 0 { // a directory has often a file that is open, a file not
			dir += fmt.Sprintf("/f%d", s.rng.IntN(crashFiles))
		}
		done, err := s.stage(ctx, c, dir)
		if err != nil {
			s.failure = err
		}
		if !done {
			return
		}
		s.ends.Add(1)
	}
}

// stage stages one path out, and reports whether the daemon runs.
func (s *stager) stage(ctx context.Context, c *client.Client, from string) (bool, error) {
	ended := s.past.Begin(durabletest.Event{Op: durabletest.StageOut, Below: from, To: s.to})
	var report admin.Report
	err := asUser(s.uid, func() (err error) {
		report, err = admin.StageOut(ctx, c, admin.StageRequest{Buffer: s.buffer, Path: from, URL: "file://" + s.to + "/" + from}, nil)
		return err
	})
	unsaved := make([]string, len(report.Failed))
	for i, f := range report.Failed {
		unsaved[i] = f.Path
	}
	switch {
	case err == nil:
		s.ops["stage-out"]++
		ended(durabletest.Done)
	case errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrCancelled):
		return false, nil
	case errors.Is(err, client.ErrNotFound) && len(unsaved) == 0: // none of the names was there
		ended(durabletest.Failed)
	case len(unsaved) > 0 && report.FailedTotal == int64(len(unsaved)):
		for _, f := range report.Failed {
			if f.Kind != client.ErrBusy && f.Kind != client.ErrNotFound {
				return true, fmt.Errorf("stage-out of %s: %s: %s", from, f.Path, f.Reason)
			}
		}
		s.ops["stage-out without some"]++
		ended(durabletest.Done, unsaved...)
	default:
		return true, fmt.Errorf("stage-out of %s: %w", from, err)
	}
	return true, nil
}

func (s *stager) look(context.Context, *client.Buffer, map[string]durabletest.Found) error {
	return s.failure
}

// copied judges the folder that a stager fills.
func (r *rounds) copied(t *testing.T, when string) {
	t.Helper()
	if r.staged == "" {
		return
	}
	o := durabletest.Observation{Begin: r.past.Now(), Copy: r.staged, Files: map[string]durabletest.Found{}}
	for path, p := range tree(t, r.staged) {
		o.Files[path] = durabletest.Find(p)
	}
	broken(t, r.past.Observe(o), "what was staged out "+when)
}

// stagedWhole stages all out between operations, and judges it.
func (r *rounds) stagedWhole(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(r.staged); err != nil {
		t.Fatal(err)
	}
	c := r.dial(t)
	defer c.Close()
	ended := r.past.Begin(durabletest.Event{Op: durabletest.StageOut, To: r.staged})
	err := asUser(r.stagedBy, func() error {
		_, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: r.buffer, URL: "file://" + r.staged}, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ended(durabletest.Done)
	r.copied(t, "at the end")
}
