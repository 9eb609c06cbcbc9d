package flushrule

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/flusher/plan"
	"forebay/internal/bb"
)

const (
	// every is the interval at which steps with held files are evaluated again, since this daemon
	// does not see all changes of them.
	every = time.Second
	// whileShort is how often they are evaluated while memory is short.
	whileShort = 100 * time.Millisecond
	// nextDrop is the wait after a step was dropped, until it is known whether memory is still short.
	nextDrop = 5 * time.Millisecond
	// patience is the time of short memory without a step to drop, after which held files are flushed.
	patience = time.Second
	// everySeldom is the longest interval between readings of a series without notes, since this daemon gets no
	// note of files that other daemons own.
	everySeldom = 8 * time.Second
	// rest is the least wait after a round, as a multiple of the round's time.
	rest = 3
)

// Wake wakes Run when memory has become short.
type Wake chan struct{}

// NewWake returns a wake that is not set.
func NewWake() Wake { return make(Wake, 1) }

// Set wakes Run. Calls before the wake are joined into one.
func (w Wake) Set() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Run evaluates and drops the steps of buffers until ctx ends.
func Run(ctx context.Context, short func() bool, wake Wake, buffers func() []*Buffer) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	var since time.Time // memory has been short, and nothing was dropped; zero: it is not
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		began, dropped := time.Now(), false
		switch {
		case !short():
			since = time.Time{}
		case since.IsZero():
			since = began
		}
		strained := !since.IsZero() && began.Sub(since) >= patience
		for _, b := range buffers() {
			done, err := b.pass(ctx, strained)
			if err != nil && ctx.Err() == nil {
				b.o.Warn("the steps of a flush rule were not judged", "buffer", b.name, "err", err)
			}
			dropped = dropped || done
		}
		took := rest * time.Since(began)
		switch {
		case dropped:
			since = time.Time{}
			timer.Reset(nextDrop)
		case short():
			timer.Reset(max(whileShort, took))
		default:
			timer.Reset(max(every, took))
		}
	}
}

// pass evaluates the steps with held files. If memory is short, it drops the oldest superseded one.
// If there is none and memory is strained, it releases held files for their flush.
func (b *Buffer) pass(ctx context.Context, strained bool) (dropped bool, err error) {
	if len(b.rules) == 0 {
		return false, nil
	}
	if err := b.judging.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer b.judging.Release(1)
	how := ifDue
	if b.o.Short() {
		how = anew
	}
	all, err := b.refresh(ctx, how)
	if err != nil || !b.o.Short() {
		return false, err
	}
	dropped, err = b.dropOldest(ctx, all)
	if err == nil && !dropped && strained {
		_, err = b.refresh(ctx, pressed)
	}
	return dropped, err
}

// reading is the choice of series that a refresh reads.
type reading uint8

const (
	ifDue   reading = iota // those with a noted file, and those that are due
	anew                   // all
	pressed                // all, and held files are released, since memory is short
)

// series is the last reading of a directory's steps with held files.
type series struct {
	noted uint64        // how many files were noted
	read  uint64        // how many were before the steps were read
	steps []judged      // as they were read
	next  time.Time     // when they are read again, if nothing is noted
	pause time.Duration // until then
}

// due reports whether the steps are to be read.
func (s *series) due(now time.Time) bool { return s.read != s.noted || !now.Before(s.next) }

// wait sets the time of the next reading of the steps that were read now, if no file is noted. If they did not
// change, it is twice the last pause, but no later than the next event that is due by time. Steps that depend on
// other nodes' presence are read each time.
func (s *series) wait(steps []judged, dirtyAge time.Duration, now time.Time) {
	same := slices.EqualFunc(s.steps, steps, func(x, y judged) bool { return x.Path == y.Path && x.Judgement == y.Judgement && x.Files == y.Files })
	s.pause = min(2*s.pause, everySeldom)
	if !same || s.pause == 0 {
		s.pause = every
	}
	s.next = now.Add(s.pause)
	for i := range steps {
		x := &steps[i]
		switch old := x.Dirty.Add(dirtyAge); {
		case x.Rule.Copies:
			s.next = now
		case x.StepState == plan.StepBegun && !x.Dirty.IsZero() && old.Before(s.next):
			s.next = old
		}
	}
}

// readSoon makes the next pass read a series. mu is held.
func (b *Buffer) readSoon(dir string) {
	if s, ok := b.mu.series[dir]; ok {
		s.next = time.Time{}
		b.mu.series[dir] = s
	}
}

// refresh evaluates the steps with held files, and publishes the result to the flusher. Judging is
// held. It returns all of them.
func (b *Buffer) refresh(ctx context.Context, how reading) (all []judged, err error) {
	b.mu.Lock()
	held := maps.Clone(b.mu.series)
	clear(b.mu.noted)
	b.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(held)) {
		s := held[dir]
		if how == ifDue && !s.due(time.Now()) {
			all = append(all, s.steps...)
			continue
		}
		steps, err := b.judgeHeld(ctx, dir, how == pressed)
		if err != nil {
			return nil, err
		}
		b.keep(dir, s, steps)
		all = append(all, steps...)
	}
	b.publish(all)
	return all, nil
}

// keep keeps the reading of a series. A series without held files is dropped, unless a file was noted since.
func (b *Buffer) keep(dir string, s series, steps []judged) {
	held := slices.ContainsFunc(steps, func(s judged) bool { return s.Files > 0 && !s.Rule.Due(s.Number) })
	s.wait(steps, b.o.DirtyAge, time.Now())
	s.read, s.steps = s.noted, steps
	b.mu.Lock()
	defer b.mu.Unlock()
	if noted := b.mu.series[dir].noted; held || noted != s.noted {
		s.noted = noted
		b.mu.series[dir] = s
		return
	}
	delete(b.mu.series, dir)
	for p := range b.mu.superseded {
		if dirOf(p) == dir {
			delete(b.mu.superseded, p)
		}
	}
}

// judgeHeld evaluates the steps in a directory, except those that were found superseded before.
func (b *Buffer) judgeHeld(ctx context.Context, dir string, pressure bool) ([]judged, error) {
	for {
		known := b.knownSteps("")
		all, err := b.judge(ctx, dir, known, plan.Circumstances{Pressure: pressure, DirtyAge: b.o.DirtyAge, Now: time.Now()})
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		again := false
		for i := range all {
			s := &all[i]
			if _, ok := known[s.Path]; ok && s.StepState != plan.StepSuperseded {
				delete(b.mu.superseded, s.Path) // the step that superseded it was removed
				again = true
			}
		}
		b.mu.Unlock()
		if !again {
			return all, nil
		}
	}
}

// publish makes judgements the ones that the flusher uses.
func (b *Buffer) publish(all []judged) {
	next := &plan.Steps{Rules: b.rules, States: map[string]plan.StepState{}}
	var flushed []string
	stats := b.describe(all)
	since, now := map[string]time.Time{}, time.Now()
	b.mu.Lock()
	for i := range all {
		s := &all[i]
		next.States[s.Path] = s.StepState
		if !s.Dirty.IsZero() {
			since[s.Path] = cmp.Or(b.mu.since[s.Path], now)
		}
		switch {
		case s.StepState == plan.StepSuperseded && b.mu.noted[s.Path]: // it has changed since it was read
		case s.StepState == plan.StepSuperseded:
			known := s.Step
			known.Marked = 0 // a step that is not read supersedes none
			b.mu.superseded[s.Path] = cachedStep{known, s.at}
		case s.StepState == plan.StepFlushed && s.Files > 0:
			flushed = append(flushed, s.Path)
		}
	}
	stats.Dropped, stats.DroppedBytes = b.mu.stats.Dropped, b.mu.stats.DroppedBytes
	b.mu.stats, b.mu.since = stats, since
	b.mu.Unlock()
	b.steps.Store(next)
	if len(flushed) > 0 {
		b.o.Reconsider(flushed)
	}
}

// dropOldest drops the step that has been superseded the longest, among those with bytes on this node.
func (b *Buffer) dropOldest(ctx context.Context, all []judged) (dropped bool, err error) {
	slices.SortStableFunc(all, func(x, y judged) int { return cmp.Compare(x.Written, y.Written) })
	for i := range all {
		if s := &all[i]; s.Files > 0 && plan.Droppable(&s.Step, s.Judgement) {
			if dropped, err = b.drop(ctx, s.Path); dropped || err != nil {
				return dropped, err
			}
		}
	}
	return false, nil
}

// removals is how many files of a step are removed at a time.
const removals = 16

// drop removes a step, if it is still superseded.
func (b *Buffer) drop(ctx context.Context, step string) (bool, error) {
	all, err := b.judge(ctx, dirOf(step), b.knownSteps(step), plan.Circumstances{Now: time.Now()})
	i := slices.IndexFunc(all, func(s judged) bool { return s.Path == step })
	if err != nil || i < 0 || !plan.Droppable(&all[i].Step, all[i].Judgement) {
		return false, err
	}
	s := plan.Step{Path: step, Number: all[i].Number, Rule: all[i].Rule}
	c, err := b.contents(ctx, &s)
	if err != nil || s.Open || s.Stored || s.Written > all[i].Written {
		return false, err // it is evaluated again
	}
	marks := func(f file) bool { return dirOf(f.path) == step && s.Rule.Completes(path.Base(f.path)) }
	gone := &removed{}
	if err = b.remove(ctx, c.files, marks, marks, gone); bb.KindOf(err) == bb.Unavailable {
		return false, nil // the rest would look complete without its other files
	}
	if err == nil {
		err = b.remove(ctx, c.files, func(f file) bool { return !marks(f) }, marks, gone)
	}
	for _, d := range slices.Backward(c.dirs) {
		if err != nil {
			break
		}
		if err = ifPresent(b.o.Remove(ctx, d.path, &d.entry)); bb.KindOf(err) == bb.NotEmpty {
			err = nil // of a lost file, or one of a node that does not answer
		}
	}
	if gone.files.Load() > 0 {
		b.dropped(step, all[i].By, gone)
	}
	return gone.files.Load() > 0, err
}

// removed counts files that were removed.
type removed struct{ files, bytes atomic.Int64 }

// remove removes the files that complete a step, or the others. An owner that does not answer drops its files
// when it needs memory.
func (b *Buffer) remove(ctx context.Context, files []file, fits, marks func(file) bool, gone *removed) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(removals)
	for _, f := range files {
		if !fits(f) {
			continue
		}
		group.Go(func() error {
			err := b.o.Remove(ctx, f.path, &f.entry)
			switch kind := bb.KindOf(err); {
			case err == nil:
				gone.files.Add(1)
				gone.bytes.Add(f.entry.Size)
			case kind == bb.NotFound || kind == bb.Unavailable && !marks(f):
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// dropped counts and names a step that was dropped.
func (b *Buffer) dropped(step, by string, gone *removed) {
	files, bytes := gone.files.Load(), gone.bytes.Load()
	b.mu.Lock()
	delete(b.mu.superseded, step)
	delete(b.mu.looks, dirOf(step))
	b.readSoon(dirOf(step))
	b.mu.stats.Dropped += files
	b.mu.stats.DroppedBytes += bytes
	b.mu.Unlock()
	b.o.Dropped(files, bytes)
	b.o.Emit(bb.Event{
		Kind: bb.EventSuperseded, Buffer: b.name, Path: step, Bytes: bytes,
		Reason: bb.Count(files, "file") + " dropped from memory, never flushed: " + by + " is complete",
	})
}

// ifPresent is the error of a removal that ignores absent files.
func ifPresent(err error) error {
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}
