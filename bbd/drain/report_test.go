package drain

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/fate"
	"forebay/bbd/transfer"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// TestRestNamesOlderVersion: the reason of a drain for a lost file shows whether the store has an
// older version of it.
func TestRestNamesOlderVersion(t *testing.T) {
	t.Parallel()
	never := bb.Entry{Type: bb.TypeFile, File: 1, Generation: 5, Lost: true, Reason: "its memory was lost"}
	before := never
	before.SetFlushed(bb.Flushed{Generation: 4})
	var left rest
	left.addFile(&never, "never")
	left.addFile(&before, "before")
	if len(left.lost) != 2 || left.lostTotal != 2 {
		t.Fatalf("lost: %v (%d)", left.lost, left.lostTotal)
	}
	for i, older := range []bool{false, true} {
		reason := left.lost[i].Reason
		if !strings.HasPrefix(reason, never.Reason) || strings.Contains(reason, "older version") != older {
			t.Errorf("%s: %q", left.lost[i].Path, reason)
		}
	}
}

// TestReportNames: an answer names as many files as a message holds, those that may be saved yet before
// the lost ones, and counts all.
func TestReportNames(t *testing.T) {
	t.Parallel()
	report := flusher.Report{UnsavedCount: 3, Ops: 1, OpError: bb.E(bb.Exists, "rename", "d", "a directory is there"), Excluded: []string{"k"}, ExcludedCount: 1}
	report.Unsaved = []flusher.Unsaved{{Path: "a", Bytes: 7, Err: bb.E(bb.NoSpace, "put", "a", "full")}, {Path: "b"}}
	answer := new(wire.Progress)
	addReport(answer, &report)
	addUnexplained(answer, []fate.Unexplained{{Path: "u", Bytes: 9, Reason: "no name"}})
	left := rest{lostTotal: 5, lost: []*wire.Failure{{Path: "l", Kind: uint32(bb.Lost)}}}
	left.addLost(answer)
	var got []string
	for _, f := range answer.Failed {
		got = append(got, fmt.Sprint(f.Path, " ", bb.Kind(f.Kind)))
	}
	want := fmt.Sprintf("[a %v b %v  %v u %v l %v]", bb.NoSpace, bb.Busy, bb.Exists, bb.Internal, bb.Lost)
	if fmt.Sprint(got) != want || answer.FailedTotal != 10 || answer.HeldTotal != 1 {
		t.Errorf("%v of %d, %d held; want %s of 10", got, answer.FailedTotal, answer.HeldTotal, want)
	}
	if err := firstFailure(answer); bb.KindOf(err) != bb.NoSpace {
		t.Errorf("the first failure: %v", err)
	}
	if firstFailure(nil) != nil || firstFailure(&wire.Progress{HeldTotal: 1}) != nil {
		t.Error("a drain that left nothing but kept files has failed")
	}
}

// TestLostFit: lost files with long names do not make an answer longer than a message.
func TestLostFit(t *testing.T) {
	t.Parallel()
	var left rest
	for range transfer.MaxNamed + 1 {
		left.addFile(&bb.Entry{Type: bb.TypeFile, Lost: true, Reason: "gone"}, strings.Repeat("x", 4000))
	}
	answer := &wire.Progress{FailedTotal: 1, Failed: []*wire.Failure{{Path: "first"}}}
	left.addLost(answer)
	if n := proto.Size(answer); n > wire.MaxMessage {
		t.Errorf("%d bytes, at most %d", n, wire.MaxMessage)
	}
	if answer.Failed[0].Path != "first" || len(answer.Failed) < 2 || answer.FailedTotal != transfer.MaxNamed+2 {
		t.Errorf("%d of %d named, first %.10s", len(answer.Failed), answer.FailedTotal, answer.Failed[0].Path)
	}
}

// TestSplitReceipt: a receipt has a head or begins with its lines, and one of a later release is refused.
func TestSplitReceipt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		receipt, backing, lines string
		kind                    bb.Kind
	}{
		"with a head":    {`{"forebay_receipt":1,"buffer":"b","backing":"file:///s"}` + "\nlines\n", "file:///s", "lines\n", 0},
		"lines alone":    {`{"path":"a"}` + "\nmore\n", "", `{"path":"a"}` + "\nmore\n", 0},
		"no JSON":        {"a\nb", "", "a\nb", 0},
		"empty":          {"", "", "", 0},
		"a later format": {`{"forebay_receipt":2,"backing":"file:///s"}` + "\n", "file:///s", "", bb.Unsupported},
	} {
		head, lines, err := splitReceipt([]byte(c.receipt))
		var e *bb.Error
		if errors.As(err, &e) && e.Kind != c.kind || (err != nil) != (c.kind != 0) {
			t.Errorf("%s: %v", name, err)
		}
		if head.Backing != c.backing || string(lines) != c.lines {
			t.Errorf("%s: %+v, %q", name, head, lines)
		}
	}
}
