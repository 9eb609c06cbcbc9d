package batch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

// TestSuperseded: the record of a job has the superseded steps of each buffer once, and as many as fit.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	step := func(name string) bb.SupersededStep {
		return bb.SupersededStep{Step: name, By: "step-9", Files: 2, Bytes: 7}
	}
	one := superseded(nil, "one", []bb.SupersededStep{step("step-1"), step("step-2")})
	both := superseded(one, "two", []bb.SupersededStep{step("step-3")})
	if got := fmt.Sprint(both); got != "[{one 2 4 14 [{step-1 step-9 2 7} {step-2 step-9 2 7}]} {two 1 2 7 [{step-3 step-9 2 7}]}]" {
		t.Error(got)
	}
	if again := superseded(both, "one", []bb.SupersededStep{step("step-4")}); len(again) != 2 || again[1].Total != 1 || again[1].Steps[0].Step != "step-4" {
		t.Errorf("reported again: %v", again)
	}
	if none := superseded(both, "one", nil); len(none) != 1 || none[0].Buffer != "two" {
		t.Errorf("reported again, without any: %v", none)
	}
	many := superseded(one, "two", slices.Repeat([]bb.SupersededStep{step("s")}, 2*maxSteps))
	if two := many[1]; two.Total != 2*maxSteps || two.Files != 4*maxSteps || len(two.Steps) != maxSteps-2 {
		t.Errorf("of %d steps with %d files %d are named", two.Total, two.Files, len(two.Steps))
	}
	long := superseded(one, "two", slices.Repeat([]bb.SupersededStep{step(strings.Repeat("s", maxStepBytes/4))}, 10))
	if two := long[1]; two.Total != 10 || len(two.Steps) != 3 {
		t.Errorf("of %d steps with long names %d are named", two.Total, len(two.Steps))
	}
}

// TestUsageDropped: dropped files are added to the count of an earlier daemon of the node.
func TestUsageDropped(t *testing.T) {
	t.Parallel()
	var f Usage
	f.Dropped(3, 100)
	f.Dropped(1, 10)
	if got := f.onto(bb.Usage{Dropped: 2, DroppedBytes: 5}); got.Dropped != 6 || got.DroppedBytes != 115 {
		t.Errorf("%+v", got)
	}
}
