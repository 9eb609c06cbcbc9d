package flushrule

import (
	"context"
	"maps"
	"slices"
	"time"

	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

const (
	// lookAge is how long what was read of a directory's steps answers what is asked about their files, if nothing is
	// noted of them.
	lookAge = time.Second
	// maxLooks is of how many directories that is kept.
	maxLooks = 64
	// knownAge is how long a survey of a superseded step counts, of which nothing was noted: another daemon may own the
	// file of it that is written again.
	knownAge = 30 * time.Second
	// knownAgain is how many such steps are read again at a time.
	knownAgain = 8
)

// look is what superseded steps of a directory were superseded by, when they were read.
type look struct {
	at time.Time
	by map[string]string
}

// surveyed is a survey of a superseded step, which is not read again for a while.
type surveyed struct {
	plan.Step
	at time.Time // when it was read
}

// keepLook keeps what was read of a directory, if nothing was noted since a moment at which so many files had been.
func (b *Buffer) keepLook(dir string, steps []judged, heard uint64) look {
	l := look{time.Now(), map[string]string{}}
	for i := range steps {
		if s := &steps[i]; s.StepState == plan.StepSuperseded {
			l.by[s.Path] = s.By
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.heard != heard {
		return l
	}
	if _, ok := b.mu.looks[dir]; !ok && len(b.mu.looks) >= maxLooks {
		oldest, at := "", l.at
		for d, o := range b.mu.looks {
			if !o.at.After(at) {
				oldest, at = d, o.at
			}
		}
		delete(b.mu.looks, oldest)
	}
	b.mu.looks[dir] = l
	return l
}

// lookOf returns what is known of a directory's steps; not ok: it is too old. Heard is for keepLook.
func (b *Buffer) lookOf(dir string) (l look, heard uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok = b.mu.looks[dir]
	return l, b.mu.heard, ok && time.Since(l.at) < lookAge
}

// supersededBy returns the path of what has superseded the step that a directory with a slash at its end is, or is
// part of, as it was a moment ago; "": nothing has, as far as is known.
func (b *Buffer) supersededBy(ctx context.Context, dir string) string {
	step, rule, number, ok := bb.StepOf(b.rules, dir)
	if !ok || rule.Due(number) {
		return ""
	}
	series := dirOf(step)
	l, _, fresh := b.lookOf(series)
	if !fresh {
		if b.looking.Acquire(ctx, 1) != nil {
			return ""
		}
		defer b.looking.Release(1)
		var heard uint64
		if l, heard, fresh = b.lookOf(series); !fresh { // nobody else has read it meanwhile
			steps, err := b.judgeHeld(ctx, series, false)
			if err != nil {
				return ""
			}
			l = b.keepLook(series, steps, heard)
		}
	}
	return l.by[step]
}

// MarkEntries gives entries of a directory their state that lie in a superseded step, as far as that can be found
// out. It goes by what was read of the step within the last second, if nothing was noted of it since.
func (b *Buffer) MarkEntries(ctx context.Context, dir string, entries ...*wire.Entry) {
	by, known := "", len(b.rules) == 0
	for _, e := range entries {
		if bb.State(e.State) != bb.StateDirty {
			continue
		}
		if !known {
			by, known = b.supersededBy(ctx, dir+"/"), true
		}
		if by != "" {
			e.State, e.Reason = uint32(bb.StateSuperseded), by+" is complete"
		}
	}
}

// knownSteps returns the surveys of superseded steps that need not be read again, but one. Of those that are old, a few
// are left out, the oldest first.
func (b *Buffer) knownSteps(but string) map[string]surveyed {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, now := maps.Clone(b.mu.superseded), time.Now()
	var old []string
	for p, s := range b.mu.superseded {
		if now.Sub(s.at) >= knownAge {
			old = append(old, p)
		}
	}
	slices.SortFunc(old, func(x, y string) int { return b.mu.superseded[x].at.Compare(b.mu.superseded[y].at) })
	for _, p := range old[:min(len(old), knownAgain)] {
		delete(known, p)
	}
	delete(known, but)
	return known
}
