package plan

import (
	"cmp"
	"slices"
	"time"

	"forebay/internal/bb"
)

// Step is the namespace's state of one step of a flush rule.
type Step struct {
	Path    string
	Number  int64
	Rule    bb.FlushRule
	Marked  uint64    // when the file was closed that completes it, in the order of the namespace's changes; 0: it has none
	Written uint64    // when its newest file was, or at the latest, in that order
	Dirty   time.Time // when its oldest dirty file was written; zero: none is dirty
	Open    bool      // a file of it is open for writing
	Stored  bool      // the store has a file of it, of any generation
	Drained bool      // it is drained, or a directory above it, or a part of it
	Pinned  bool      // a drain under way has begun to flush it
	Broken  bool      // a file of it is lost, or its owner does not answer
	CutOff  bool      // a file of it was ended by its daemon, not by its writers, or that is unknown
	OneCopy bool      // a dirty file of it has no second copy
	Files   int       // dirty ones that this node owns
	Bytes   int64     // of them
}

// Complete reports whether a step can be read whole. The file that is written last into it is there, none is
// open for writing, each was closed by its writers, and each can be had.
func (s *Step) Complete() bool { return s.Marked != 0 && !s.Open && !s.Broken && !s.CutOff }

// StepState is the fate of the dirty files of a step.
type StepState uint8

// The states. Files that are held back are in memory alone.
//
//	 first file    complete        a newer step is complete
//	─────────▶ begun ─────▶ newest ─────▶ superseded ──memory is needed──▶ dropped
//	             │             │
//	             └─────────────┴─ drained, or memory is needed ─▶ flushed
//
// Begun becomes flushed when its dirty age is over, too. Newest does when its rule requires a
// second copy that is gone. A step whose number is due is flushed from the beginning. If the store
// has a file of a step, or a drain has begun to flush the step, it is flushed whole.
const (
	StepBegun      StepState = iota // held back until its dirty age is over
	StepFlushed                     // flushed as files of no step are
	StepNewest                      // held back for as long as no newer step is complete
	StepSuperseded                  // never flushed
)

// Circumstances are the further inputs of a decision about steps.
type Circumstances struct {
	Pressure bool          // memory is short, and there is no superseded step to drop
	DirtyAge time.Duration // the oldest that a byte gets before its flush begins; 0: any age
	Now      time.Time
}

// Judgement is the state of a step. By is the path of the newer step that has superseded it.
type Judgement struct {
	StepState
	By string
}

// JudgeSteps decides about steps of one directory that one rule is about, in the order in which they are given.
//
// A step is superseded by one of a higher number that is complete and was completed after the last
// file of this one was written. So the complete step of the highest number never is, and a series
// that continues from an earlier number is not superseded by steps that were written before it. The
// order is that of the namespace's changes, and depends on no clock.
func JudgeSteps(steps []Step, c Circumstances) []Judgement {
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(steps[b].Number, steps[a].Number) })
	judged := make([]Judgement, len(steps))
	var newer *Step // the complete one of a higher number that was completed last
	for begin := 0; begin < len(order); {
		end := begin
		for end < len(order) && steps[order[end]].Number == steps[order[begin]].Number {
			judged[order[end]] = judge(&steps[order[end]], newer, c)
			end++
		}
		for _, i := range order[begin:end] {
			if s := &steps[i]; s.Complete() && (newer == nil || s.Marked > newer.Marked) {
				newer = s
			}
		}
		begin = end
	}
	return judged
}

// judge decides about a step. newer is the one of a higher number that may have superseded it.
func judge(s, newer *Step, c Circumstances) Judgement {
	state := StepBegun
	switch {
	case s.Rule.Due(s.Number) || s.Stored || s.Pinned:
		state = StepFlushed
	case newer != nil && s.Written <= newer.Marked:
		return Judgement{StepSuperseded, newer.Path}
	case s.Drained || c.Pressure:
		state = StepFlushed
	case s.Complete() && s.Rule.Copies && s.OneCopy:
		state = StepFlushed
	case s.Complete():
		state = StepNewest
	case c.DirtyAge > 0 && !s.Dirty.IsZero() && !s.Dirty.Add(c.DirtyAge).After(c.Now):
		state = StepFlushed
	}
	return Judgement{StepState: state}
}

// Droppable reports whether the files of a step may be removed: it is superseded, and none of them
// is open.
func Droppable(s *Step, j Judgement) bool { return j.StepState == StepSuperseded && !s.Open }

// Steps is a daemon's view of a buffer's steps at one moment. It is not changed any more. A nil one is of a
// buffer without flush rules.
type Steps struct {
	Rules  []bb.FlushRule
	States map[string]StepState // by path; one that is not there is held back until it is judged
}

// Holds reports whether a file is held back from the store by a flush rule, and by which step.
func (x *Steps) Holds(file string) (step string, held bool) {
	if x == nil {
		return "", false
	}
	step, rule, number, ok := bb.StepOf(x.Rules, file)
	if !ok || rule.Due(number) {
		return step, false
	}
	return step, x.States[step] != StepFlushed
}
