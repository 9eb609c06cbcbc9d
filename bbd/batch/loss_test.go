package batch

import (
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/ops"
)

// TestLossOf: which files count as lost with a buffer, and which keep it from being destroyed.
func TestLossOf(t *testing.T) {
	t.Parallel()
	dirty := bb.Entry{Type: bb.TypeFile, File: 1, Generation: 5}
	lost := dirty
	lost.Lost, lost.Reason = true, "its memory was lost"
	backed := bb.Buffer{Name: "b", Backing: "s3://bucket/p", NoFlush: []string{"*.tmp"}}
	scratch := bb.Buffer{Name: "b"}
	out := []bb.LifetimeStage{{Buffer: "b", Path: "results"}}
	hurried := bb.Lifetime{Hurry: true, Succeeded: true, Out: out}
	copied := hurried
	copied.Out = []bb.LifetimeStage{{Buffer: "b", Path: "results", Done: true}}
	for name, c := range map[string]struct {
		job     bb.Lifetime
		spec    bb.Buffer
		entry   bb.Entry
		path    string
		discard bool
		lost    bool
		reason  string // a part of it; "": none
	}{
		"lost, of a backed buffer":          {bb.Lifetime{}, backed, lost, "f", false, true, "its memory was lost"},
		"lost, of a scratch buffer":         {bb.Lifetime{}, scratch, lost, "f", false, true, "its memory was lost"},
		"scratch":                           {bb.Lifetime{}, scratch, dirty, "f", true, false, ""},
		"scratch, not copied out yet":       {hurried, scratch, dirty, "results/f", true, true, "buffer was destroyed"},
		"scratch, copied out":               {copied, scratch, dirty, "results/f", true, false, ""},
		"scratch, beside what is copied":    {hurried, scratch, dirty, "other", true, false, ""},
		"kept back":                         {bb.Lifetime{}, backed, dirty, "f.tmp", false, true, "*.tmp"},
		"kept back, of a discarded buffer":  {bb.Lifetime{}, backed, dirty, "f.tmp", true, true, "*.tmp"},
		"of a job that did not run":         {bb.Lifetime{SchedulerManaged: true}, backed, dirty, "f", true, true, "did not run"},
		"of a scheduler's job that did run": {bb.Lifetime{SchedulerManaged: true, Ran: true}, backed, dirty, "f", true, true, "buffer was destroyed"},
		"of a discarded buffer":             {bb.Lifetime{}, backed, dirty, "f", true, true, "buffer was destroyed"},
		"written since the drain":           {bb.Lifetime{}, backed, dirty, "f", false, true, ""},
		"open, and written since the drain": {bb.Lifetime{}, backed, bb.Entry{Type: bb.TypeFile, Open: true}, "f", false, true, ""},
	} {
		reason, isLost := lossOf(&c.job, &c.spec, &c.entry, c.path, c.discard)
		if isLost != c.lost || (reason == "") != (c.reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: lost %v, %q; want %v, %q", name, isLost, reason, c.lost, c.reason)
		}
	}
}

// TestUnsaved: a drain has saved a buffer if nothing has failed and nothing is open. Names that are kept
// back do not count.
func TestUnsaved(t *testing.T) {
	t.Parallel()
	failed := []ops.Failure{{Kind: bb.NoSpace, Path: "f", Reason: "the store is full"}}
	for name, c := range map[string]struct {
		tally ops.Tally
		want  bb.Kind
		saved bool
	}{
		"all saved":            {ops.Tally{Files: 3}, 0, true},
		"kept back":            {ops.Tally{ExcludedTotal: 2}, 0, true},
		"one failed":           {ops.Tally{FailedTotal: 1, Failed: failed}, bb.NoSpace, false},
		"failed and open":      {ops.Tally{FailedTotal: 1, Failed: failed, OpenTotal: 1}, bb.NoSpace, false},
		"failed without names": {ops.Tally{FailedTotal: 2}, bb.Internal, false},
		"open":                 {ops.Tally{OpenTotal: 1}, bb.Busy, false},
	} {
		if err := unsaved("b", &c.tally); (err == nil) != c.saved || err != nil && bb.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
