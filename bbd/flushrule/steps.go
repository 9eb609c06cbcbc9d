package flushrule

import (
	"cmp"
	"context"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/bbd/walk"
	"forebay/flusher/plan"
	"forebay/internal/bb"
)

// judged is a step with its judgement.
type judged struct {
	plan.Step
	plan.Judgement
	at time.Time // when the step was read
}

// page is how many entries of a directory are read at a time.
const page = 2000

// judge reads and evaluates the steps in a directory. Steps in known are not read, and supersede
// none.
func (b *Buffer) judge(ctx context.Context, dir string, known map[string]cachedStep, c plan.Circumstances) (all []judged, err error) {
	now := time.Now()
	series, err := b.series(ctx, dir)
	for i := 0; i < len(series) && err == nil; i++ {
		if series[i], err = b.readSteps(ctx, series[i], known); err != nil {
			break
		}
		for at, j := range plan.JudgeSteps(series[i], c) {
			s := series[i][at]
			read := now
			if k, ok := known[s.Path]; ok {
				read = k.at
			}
			all = append(all, judged{s, j, read})
		}
	}
	return all, err
}

// series returns the steps in a directory by their rules and by the part of their names before the number,
// the highest number first.
func (b *Buffer) series(ctx context.Context, dir string) (series [][]plan.Step, err error) {
	type key struct {
		rule int
		name string
	}
	found := map[key]int{}
	for after, more := "", true; more; {
		var entries []bb.Entry
		entries, more, err = b.paths.List(ctx, access.Daemon(), dir, after, page)
		if bb.KindOf(err) == bb.NotFound || bb.KindOf(err) == bb.NotDirectory {
			return nil, nil // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for i := range entries {
			e := &entries[i]
			after = e.Name
			if !e.IsDir() || dir == "" && e.Name == bb.HiddenDir {
				continue
			}
			at := slices.IndexFunc(b.rules, func(r bb.FlushRule) bool { _, ok := r.Number(e.Name); return ok })
			if at >= 0 {
				n, _ := b.rules[at].Number(e.Name)
				step := bb.Place{Name: e.Name}.In(dir)
				k := key{at, b.rules[at].Series(e.Name)}
				i, known := found[k]
				if !known {
					i = len(series)
					found[k], series = i, append(series, nil)
				}
				series[i] = append(series[i], plan.Step{Path: step, Number: n, Rule: b.rules[at], Drained: b.drained(step), Pinned: b.pinned(step)})
			}
		}
	}
	for _, steps := range series {
		slices.SortStableFunc(steps, func(x, y plan.Step) int { return cmp.Compare(y.Number, x.Number) })
	}
	return series, nil
}

// readSteps reads the steps of a series. It leaves out steps without a file, and steps whose number is due
// behind a complete one, since their files are flushed, and they are not needed to supersede others.
func (b *Buffer) readSteps(ctx context.Context, steps []plan.Step, known map[string]cachedStep) (read []plan.Step, err error) {
	complete := false
	for i := range steps {
		s := &steps[i]
		if k, ok := known[s.Path]; ok {
			read = append(read, k.Step)
			continue
		}
		if complete && s.Rule.Due(s.Number) {
			continue
		}
		c, err := b.contents(ctx, s)
		if err != nil {
			return nil, err
		}
		b.age(s)
		if c.any {
			complete = complete || s.Complete()
			read = append(read, *s)
		}
	}
	return read, nil
}

// age sets the age of a step's dirty files by the passes that found them, since their modification times may be any.
func (b *Buffer) age(s *plan.Step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since := b.mu.since[s.Path]; !s.Dirty.IsZero() && !since.IsZero() && since.Before(s.Dirty) {
		s.Dirty = since
	}
}

// contents are the files of a step that are not lost, and its directories.
type contents struct {
	files []file
	dirs  []file // those above come first
	any   bool   // there is a file, lost or not
}

// file is a file or a directory of a step, as it was when the step was read.
type file struct {
	path  string
	entry bb.Entry
}

// contents reads the files and directories of a step. A removed step has none.
func (b *Buffer) contents(ctx context.Context, s *plan.Step) (c contents, err error) {
	empty := *s
	err = b.paths.Walk(ctx, access.Daemon(), "flush rule", s.Path, walk.Visitor{
		Enter: func(p string, e *bb.Entry) error {
			c.dirs = append(c.dirs, file{p, *e})
			return nil
		},
		File: func(p string, e *bb.Entry) error {
			if c.any = true; !e.Lost {
				c.files = append(c.files, file{p, *e})
			}
			b.add(s, p, e)
			return nil
		},
	})
	if bb.KindOf(err) == bb.NotFound || bb.KindOf(err) == bb.NotDirectory {
		*s = empty
		return contents{}, nil
	}
	return c, err
}

// add adds a file to its step.
func (b *Buffer) add(s *plan.Step, p string, e *bb.Entry) {
	if e.Type.Special() && e.Generation == 0 {
		return // a FIFO or a socket, which is never flushed
	}
	state := e.State()
	closed := e.ClosedAt()
	s.Written = max(s.Written, e.WrittenBy())
	s.CutOff = s.CutOff || closed == 0
	s.Open = s.Open || state == bb.StateOpen
	s.Stored = s.Stored || e.Stored().Generation != 0
	s.Broken = s.Broken || state == bb.StateLost
	if dirOf(p) == s.Path && s.Rule.Completes(e.Name) && state != bb.StateOpen {
		s.Marked = max(s.Marked, closed)
	}
	if state != bb.StateDirty {
		return
	}
	if s.Dirty.IsZero() || e.MTime.Before(s.Dirty) {
		s.Dirty = e.MTime
	}
	second := owner.Replica(e)
	s.OneCopy = s.OneCopy || second == "" || !b.o.Serves(second)
	if b.o.Owners.OwnedElsewhere(e) {
		s.Broken = s.Broken || !b.o.Serves(b.o.Owners.Of(e))
		return
	}
	s.Files, s.Bytes = s.Files+1, s.Bytes+e.Size
}
