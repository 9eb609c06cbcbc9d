package plan

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
)

// step reads "NUMBER[@WRITTEN] [marked[@WHEN]] [open] [broken] [cut-off] [one-copy] [stored] [drained] [dirty@WHEN]". The value
// behind @ is a place in the order, and for dirty a time in minutes after epoch. Default: the step's number.
func step(t *testing.T, rule bb.FlushRule, text string) Step {
	t.Helper()
	s := Step{Rule: rule}
	at := func(word string) uint64 {
		place := uint64(s.Number)
		if _, when, ok := strings.Cut(word, "@"); ok {
			fmt.Sscan(when, &place)
		}
		return place
	}
	minute := func(n uint64) time.Time { return epoch.Add(time.Duration(n) * time.Minute) }
	for i, word := range strings.Fields(text) {
		name, _, _ := strings.Cut(word, "@")
		switch {
		case i == 0:
			s.Number, _ = strconv.ParseInt(name, 10, 64)
			s.Path, s.Written = "step-"+name, at(word)
			s.Dirty = minute(s.Written)
		case name == "marked":
			s.Marked = at(word)
		case name == "open":
			s.Open = true
		case name == "broken":
			s.Broken = true
		case name == "cut-off":
			s.CutOff = true
		case name == "one-copy":
			s.OneCopy = true
		case name == "stored":
			s.Stored = true
		case name == "drained":
			s.Drained = true
		case name == "dirty":
			s.Dirty = minute(at(word))
		default:
			t.Fatal(word)
		}
	}
	return s
}

func (j Judgement) String() string {
	names := [...]string{StepBegun: "begun", StepFlushed: "flushed", StepNewest: "newest", StepSuperseded: "superseded"}
	return strings.TrimSpace(names[j.StepState] + " " + strings.TrimPrefix(j.By, "step-"))
}

func TestJudgeSteps(t *testing.T) {
	t.Parallel()
	every5, last := bb.FlushRule{Every: 5}, bb.FlushRule{}
	copies := bb.FlushRule{Every: 5, Copies: true}
	quiet := Circumstances{DirtyAge: time.Hour, Now: epoch.Add(20 * time.Minute)}
	pressure, old := quiet, quiet
	pressure.Pressure, old.DirtyAge = true, 5*time.Minute
	for name, c := range map[string]struct {
		rule  bb.FlushRule
		c     Circumstances
		steps []string // each with its fate after a colon
	}{
		"none":                              {every5, quiet, nil},
		"one that is written":               {every5, quiet, []string{"11 open: begun"}},
		"one that is not complete":          {every5, quiet, []string{"11: begun"}},
		"one that is complete":              {every5, quiet, []string{"11 marked: newest"}},
		"its turn":                          {every5, quiet, []string{"10 open: flushed"}},
		"its turn, superseded":              {every5, quiet, []string{"10 marked: flushed", "11 marked: newest"}},
		"step 0 is everybody's multiple":    {every5, quiet, []string{"0 marked: flushed"}},
		"a newer one that is complete":      {every5, quiet, []string{"11 marked: superseded 12", "12 marked: newest"}},
		"in any order":                      {every5, quiet, []string{"12 marked: newest", "11 marked: superseded 12"}},
		"a newer one of the store":          {every5, quiet, []string{"13 marked: superseded 15", "15 marked: flushed"}},
		"a newer one that is begun":         {every5, quiet, []string{"11 marked: newest", "12: begun"}},
		"a newer one that is written":       {every5, quiet, []string{"11 marked: newest", "12 marked open: begun"}},
		"a newer one that is lost":          {every5, quiet, []string{"11 marked: newest", "12 marked broken: begun"}},
		"a newer one that is cut off":       {every5, quiet, []string{"11 marked: newest", "12 marked cut-off: begun"}},
		"one that was given up":             {every5, quiet, []string{"11: superseded 12", "12 marked: newest"}},
		"one that is still written":         {every5, quiet, []string{"11 open: superseded 12", "12 marked: newest"}},
		"the newest complete names it":      {every5, quiet, []string{"11 marked: superseded 13", "12 marked: superseded 13", "13 marked: newest", "14 open: begun"}},
		"the same number":                   {every5, quiet, []string{"11 marked: newest", "011 marked: newest"}},
		"written after the newer one":       {every5, quiet, []string{"11@30 marked@30: newest", "12 marked: newest"}},
		"a series that goes back":           {every5, quiet, []string{"7@90 marked@90: superseded 8", "8@91 marked@91: newest", "81@81 marked: newest"}},
		"none by number":                    {last, quiet, []string{"10 marked: superseded 15", "15 marked: newest"}},
		"drained":                           {every5, quiet, []string{"11 marked drained: superseded 12", "12 marked drained: flushed", "13 open drained: flushed"}},
		"drained, none is complete":         {every5, quiet, []string{"11 drained: flushed", "12 drained: flushed"}},
		"drained, the last is not complete": {last, quiet, []string{"11 marked drained: superseded 12", "12 marked drained: flushed", "13 drained: flushed"}},
		"one of two is drained":             {every5, quiet, []string{"11 marked drained: superseded 12", "12 marked: newest"}},
		"the store has a part of it":        {every5, quiet, []string{"11 marked stored: flushed", "12 marked: newest"}},
		"memory is short":                   {every5, pressure, []string{"11 marked: superseded 12", "12 marked: flushed", "13 open: flushed"}},
		"older than the dirty age":          {every5, old, []string{"14: flushed"}},
		"its oldest byte is":                {every5, old, []string{"18 dirty@14: flushed"}},
		"younger than the dirty age":        {every5, old, []string{"16: begun"}},
		"complete and older than that":      {every5, old, []string{"11 marked: superseded 12", "12 marked: newest"}},
		"a second copy is gone":             {copies, quiet, []string{"11 marked one-copy: superseded 12", "12 marked one-copy: flushed"}},
		"a second copy is there":            {copies, quiet, []string{"12 marked: newest"}},
		"it is gone before it is complete":  {copies, quiet, []string{"12 one-copy: begun"}},
		"a second copy that none asked for": {every5, quiet, []string{"12 marked one-copy: newest"}},
	} {
		var steps []Step
		var want []string
		for _, text := range c.steps {
			text, becomes, _ := strings.Cut(text, ": ")
			steps, want = append(steps, step(t, c.rule, text)), append(want, becomes)
		}
		if got := JudgeSteps(steps, c.c); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// superseders returns the complete steps of a higher number that were completed after all of a step was written.
func superseders(steps []Step, s *Step) (paths []string) {
	for i := range steps {
		if n := &steps[i]; n.Number > s.Number && n.Complete() && n.Marked >= s.Written {
			paths = append(paths, n.Path)
		}
	}
	return paths
}

// TestJudgeStepsAny: of any steps, the complete one of the highest number is never superseded, one
// is superseded exactly if a newer one is complete, and when all superseded ones are dropped, the
// superseding ones still exist.
func TestJudgeStepsAny(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 71))
	for range 20_000 {
		var steps []Step
		rule := bb.FlushRule{Every: r.Int64N(4)}
		for i := range r.IntN(7) {
			s := Step{Path: fmt.Sprint(i), Number: r.Int64N(8), Rule: rule, Open: r.IntN(6) == 0, Broken: r.IntN(6) == 0}
			s.Stored, s.Drained = r.IntN(6) == 0, r.IntN(3) == 0
			s.CutOff, s.Written = r.IntN(6) == 0, 2+r.Uint64N(8)
			if r.IntN(4) > 0 { // no file is written after the last one, except again
				s.Marked = s.Written - uint64(max(0, r.IntN(6)-4))
			}
			steps = append(steps, s)
		}
		c := Circumstances{Pressure: r.IntN(3) == 0, Now: epoch}
		judged := JudgeSteps(steps, c)
		kept := map[string]bool{}
		for i, j := range judged {
			kept[steps[i].Path] = j.StepState != StepSuperseded
		}
		for i, j := range judged {
			s := &steps[i]
			by := superseders(steps, s)
			if want := len(by) > 0 && !rule.Due(s.Number) && !s.Stored; want != (j.StepState == StepSuperseded) {
				t.Fatalf("%+v: %d is %v, newer ones: %v", steps, i, j, by)
			}
			if j.StepState != StepSuperseded {
				continue
			}
			left := false
			for _, path := range by {
				left = left || kept[path]
			}
			if !left {
				t.Fatalf("%+v: %d is superseded, and nothing that has superseded it is kept: %v", steps, i, judged)
			}
		}
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	x := &Steps{
		Rules:  []bb.FlushRule{{Pattern: "step-*/", Every: 5}},
		States: map[string]StepState{"a/step-1": StepSuperseded, "a/step-2": StepNewest, "a/step-3": StepBegun, "a/step-4": StepFlushed},
	}
	for file, want := range map[string]bool{
		"f": false, "a/step-1/f": true, "a/step-2/d/f": true, "a/step-3/f": true, "a/step-4/f": false, "a/step-5/f": false, "a/step-6/f": true, "b/step-1/f": true,
	} {
		if _, held := x.Holds(file); held != want {
			t.Errorf("%s: %v", file, held)
		}
	}
	if _, held := (*Steps)(nil).Holds("step-1/f"); held {
		t.Error("a file is held back without rules")
	}
}
