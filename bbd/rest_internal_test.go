package bbd

import (
	"strings"
	"testing"

	"forebay/internal/bb"
)

// TestRestNamesOlderVersion: the reason that a drain gives for a lost file says whether the
// store has an older version of it.
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
