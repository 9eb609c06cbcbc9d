// Package flushrule holds back the steps that a buffer's flush rules keep in memory. When memory is needed, it
// drops steps that newer ones have superseded. It must never depend on the flush of a file, nor on the place of
// its bytes.
package flushrule

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/access"
	"forebay/bbd/dirty"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/walk"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// The fate of a step follows from the namespace alone (plan.JudgeSteps). So all daemons of a cluster decide
// alike, and a restart or another owner changes nothing. Each daemon decides for the series of which it holds
// back files:
//
//	flusher ──a file is held back──▶ Note ──▶ pass: read the series, judge ──▶ Steps ──▶ flusher
//	                                           │
//	                                           └─ memory is short: drop the oldest superseded step
//
// A series without new notes is read less and less often (refresh). A series without files that this daemon holds
// back is not read at all. Requests that list or describe files share one reading for a while (looks.go).
//
// A step is dropped by removing its files as a user would, the file that completes it first. The rest of an
// interrupted removal is no complete step.

// Paths is the part of package paths that flush rules use: the paths of a buffer, as readers see them.
type Paths interface {
	List(ctx context.Context, c access.Caller, path, after string, limit int) (entries []bb.Entry, more bool, err error)
	Walk(ctx context.Context, c access.Caller, op, path string, visit walk.Visitor) error
}

// Names is the part of a buffer's namespace that flush rules use.
type Names interface {
	ScanAll(ctx context.Context, visit func(bb.Entry) error) error
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Options are the environment of a Buffer. Its functions may be called concurrently.
type Options struct {
	Owners   owner.Node
	Serves   func(node bb.NodeID) bool // whether a node's daemon answers, by the last information
	Short    func() bool               // memory is short
	DirtyAge time.Duration             // of buffers that have none of their own; 0: 5 min
	Dropped  func(files, bytes int64)
	Emit     func(bb.Event)
	Warn     func(text string, args ...any)
	// Remove removes a file or an empty directory of any owner, if it still lies at the path, has the
	// generation of e and no writer. Otherwise it returns bb.NotFound. Readers that have it open keep
	// it.
	Remove func(ctx context.Context, path string, e *bb.Entry) error
	// Reconsider makes the flusher evaluate its held files again, at some paths and below them.
	Reconsider func(paths []string)
}

// Buffer has the steps of one buffer. Its methods may be called concurrently. Those of a buffer without flush
// rules do nothing.
type Buffer struct {
	o     Options
	name  string
	rules []bb.FlushRule
	dirty *dirty.Files
	paths Paths
	names Names

	steps   atomic.Pointer[plan.Steps]
	judging *semaphore.Weighted // of one: a pass, or a drain's reading in its place
	looking *semaphore.Weighted // of one: a reading for requests about states

	mu struct {
		lockorder.Mutex[lockrank.Leaf]
		series map[string]series // of the directories with files that are held back
		drains map[string]int    // paths that are drained, and how often
		pins   map[string]int    // steps that drains have begun to flush, and how many
		// superseded are the steps last read as superseded, without a noted file since.
		superseded map[string]cachedStep
		noted      map[string]bool // steps with a noted file, or a pin, since the pass began
		looks      map[string]look // the last readings of directories
		heard      uint64          // how many files were noted in all
		// since is when passes first found dirty files in steps that are held back.
		since map[string]time.Time
		stats Stats
	}
}

// Stats are the files of this node that flush rules have kept from the store.
type Stats struct {
	Superseded      int   // files that are in memory, and will not be flushed
	SupersededBytes int64 // of them
	Dropped         int64 // files that were dropped, since the start
	DroppedBytes    int64 // of them
}

// defaultDirtyAge is the dirty age of buffers without one of their own.
const defaultDirtyAge = 5 * time.Minute

// New returns the steps of a buffer, whose rules do not change. Dirty are the files of this node that wait for
// their flush.
func New(o Options, spec bb.Buffer, dirty *dirty.Files, paths Paths, names Names) *Buffer {
	b := &Buffer{o: o, name: spec.Name, rules: spec.Flush, dirty: dirty, paths: paths, names: names, judging: semaphore.NewWeighted(1), looking: semaphore.NewWeighted(1)}
	if len(b.rules) == 0 {
		return b
	}
	b.o.DirtyAge = cmp.Or(spec.DirtyAge, o.DirtyAge, defaultDirtyAge)
	b.mu.series, b.mu.superseded, b.mu.looks = map[string]series{}, map[string]cachedStep{}, map[string]look{}
	b.mu.drains, b.mu.pins, b.mu.noted = map[string]int{}, map[string]int{}, map[string]bool{}
	b.steps.Store(&plan.Steps{Rules: b.rules})
	return b
}

// Steps returns the last judgement of the steps, or nil if the buffer has no flush rules. It does not block.
func (b *Buffer) Steps() *plan.Steps { return b.steps.Load() }

// Stats returns the counts of this node.
func (b *Buffer) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.stats
}

// Note notes a file that was closed, or that the flusher has held back.
func (b *Buffer) Note(file string) {
	step, held := b.Steps().Holds(file)
	if !held {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	dir := dirOf(step)
	s := b.mu.series[dir]
	s.noted++
	b.mu.series[dir] = s
	b.mu.heard++
	delete(b.mu.looks, dir)
	b.mu.noted[step] = true
	delete(b.mu.superseded, step)
}

// dirOf returns the directory that a path lies in, "" for the root.
func dirOf(p string) string { return strings.TrimPrefix(path.Dir("/"+p), "/") }

// Drain is a drain of the held files at a path and below it.
type Drain struct {
	b     *Buffer
	below string
	// pinned are the steps that it has begun to flush. It finishes them even if newer ones are completed. Otherwise it
	// could end with neither on the store.
	pinned map[string]bool
}

// Drain releases the flushes of all steps at a path and below it that are not superseded, until the drain ends.
func (b *Buffer) Drain(ctx context.Context, below string) (*Drain, error) {
	d := &Drain{b, below, map[string]bool{}}
	if len(b.rules) == 0 {
		return d, nil
	}
	b.mu.Lock()
	b.mu.drains[below]++
	b.mu.Unlock()
	if _, err := d.Release(ctx); err != nil {
		d.End()
		return nil, err
	}
	return d, nil
}

// End ends the drain. It is called once.
func (d *Drain) End() {
	b := d.b
	if len(b.rules) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.drains[d.below]--; b.mu.drains[d.below] == 0 {
		delete(b.mu.drains, d.below)
	}
	for step := range d.pinned {
		if b.mu.pins[step]--; b.mu.pins[step] == 0 {
			delete(b.mu.pins, step)
		}
	}
	for dir := range b.mu.series {
		b.readSoon(dir)
	}
}

// pin keeps a step released for its flush until the drain ends, even if a newer step supersedes it.
func (d *Drain) pin(step string) {
	if d.pinned[step] {
		return
	}
	d.pinned[step] = true
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.b.mu.pins[step]++
	d.b.mu.noted[step] = true
	delete(d.b.mu.superseded, step)
}

// Flush releases files for their flush that were not superseded at the last reading, with all files of their steps that
// this node owns.
func (d *Drain) Flush(ctx context.Context, files []string) error {
	b := d.b
	for _, f := range files {
		step, rule, number, ok := bb.StepOf(b.rules, f)
		if ok && !rule.Due(number) {
			b.Note(f)
			d.pin(step)
		}
	}
	if len(d.pinned) == 0 {
		return nil
	}
	_, err := d.Release(ctx)
	return err
}

// Release releases the files that wait for their flush now, also those closed since the drain began. It reports
// whether any of them is in a drained step.
func (d *Drain) Release(ctx context.Context) (more bool, err error) {
	b := d.b
	if len(b.rules) == 0 {
		return false, nil
	}
	for _, f := range b.dirty.All() { // some may not have been held back yet
		dir, err := b.names.PathOf(ctx, f.At.Dir)
		if err == nil {
			b.Note(f.At.In(dir))
		} else if bb.KindOf(err) != bb.NotFound {
			return false, err
		}
	}
	if err := b.judging.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer b.judging.Release(1)
	all, err := b.refresh(ctx, anew)
	for i := range all {
		if s := &all[i]; s.StepState == plan.StepFlushed && s.Files > 0 && s.Drained && !s.Rule.Due(s.Number) {
			d.pin(s.Path) // while no other pass evaluates it
			more = true
		}
	}
	return more, err
}

// Superseded is the step of a file, and the newer one that has superseded it.
type Superseded struct{ Step, By string }

// Superseded returns those of some paths that lie in superseded steps, or name such a step with a slash at
// the end. It reads the namespace anew.
func (b *Buffer) Superseded(ctx context.Context, paths []string) (map[string]Superseded, error) {
	return b.Look().Superseded(ctx, paths)
}

// Look is a view of the steps that reads each series once, at its first use. It must not be used concurrently.
type Look struct {
	b      *Buffer
	series map[string][]judged
}

// Look begins one.
func (b *Buffer) Look() *Look { return &Look{b, map[string][]judged{}} }

// Superseded is Buffer.Superseded by the view's reading of a series.
func (l *Look) Superseded(ctx context.Context, paths []string) (map[string]Superseded, error) {
	b, found, series := l.b, map[string]Superseded{}, l.series
	for _, p := range paths {
		step, rule, number, ok := bb.StepOf(b.rules, p)
		if !ok || rule.Due(number) {
			continue
		}
		dir := dirOf(step)
		if _, ok := series[dir]; !ok {
			all, err := b.judge(ctx, dir, nil, plan.Circumstances{Now: time.Now()})
			if err != nil {
				return nil, err
			}
			series[dir] = all
		}
		for _, s := range series[dir] {
			if s.Path == step && s.StepState == plan.StepSuperseded {
				found[p] = Superseded{step, s.By}
			}
		}
	}
	return found, nil
}

// unsaved is a file whose content is not on the store.
type unsaved struct {
	bb.Entry
	path string     // "": it was removed meanwhile
	old  Superseded // where it is in a superseded step, and not lost
}

// unsaved returns the files of all nodes whose content is not on the store.
func (b *Buffer) unsaved(ctx context.Context) (all []unsaved, err error) {
	var paths []string
	err = b.names.ScanAll(ctx, func(e bb.Entry) error {
		if e.IsDir() || e.State() == bb.StateClean {
			return nil
		}
		dir, err := b.names.PathOf(ctx, e.Parent)
		if err != nil && bb.KindOf(err) != bb.NotFound {
			return err
		}
		p := ""
		if err == nil {
			p = e.Place().In(dir)
		}
		all, paths = append(all, unsaved{Entry: e, path: p}), append(paths, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	superseded, err := b.Superseded(ctx, paths)
	for i := range all {
		if u := &all[i]; u.State() == bb.StateDirty {
			u.old = superseded[u.path]
		}
	}
	return all, err
}

// Unsaved visits the files of all nodes whose content is not on the store, except superseded ones.
// A file that was removed meanwhile has the path "".
func (b *Buffer) Unsaved(ctx context.Context, visit func(e *bb.Entry, path string) error) error {
	all, err := b.unsaved(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		if u := &all[i]; u.old.By == "" {
			err = visit(&u.Entry, u.path)
		}
	}
	return err
}

// SupersededSteps returns the steps that are superseded, with the dirty files that all nodes have of them, in the order
// of their paths.
func (b *Buffer) SupersededSteps(ctx context.Context) ([]bb.SupersededStep, error) {
	if len(b.rules) == 0 {
		return nil, nil
	}
	all, err := b.unsaved(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bb.SupersededStep{}
	for i := range all {
		if u := &all[i]; u.old.By != "" {
			s := found[u.old.Step]
			found[u.old.Step] = bb.SupersededStep{Step: u.old.Step, By: u.old.By, Files: s.Files + 1, Bytes: s.Bytes + u.Size}
		}
	}
	steps := slices.SortedFunc(maps.Values(found), func(x, y bb.SupersededStep) int { return cmp.Compare(x.Step, y.Step) })
	return steps, nil
}

// describe counts this node's superseded files.
func (b *Buffer) describe(all []judged) (s Stats) {
	for i := range all {
		if all[i].StepState == plan.StepSuperseded {
			s.Superseded, s.SupersededBytes = s.Superseded+all[i].Files, s.SupersededBytes+all[i].Bytes
		}
	}
	return s
}

// pinned reports whether a drain has begun to flush a step.
func (b *Buffer) pinned(step string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.pins[step] > 0
}

// drained reports whether a step is drained, or a part of it.
func (b *Buffer) drained(step string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for below := range b.mu.drains {
		if bb.Overlaps(below, step) {
			return true
		}
	}
	return false
}
