package transfer

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// TestStateOf: an operation whose tasks have ended is done only if they have left nothing out.
func TestStateOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status ops.Status
		want   string
	}{
		"running":          {ops.Status{State: ops.Running, Tally: ops.Tally{FailedTotal: 1}}, string(ops.Running)},
		"cancelled":        {ops.Status{State: ops.Cancelled, Tally: ops.Tally{FailedTotal: 1}}, string(ops.Cancelled)},
		"done":             {ops.Status{State: ops.Done, Tally: ops.Tally{Files: 3, Skipped: 1}}, string(ops.Done)},
		"failed":           {ops.Status{State: ops.Done, Tally: ops.Tally{FailedTotal: 1, OpenTotal: 1}}, bb.OperationFailed},
		"some are open":    {ops.Status{State: ops.Done, Tally: ops.Tally{OpenTotal: 1}}, bb.OperationIncomplete},
		"names kept back":  {ops.Status{State: ops.Done, Tally: ops.Tally{ExcludedTotal: 1}}, bb.OperationIncomplete},
		"nothing to do":    {ops.Status{State: ops.Done}, string(ops.Done)},
		"failed, no names": {ops.Status{State: ops.Done, Tally: ops.Tally{FailedTotal: 7}}, bb.OperationFailed},
	} {
		if got := stateOf(&c.status); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestEndFits: the last message about an operation fits a frame, with any names and reasons. Its totals are
// those of all files.
func TestEndFits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	s := ops.Status{State: ops.Done}
	for range 100 {
		s.Tally.Failed = append(s.Tally.Failed, ops.Failure{Kind: bb.NoSpace, Path: long, Reason: long})
		s.Tally.Excluded, s.Tally.Open = append(s.Tally.Excluded, long), append(s.Tally.Open, long)
	}
	s.Tally.FailedTotal, s.Tally.ExcludedTotal, s.Tally.OpenTotal = 100, 100, 100
	m := EndOf(&s)
	if n := proto.Size(m); n > wire.MaxMessage {
		t.Errorf("%d bytes, at most %d", n, wire.MaxMessage)
	}
	if !m.Done || m.FailedTotal != 100 || m.HeldTotal != 100 || m.OpenTotal != 100 {
		t.Errorf("done %v, %d failed, %d held, %d open", m.Done, m.FailedTotal, m.HeldTotal, m.OpenTotal)
	}
}

// TestTallyOf: a task's result survives the way over a message.
func TestTallyOf(t *testing.T) {
	t.Parallel()
	s := ops.Status{State: ops.Done, Tally: ops.Tally{
		Files: 1, Bytes: 2, NotCopied: 3, Skipped: 4, FailedTotal: 1, ExcludedTotal: 1, OpenTotal: 1, LastError: "e",
		Failed: []ops.Failure{{Kind: bb.Lost, Path: "f", Reason: "r", Bytes: 5}}, Excluded: []string{"h"}, Open: []string{"o"},
	}}
	got := TallyOf(EndOf(&s))
	if got.Files != 1 || got.Bytes != 2 || got.NotCopied != 3 || got.Skipped != 4 || got.LastError != "e" ||
		len(got.Failed) != 1 || got.Failed[0] != s.Tally.Failed[0] || got.Excluded[0] != "h" || got.Open[0] != "o" {
		t.Errorf("%+v, want %+v", got, s.Tally)
	}
}

// TestSum: the progress of several daemons adds up, and names no more files than a message has room for.
func TestSum(t *testing.T) {
	t.Parallel()
	var last *wire.Progress
	sum := NewSum(NewProgress(func(p *wire.Progress) error { last = p; return nil }), 3)
	many := &wire.Progress{FilesTotal: MaxNamed, FailedTotal: MaxNamed}
	for range MaxNamed {
		many.Failed = append(many.Failed, &wire.Failure{Path: "f"})
	}
	if err := sum.Set(0, many); err != nil || last.GetFailedTotal() != MaxNamed {
		t.Fatalf("the first is not reported: %v (%v)", last, err)
	}
	for i := range 2 {
		if err := sum.Set(1+i, &wire.Progress{FilesTotal: 2, FilesDone: 1, OpenTotal: 1, Open: []string{"o"}, FailedTotal: 1, Failed: []*wire.Failure{{Path: "g"}}}); err != nil {
			t.Fatal(err)
		}
	}
	got := sum.Sum()
	if got.FilesTotal != MaxNamed+4 || got.FilesDone != 2 || got.OpenTotal != 2 || len(got.Open) != 2 || got.FailedTotal != MaxNamed+2 || len(got.Failed) != MaxNamed {
		t.Errorf("%d files, %d done, %d open (%d named), %d failed (%d named)", got.FilesTotal, got.FilesDone, got.OpenTotal, len(got.Open), got.FailedTotal, len(got.Failed))
	}
}
