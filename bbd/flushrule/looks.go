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
	// lookAge is the time for which a reading of a directory's steps answers requests about their files, if no
	// file of them is noted.
	lookAge = time.Second
	// maxLooks bounds the directories whose readings are kept.
	maxLooks = 64
	// knownAge is the time for which a superseded step counts as read, if no file of it is noted. A file of it
	// may be written again by another daemon.
	knownAge = 30 * time.Second
	// knownAgain bounds such steps that are read again at a time.
	knownAgain = 8
)

// look is a reading of a directory, with its superseded steps, each with the newer step that
// superseded it.
type look struct {
	at time.Time
	by map[string]string
}

// cachedStep is a superseded step as it was read, which is not read again for a while.
type cachedStep struct {
	plan.Step
	at time.Time // when it was read
}

// keepLook keeps a reading of a directory, if no file was noted since the count of noted files was read.
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

// lookOf returns the reading of a directory. ok is false if it is too old. Heard is for keepLook.
func (b *Buffer) lookOf(dir string) (l look, heard uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok = b.mu.looks[dir]
	return l, b.mu.heard, ok && time.Since(l.at) < lookAge
}

// supersededBy returns the path of the newer step that has superseded the step of a directory (with a slash at its
// end), by a recent reading. If none is known, it returns "".
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
		if l, heard, fresh = b.lookOf(series); !fresh { // no other request has read it meanwhile
			steps, err := b.judgeHeld(ctx, series, false)
			if err != nil {
				return ""
			}
			l = b.keepLook(series, steps, heard)
		}
	}
	return l.by[step]
}

// MarkEntries sets the state of a directory's entries in superseded steps, as far as known. It uses a
// reading of the last second, if no file of the step was noted since.
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

// knownSteps returns the superseded steps that need not be read again, except one. A few of the old ones
// are left out, the oldest first.
func (b *Buffer) knownSteps(but string) map[string]cachedStep {
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
