package storeop

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
)

// TestNextOp: an operation is held back by those before it that concern the same names, and by
// no others.
func TestNextOp(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	later := now.Add(time.Second)
	remove := func(path string) *Pending { return &Pending{Op: Op{Kind: Remove, Old: path}} }
	rename := func(from, to string) *Pending {
		return &Pending{Op: Op{Kind: Rename, Old: from, New: to}}
	}
	failed := func(op *Pending) *Pending {
		op.err, op.notBefore = errors.New("refused"), later
		return op
	}
	carrying := func(op *Pending) *Pending {
		op.carrying = true
		return op
	}
	var down []*Pending
	for i := range opsFailing {
		down = append(down, failed(remove(fmt.Sprint("f", i))))
	}
	due := append(slices.Clone(down[1:]), remove("g"), failed(remove("h")))
	due[len(due)-1].notBefore = now
	for name, test := range map[string]struct {
		ops     []*Pending
		blocked string
		next    int
		wake    time.Time
	}{
		"none":                         {nil, "", -1, time.Time{}},
		"the first":                    {[]*Pending{remove("a"), remove("b")}, "", 0, time.Time{}},
		"past one that fails":          {[]*Pending{failed(remove("a")), remove("a"), remove("b")}, "", 2, time.Time{}},
		"past one that is carried out": {[]*Pending{carrying(remove("a")), rename("b", "a"), remove("c")}, "", 2, time.Time{}},
		"below it":                     {[]*Pending{failed(remove("d")), remove("d/a")}, "", -1, later},
		"above it":                     {[]*Pending{failed(remove("d/a")), remove("d"), remove("dd")}, "", 2, time.Time{}},
		"behind what waits":            {[]*Pending{failed(rename("a", "b")), rename("b", "c"), remove("c")}, "", -1, later},
		"by an attempt":                {[]*Pending{rename("a", "b"), remove("a"), remove("c")}, "b", 2, time.Time{}},
		"all of the store":             {[]*Pending{remove("a"), failed(remove("")), remove("b")}, "a", -1, time.Time{}},
		"the store is down":            {append(slices.Clone(down), remove("g")), "", -1, later},
		"one is due again":             {due, "", len(due) - 2, time.Time{}},
		"no new one, but one is due":   {append(slices.Clone(down), due[len(due)-2:]...), "", len(down) + 1, time.Time{}},
	} {
		next, wake := nextOp(test.ops, now, func(path string) bool { return path == test.blocked })
		if next != test.next || !wake.Equal(test.wake) {
			t.Errorf("%s: %d at %v, want %d at %v", name, next, wake, test.next, test.wake)
		}
	}
}

// TestStuckOps: operations that will not be carried out by themselves are abandoned ones, and those
// that wait for them.
func TestStuckOps(t *testing.T) {
	t.Parallel()
	why := errors.New("denied")
	ops := []*Pending{
		{Op: Op{Kind: Remove, Old: "x"}},
		{Op: Op{Kind: Rename, Old: "a", New: "b"}, err: why, gaveUp: true},
		{Op: Op{Kind: Rename, Old: "b", New: "c"}},
		{Op: Op{Kind: Remove, Old: "c/d"}},
		{Op: Op{Kind: Remove, Old: "y"}, err: errors.New("passes")},
	}
	s := stuckOf(ops)
	if !slices.Equal(s.ops, ops[1:4]) || !slices.Equal(s.errs, []error{why, why, why}) {
		t.Errorf("%+v", s)
	}
	for path, want := range map[string]error{"x": nil, "y": nil, "a": why, "b/1": why, "c": why, "c/e": why, "cc": nil, "": why} {
		if got := s.At(path); got != want {
			t.Errorf("at %q: %v, want %v", path, got, want)
		}
	}
}

// A drain makes its own attempt, since one that was on its way when it began proves nothing about
// now.
func TestFailureOfBeforeADrain(t *testing.T) {
	later := time.Unix(100, 0)
	for _, begun := range []bool{false, true} {
		op := &Pending{carrying: true}
		q := Queue{ops: []*Pending{op}}
		if begun {
			q.Retry()
		}
		op.failed(bb.E(bb.Exists, "rename", "a", "the store has another file there"), later)
		if op.gaveUp == begun || op.notBefore.IsZero() != begun {
			t.Errorf("a drain has begun: %v; given up: %v, tried again at %v", begun, op.gaveUp, op.notBefore)
		}
		if op.failed(bb.E(bb.Unavailable, "rename", "a", "no answer"), later); op.gaveUp || !op.notBefore.Equal(later) {
			t.Errorf("a failure that passes: given up: %v, tried again at %v", op.gaveUp, op.notBefore)
		}
	}
}
