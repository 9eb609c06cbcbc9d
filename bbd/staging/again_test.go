package staging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forebay/bbd/cluster"
	"forebay/flusher/backing"
	"forebay/flusher/stage"
	"forebay/internal/bb"
)

// TestInAgain: of three files the second fails as in the case, each time that it is tried.
func TestInAgain(t *testing.T) {
	t.Parallel()
	away := bb.Wrap("stage-in", "b", cluster.Away("stage-in", "b", "n2"))
	store := bb.E(bb.Unavailable, "get", "b", "the store is away")
	for name, c := range map[string]struct {
		fails  []error // of each try; the last one again and again
		tries  int
		failed error
		took   time.Duration
	}{
		"the node comes":           {fails: []error{away, away, nil}, tries: 3, took: 3 * awayPause},
		"it fails otherwise":       {fails: []error{away, store}, tries: 2, failed: store, took: awayPause},
		"the node stays away":      {fails: []error{away}, tries: 1 + awayTries, failed: away, took: 15 * awayPause},
		"the store is away":        {fails: []error{store}, tries: 1, failed: store},
		"nothing fails":            {fails: []error{nil}, tries: 1},
		"the last try was in vain": {fails: []error{away, away, away, away, nil}, tries: 1 + awayTries, took: 15 * awayPause},
	} {
		synctest.Test(t, func(t *testing.T) {
			var found []stage.Found
			for i, target := range []string{"a", "b.zst", "c"} {
				found = append(found, stage.Found{Target: target, Object: backing.Object{Name: target, Size: int64(10 + i)}})
			}
			var names []string
			tries, began := 0, time.Now()
			report := inAgain(t.Context(), found, "zstd", func(found []stage.Found, before stage.Progress) (r stage.Report) {
				names = append(names, fmt.Sprint(len(found), before.FilesDone))
				err := c.fails[min(tries, len(c.fails)-1)]
				tries++
				for _, f := range found {
					r.Files, r.FilesDone, r.Bytes, r.BytesDone = r.Files+1, r.FilesDone+1, r.Bytes+f.Object.Size, r.BytesDone+f.Object.Size
					if f.Target == "b.zst" && err != nil {
						r.Failed, r.BytesNotCopied = 1, f.Object.Size
						r.Failures = append(r.Failures, stage.Failure{Name: "b", Bytes: f.Object.Size, Err: err})
					}
				}
				return r
			})
			want := stage.Progress{Files: 3, FilesDone: 3, Bytes: 33, BytesDone: 33}
			if c.failed != nil {
				want.Failed, want.BytesNotCopied = 1, 11
			}
			if report.Progress != want || len(report.Failures) != int(want.Failed) || c.failed != nil && !errors.Is(report.Failures[0].Err, c.failed) {
				t.Errorf("%s: %+v", name, report)
			}
			if tries != c.tries || time.Since(began) != c.took {
				t.Errorf("%s: %d tries in %v, want %d in %v", name, tries, time.Since(began), c.tries, c.took)
			}
			if tries > 1 && slices.ContainsFunc(names[1:], func(n string) bool { return n != "1 2" }) {
				t.Errorf("%s: tried %q, want the file that failed", name, names)
			}
		})
	}
}

// TestInAgainCancelled: a task that has ended waits no more.
func TestInAgainCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		inAgain(ctx, []stage.Found{{Target: "a"}}, "", func([]stage.Found, stage.Progress) stage.Report {
			return stage.Report{Progress: stage.Progress{Failed: 1}, Failures: []stage.Failure{{Name: "a", Err: cluster.Away("stage-in", "a", "n2")}}}
		})
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
