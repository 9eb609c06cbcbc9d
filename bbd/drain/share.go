package drain

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"forebay/bbd/fate"
	"forebay/bbd/flushrule"
	"forebay/bbd/transfer"
	"forebay/flusher"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Here flushes this daemon's own files of a buffer. It leaves out those that cannot be saved.
func (s *Service) Here(ctx context.Context, b Buffer) error {
	_, err := s.scope(b, "").flush(ctx, silent())
	return err
}

// All flushes this daemon's own files of a buffer, and fails if not all is saved.
func (s *Service) All(ctx context.Context, b Buffer) error {
	steps, err := b.Rules().Drain(ctx, "")
	if err != nil {
		return err
	}
	defer steps.End()
	_, err = s.o.Flusher.Drain(ctx, b.Spec().Name, nil)
	return err
}

// silent returns a progress without a receiver.
func silent() *transfer.Progress {
	return transfer.NewProgress(func(*wire.Progress) error { return nil })
}

// share is this daemon's share of a drain.
func (c scope) share(ctx context.Context, m *wire.Drain, p *transfer.Progress) (*wire.Progress, error) {
	if m.Overwrite {
		dirty, _, err := c.dirty(ctx)
		if err != nil {
			return nil, err
		}
		// From now on it replaces any object on the store.
		c.s.o.Flusher.Overwrite(c.name, c.below, c.keys(dirty))
	}
	return c.flush(ctx, p)
}

func (c scope) keys(dirty map[content]located) []flusher.Key {
	keys := make([]flusher.Key, 0, len(dirty))
	for _, f := range dirty {
		keys = append(keys, c.key(&f.entry))
	}
	return keys
}

// flush flushes this daemon's own files there.
func (c scope) flush(ctx context.Context, p *transfer.Progress) (*wire.Progress, error) {
	steps, err := c.Rules().Drain(ctx, c.below)
	if err != nil {
		return nil, err
	}
	defer steps.End()
	if c.below != "" {
		return c.flushFiles(ctx, steps, p)
	}
	if err := c.CloseAbandoned(ctx); err != nil {
		return nil, err
	}
	show := func(now flusher.Progress) {
		p.Update(func(m *wire.Progress) {
			m.FilesTotal, m.FilesDone, m.BytesTotal, m.BytesDone = now.FilesTotal, now.FilesDone, now.BytesTotal, now.BytesDone
			if m.LastError = ""; now.LastError != nil {
				m.LastError = strings.ToValidUTF8(now.LastError.Error(), "\uFFFD")
			}
		})
	}
	report, err := c.s.o.Flusher.Drain(ctx, c.name, show)
	// Files that came meanwhile, as from a node that is gone, were held back until they were judged.
	for more, round := true, 0; more && err == nil && round < maxRounds; round++ {
		if more, err = steps.Release(ctx); more && err == nil {
			report, err = c.s.o.Flusher.Drain(ctx, c.name, show)
		}
	}
	if err != nil && report.Complete() {
		return nil, err
	}
	left, mended, err := c.Mend(ctx)
	if err == nil && mended { // files that have an entry again are queued
		report, err = c.s.o.Flusher.Drain(ctx, c.name, show)
		if !report.Complete() {
			err = nil
		}
	}
	if err != nil {
		// A drain whose time has ended in here names the files that it left, or is no success.
		if left = c.Unasked(err); ctx.Err() == nil || len(left) == 0 && report.Complete() {
			return nil, err
		}
	}
	c.nameUnsaved(ctx, &report)
	answer := p.Done()
	answer.BytesDone = max(answer.BytesDone, report.FlushedBytes)
	addReport(answer, &report)
	addUnexplained(answer, left)
	return answer, nil
}

// nameUnsaved finds the paths of files without a flush so far, since the flusher requests a path
// when a flush begins. It continues after ctx has ended, since the report of a drain that ran out
// of time needs them most.
func (c scope) nameUnsaved(ctx context.Context, report *flusher.Report) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nameTime)
	defer cancel()
	for i := range report.Unsaved[:min(len(report.Unsaved), transfer.MaxNamed)] {
		if u := &report.Unsaved[i]; u.Path == "" {
			u.Path = cmp.Or(c.DirtyPath(ctx, u.Key.File), "file "+u.Key.File.String())
		}
	}
}

// nameTime bounds the search for paths of a report.
const nameTime = 5 * time.Second

const (
	// requeueAfter is how long a dirty file may be missing in the flusher's queue before it is
	// put there, since between its close and that there is a moment.
	requeueAfter = 2 * time.Second
	// pollEvery is the pause between two checks of files that are between two states.
	pollEvery = 20 * time.Millisecond
)

// flushFiles flushes the files that are this daemon's own there by the namespace, file by file.
func (c scope) flushFiles(ctx context.Context, steps *flushrule.Drain, p *transfer.Progress) (*wire.Progress, error) {
	if err := c.CloseAbandoned(ctx); err != nil {
		return nil, err
	}
	unsaved, _, err := c.Mend(ctx)
	if err != nil {
		return nil, err
	}
	unsaved = slices.DeleteFunc(unsaved, func(u fate.Unexplained) bool { return u.Path != "" && !c.has(u.Path) })
	dirty, report, err := c.dirty(ctx)
	if err != nil {
		return nil, err
	}
	// A step that is superseded from here on is flushed nevertheless. flushAll waits until it is clean.
	if err := steps.Flush(ctx, pathsOf(slices.Collect(maps.Values(dirty)))); err != nil {
		return nil, err
	}
	if err := c.flushAll(ctx, p, dirty, &report); err != nil {
		return nil, err
	}
	report.UnsavedCount = len(report.Unsaved)
	answer := p.Done()
	addReport(answer, &report)
	addUnexplained(answer, unsaved)
	return answer, nil
}

// flushAll flushes contents, and waits until none is dirty or ctx ends. It adds those that are left to the
// report.
func (c scope) flushAll(ctx context.Context, p *transfer.Progress, dirty map[content]located, report *flusher.Report) error {
	var files, bytes int64
	for _, f := range dirty {
		files, bytes = files+1, bytes+f.entry.Size
	}
	p.Update(func(m *wire.Progress) { m.FilesTotal, m.BytesTotal = files, bytes })
	for began := time.Now(); len(dirty) > 0 && ctx.Err() == nil; {
		for _, u := range c.s.o.Flusher.FlushFirst(ctx, c.name, c.keys(dirty), func(left, size int64) {
			p.Update(func(m *wire.Progress) { m.FilesDone, m.BytesDone = files-left, bytes-size })
		}) {
			of := content{u.Key.File, u.Key.Generation}
			u.Path = cmp.Or(u.Path, dirty[of].path)
			delete(dirty, of)
			report.Unsaved = append(report.Unsaved, u)
		}
		if err := c.stillDirty(ctx, dirty); err != nil && ctx.Err() == nil {
			return err
		}
		// The file is dirty and not queued. It is recorded as clean or queued a moment later, or
		// never.
		if time.Since(began) > requeueAfter {
			for _, f := range dirty {
				c.Enqueue(ctx, &f.entry)
			}
		}
		if len(dirty) > 0 {
			select {
			case <-time.After(pollEvery):
			case <-ctx.Done():
			}
		}
	}
	for _, f := range dirty {
		report.Unsaved = append(report.Unsaved, flusher.Unsaved{Path: f.path, Bytes: f.entry.Size})
	}
	return nil
}

// dirty returns this node's dirty contents there that are not superseded, and reports those kept back, or open.
func (c scope) dirty(ctx context.Context) (dirty map[content]located, report flusher.Report, err error) {
	dirty = map[content]located{}
	keep := c.Spec().NoFlush
	note := func(names *[]string, count *int, path string) {
		if *count++; len(*names) < transfer.MaxNamed {
			*names = append(*names, path)
		}
	}
	found, err := c.files(ctx)
	if err != nil {
		return dirty, report, err
	}
	superseded, err := c.Rules().Superseded(ctx, pathsOf(found))
	for _, f := range found {
		state := f.entry.State()
		_, old := superseded[f.path]
		_, excluded := plan.Excluded(keep, f.path)
		switch {
		case c.OwnedElsewhere(&f.entry):
		case state == bb.StateOpen:
			note(&report.Open, &report.OpenCount, f.path)
		case state == bb.StateDirty && old: // the drain names its step
		case state == bb.StateDirty && excluded:
			note(&report.Excluded, &report.ExcludedCount, f.path)
		case state == bb.StateDirty:
			dirty[contentOf(&f.entry)] = f
		}
	}
	return dirty, report, err
}

// stillDirty leaves those contents that are this node's, and dirty.
func (c scope) stillDirty(ctx context.Context, dirty map[content]located) error {
	if len(dirty) == 0 {
		return nil
	}
	found, err := c.files(ctx)
	if bb.KindOf(err) == bb.NotFound && c.removed(ctx) { // or renamed
		clear(dirty)
		return nil
	}
	if err != nil {
		return err
	}
	still := map[content]bool{}
	for _, f := range found {
		if f.entry.State() == bb.StateDirty && !c.OwnedElsewhere(&f.entry) {
			still[contentOf(&f.entry)] = true
		}
	}
	maps.DeleteFunc(dirty, func(of content, _ located) bool { return !still[of] })
	return nil
}
